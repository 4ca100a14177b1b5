"""Bounds on which the search's pruning rests, against prices."""

from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.costs.process_groups.group_network import HostNetwork, group_network
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.bounds import BoundedPricer
from meshwright.costs.training_step.lower_bound import LowerBound
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.work import describe
from meshwright.planners.layouts.request import SearchRequest
from meshwright.planners.layouts.results import layout_text
from meshwright.planners.layouts.space import LayoutSpace, RegularOrders
from meshwright.plans import Layout
from meshwright.plans.rank_order import distinct_orders

from ...costs.uneven import drawn_matrix, matrix_of
from ...draws import draws
from .small_layouts import A100, GPT, LENGTH, MIXED, MIXTURE, PAIRS

FABRICS = {
    "pairs": (PAIRS, 8),
    "hosts of four": (HostNetwork(4, 300e9, 100e9), 8),
    "slow cards": (HostNetwork(1, 300e9, 1e8), 4),
    "ring on a Clos": (group_network(load_cluster("preset:dgx-a100-8x8"), CostSettings(collectives="ring")), 16),
    "4 to 1": (group_network(load_cluster("preset:clos-64-4to1")), 16),
    "RAMP": (group_network(load_cluster("preset:ramp-4x4x2")), 8),
    "matrix": (group_network(drawn_matrix(1, devices_per_host=2)), 8),
}


@cache
def layouts_on(shape, name):
    """All that a search tries on one of the networks."""
    wires, world = FABRICS[name]
    return list(LayoutSpace(shape, LENGTH, 8, wires.devices_per_host).layouts(world))


TEN = GPT.model_copy(update={"num_layers": 10})
SIX = GPT.model_copy(update={"num_layers": 6})  # of four stages two have twice the layers of the others


@draws(40)
@given(
    data=st.data(),
    shape=st.sampled_from([GPT, SIX, MIXTURE, MIXED]),
    name=st.sampled_from(sorted(FABRICS)),
    slowdown=st.sampled_from([1.126, 2.5]),
)
def test_no_bound_is_above_the_price_in_any_rank_order(data, shape, name, slowdown):
    wires, world = FABRICS[name]
    layout = data.draw(st.sampled_from(layouts_on(shape, name)))
    orders = LayoutSpace(shape, LENGTH, 8, wires.devices_per_host).rank_orders(layout, wires)
    assume(orders)
    order = data.draw(st.sampled_from(orders))
    work = describe(shape, layout, LENGTH)
    base = layout.model_copy(update={"schedule": "1f1b", "virtual_stages": 1, "zero": 0, "overlap_pp": False})
    optimist, pricer = LowerBound(A100, wires, slowdown, world=world), BoundedPricer(A100, wires, slowdown, order)
    assert (step_s := pricer.step_s(work)) == Pricer(A100, wires, slowdown, order).step_s(work)
    same = base.model_copy(update={"zero": layout.zero, "shard_group": layout.shard_group})
    for one in () if layout.is_bidirectional else (base, same):  # which are bounded one by one
        assert max(optimist.node_s(describe(shape, one, LENGTH)), optimist.gathering_s(describe(shape, one, LENGTH))) <= step_s
    assert optimist.mean_s(describe(shape, base, LENGTH)) <= step_s
    for one in ("zb-h1", "zb-2p") if layout.parts_gradients else (layout.schedule,):  # which share bounds
        same = describe(shape, layout.model_copy(update={"schedule": one}), LENGTH)
        assert max(optimist.bound_s(same), pricer.bound_s(same)) <= pricer.step_s(same)


SPARSE = MIXTURE.model_copy(update={"vocabulary": 64, "feed_forward": 256, "experts_per_token": 1})
APART = HostNetwork(1, 300e9, 1e7)  # a host has one device and a card too slow for it


@pytest.mark.parametrize(
    ("shape", "keep", "slowdown"),
    [(SPARSE, "dp=4,tp=1,cp=1,zero=3,micro_batch=1", 1.0), (TEN, "pp=2,zero=3,overlap_pp=true", 2.5)],
)
def test_no_family_is_bounded_above_its_layouts_where_messages_take_longest(shape, keep, slowdown):
    space, optimist = LayoutSpace(shape, LENGTH, 12, 1, SearchRequest(keep=keep)), LowerBound(A100, APART, slowdown, world=4)
    assert any(space.layouts(4))
    for layout in space.layouts(4):
        base = describe(shape, layout.model_copy(update={"schedule": "1f1b", "virtual_stages": 1}), LENGTH, checks=False)
        orders = space.rank_orders(layout, APART)
        step_s = min(Pricer(A100, APART, slowdown, order).step_s(describe(shape, layout, LENGTH)) for order in orders)
        assert max(optimist.node_s(base), optimist.gathering_s(base)) <= step_s, layout_text(layout)


def test_bounds_on_uneven_hosts_are_those_of_the_layout_whatever_was_bounded_before():
    places = np.arange(8)
    is_near = (abs(places[:, None] - places) == 2) & (places[:, None] // 4 == places // 4)
    wires = group_network(matrix_of(np.where(is_near, 100.0, 0.1), np.full((8, 8), 5.0)))
    first, second = (Layout(tp=2, dp=8 // (2 * pp), pp=pp, micro_batch=1, global_batch=64) for pp in (1, 2))
    work, after, fresh = describe(GPT, second, LENGTH), *(LowerBound(A100, wires, world=8) for _ in range(2))
    after.bound_s(describe(GPT, first, LENGTH))
    assert (after.node_s(work), after.bound_s(work)) == (fresh.node_s(work), fresh.bound_s(work))


def test_orders_that_number_ranks_alike_are_priced_once_where_uplinks_are_shared():
    wires = FABRICS["4 to 1"][0]
    for tp, dp, pp in ((1, 8, 8), (1, 1, 64), (8, 8, 1), (2, 4, 8)):
        layout = Layout(tp=tp, dp=dp, pp=pp, micro_batch=1, global_batch=8)
        result = RegularOrders(wires.devices_per_host, SearchRequest()).of(layout, wires)
        assert distinct_orders(layout, result) == result
