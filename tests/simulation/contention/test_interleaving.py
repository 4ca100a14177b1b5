"""Jobs on one link take turns: by formula, and in the simulator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import Cluster
from meshwright.costs.settings import CostSettings
from meshwright.errors import ConfigError
from meshwright.jobs.graph import JobGraph
from meshwright.plans.splitting.op_splits import OpSplits
from meshwright.simulation.contention.interleaving import Bursts, bursts, excess, interleave
from meshwright.simulation.step.timeline import JobStep, simulate, simulate_together

from ...samples.sample_clusters import clos, cluster_of
from ...samples.sample_graphs import profile

STEPS = 12
COSTS = CostSettings(contention="fair", collectives="ring")
TWO_RANKS = OpSplits(np.array([2]))
HALF = Bursts(1.0, ((0.5, 1.0, 1.0),))


@pytest.fixture(scope="module")
def pair() -> Cluster:
    """Two hosts of two devices, one card of 10 GB/s for both."""
    return cluster_of(clos(2, 2))


@pytest.fixture(scope="module")
def half_duty() -> JobGraph:
    """Two ranks compute for 100 ms and then all-reduce 1 GB at 10 GB/s, which takes another 100 ms."""
    return profile("half-duty", [0.08], [0.12], parameter_bytes=[1e9], source="estimated")


def card(cluster):
    (link,) = [i for i, name in enumerate(cluster.links.names) if name.startswith("l0-h0.nic0>")]
    return link


def speeds(graph, cluster, shift_s):
    """Of two jobs, each with a device in both hosts, against that of one alone."""
    alone_s = simulate(graph, cluster, TWO_RANKS, [0, 2], COSTS).step_s
    jobs = [JobStep(graph, TWO_RANKS, [0, 2], 0.0, COSTS, STEPS), JobStep(graph, TWO_RANKS, [1, 3], shift_s, COSTS, STEPS)]
    return [STEPS * alone_s / timeline.step_s for timeline in simulate_together(jobs, cluster)]


def test_two_jobs_of_half_duty_regain_their_speed_when_they_take_turns(half_duty, pair):
    mine = bursts(simulate(half_duty, pair, TWO_RANKS, [0, 2], COSTS), card(pair))
    found = interleave([mine, mine])
    assert min(speeds(half_duty, pair, found.shift_s[1])) >= 0.95
    # Started together both send at the same time: 100 ms + 200 ms for a step of 200 ms.
    assert max(speeds(half_duty, pair, 0.0)) <= 0.8
    assert max(speeds(half_duty, pair, 0.0)) == pytest.approx(2 / 3, rel=1e-3)


def test_what_a_job_sends_over_a_link(half_duty, pair):
    # after 100 ms of computing 1 GB at 10 GB/s, and two latencies of 2 us
    found = bursts(simulate(half_duty, pair, TWO_RANKS, [0, 2], COSTS), card(pair))
    ((start_s, end_s, share),) = found.bursts
    assert (start_s, end_s, found.period_s) == (pytest.approx(0.1), pytest.approx(0.200004), pytest.approx(0.200004))
    assert share == pytest.approx(1.0, rel=1e-4)
    nothing = bursts(simulate(half_duty, pair, TWO_RANKS, [0, 1], COSTS), card(pair))
    assert nothing.bursts == ()


def test_bursts_of_half_the_period_fit_worked_by_hand():
    assert excess([HALF, HALF], [0.0, 0.0], 1.0) == pytest.approx(0.5)
    assert excess([HALF, HALF], [0.0, 0.25], 1.0) == pytest.approx(0.25)
    assert interleave([HALF, HALF]).shift_s[1] == pytest.approx(0.5)
    assert interleave([HALF, HALF]).excess == pytest.approx(0.0)


def test_three_jobs_of_a_third_find_their_places():
    third = Bursts(3.0, ((0.0, 1.0, 1.0),))
    found = interleave([third, third, third])
    assert found.excess == pytest.approx(0.0, abs=1e-12)
    assert sorted(found.shift_s) == pytest.approx([0.0, 1.0, 2.0])


def test_a_job_of_twice_the_period_takes_the_gaps_of_the_other():
    # bursts at 0-1 of every 2 s, and one of 1 s in 4 s: it fits at 1-2 or 3-4
    often, seldom = Bursts(2.0, ((0.0, 1.0, 1.0),)), Bursts(4.0, ((0.0, 1.0, 1.0),))
    found = interleave([often, seldom])
    assert found.excess == pytest.approx(0.0, abs=1e-12)
    assert found.shift_s[1] % 2 == pytest.approx(1.0)


def test_periods_without_a_common_multiple_drift_through_each_other():
    # each sends half of the time: both at once a quarter of it
    found = interleave([HALF, Bursts(np.sqrt(2.0), ((0.0, np.sqrt(0.5), 1.0),))])
    assert found.shift_s == (0.0, 0.0)
    assert found.excess == pytest.approx(0.25)


@given(
    first=st.tuples(st.integers(0, 9), st.integers(1, 10)),
    second=st.tuples(st.integers(0, 9), st.integers(1, 10)),
    tried=st.floats(0, 20),
)
def test_no_shift_of_two_jobs_beats_the_one_that_is_chosen(first, second, tried):
    jobs = [Bursts(20.0, ((float(start), float(start + length), 1.0),)) for start, length in (first, second)]
    found = interleave(jobs)
    assert found.excess <= excess(jobs, [0.0, tried], 20.0) + 1e-9
    assert excess(jobs, found.shift_s, 20.0) == pytest.approx(found.excess)


@pytest.mark.parametrize(
    ("period_s", "sent", "message"),
    [
        (0.0, (), "period_s: must be positive and finite"),
        (1.0, ((0.5, 1.5, 1.0),), "bursts: must rise within the period"),
        (1.0, ((0.5, 0.2, 1.0),), "bursts: must rise within the period"),
        (1.0, ((0.1, 0.2, 1.5),), "bursts: must be a share of the link"),
    ],
)
def test_impossible_bursts_are_refused(period_s, sent, message):
    with pytest.raises(ConfigError, match=message):
        Bursts(period_s, sent)


def test_no_job_is_refused():
    with pytest.raises(ConfigError, match="jobs: needs at least one job"):
        interleave([])
