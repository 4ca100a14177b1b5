"""The queue, failures and preemptions: against a plain player, worked by hand, and as laws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import settings as yaml_settings
from meshwright.errors import ConfigError
from meshwright.simulation.cluster import dynamics, queue
from meshwright.simulation.cluster.records import record
from meshwright.simulation.cluster.scenario import ScenarioSettings
from meshwright.simulation.cluster.state import Outcome

from ...draws import FACTOR, draws
from ...oracles.plain_player import PlainPlayer
from ..samples import small_scenario
from .round_numbers import jobs_of, round_numbers
from .test_dynamics import arrivals_of, assert_same, at_random

seeds = st.integers(0, 10_000)


# A device fails every 2 h, a job is preempted every 3 h: an episode of an hour and a half meets about 30 interruptions.
BROKEN = {
    "failures": {"mean_time_between_failures_h": 2.0, "repair_s": 400.0, "checkpoint_every_s": 150.0, "restart_s": 40.0},
    "preemption": {"rate_per_job_h": 0.3, "pause_s": 200.0},
}


VARIANTS = {
    "nothing": {},
    "a queue": {"queue_capacity": 4},
    "failures": {"failures": BROKEN["failures"]},
    "preemption": {"preemption": BROKEN["preemption"]},
    "all": {"queue_capacity": 3, **BROKEN},
    "the shortest first": {"queue_capacity": 6, "queue_order": "shortest-remaining"},
    "the earliest deadline first": {"queue_capacity": 6, "queue_order": "deadline", **BROKEN},
}


@pytest.fixture(scope="module", params=VARIANTS)
def varied(request):
    return small_scenario(**VARIANTS[request.param])


@pytest.fixture(scope="module")
def everything():
    return small_scenario(**VARIANTS["all"])


def play(scenario, arrivals, choose, seed=0):
    """One episode to its end; ``choose(episodes)`` gives a candidate for each decision."""
    episodes = scenario.new_episodes(1)
    scenario.reset(episodes, 0, arrivals, seed)
    while episodes.job[0] < scenario.settings.num_jobs:
        dynamics.decide(scenario.problem, episodes, 0, choose(episodes))
    return episodes


def play_plain(scenario, arrivals, choose, seed):
    """The plain player against the kernel, decision by decision; both are returned at the end of the episode."""
    plain = PlainPlayer(scenario, arrivals, seed)
    episodes = scenario.new_episodes(1)
    scenario.reset(episodes, 0, arrivals, seed)
    request = plain.decisions()
    k, result, can_place, reason = next(request)
    devices = [frozenset([d]) for d in range(scenario.cluster.num_devices)]
    while True:
        assert (episodes.job[0], episodes.now_s[0]) == (k, plain.now)
        assert episodes.waiting[0, : episodes.num_waiting[0]].tolist() == plain.queue
        assert episodes.candidate_block[0].tolist() == [block for block, _ in result]
        assert episodes.candidate_s[0].tolist() == [time for _, time in result]
        assert episodes.can_place[0].tolist() == can_place
        assert episodes.obstacle[0] == reason
        assert episodes.free_at_s[0].tolist() == [plain.free_at(device) for device in devices]
        assert episodes.block_free_at_s[0].tolist() == [plain.free_at(block) for block in plain.blocks]
        if k == scenario.settings.num_jobs:
            return plain, episodes
        candidate, before = choose(episodes), k
        waits = bool(queue.can_wait(scenario.problem, episodes, 0))
        dynamics.decide(scenario.problem, episodes, 0, candidate)
        if candidate == 0:
            assert episodes.outcome[0, before] in ((Outcome.WAITING, Outcome.EXPIRED) if waits else (reason,))
        k, result, can_place, reason = request.send(candidate)


@pytest.mark.every(4)
@draws(2)
@given(seed=seeds, eager=st.sampled_from([0.3, 0.8, 1.0]))
def test_every_decision_and_every_job_are_those_of_brute_force(varied, seed, eager):
    plain, episodes = play_plain(varied, arrivals_of(varied, seed), at_random(seed, eager), seed)
    plain.drain()
    result = record(varied, episodes, 0)
    assert {k: Outcome(int(o)) for k, o in enumerate(result.outcome)} == plain.outcome
    for job in plain.jobs:
        assert (result.start_s[job.k], result.finish_s[job.k]) == (job.start_s, job.until_s)
        assert (result.num_failures[job.k], result.num_preemptions[job.k]) == (job.num_failures, job.num_preemptions)
        assert result.lost_work_s[job.k] == job.lost_s


def test_the_episodes_above_meet_all_that_can_happen(everything):
    outcomes, failures, preemptions, waits = set(), 0, 0, 0
    for seed in range(6):
        episodes = play(everything, arrivals_of(everything, seed), at_random(seed, 0.8), seed)
        result = record(everything, episodes, 0)
        outcomes |= set(result.outcome.tolist())
        failures, preemptions = failures + result.num_failures.sum(), preemptions + result.num_preemptions.sum()
        waits += (result.wait_s > 0).sum()
    assert {Outcome.ACCEPTED, Outcome.EXPIRED} <= outcomes
    assert failures > 10
    assert preemptions > 2
    assert waits > 5


# --- laws ---


@draws(4)
@given(seed=seeds, eager=st.sampled_from([0.9, 1.0]))
def test_a_job_runs_its_work_and_what_it_lost_and_never_while_a_device_is_down_or_has_another(everything, seed, eager):
    plain, episodes = play_plain(everything, arrivals_of(everything, seed), at_random(seed, eager), seed)
    plain.drain()
    result = record(everything, episodes, 0)
    step_s = everything.times.step_s[result.graph_id, everything.space.placement_class[result.block]]
    work_s = result.num_steps * step_s
    for job in plain.jobs:
        ran_s = sum(until - began for began, until in job.ran)
        assert ran_s == pytest.approx(work_s[job.k] + result.lost_work_s[job.k], rel=1e-9)
        held_s = result.finish_s[job.k] - result.start_s[job.k]
        assert held_s == pytest.approx(work_s[job.k] + result.delay_s[job.k], rel=1e-9)
        assert result.completion_s[job.k] == pytest.approx(result.wait_s[job.k] + held_s, rel=1e-9)
        for device in job.devices:
            for down, up in plain.down[device]:
                assert all(up <= began or until <= down for began, until in job.ran)
    until = np.zeros(everything.cluster.num_devices)
    placed = np.flatnonzero(result.is_accepted)
    for k in placed[np.argsort(result.start_s[placed], kind="stable")].tolist():
        devices = everything.space.block(int(result.block[k]))
        assert (until[devices] <= result.start_s[k]).all()
        until[devices] = result.finish_s[k]
        for device in devices.tolist():
            assert not any(down <= result.start_s[k] < up for down, up in plain.down[device])


@pytest.mark.parametrize("capacity", [0, 3])
def test_failures_that_never_come_change_nothing(capacity):
    # once in 10^15 h
    without = small_scenario(queue_capacity=capacity)
    rare = small_scenario(
        queue_capacity=capacity, failures={"mean_time_between_failures_h": 1e15}, preemption={"rate_per_job_h": 1e-15}
    )
    assert rare.problem.interruptions.is_on
    assert not without.problem.interruptions.is_on
    for seed in range(5):
        first, second = (
            record(scenario, play(scenario, arrivals_of(scenario, seed), at_random(seed, 0.8), seed), 0)
            for scenario in (without, rare)
        )
        assert_same(first, second)


# --- expected times ---


EPISODES = round(800 * FACTOR)


@pytest.mark.parametrize(("ranks", "repair_s"), [(1, 700.0), (4, 0.0)])
def test_the_expected_completion_is_dalys(ranks, repair_s):
    # Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", 2006: with failures at rate
    # lambda a stretch of tau seconds takes (exp(lambda tau) - 1) (exp(lambda R) / lambda + D) seconds on average, where a
    # failure costs a repair D, in which nothing fails, and a restart R, in which it may.
    # Four ranks are repaired at once, because the other three might fail in the meantime.
    mean_h, tau_s, restart_s, stretches = 2.0, 600.0, 120.0, 5
    failures = {"mean_time_between_failures_h": mean_h, "repair_s": repair_s, "checkpoint_every_s": tau_s, "restart_s": restart_s}
    scenario = round_numbers(num_jobs=1, failures=failures)
    rate = ranks / (3600.0 * mean_h)
    expected_s = stretches * math.expm1(rate * tau_s) * (math.exp(rate * restart_s) / rate + repair_s)
    completion_s, lost_s = [], []
    candidate = scenario.candidate_degree.index(ranks)
    arrivals = jobs_of([0.0, 1.0], [stretches * int(tau_s) * ranks // 4] * 2)
    for seed in range(EPISODES):
        result = record(scenario, play(scenario, arrivals, lambda _: candidate, seed), 0)
        completion_s.append(result.completion_s[0])
        lost_s.append(result.lost_work_s[0])
    standard_error = np.std(completion_s, ddof=1) / math.sqrt(EPISODES)
    assert np.mean(completion_s) == pytest.approx(expected_s, abs=3 * standard_error)
    # Young's rule of thumb: a failure loses half an interval (here 2.5 % off, to the first order in lambda tau).
    num_failures = (np.mean(completion_s) - 3000.0 - np.mean(lost_s)) / (restart_s + repair_s)
    assert np.mean(lost_s) / num_failures == pytest.approx(tau_s / 2, rel=0.12)


# --- settings ---


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queue_capacity": -1}, "queue_capacity"),
        ({"queue_order": "deadline"}, "set queue_capacity too"),
        ({"queue_capacity": 2, "queue_order": "deadlin"}, "did you mean 'deadline'"),
        ({"queue_capacity": 10_001}, "queue_capacity"),
        ({"failures": {"repair_s": -1.0}}, "failures.repair_s"),
        ({"failures": {"checkpoint_every_s": 0}}, "failures.checkpoint_every_s"),
        ({"failures": {"mean_time_between_failures_h": 0}}, "failures.mean_time_between_failures_h"),
        ({"failures": {"mean_time_between_failures": 5}}, "did you mean 'mean_time_between_failures_h'"),
        ({"preemption": {"rate_per_job_h": -0.1}}, "preemption.rate_per_job_h"),
        ({"num_warmup_jobs": 20, "num_cooldown_jobs": 10}, r"num_cooldown_jobs: must be less than num_jobs \(30\) less the 20"),
        # 8 ranks x 0.6 h between checkpoints over 0.5 h between failures
        ({"failures": {"mean_time_between_failures_h": 0.5}}, "interrupted 9.33 times between two checkpoints"),
    ],
)
def test_impossible_settings_are_refused(changes, words):
    data = {"cluster": "preset:host-8", "workload": "preset:toy", "num_jobs": 30, "max_degree": 8, **changes}
    with pytest.raises(ConfigError, match=words):
        yaml_settings.build_settings(ScenarioSettings, data)


def test_only_what_is_on_changes_the_digest():
    base = small_scenario()
    assert small_scenario(queue_capacity=0, failures={}, preemption={"rate_per_job_h": 0.0}).digest == base.digest
    digests = {base.digest, *(small_scenario(**changes).digest for changes in VARIANTS.values())}
    assert len(digests) == len(VARIANTS)
