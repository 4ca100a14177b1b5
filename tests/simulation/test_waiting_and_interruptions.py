"""The queue, failures and preemptions: against a plain player, worked by hand, and as laws."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import settings as yaml_settings
from meshwright.clusters.cluster import load_cluster
from meshwright.errors import ConfigError
from meshwright.jobs.arrivals import Arrivals
from meshwright.simulation import dynamics, interruptions, waiting
from meshwright.simulation.decision import decision
from meshwright.simulation.dynamics import Outcome
from meshwright.simulation.records import record
from meshwright.simulation.scenario import ScenarioSettings, assemble
from meshwright.simulation.step_times import StepTimes

from ..draws import draws
from .plain_player import FAILURE, PREEMPTION, PlainPlayer, exponential_s
from .samples import small_scenario, small_workload
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
    scenario.begin(episodes, 0, arrivals, seed)
    while episodes.job[0] < scenario.settings.num_jobs:
        dynamics.decide(scenario.problem, episodes, 0, choose(episodes))
    return episodes


def play_plain(scenario, arrivals, choose, seed):
    """The plain player against the kernel, decision by decision; both are returned at the end of the episode."""
    plain = PlainPlayer(scenario, arrivals, seed)
    episodes = scenario.new_episodes(1)
    scenario.begin(episodes, 0, arrivals, seed)
    asked = plain.decisions()
    k, found, can_place, reason = next(asked)
    devices = [frozenset([d]) for d in range(scenario.cluster.num_devices)]
    while True:
        assert (episodes.job[0], episodes.now_s[0]) == (k, plain.now)
        assert episodes.waiting[0, : episodes.num_waiting[0]].tolist() == plain.queue
        assert episodes.candidate_block[0].tolist() == [block for block, _ in found]
        assert episodes.candidate_s[0].tolist() == [time for _, time in found]
        assert episodes.can_place[0].tolist() == can_place
        assert episodes.obstacle[0] == reason
        assert episodes.free_at_s[0].tolist() == [plain.free_at(device) for device in devices]
        assert episodes.block_free_at_s[0].tolist() == [plain.free_at(block) for block in plain.blocks]
        if k == scenario.settings.num_jobs:
            return plain, episodes
        candidate, before = choose(episodes), k
        waits = bool(waiting.can_wait(scenario.problem, episodes, 0))
        dynamics.decide(scenario.problem, episodes, 0, candidate)
        if candidate == 0:
            assert episodes.outcome[0, before] in ((Outcome.WAITING, Outcome.EXPIRED) if waits else (reason,))
        k, found, can_place, reason = asked.send(candidate)


@draws(4)
@given(seed=seeds, eager=st.sampled_from([0.3, 0.8, 1.0]))
def test_every_decision_and_every_job_are_those_of_brute_force(varied, seed, eager):
    plain, episodes = play_plain(varied, arrivals_of(varied, seed), at_random(seed, eager), seed)
    plain.drain()
    found = record(varied, episodes, 0)
    assert {k: Outcome(int(o)) for k, o in enumerate(found.outcome)} == plain.outcome
    for job in plain.jobs:
        assert (found.start_s[job.k], found.finish_s[job.k]) == (job.start_s, job.until_s)
        assert (found.num_failures[job.k], found.num_preemptions[job.k]) == (job.num_failures, job.num_preemptions)
        assert found.lost_work_s[job.k] == job.lost_s


def test_the_episodes_above_meet_all_that_can_happen(everything):
    outcomes, failures, preemptions, waits = set(), 0, 0, 0
    for seed in range(6):
        episodes = play(everything, arrivals_of(everything, seed), at_random(seed, 0.8), seed)
        found = record(everything, episodes, 0)
        outcomes |= set(found.outcome.tolist())
        failures, preemptions = failures + found.num_failures.sum(), preemptions + found.num_preemptions.sum()
        waits += (found.wait_s > 0).sum()
    assert {Outcome.ACCEPTED, Outcome.EXPIRED} <= outcomes
    assert failures > 10
    assert preemptions > 2
    assert waits > 5


# --- laws ---


@draws(4)
@given(seed=seeds)
def test_a_job_runs_its_work_and_what_it_lost_and_never_while_a_device_is_down(everything, seed):
    plain, episodes = play_plain(everything, arrivals_of(everything, seed), at_random(seed, 0.9), seed)
    plain.drain()
    found = record(everything, episodes, 0)
    step_s = everything.times.step_s[found.graph_id, everything.space.placement_class[found.block]]
    work_s = found.num_steps * step_s
    for job in plain.jobs:
        ran_s = sum(until - began for began, until in job.ran)
        assert ran_s == pytest.approx(work_s[job.k] + found.lost_work_s[job.k], rel=1e-9)
        held_s = found.finish_s[job.k] - found.start_s[job.k]
        assert held_s == pytest.approx(work_s[job.k] + found.delay_s[job.k], rel=1e-9)
        assert found.completion_s[job.k] == pytest.approx(found.wait_s[job.k] + held_s, rel=1e-9)
        for device in job.devices:
            for down, up in plain.down[device]:
                assert all(up <= began or until <= down for began, until in job.ran)


@draws(4)
@given(seed=seeds)
def test_no_device_holds_two_jobs_or_takes_one_while_it_is_down(everything, seed):
    plain, episodes = play_plain(everything, arrivals_of(everything, seed), at_random(seed, 1.0), seed)
    plain.drain()
    found = record(everything, episodes, 0)
    until = np.zeros(everything.cluster.num_devices)
    placed = np.flatnonzero(found.is_accepted)
    for k in placed[np.argsort(found.start_s[placed], kind="stable")].tolist():
        devices = everything.space.block(int(found.block[k]))
        assert (until[devices] <= found.start_s[k]).all()
        until[devices] = found.finish_s[k]
        for device in devices.tolist():
            assert not any(down <= found.start_s[k] < up for down, up in plain.down[device])


@given(seed=seeds)
def test_a_job_that_waited_still_meets_its_deadline_unless_something_interrupts_it(seed, patient):
    found = record(patient, play(patient, arrivals_of(patient, seed), at_random(seed, 0.6)), 0)
    placed = found.is_accepted
    assert (found.completion_s[placed] <= found.allowed_s[placed] * (1 + 2e-9)).all()
    assert (found.wait_s[placed] >= 0).all()
    assert np.isnan(found.start_s[~placed]).all()


@pytest.fixture(scope="module")
def patient():
    return small_scenario(queue_capacity=5)


@given(seed=seeds)
def test_the_queue_never_holds_more_than_its_capacity_and_keeps_the_order_of_arrival(patient, seed):
    choose = at_random(seed, 0.2)

    def watched(episodes):
        in_line = episodes.waiting[0, : episodes.num_waiting[0]].tolist()
        assert len(in_line) <= 5
        assert in_line == sorted(in_line)
        assert set(episodes.waiting[0, episodes.num_waiting[0] :].tolist()) <= {-1}
        return choose(episodes)

    play(patient, arrivals_of(patient, seed), watched)


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


def test_all_policies_meet_the_same_failures(everything):
    arrivals = arrivals_of(everything, 3)
    idle = play(everything, arrivals, lambda episodes: 0, 3)
    busy = play(everything, arrivals, at_random(3, 1.0), 3)
    assert idle.now_s[0] == busy.now_s[0]
    assert idle.device_failures.sum() > 0
    assert idle.device_failures.tolist() == busy.device_failures.tolist()
    assert idle.fails_at_s.tolist() == busy.fails_at_s.tolist()
    other = play(everything, arrivals, lambda episodes: 0, 4)
    assert idle.fails_at_s.tolist() != other.fails_at_s.tolist()


# --- the random times ---


@given(words=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 1), st.integers(0, 10**6), st.integers(0, 10**6)))
def test_the_hash_is_the_documented_one(words):
    assert interruptions.exponential_s(100.0, *words) == exponential_s(100.0, *words)


def test_random_times_are_exponential_and_those_of_neighbours_do_not_hang_together():
    # 20,000 events of neighbouring devices; of an exponential time mean and standard deviation are equal
    times = np.array([[interruptions.exponential_s(1.0, 7, FAILURE, d, i) for i in range(200)] for d in range(100)])
    n = times.size
    assert times.mean() == pytest.approx(1.0, abs=3 / math.sqrt(n))
    # the variance of the sample variance of exponential times is 8 / n
    assert times.var() == pytest.approx(1.0, abs=3 * math.sqrt(8 / n))
    for share in (0.1, 0.5, 0.9):
        below = (times < -math.log(1 - share)).mean()
        assert below == pytest.approx(share, abs=3 * math.sqrt(share * (1 - share) / n))
    centred = times - times.mean()
    assert abs((centred[:, 1:] * centred[:, :-1]).mean()) < 3 / math.sqrt(n)
    assert abs((centred[1:] * centred[:-1]).mean()) < 3 / math.sqrt(n)
    other = interruptions.exponential_s(1.0, 7, PREEMPTION, 0, 0)
    assert other not in times


@pytest.mark.parametrize(("ranks", "repair_s"), [(1, 700.0), (4, 0.0)])
def test_the_expected_completion_is_dalys(ranks, repair_s):
    # Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", 2006: with failures at rate
    # lambda a stretch of tau seconds takes (exp(lambda tau) - 1) (exp(lambda R) / lambda + D) seconds on average, where a
    # failure costs a repair D, in which nothing fails, and a restart R, in which it may.
    # Four ranks are repaired at once, because the other three might fail in the meantime.
    mean_h, tau_s, restart_s, stretches = 2.0, 600.0, 120.0, 5
    failures = {
        "mean_time_between_failures_h": mean_h,
        "repair_s": repair_s,
        "checkpoint_every_s": tau_s,
        "restart_s": restart_s,
    }
    scenario = round_numbers(num_jobs=1, failures=failures)
    rate = ranks / (3600.0 * mean_h)
    expected_s = stretches * math.expm1(rate * tau_s) * (math.exp(rate * restart_s) / rate + repair_s)
    completion_s, lost_s = [], []
    candidate = scenario.candidate_degree.index(ranks)
    arrivals = jobs_of([0.0, 1.0], [stretches * int(tau_s) * ranks // 4] * 2)
    for seed in range(2000):
        found = record(scenario, play(scenario, arrivals, lambda _: candidate, seed), 0)
        completion_s.append(found.completion_s[0])
        lost_s.append(found.lost_work_s[0])
    standard_error = np.std(completion_s, ddof=1) / math.sqrt(2000)
    assert np.mean(completion_s) == pytest.approx(expected_s, abs=3 * standard_error)
    # Young's rule of thumb: a failure loses half an interval (here 2.5 % off, to the first order in lambda tau).
    num_failures = (np.mean(completion_s) - 3000.0 - np.mean(lost_s)) / (restart_s + repair_s)
    assert np.mean(lost_s) / num_failures == pytest.approx(tau_s / 2, rel=0.12)


# --- worked by hand ---


def round_numbers(**changes):
    """Eight devices of one host; a step takes 4 s on one rank, 2 s on two, 1 s on four. Nothing fails by itself."""
    failures = {"mean_time_between_failures_h": 1e15, "repair_s": 100.0, "checkpoint_every_s": 300.0, "restart_s": 50.0}
    chosen = yaml_settings.build(
        ScenarioSettings,
        {
            "cluster": "preset:host-8",
            "workload": "made to measure",
            "num_jobs": 4,
            "max_degree": 4,
            "placement_rules": ["first-fit"],
            "failures": failures,
            **changes,
        },
    )
    scenario = assemble(chosen, load_cluster("preset:host-8"), small_workload())
    classes = np.zeros(scenario.times.step_s.shape[1])
    classes[scenario.space.placement_class] = 4.0 / np.array(scenario.space.degrees)[scenario.space.degree]
    times = StepTimes(np.tile(classes, (2, 1)), scenario.times.communication_share, np.ones_like(scenario.times.can_run))
    return dataclasses.replace(scenario, times=times)


def jobs_of(arrival_s, num_steps):
    n = len(arrival_s)
    return Arrivals(np.array(arrival_s), np.zeros(n, np.int64), np.array(num_steps), np.full(n, math.inf))


FOUR = 3  # candidates: 0 rejects, then 1, 2, 4 ranks


def begun(scenario, arrivals, fails_at=None):
    """An episode that shows its first job, with failures at given times: {device: time}."""
    episodes = scenario.new_episodes(1)
    scenario.begin(episodes, 0, arrivals)
    for device, time in (fails_at or {}).items():
        episodes.fails_at_s[0, device] = time
    return episodes


def test_a_queue_of_one_and_a_failure_worked_by_hand():
    scenario = round_numbers(queue_capacity=1)
    arrivals = jobs_of([0.0, 0.0, 100.0, 200.0, 5000.0], [1000, 2000, 400, 10, 10])
    episodes = begun(scenario, arrivals, fails_at={1: 700.0})

    def take(candidate):
        at = (int(episodes.job[0]), float(episodes.now_s[0]))
        return at, bool(dynamics.decide(scenario.problem, episodes, 0, candidate))

    # Job 0 holds devices 0-3 until 1000 s, job 1 devices 4-7 until 2000 s.
    assert take(FOUR) == ((0, 0.0), True)
    assert take(FOUR) == ((1, 0.0), True)
    # Job 2 finds nothing free and waits; job 3 finds the queue full.
    assert take(0) == ((2, 100.0), False)
    assert Outcome(int(episodes.outcome[0, 2])) is Outcome.WAITING
    assert take(0) == ((3, 200.0), False)
    assert Outcome(int(episodes.outcome[0, 3])) is Outcome.NO_DEVICE
    # At 700 s device 1 fails. Job 0 falls back to its checkpoint at 600 s; device 1 is up at 800 s, the job runs again at
    # 850 s and has 400 s left: it ends at 1250 s instead of 1000 s. Then job 2 is put up again, and keeps waiting.
    assert take(0) == ((2, 1250.0), False)
    # At 2000 s job 1 ends too; job 2 takes devices 0-3 and ends at 2400 s, 2300 s after it came.
    assert take(FOUR) == ((2, 2000.0), True)
    assert (episodes.job[0], episodes.now_s[0]) == (4, 5000.0)
    found = record(scenario, episodes, 0)
    assert found.start_s[:3].tolist() == [0.0, 0.0, 2000.0]
    assert found.finish_s[:3].tolist() == [1250.0, 2000.0, 2400.0]
    assert found.completion_s[:3].tolist() == [1250.0, 2000.0, 2300.0]
    assert found.wait_s[:3].tolist() == [0.0, 0.0, 1900.0]
    assert found.num_failures.tolist() == [1, 0, 0, 0]
    assert found.lost_work_s.tolist() == [100.0, 0.0, 0.0, 0.0]
    assert found.delay_s.tolist() == [250.0, 0.0, 0.0, 0.0]
    assert found.blocking_rate() == 0.25
    rows = found.to_data(scenario)
    assert (rows[0]["num_failures"], rows[0]["lost_work_s"], rows[0]["delay_s"]) == (1, 100.0, 250.0)
    assert (rows[2]["wait_s"], rows[2]["outcome"]) == (1900.0, "accepted")
    assert "wait_s" not in rows[0]
    assert "num_failures" not in rows[1]


@pytest.mark.parametrize(
    ("fails_at", "finish_s", "lost_s"),
    [
        # down 700-800, restart until 850, 400 s left from the checkpoint at 600
        ({1: 700.0}, 1250.0, 100.0),
        # device 2 fails while device 1 is repaired: up at 850, restart until 900
        ({1: 700.0, 2: 750.0}, 1300.0, 100.0),
        # device 2 fails in the restart: up at 920, restart until 970; nothing more is lost
        ({1: 700.0, 2: 820.0}, 1370.0, 100.0),
        # device 2 fails 10 s after the restart: those are lost too; up at 960, restart until 1010
        ({1: 700.0, 2: 860.0}, 1410.0, 110.0),
        # exactly at the checkpoint nothing is lost: up at 700, restart until 750
        ({1: 600.0}, 1150.0, 0.0),
        # before the first checkpoint all is lost: up at 350, restart until 400
        ({1: 250.0}, 1400.0, 250.0),
        # a device of nobody's, or one that fails when the job has ended, changes nothing
        ({5: 500.0}, 1000.0, 0.0),
        ({1: 1000.0}, 1000.0, 0.0),
    ],
)
def test_failures_worked_by_hand(fails_at, finish_s, lost_s):
    scenario = round_numbers(num_jobs=1)
    episodes = begun(scenario, jobs_of([0.0, 9000.0], [1000, 1]), fails_at)
    dynamics.decide(scenario.problem, episodes, 0, FOUR)
    found = record(scenario, episodes, 0)
    assert (found.finish_s[0], found.lost_work_s[0], found.delay_s[0]) == (finish_s, lost_s, finish_s - 1000.0)
    assert episodes.free_at_s[0, 0] == finish_s
    assert found.num_failures[0] == sum(1 for d, t in fails_at.items() if d < 4 and t < 1000.0)


def test_a_preemption_worked_by_hand():
    # Paused at 700 s for 200 s, restart until 950 s, 400 s left from the checkpoint at 600 s.
    scenario = round_numbers(num_jobs=1, preemption={"rate_per_job_h": 1e-15, "pause_s": 200.0})
    episodes = scenario.new_episodes(1)
    scenario.begin(episodes, 0, jobs_of([0.0, 0.0], [1000, 1]))
    dynamics.decide(scenario.problem, episodes, 0, FOUR)
    episodes.preempted_at_s[0, 0] = 700.0
    found = record(scenario, episodes, 0)
    assert (found.finish_s[0], found.lost_work_s[0], found.delay_s[0]) == (1350.0, 100.0, 350.0)
    assert (found.num_failures[0], found.num_preemptions[0]) == (0, 1)
    # The state itself knows nothing of what comes after the end of the episode.
    assert episodes.finish_s[0, 0] == 1000.0


def test_what_will_fail_is_not_shown_before_it_does():
    scenario = round_numbers(num_jobs=2)
    episodes = begun(scenario, jobs_of([0.0, 600.0, 900.0], [1000, 1, 1]), {1: 700.0})
    dynamics.decide(scenario.problem, episodes, 0, FOUR)
    assert episodes.free_at_s[0, :5].tolist() == [1000.0] * 4 + [0.0]
    dynamics.decide(scenario.problem, episodes, 0, 0)
    assert episodes.free_at_s[0, :5].tolist() == [1250.0] * 4 + [0.0]


def test_an_idle_device_that_is_down_is_not_offered_until_it_is_repaired():
    # device 0 is down from 10 s to 110 s; the first four free devices of one block are then 4-7
    scenario = round_numbers(num_jobs=2)
    episodes = begun(scenario, jobs_of([0.0, 50.0, 110.0], [10, 10, 10]), {0: 10.0})
    dynamics.decide(scenario.problem, episodes, 0, 0)
    assert episodes.now_s[0] == 50.0
    assert [scenario.space.block(int(b)).tolist() for b in episodes.candidate_block[0, 1:]] == [[1], [2, 3], [4, 5, 6, 7]]
    dynamics.decide(scenario.problem, episodes, 0, 0)
    assert [scenario.space.block(int(b)).tolist() for b in episodes.candidate_block[0, 1:]] == [[0], [0, 1], [0, 1, 2, 3]]


def test_a_repair_puts_the_head_of_the_queue_up_again():
    # Job 0 waits by choice. Devices 0-3 are down from 10 s to 110 s, devices 4-7 from 30 s to 130 s; job 1 comes at 50 s.
    scenario = round_numbers(num_jobs=2, queue_capacity=1)
    episodes = begun(scenario, jobs_of([0.0, 50.0, 1000.0], [10, 10, 10]), {d: 10.0 if d < 4 else 30.0 for d in range(8)})
    dynamics.decide(scenario.problem, episodes, 0, 0)
    assert (episodes.job[0], episodes.now_s[0], episodes.obstacle[0]) == (1, 50.0, Outcome.NO_DEVICE)
    for repaired_s in (110.0, 130.0):
        dynamics.decide(scenario.problem, episodes, 0, 0)
        assert (episodes.job[0], episodes.now_s[0]) == (0, repaired_s)
        assert episodes.can_place[0].tolist() == [True] * 4


def deadline(scenario, arrival_s, num_steps, allowed_s):
    """Jobs with allowed completion times in seconds."""
    sequential_s = np.array(num_steps) * scenario.problem.sequential_step_s[0]
    n = len(arrival_s)
    return Arrivals(np.array(arrival_s), np.zeros(n, np.int64), np.array(num_steps), np.array(allowed_s) / sequential_s)


def test_a_waiting_job_leaves_as_blocked_when_its_deadline_cannot_be_met_worked_by_hand():
    # Job 2 comes at 100 s, needs 400 s on four ranks and may take 1000 s: it must start by 700 s, but devices are free at
    # 1000 s. Job 3 comes at 900 s and finds the place in the queue free again.
    scenario = round_numbers(queue_capacity=1)
    jobs = deadline(scenario, [0, 0, 100, 900, 5000], [1000, 2000, 400, 100, 10], [1e9, 1e9, 1000, 1e9, 1e9])
    episodes = begun(scenario, jobs)
    for candidate in (FOUR, FOUR, 0):
        dynamics.decide(scenario.problem, episodes, 0, candidate)
    assert (episodes.job[0], episodes.num_expired[0], episodes.num_waiting[0]) == (3, 1, 0)
    assert Outcome(int(episodes.outcome[0, 2])) is Outcome.EXPIRED
    dynamics.decide(scenario.problem, episodes, 0, 0)
    assert (episodes.job[0], episodes.now_s[0], episodes.num_expired[0]) == (3, 1000.0, 0)
    dynamics.decide(scenario.problem, episodes, 0, FOUR)
    found = record(scenario, episodes, 0)
    assert found.counts()["deadline expired while waiting"] == 1
    assert found.blocking_rate() == 0.25


def test_a_waiting_job_is_shown_with_the_time_that_its_deadline_still_allows():
    # It came at 100 s, may take 2000 s and is put up again at 1000 s: 1100 s are left, less than 400 steps on one rank take.
    scenario = round_numbers(queue_capacity=1, num_jobs=3)
    episodes = begun(scenario, deadline(scenario, [0, 0, 100, 5000], [1000, 2000, 400, 10], [1e9, 1e9, 2000, 1e9]))
    for candidate in (FOUR, FOUR):
        dynamics.decide(scenario.problem, episodes, 0, candidate)
    assert decision(scenario, episodes, 0).can_wait
    dynamics.decide(scenario.problem, episodes, 0, 0)
    shown = decision(scenario, episodes, 0)
    assert shown.now_s == 1000.0
    assert shown.allowed_s == pytest.approx(1100.0)
    assert shown.can_place.tolist() == [True, False, True, True]
    assert shown.completion_s.tolist() == [math.inf, math.inf, 800.0, 400.0]
    assert shown.can_wait


def test_a_job_whose_deadline_is_out_of_reach_never_waits():
    scenario = round_numbers(queue_capacity=3)
    episodes = begun(scenario, deadline(scenario, [0, 1, 2, 3, 4], [400] * 5, [399.0] * 5))
    dynamics.decide(scenario.problem, episodes, 0, 0)
    assert Outcome(int(episodes.outcome[0, 0])) is Outcome.DEADLINE
    assert episodes.num_waiting[0] == 0


def test_waiting_jobs_are_put_up_in_order_and_one_that_stays_does_not_hold_up_the_next():
    scenario = round_numbers(queue_capacity=2)
    episodes = begun(scenario, jobs_of([0.0, 0.0, 1.0, 2.0, 9000.0], [1000, 5000, 10, 10, 1]))
    asked = []
    for candidate in (FOUR, FOUR, 0, 0, 0, FOUR, FOUR):
        asked.append((int(episodes.job[0]), float(episodes.now_s[0])))
        dynamics.decide(scenario.problem, episodes, 0, candidate)
    # At 1000 s job 2 is kept waiting and job 3 is taken; it ends at 1010 s, and job 2 is next.
    assert asked == [(0, 0.0), (1, 0.0), (2, 1.0), (3, 2.0), (2, 1000.0), (3, 1000.0), (2, 1010.0)]
    assert episodes.job[0] == 4


def test_a_job_that_still_waits_at_the_end_counts_neither_way():
    scenario = round_numbers(queue_capacity=1, num_jobs=3)
    episodes = begun(scenario, jobs_of([0.0, 0.0, 1.0, 2.0], [1000] * 4))
    for candidate in (FOUR, FOUR, 0):
        dynamics.decide(scenario.problem, episodes, 0, candidate)
    found = record(scenario, episodes, 0)
    assert found.is_waiting.tolist() == [False, False, True]
    assert found.blocking_rate() == 0.0
    assert found.counts()["waiting"] == 1


# --- settings ---


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queue_capacity": -1}, "queue_capacity"),
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
        yaml_settings.build(ScenarioSettings, data)


def test_only_what_is_on_changes_the_digest():
    base = small_scenario()
    assert small_scenario(queue_capacity=0, failures={}, preemption={"rate_per_job_h": 0.0}).digest == base.digest
    digests = {base.digest, *(small_scenario(**changes).digest for changes in VARIANTS.values())}
    assert len(digests) == len(VARIANTS)
