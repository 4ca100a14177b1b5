"""Cluster dynamics: arrivals, blocking, rewards and totals, by hand."""

import pytest

from meshwright.simulation.pacml.demands import Demand
from meshwright.simulation.pacml.semantics import Defects

from ...oracles.pacml_episode import Episode, JobOutcome
from .conftest import make_graph

# One op of 15 "s" forward and 30 back: 50 steps take 2,250 s on one worker, a little over half of it on two.
SINGLE = make_graph([15.0], [30.0], [1e9], [1e9], [], name="single")
HUGE = make_graph([1000.0], [3000.0], [1e9], [1e9], [], name="huge")  # 200,000 s


def episode(simulator, demands, num_decisions=None, **settings):
    return Episode(simulator, [Demand(*d) for d in demands], num_decisions or len(demands), **settings)


def test_a_job_runs_alone_by_hand(simulator_of):
    played = episode(simulator_of(SINGLE), [("single", 1.0)] * 4)
    decisions = [played.decide(degree) for degree in (1, 2, 0, 1)]
    assert decisions[0].completion_s == 2250
    assert decisions[1].completion_s == pytest.approx(1125, rel=1e-3)
    assert [d.fate for d in decisions] == [JobOutcome.COMPLETED, JobOutcome.COMPLETED, JobOutcome.REJECTED, JobOutcome.RUNNING]
    totals = played.totals()
    # The job decided at 3,000 s still runs at the end, at 4,000 s: blocked. A fifth one arrives then.
    assert (totals.arrived, totals.blocked, totals.completed) == (5, 2, 2)
    assert totals.blocking_rate == 2 / 5
    assert totals.mean_completion_s == pytest.approx((2250 + decisions[1].completion_s) / 2)
    # Two ops of 2e9 B and the join of 1e9 B for each job; of the running one 1,000 of 2,250 s are done. In 4,000 s.
    assert totals.demand_bytes_per_s == pytest.approx(5e9 * (2 + 1000 / 2250) / 4000)


def test_jobs_at_the_end_count_as_accepted_without_the_defect(simulator_of):
    played = episode(simulator_of(SINGLE, defects=Defects(running_jobs_are_blocked=False)), [("single", 1.0)] * 4)
    for degree in (0, 2, 0, 1):
        played.decide(degree)
    assert (played.totals().blocked, played.totals().completed) == (2, 1)
    assert played.totals().blocking_rate == 2 / 4


def test_the_steady_state_begins_behind_the_first_tenth_of_the_decisions(simulator_of):
    played = episode(simulator_of(SINGLE, defects=Defects(running_jobs_are_blocked=False)), [("single", 1.0)] * 20)
    for k in range(20):
        played.decide(0 if k in (0, 1, 2) else 2)
    assert played.totals().blocked == 3
    assert played.totals().blocking_rate == 1 / 18


def test_a_job_that_would_miss_its_deadline_is_turned_away_and_holds_nothing(simulator_of):
    played = episode(simulator_of(SINGLE), [("single", 0.5), ("single", 0.6)])
    assert played.decide(2).fate == JobOutcome.TOO_SLOW  # a little over half of the sequential time
    assert played.is_free.all()
    assert played.decide(2).is_accepted


def test_a_deadline_of_exactly_the_completion_time_hangs_on_the_last_bit(simulator_of):
    # Added up in the order of the file and in that of running, the same ops give 844.9999999999999 and 845.0000000000001.
    graph = make_graph([2.0, 3.9, 0.4], [2.1, 4.0, 4.5], [1] * 3, [1] * 3, [(0, 1), (1, 2)], name="chain")
    for strict in (True, False):
        simulator = simulator_of(graph, defects=Defects(strict_deadline=strict))
        assert simulator.sequential_s("chain") == 844.9999999999999
        decision = episode(simulator, [("chain", 1.0)]).decide(1)
        assert decision.fate == (JobOutcome.TOO_SLOW if strict else JobOutcome.COMPLETED)


def test_a_full_cluster_blocks_and_a_mask_that_ignores_occupancy_does_not_say_so(simulator_of):
    for ignores in (True, False):
        played = episode(simulator_of(HUGE, defects=Defects(mask_ignores_occupancy=ignores)), [("huge", 1.0)] * 4)
        played.decide(16)
        played.decide(4)
        played.decide(2)
        # Of the second plane, 2 x 2 and 2 x 1 are taken: 10 servers are free, but neither 2 x 2 x 2 nor 4 x 2 x 1 is.
        assert played.mask()[8] == ignores
        assert not played.mask()[16]
        assert played.decide(8).fate == JobOutcome.NO_BLOCK


def test_the_last_reward_is_lost_where_nothing_happens_after_it(simulator_of):
    for lost, expected in ((True, -1), (False, 1)):
        played = episode(simulator_of(HUGE, SINGLE, defects=Defects(last_reward_is_lost=lost)), [("huge", 1.0)])
        assert played.decide(1).reward == expected
    # Where a job ends in the meantime, the reward is known by then.
    played = episode(simulator_of(HUGE, SINGLE), [("single", 1.0), ("huge", 1.0), ("huge", 1.0)])
    assert [played.decide(1).reward for _ in range(3)] == [1, 1, 1]


def test_the_first_placement_of_a_degree_fixes_the_time_of_later_ones(simulator_of, branching):
    # The second job finds two servers of one rack, between which collectives are free, and not two of two groups.
    for keyed in (True, False):
        defects = Defects(times_keyed_by_degree=keyed, milliseconds_as_seconds=False)
        played = episode(simulator_of(branching, defects=defects), [("toy", 100.0)] * 2)
        first = played.decide(2).completion_s
        played.is_free[:30] = False
        second = played.decide(2).completion_s
        assert (second == first) if keyed else (second < first)
