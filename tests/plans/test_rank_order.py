"""Orders in which ranks are numbered: coordinates and strides, and plans whose ranks run in them."""

import numpy as np
import pytest

from meshwright.errors import PlanError
from meshwright.jobs.job import Job
from meshwright.plans import Layout, check, layout_plan, place
from meshwright.plans.rank_order import DEFAULT_ORDER, ORDERS, check_order, coordinates, distinct_orders, numbers, stages, strides

LAYOUT = Layout(tp=2, cp=2, dp=3, pp=4, ep=3, micro_batch=1, global_batch=3)


def test_the_default_order_is_the_layouts_own():
    assert coordinates(LAYOUT) == tuple(LAYOUT.coordinates(rank) for rank in range(LAYOUT.world))
    assert ORDERS[0] == DEFAULT_ORDER
    assert len(set(ORDERS)) == 24


def test_strides_worked_by_hand():
    # pp fastest (4 stages), then tp (2), then dp (3), then cp
    assert strides(LAYOUT, "pp-tp-dp-cp") == {"pp": 1, "tp": 4, "dp": 8, "cp": 24}


def test_every_order_fills_the_whole_grid_and_keeps_each_place_its_experts():
    own = sorted((p.pp, p.dp, p.cp, p.tp, p.ep) for p in coordinates(LAYOUT))
    for order in ORDERS:
        places = coordinates(LAYOUT, order)
        assert sorted((p.pp, p.dp, p.cp, p.tp, p.ep) for p in places) == own, order
        fastest = order.split("-")[0]
        assert getattr(places[1], fastest) == 1
        assert places[1].model_copy(update={fastest: 0, "ep": 0}) == places[0]


def test_the_number_of_a_rank_is_where_its_place_stands_in_the_order():
    own = list(coordinates(LAYOUT))
    for order in ORDERS:
        places = coordinates(LAYOUT, order)
        assert [places[number] for number in numbers(LAYOUT, order)] == own, order
        assert stages(LAYOUT, order).tolist() == [place.pp for place in places], order


def test_orders_that_number_all_ranks_alike_stand_once():
    assert len(distinct_orders(LAYOUT, ORDERS)) == 24
    two = Layout(dp=2, pp=2, micro_batch=1, global_batch=2)
    assert distinct_orders(two, ORDERS) == ("tp-cp-dp-pp", "tp-cp-pp-dp")


def test_an_order_that_is_none_is_refused_with_the_nearest_one():
    with pytest.raises(PlanError, match=r"order names tp, cp, dp and pp once each .*; did you mean 'tp-cp-pp-dp'"):
        check_order("tp-cp-dp-dp")


@pytest.mark.parametrize("order", ["pp-dp-cp-tp", "dp-tp-pp-cp"])
def test_a_plan_in_another_order_is_legal_and_its_stages_hold_the_ranks_of_their_coordinates(chain, two_hosts, order):
    layout = Layout(pp=2, dp=4, micro_batch=4, global_batch=32)
    plan = layout_plan(Job(chain, 1), two_hosts, layout, place(two_hosts, np.arange(8)), order=order)
    check(plan)
    for stage in plan.stages:
        assert {plan.ranks[rank].coordinates.pp for rank in stage.ranks} == {stage.stage}
        assert len(stage.ranks) == 4
