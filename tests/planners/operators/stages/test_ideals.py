"""Pipelines of stages: no better ones among all placements, and what one order, one limit and one colour change."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from meshwright.errors import PlanError
from meshwright.planners.operators.place import PLACEMENT_PLANNERS, place
from meshwright.planners.operators.request import PlacementRequest
from meshwright.planners.operators.stages.ideals import num_downsets
from meshwright.planners.operators.stages.milp import milp
from meshwright.simulation.operators.instance import OperatorInstance

from ....draws import draws
from ....oracles.operators.values import is_contiguous, is_pipeline, legal_placements, max_load_s
from ..instances import chain, fork, short_and_long, small_instances

THROUGHPUT = PlacementRequest("throughput")
ROOM_FOR_HIGHS = 2e-6


def found_by(planner, instance):
    try:
        return place(instance, planner, THROUGHPUT)
    except PlanError:
        return None


def test_a_chain_is_cut_in_the_middle():
    # 2 s of ops and 1 s of the tensor on both sides.
    for planner in ("ideals", "linear", "milp", "milp-contiguous"):
        result = place(chain(), planner, THROUGHPUT)
        assert result.value_s == pytest.approx(3)
        assert result.device_of.tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])


def test_the_downsets_of_a_fork_are_counted_and_refused_beyond_the_limit():
    # None; a; ab, ac; abc; abcd.
    assert num_downsets(fork()) == 6
    with pytest.raises(PlanError, match="the graph has 6 downsets, and at most 5 are looked at"):
        place(fork(), "ideals", replace(THROUGHPUT, max_ideals=5))
    wide = OperatorInstance.of_outputs("wide", np.ones((30, 2)), [], 0.0)
    with pytest.raises(PlanError, match="more than 2,000,000 downsets"):
        place(wide, "ideals", THROUGHPUT)


def test_backward_ops_stand_with_their_forward_ones():
    # Two layers of 1 s forward and 2 s backward, outputs and gradients of 1 GB. One layer on each device: 1 + 2 s of ops,
    # 1 s of the activation and 1 s of the gradient on both sides make 5 s; both on one make 6 s.
    times_s = np.array([[1.0] * 2, [1.0] * 2, [2.0] * 2, [2.0] * 2])
    edges = [(0, 1), (1, 2), (2, 3)]
    training = OperatorInstance.of_outputs(
        "training",
        times_s,
        edges,
        1e9,
        bandwidth_bytes_per_s=1e9,
        group=[0, 1, 1, 0],
        is_backward=np.array([False, False, True, True]),
    )
    result = place(training, "ideals", THROUGHPUT)
    assert result.value_s == pytest.approx(5)
    assert result.device_of[0] == result.device_of[3] != result.device_of[1] == result.device_of[2]
    turned = replace(training, is_backward=np.array([True, False, True, True]))
    with pytest.raises(PlanError, match=r"a backward op feeds a forward one, so no stages are in order \(got 'op0'\)"):
        place(turned, "ideals", THROUGHPUT)


def test_too_many_devices_that_all_differ_are_refused():
    unlike = OperatorInstance.of_outputs("unlike", np.arange(1.0, 33.0).reshape(1, 32) * np.ones((2, 1)), [(0, 1)], 1.0)
    with pytest.raises(PlanError, match="there are 4,294,967,296 ways to use devices that differ"):
        place(unlike, "ideals", THROUGHPUT)


@short_and_long(25, small_instances(most_ops=6), small_instances(most_ops=8))
def test_no_pipeline_is_better(instance):
    values = [max_load_s(instance, each) for each in legal_placements(instance) if is_pipeline(instance, each)]
    exact, along = found_by("ideals", instance), found_by("linear", instance)
    if not values:
        assert exact is None
        assert along is None
        return
    assert exact.value_s == pytest.approx(min(values))
    assert exact.value_s == pytest.approx(max_load_s(instance, exact.device_of))
    assert is_pipeline(instance, exact.device_of)
    if along is not None:
        assert is_pipeline(instance, along.device_of)
        assert along.value_s >= exact.value_s * (1 - 1e-12)
        assert along.value_s == pytest.approx(max_load_s(instance, along.device_of))


@short_and_long(12, small_instances(most_ops=5), small_instances(most_ops=6))
def test_no_placement_is_better_than_what_the_integer_program_gives(instance):
    legal = list(legal_placements(instance))
    for planner, family in (("milp", legal), ("milp-contiguous", [each for each in legal if is_contiguous(instance, each)])):
        result = found_by(planner, instance)
        if not family:
            assert result is None
            continue
        assert result.is_optimal
        assert result.value_s == pytest.approx(min(max_load_s(instance, each) for each in family), rel=ROOM_FOR_HIGHS)
        assert tuple(result.device_of) in family


def test_a_program_that_runs_out_of_time_gives_what_it_has_and_its_gap():
    rng = np.random.default_rng(0)
    edges = [(a, b) for a in range(60) for b in range(a + 1, 60) if rng.random() < 0.08]
    hard = OperatorInstance.of_outputs(
        "hard", np.repeat(rng.uniform(1, 2, (60, 1)), 4, axis=1), edges, rng.uniform(0, 1, 60), bandwidth_bytes_per_s=1.0
    )
    result = milp(hard, replace(THROUGHPUT, budget_s=0.3))
    assert not result.is_optimal
    assert result.value_s <= place(hard, "linear", THROUGHPUT).value_s
    assert result.note.startswith("all placements; the time ended with a gap of ")
    assert 0 < result.optimality_gap < 1


@draws(15)
@given(small_instances(most_ops=6))
def test_ops_of_a_group_stay_together_in_every_planner(instance):
    for planner, message in PLACEMENT_PLANNERS.items():
        for objective in message.objectives:
            try:
                result = place(instance, planner, PlacementRequest(objective, budget_s=0.02))
            except PlanError:
                continue
            devices = {(group, device) for group, device in zip(instance.group.tolist(), result.device_of.tolist(), strict=True)}
            assert len(devices) == instance.num_groups
