"""Megatron's process groups: worked examples, laws, and megatron-core's own where it is installed."""

from types import ModuleType

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.costs.process_groups.rank_groups import stage_groups
from meshwright.plans.frameworks.megatron_groups import (
    DEFAULT_ORDER,
    MAPPED_ORDER,
    allows,
    dense_sizes,
    expert_sizes,
    groups,
    rank_coordinates,
    rank_groups,
)
from meshwright.plans.partition import Layout, ParallelDegrees

from ...export.frameworks import megatron_core

SIZES = st.sampled_from([1, 2, 3, 4])
AXES = ["tp", "cp", "dp", "pp", "dp-cp", "tp-pp", "tp-cp", "tp-dp", "tp-dp-cp", "tp-cp-dp-pp"]


@st.composite
def degrees(draw, with_experts=True):
    tp, cp, dp, pp = (draw(SIZES) for _ in range(4))
    etp = draw(st.sampled_from([n for n in range(1, tp + 1) if tp % n == 0] if with_experts else [tp]))
    ranks = tp * dp * cp // etp
    divisors = [ep for ep in range(1, ranks + 1) if ranks % ep == 0] if with_experts else [1]
    return ParallelDegrees(pp=pp, dp=dp, cp=cp, ep=draw(st.sampled_from(divisors)), etp=etp, tp=tp)


def test_two_by_two_by_two_worked_by_hand():
    # tp fastest, then pp, then dp: rank = tp + 2 pp + 4 dp
    sizes = {"tp": 2, "pp": 2, "dp": 2}
    assert rank_groups(sizes, "tp-pp-dp", "dp").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert rank_groups(sizes, "tp-pp-dp", "tp").tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert rank_groups(sizes, "tp-pp-dp", "tp-pp").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_the_sixteen_ranks_of_megatrons_own_documentation():
    # "16 GPUs, 2 for tensor parallelism, 4 for the pipeline": 2 replicas, groups as its docstring lists them
    result = groups(ParallelDegrees(tp=2, pp=4, dp=2), DEFAULT_ORDER)
    assert result["dp"].tolist() == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert result["tp"].tolist() == [[first, first + 1] for first in range(0, 16, 2)]
    assert result["pp"].tolist() == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]


@given(degrees(), st.sampled_from([DEFAULT_ORDER, MAPPED_ORDER]))
def test_each_kind_of_group_holds_every_rank_once(given_degrees, order):
    for members in groups(given_degrees, order).values():
        assert sorted(members.ravel().tolist()) == list(range(given_degrees.world))


@given(degrees())
def test_the_default_order_is_that_of_the_layout(given_degrees):
    d = given_degrees
    layout = Layout(tp=d.tp, pp=d.pp, dp=d.dp, cp=d.cp, ep=d.ep, etp=d.etp, micro_batch=1, global_batch=d.dp)
    expected = [[getattr(layout.coordinates(rank), axis) for axis in ("pp", "dp", "cp", "ep", "tp")] for rank in range(d.world)]
    assert rank_coordinates(d, DEFAULT_ORDER).tolist() == expected
    result = groups(d, DEFAULT_ORDER)
    for ours, axis in (("tp", "tp"), ("cp", "cp"), ("ep", "ep"), ("dp-cp", "dp_cp"), ("expert-dp", "expert_dp")):
        of_stages = [stage_groups(layout, axis) + layout.first_rank(stage) for stage in range(layout.pp)]
        assert {tuple(row) for row in result[ours].tolist()} == {tuple(row) for row in np.concatenate(of_stages).tolist()}


def test_the_mapping_is_for_neither_experts_nor_context_slices_in_a_pipeline():
    assert allows(ParallelDegrees(pp=2, dp=2, tp=2), MAPPED_ORDER)
    assert not allows(ParallelDegrees(pp=2, dp=2, ep=2), MAPPED_ORDER)
    # dense ranks have pp at a stride of tp x cp, expert ranks at a stride of tp: the pipelines differ
    assert not allows(ParallelDegrees(pp=2, dp=2, cp=2), MAPPED_ORDER)
    assert allows(ParallelDegrees(pp=1, dp=2, cp=2), MAPPED_ORDER)


@given(degrees())
def test_the_default_order_is_always_allowed(given_degrees):
    assert allows(given_degrees, DEFAULT_ORDER)


@pytest.fixture(scope="module")
def parallel_state() -> ModuleType:
    result = megatron_core.parallel_state()
    if result is None:
        pytest.skip("megatron-core is not installed (pip install --no-deps megatron-core==0.16.1)")
    return result


@pytest.mark.scheduler("megatron")
@given(degrees(), st.sampled_from([DEFAULT_ORDER, MAPPED_ORDER, "tp-pp-dp-cp-ep", "pp-tp-cp-ep-dp"]))
def test_groups_are_those_of_megatron_core(parallel_state, given_degrees, order):
    for sizes, kinds in (
        (dense_sizes(given_degrees), AXES),
        (expert_sizes(given_degrees), ["ep", "tp-ep", "dp", "tp-ep-pp", "pp", "tp"]),
    ):
        generator = parallel_state.RankGenerator(**sizes, order=order)
        for kind in kinds:
            assert rank_groups(sizes, order, kind).tolist() == generator.get_ranks(kind), (sizes, kind)


@pytest.mark.scheduler("megatron")
@given(degrees())
def test_orders_are_allowed_as_megatron_core_checks_them(parallel_state, given_degrees):
    """megatron-core wants pp last, or one pipeline stage, or equal data parallelism, and one pipeline for both kinds."""
    d = given_degrees
    assume(d.ep == 1)
    dense = parallel_state.RankGenerator(**dense_sizes(d), order=MAPPED_ORDER)
    expert = parallel_state.RankGenerator(**expert_sizes(d), order=MAPPED_ORDER)
    starts = (d.pp == 1 or expert_sizes(d)["dp"] == d.dp) and dense.get_ranks("pp") == expert.get_ranks("pp")
    assert allows(d, MAPPED_ORDER) == starts


@given(degrees())
def test_coordinates_tell_the_groups_again(given_degrees):
    places = rank_coordinates(given_degrees, DEFAULT_ORDER)
    for axis, column in (("pp", 0), ("dp", 1), ("cp", 2), ("tp", 4)):
        # the same place along all dense axes but one
        others = [c for c in (0, 1, 2, 4) if c != column]
        for members in groups(given_degrees, DEFAULT_ORDER)[axis]:
            assert (np.unique(places[members][:, others], axis=0).shape[0]) == 1
            assert places[members, column].tolist() == list(range(len(members)))
