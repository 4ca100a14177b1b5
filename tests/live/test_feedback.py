"""Laws of the layer of observed step times, of deadlines that are held by it, and of the alarm for slow jobs."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import PlanError
from meshwright.live.decisions import JobDecision, JobRequest, Observation, ObservedFactor
from meshwright.live.feedback.alarm import SLOWER, STEPS_ON_END, slow_stretch
from meshwright.live.feedback.calibration import calibration, factor_of
from meshwright.live.feedback.figures import plan_as_observed, with_observed
from meshwright.live.feedback.runs import LEAST_STEPS, WARM_UP_STEPS, JobRun, observed_step_s
from meshwright.plans import PlacementPlan

REQUEST = JobRequest(job="zoo:resnet18", batch=8)


def run(ratio, *, graph="g", hosts=("a", "a"), predicted_s=0.5):
    """A run whose steps took longer than predicted."""
    return JobRun("d", REQUEST, graph, hosts, predicted_s, None if ratio is None else ratio * predicted_s, None, None, "")


def steps(times_s, rank=0, first=0):
    """Observations of steps one after the other."""
    return [Observation(step=first + k, step_s=float(t), rank=rank) for k, t in enumerate(times_s)]


def test_factors_are_medians_drawn_to_one_by_three_runs():
    assert factor_of([1.3]) == pytest.approx((1.3 + 3) / 4)
    assert factor_of([1.2, 1.3, 9.0]) == pytest.approx((3 * 1.3 + 3) / 6)


def test_steps_of_the_warm_up_and_runs_that_are_too_short_do_not_count():
    warm, counted = [9.0] * WARM_UP_STEPS, [2.0] * LEAST_STEPS
    assert observed_step_s(steps(warm + counted)) == 2.0
    assert observed_step_s(steps(warm + counted[1:])) is None
    assert observed_step_s(steps(warm + counted) + steps([3.0] * 40, rank=1)) == 3.0, "a step takes as long as its slowest rank"


def test_a_truth_is_recovered_within_its_spread_and_the_layer_is_accepted():
    rng = np.random.default_rng(0)
    result = calibration([run(1.3 * np.exp(rng.normal(0, 0.03))) for _ in range(40)])
    (row,) = result.rows
    assert result.is_accepted
    assert row.low <= 1.3 <= row.high
    assert row.ratio == pytest.approx(1.3, rel=0.02)
    assert 1.25 < row.factor < row.ratio
    assert result.mean_error_as_observed < 0.1 < result.mean_error
    assert result.factors("g") == (ObservedFactor(2, True, row.factor),)
    assert result.factors("another") == ()


def test_each_run_is_predicted_by_the_others_alone():
    result = calibration([run(1.1), run(1.5)])
    assert result.mean_error == pytest.approx((abs(1 / 1.1 - 1) + abs(1 / 1.5 - 1)) / 2)
    assert result.mean_error_as_observed == pytest.approx((abs(1.125 / 1.1 - 1) + abs(1.025 / 1.5 - 1)) / 2)
    assert result.num_compared == 2


def test_kinds_are_told_apart_by_graph_number_of_devices_and_hosts():
    result = calibration([run(1.3), run(1.1, hosts=("a", "b")), run(1.2, hosts=("a",)), run(2.0, graph="h"), run(None)])
    assert [(row.graph, row.num_devices, row.is_on_one_host) for row in result.rows] == [
        ("g", 1, True),
        ("g", 2, False),
        ("g", 2, True),
        ("h", 2, True),
    ]
    assert "no two of one job" in result.why
    assert not result.is_accepted


def test_a_layer_that_does_not_help_stays_off_and_says_so():
    result = calibration([run(ratio) for ratio in (0.9, 1.1, 0.9, 1.1)])
    assert not result.is_accepted
    assert result.mean_error_as_observed >= result.mean_error
    assert "off: the mean error would be" in result.why
    assert result.factors("g") == ()
    assert not calibration([run(1.0)] * 5).is_accepted, "a right prediction needs no layer"


@given(st.lists(st.floats(0.2, 5.0), min_size=1, max_size=12), st.randoms())
def test_no_order_of_runs_matters_and_factors_lie_between_one_and_what_was_seen(ratios, random):
    result = calibration([run(ratio) for ratio in ratios])
    shuffled = list(ratios)
    random.shuffle(shuffled)
    again = calibration([run(ratio) for ratio in shuffled])
    assert again.rows == result.rows
    assert again.is_accepted == result.is_accepted or result.mean_error_as_observed == pytest.approx(result.mean_error)
    (row,) = result.rows
    assert min(1.0, row.ratio) - 1e-12 <= row.factor <= max(1.0, row.ratio) + 1e-12


@dataclass
class Made:
    """The result of a planner of these tests."""

    plan: PlacementPlan


def planner(options):
    """A planner that takes the slowest of ``(devices, completion_s)`` that ends in time as predicted."""

    def make(allowed_s):
        fits = [option for option in options if allowed_s is None or option[1] <= allowed_s]
        if not fits:
            raise PlanError("nothing ends in time", field="deadline_s")
        devices, completion_s = max(fits, key=lambda one: one[1])
        figures = [
            {"name": "step_s", "value": completion_s / 100, "unit": "s", "provenance": "estimated"},
            {"name": "completion_s", "value": completion_s, "unit": "s", "provenance": "estimated"},
        ]
        ranks = [{"rank": k, "host": "a", "local_rank": k, "device": k} for k in range(devices)]
        job = {"name": "j", "num_steps": 100, "deadline_s": allowed_s}
        return Made(PlacementPlan.model_validate({"job": job, "ranks": ranks, "predicted": figures}))

    return make


OPTIONS = [(1, 100.0), (2, 60.0), (4, 40.0)]


def figures(plan):
    return {one.name: (one.value, one.provenance) for one in plan.predicted}


def test_plans_tell_what_was_observed_beside_what_is_predicted():
    _, plan = plan_as_observed(planner(OPTIONS), None, [ObservedFactor(1, True, 1.3)])
    assert figures(plan) == {
        "step_s": (1.0, "estimated"),
        "completion_s": (100.0, "estimated"),
        "observed_step_s": (1.3, "observed"),
        "observed_completion_s": (130.0, "observed"),
    }
    assert with_observed(plan, [ObservedFactor(1, False, 2.0), ObservedFactor(2, True, 2.0)]) is plan


def test_deadlines_are_held_by_what_was_observed():
    slower = [ObservedFactor(devices, True, 1.3) for devices in (1, 2, 4)]
    options = {deadline: len(plan_as_observed(planner(OPTIONS), deadline, slower)[1].ranks) for deadline in (130.0, 129.0, 60.0)}
    assert options == {130.0: 1, 129.0: 2, 60.0: 4}
    with pytest.raises(PlanError, match="nothing ends in time; it must end within 50 s by what earlier runs took"):
        plan_as_observed(planner(OPTIONS), 50.0, slower)
    faster = [ObservedFactor(1, True, 0.5)]
    _, plan = plan_as_observed(planner(OPTIONS), 50.0, faster)
    assert (len(plan.ranks), plan.job.deadline_s) == (1, 50.0), "a deadline that the prediction misses"
    _, plan = plan_as_observed(planner(OPTIONS), 50.0, [ObservedFactor(2, True, 0.9)])
    assert len(plan.ranks) == 4, "without observations the prediction counts"


def decision(hosts=("a", "a", "b", "b"), **predicted):
    """A decision whose ranks are on some hosts."""
    ranks = [{"rank": k, "host": host} for k, host in enumerate(hosts)]
    return JobDecision.model_construct(id="d-1", plan={"ranks": ranks}, predicted={"step_s": 1.0, **predicted})


WARM = [1.0] * WARM_UP_STEPS
SLOW = [SLOWER + 0.05] * STEPS_ON_END


def test_the_alarm_fires_after_fifty_slow_steps_on_end_and_not_before():
    assert slow_stretch(decision(), steps(WARM + SLOW[1:])) is None
    assert slow_stretch(decision(), steps(WARM + SLOW[:-1] + [1.0] + SLOW[:-1])) is None
    assert slow_stretch(decision(), steps([9.0] * WARM_UP_STEPS + [1.1] * 200)) is None
    result = slow_stretch(decision(), steps(WARM + [1.0] * 5 + SLOW + [1.0]))
    assert "steps 15 to 64 took 1.25 times" in result
    assert slow_stretch(decision(observed_step_s=1.3), steps(WARM + SLOW)) is None, "slow, but as slow as it ever was"


def test_the_alarm_names_the_host_where_ranks_tell():
    every = [one for rank in range(4) for one in steps(WARM + [1.3 + 0.3 * (rank == 2)] * 60, rank)]
    assert "a slow host: b, whose" in slow_stretch(decision(), every)
    alike = [one for rank in range(4) for one in steps(WARM + SLOW, rank)]
    result = slow_stretch(decision(), alike)
    assert "no host differs" in result
    assert result.endswith(": a, b")
    assert "its only host is a" in slow_stretch(decision(("a", "a")), steps(WARM + SLOW))
    assert "ranks of one host alone were measured" in slow_stretch(decision(), steps(WARM + SLOW))
    assert slow_stretch(SimpleNamespace(plan=None, predicted={}), steps(WARM + SLOW)) is None
