"""Figures of an episode: worked by hand, equal to the objectives, and never better than the bound."""

from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.envs.fleet.record import FleetRecord
from meshwright.envs.fleet.reward import objective_value
from meshwright.envs.fleet.settings import ObjectiveName
from meshwright.evaluation.fleet.bounds import least_mean_completion_s
from meshwright.evaluation.fleet.episodes import play_episodes
from meshwright.evaluation.fleet.fleet_figures import FleetFigures
from meshwright.evaluation.fleet.policies import fleet_player
from meshwright.evaluation.metrics import figures
from meshwright.simulation.fleet.state import JobState, Total

from ...fleet_samples import FAILURES

RULES = ("fifo", "sjf+backfill", "fixed-1", "goodput-shares", "random")


def three_jobs():
    """Of ten steps each: the first runs alone on one device, the second waits and runs on two, the third is refused."""
    totals = np.zeros(len(Total))
    totals[Total.HELD_DEVICE_S] = 40.0 + 2 * 36.0
    totals[Total.OUT_DEVICE_S] = 2 * 14.0
    nan = np.nan
    return FleetRecord(
        end_s=56.0,
        arrival_s=np.array([0.0, 10.0, 30.0]),
        start_s=np.array([0.0, 20.0, nan]),
        finish_s=np.array([40.0, 56.0, nan]),
        deadline_s=np.full(3, np.inf),
        job_type=np.zeros(3, np.int64),
        entry=np.array([0, 1, -1]),
        num_steps=np.full(3, 10.0),
        status=np.array([JobState.COMPLETED, JobState.COMPLETED, JobState.REFUSED]),
        num_restarts=np.array([0, 3, 0]),
        held_device_s=np.array([40.0, 72.0, 0.0]),
        shared_s=np.array([0.0, 6.0, 0.0]),
        num_failures=np.array([0, 2, 0]),
        lost_device_s=np.array([0.0, 1800.0, 0.0]),
        totals=totals,
    )


FOUR_DEVICES = SimpleNamespace(
    settings=SimpleNamespace(counted=slice(0, 3), has_deadlines=False, has_failures=True),
    cluster=SimpleNamespace(num_devices=4),
    problem=SimpleNamespace(degrees=np.array([1, 2]), menu=SimpleNamespace(work_device_s=np.array([4.0]))),
    best_step_s=np.array([[4.0, 3.0]]),  # 4 s on one device, 3 s on two
)


def test_three_jobs_worked_by_hand():
    result = figures("fleet", FleetFigures(three_jobs(), FOUR_DEVICES))
    expected = {
        "mean_completion_s": (40 + 46) / 2,
        "p50_completion_s": 43,
        "p95_completion_s": 40 + 0.95 * 6,
        "p99_completion_s": 40 + 0.99 * 6,
        "mean_wait_s": (0 + 10) / 2,
        "makespan_s": 56,
        "blocking_rate": 1 / 3,
        "late_rate": 0,
        "deadline_met_rate": None,
        # The first shares the cluster with 30 of its 40 s: 1.75 jobs, 4 / 1.75 = 2.3 devices, so 10 steps of 3 s on two of them.
        # The second with 30 of 46 s: 1.65 jobs, 2.4 devices, as many.
        "mean_finish_time_fairness": (40 / 30 + 46 / 30) / 2,
        "p95_finish_time_fairness": 40 / 30 + 0.95 * 6 / 30,
        "devices_held": 112 / (4 * 56),
        "devices_useful": 2 * 10 * 4 / (4 * 56),
        "sharing_slowdown": 6 / (40 + 36 - 6),
        "mean_devices": 112 / (40 + 36),
        "restarts_per_job": 1,
        "device_hours": 112 / 3600,
        "failures_per_job": 2 / 3,
        "devices_out": 28 / (4 * 56),
        "lost_device_hours": 0.5,
    }
    assert set(result) == set(expected)
    assert result == pytest.approx(expected)


