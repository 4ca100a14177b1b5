"""The queue, failures and preemptions on small episodes that are worked by hand."""

import math

import numpy as np
import pytest

from meshwright.jobs.arrivals import Arrivals
from meshwright.simulation.cluster import dynamics
from meshwright.simulation.cluster.decision import decision
from meshwright.simulation.cluster.records import record
from meshwright.simulation.cluster.state import Outcome

from .round_numbers import jobs_of, round_numbers

FOUR = 3  # candidates: 0 rejects, then 1, 2, 4 ranks


def begun(scenario, arrivals, fails_at=None):
    """An episode that shows its first job, with failures at given times: {device: time}."""
    episodes = scenario.new_episodes(1)
    scenario.reset(episodes, 0, arrivals)
    for device, time in (fails_at or {}).items():
        episodes.fails_at_s[0, device] = time
    return episodes


def test_a_queue_of_one_and_a_failure_worked_by_hand():
    scenario = round_numbers(queue_capacity=1)
    arrivals = jobs_of([0.0, 0.0, 100.0, 200.0, 5000.0], [1000, 2000, 400, 10, 10])
    episodes = begun(scenario, arrivals, fails_at={1: 700.0, 0: 5000.0})

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
    # At 2000 s job 1 ends too; job 2 takes devices 0-3 and ends at 2400 s, 2300 s after it came. Job 4 comes as device 0 fails.
    assert take(FOUR) == ((2, 2000.0), True)
    offered = scenario.space.block(int(episodes.candidate_block[0, FOUR])).tolist()
    assert (episodes.job[0], episodes.now_s[0], offered) == (4, 5000.0, [4, 5, 6, 7])
    result = record(scenario, episodes, 0)
    assert result.start_s[:3].tolist() == [0.0, 0.0, 2000.0]
    assert result.finish_s[:3].tolist() == [1250.0, 2000.0, 2400.0]
    assert result.completion_s[:3].tolist() == [1250.0, 2000.0, 2300.0]
    assert result.wait_s[:3].tolist() == [0.0, 0.0, 1900.0]
    assert result.num_failures.tolist() == [1, 0, 0, 0]
    assert result.lost_work_s.tolist() == [100.0, 0.0, 0.0, 0.0]
    assert result.delay_s.tolist() == [250.0, 0.0, 0.0, 0.0]
    assert result.blocking_rate() == 0.25
    rows = result.to_data(scenario)
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
    result = record(scenario, episodes, 0)
    assert (result.finish_s[0], result.lost_work_s[0], result.delay_s[0]) == (finish_s, lost_s, finish_s - 1000.0)
    assert episodes.free_at_s[0, 0] == finish_s
    assert result.num_failures[0] == sum(1 for d, t in fails_at.items() if d < 4 and t < 1000.0)


def test_a_preemption_worked_by_hand():
    # Paused at 700 s for 200 s, restart until 950 s, 400 s left from the checkpoint at 600 s.
    scenario = round_numbers(num_jobs=1, preemption={"rate_per_job_h": 1e-15, "pause_s": 200.0})
    episodes = scenario.new_episodes(1)
    scenario.reset(episodes, 0, jobs_of([0.0, 0.0], [1000, 1]))
    dynamics.decide(scenario.problem, episodes, 0, FOUR)
    episodes.preempted_at_s[0, 0] = 700.0
    result = record(scenario, episodes, 0)
    assert (result.finish_s[0], result.lost_work_s[0], result.delay_s[0]) == (1350.0, 100.0, 350.0)
    assert (result.num_failures[0], result.num_preemptions[0]) == (0, 1)
    # The state itself knows nothing of what comes after the end of the episode.
    assert episodes.finish_s[0, 0] == 1000.0


def deadline(scenario, arrival_s, num_steps, allowed_s):
    """Jobs with allowed completion times in seconds."""
    sequential_s = np.array(num_steps) * scenario.problem.sequential_step_s[0]
    n = len(arrival_s)
    return Arrivals(np.array(arrival_s), np.zeros(n, np.int64), np.array(num_steps), np.array(allowed_s) / sequential_s)


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


def test_a_job_that_still_waits_at_the_end_counts_neither_way():
    scenario = round_numbers(queue_capacity=1, num_jobs=3)
    episodes = begun(scenario, jobs_of([0.0, 0.0, 1.0, 2.0], [1000] * 4))
    for candidate in (FOUR, FOUR, 0):
        dynamics.decide(scenario.problem, episodes, 0, candidate)
    result = record(scenario, episodes, 0)
    assert result.is_waiting.tolist() == [False, False, True]
    assert result.blocking_rate() == 0.0
    assert result.counts()["waiting"] == 1
