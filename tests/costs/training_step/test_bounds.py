"""Groups of ranks in any order, against a count on the devices themselves; remembered kernels."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.process_groups.regular_groups import groups_of, is_regular
from meshwright.costs.training_step.kernels import kernel_model
from meshwright.costs.work.operations import Product, Sweep
from meshwright.devices import device_type
from meshwright.plans import Layout
from meshwright.plans.rank_order import ORDERS, coordinates

powers = st.sampled_from([1, 2, 4])


@given(powers, powers, powers, powers, st.sampled_from([2, 4, 8]), st.sampled_from(ORDERS))
def test_a_groups_ranks_on_a_host_are_those_that_stand_there(tp, cp, dp, pp, per_host, order):
    layout = Layout(tp=tp, cp=cp, dp=dp, pp=pp, micro_batch=1, global_batch=dp)
    if layout.world % min(per_host, layout.world) or not is_regular(layout, per_host, order):
        return
    groups, places = groups_of(layout, per_host, order), coordinates(layout, order)
    host = np.arange(layout.world) // per_host
    for axis, fixed in (("tp", ("cp", "dp", "pp")), ("cp", ("tp", "dp", "pp")), ("dp_cp", ("tp", "pp"))):
        mine = [r for r, place in enumerate(places) if all(getattr(place, a) == getattr(places[0], a) for a in fixed)]
        counts = np.unique(host[mine], return_counts=True)[1]
        assert set(counts.tolist()) == {groups[axis].per_host}
        assert len(mine) == groups[axis].size
        if groups[axis].per_host > 1:
            assert set(np.diff(mine)[: groups[axis].per_host - 1].tolist()) == {groups[axis].stride}
    stages = [r for r, place in enumerate(places) if (place.tp, place.cp, place.dp) == (0, 0, 0)]
    is_inside = len(set(host[stages].tolist())) == 1
    assert groups["pp"].per_host == (2 if is_inside and pp > 1 else 1)


def test_the_stages_of_one_host_hand_on_inside_it_and_so_do_its_ends():
    inside = groups_of(Layout(pp=8, micro_batch=1, global_batch=1), 8)
    assert (inside["pp"].per_host, inside["ends"].per_host) == (2, 2)
    across = groups_of(Layout(pp=16, micro_batch=1, global_batch=1), 8)
    # One transfer leaves each host at a time: the only rank of the stage at its edge has the cards for itself.
    assert (across["pp"].per_host, across["pp"].side_by_side) == (1, 1)


def test_part_of_a_host_is_a_host():
    assert all(is_regular(Layout(tp=2, dp=3, micro_batch=1, global_batch=3), 8, order) for order in ORDERS)


def test_ranks_that_straddle_hosts_are_irregular():
    assert not is_regular(Layout(tp=3, dp=8, micro_batch=1, global_batch=8), 8)
    assert is_regular(Layout(tp=3, dp=8, micro_batch=1, global_batch=8), 8, "dp-tp-cp-pp")
    # Slices of the sequence between those of the layers: two pairs of copies on a host, unevenly apart.
    assert not is_regular(Layout(cp=2, tp=2, dp=2, micro_batch=1, global_batch=2), 8, "cp-tp-dp-pp")


def test_a_product_costs_the_same_when_it_is_remembered():
    stored, model = kernel_model(device_type("a100")), kernel_model(device_type("a100"))
    for item in (Product("a", 4096, 1024, 512), Product("b", 4096, 1024, 512, is_attention=True), Sweep("c", 1e9)):
        for width in (2, 4):
            assert stored.kernel_s(item, width) == stored.kernel_s(item, width) == model.kernel_s(item, width)


@pytest.mark.parametrize("device", ["a100", "h100"])
def test_products_that_differ_in_anything_but_their_name_are_remembered_apart(device):
    stored, model, plain = kernel_model(device_type(device)), kernel_model(device_type(device)), Product("a", 4096, 1024, 512)
    fields = {"m": 4000, "n": 1000, "k": 500, "batch": 2, "is_weight": True, "is_attention": True, "sum_bytes": 4, "row_bytes": 2}
    fields |= {"is_fp8": True} if model.constants.fp8 is not None else {}
    assert stored.kernel_s(plain) == stored.kernel_s(replace(plain, name="b"))
    assert len(stored._known) == 1
    for name, value in fields.items():
        other = replace(plain, **{name: value})
        assert stored.kernel_s(other) == model.product_s(other), name