def test_the_figures_are_the_objectives_that_training_validates_by(small_fleet):
    batch = FleetBatch(small_fleet, 1, observes=False)
    batch.reset(0, np.random.default_rng(5))
    fleet_player("fifo", small_fleet).play(batch, [5])
    result = figures("fleet", FleetFigures(FleetRecord.from_state(batch.state, 0), small_fleet))
    for objective in get_args(ObjectiveName):
        if objective == "deadline_met_rate":  # no jobs have deadlines here
            continue
        choice = small_fleet.settings.model_copy(update={"objective": objective})
        assert result[objective] == pytest.approx(objective_value(choice, batch.state, 0), abs=1e-12), objective


def test_no_policy_beats_the_bound(small_fleet):
    seeds = range(5)
    bounds = [least_mean_completion_s(small_fleet, small_fleet.sample(np.random.default_rng(seed))) for seed in seeds]
    for rule in RULES:
        records = play_episodes(small_fleet, fleet_player(rule, small_fleet), seeds).records
        for record, bound in zip(records, bounds, strict=True):
            assert figures("fleet", FleetFigures(record, small_fleet))["mean_completion_s"] >= bound


def test_no_policy_beats_the_bound_where_hosts_fail_and_all_meet_the_same_jobs(small_file):
    fleet, seeds = load_fleet_benchmark(str(small_file), changes=FAILURES).build(), range(3)
    for rule in ("sjf+backfill", "goodput-shares", "rollout:fixed-2"):
        records = play_episodes(fleet, fleet_player(rule, fleet), seeds).records
        for record, seed in zip(records, seeds, strict=True):
            jobs = fleet.sample(np.random.default_rng(seed))
            assert jobs.arrival_s.tolist() == record.arrival_s.tolist()
            result = figures("fleet", FleetFigures(record, fleet))
            assert result["mean_completion_s"] >= least_mean_completion_s(fleet, jobs)
            assert result["devices_out"] > 0


def test_a_rollout_does_not_know_the_failures_to_come(small_file):
    fleet = load_fleet_benchmark(str(small_file), changes=FAILURES).build()
    jobs, choice = fleet.sample(np.random.default_rng(4)), set()
    for seed in range(6):
        batch = FleetBatch(fleet, 1, observes=False)
        batch.begin_with(0, jobs, seed)
        state, actions = batch.state, []
        choose = fleet_player("rollout:sjf", fleet).chooser(batch, 0)
        while state.host_failures.sum() == 0 and len(actions) < 3:
            actions.append(choose())
            batch.step(np.array(actions[-1:]))
        choice.add(tuple(actions[:1]))
    assert len(choice) == 1


def test_the_bound_worked_by_hand():
    # Four devices finish 10 steps of 4 device-seconds in 10 s, and a job alone takes 30 s. Four jobs at once: 10, 20, 30 and
    # 40 s, 25 in the mean, less than the 30 s of each alone. With eight: 10 to 80 s, 45 in the mean.
    fleet = SimpleNamespace(**{**vars(FOUR_DEVICES), "settings": SimpleNamespace(counted=slice(None))})
    for count, mean_s in ((4, 30.0), (8, 45.0)):
        jobs = SimpleNamespace(arrival_s=np.zeros(count), job_type=np.zeros(count, np.int64), num_steps=np.full(count, 10.0))
        assert least_mean_completion_s(fleet, jobs) == pytest.approx(mean_s)
    # A long job (100 s of the cluster) that a short one (10 s) interrupts 20 s after its arrival: 110 and 10 s.
    jobs = SimpleNamespace(arrival_s=np.array([0.0, 20.0]), job_type=np.zeros(2, np.int64), num_steps=np.array([100.0, 10.0]))
    alone_s = (300.0 + 30.0) / 2
    assert least_mean_completion_s(fleet, jobs) == pytest.approx(max(alone_s, (110.0 + 10.0) / 2))
