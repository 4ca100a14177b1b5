"""Rank orders that a search prices."""

from meshwright.clusters import load_cluster
from meshwright.costs.process_groups.group_network import group_network
from meshwright.planners.layouts.request import SearchRequest
from meshwright.planners.layouts.space import RegularOrders
from meshwright.plans import Layout
from meshwright.plans.rank_order import distinct_orders


def test_orders_that_number_ranks_alike_are_priced_once_where_uplinks_are_shared():
    wires = group_network(load_cluster("preset:clos-64-4to1"))
    for tp, dp, pp in ((1, 8, 8), (1, 1, 64), (8, 8, 1), (2, 4, 8)):
        layout = Layout(tp=tp, dp=dp, pp=pp, micro_batch=1, global_batch=8)
        result = RegularOrders(wires.devices_per_host, SearchRequest()).of(layout, wires)
        assert distinct_orders(layout, result) == result
