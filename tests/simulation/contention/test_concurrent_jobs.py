"""Jobs side by side: cases worked by hand, the kernel against its plain reference, and laws of shared links."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meshwright.costs.phases import Flow, Phase
from meshwright.simulation.contention import concurrent_jobs
from meshwright.simulation.contention.placed_job import PlacedJob
from meshwright.simulation.step import kernel

from ...draws import draws
from ...oracles import concurrent_reference
from ..execution_samples import SWITCH, clos, cluster_of, drawn_execution, drawn_jobs, execution_of, sent
from .concurrent_messages import SCHEDULERS, finishes, messages_of, switch

seeds = st.integers(0, 2**32)


# --- worked by hand ---


@pytest.mark.parametrize("schedule", SCHEDULERS)
def test_two_transfers_over_one_link_have_half_its_rate_each(schedule):
    # 4 GB each out of device 0, over one link of 4 GB/s: 2 GB/s each, 2 s. On their own: 1 s.
    assert finishes(schedule, switch, messages_of(switch, (0, 1, 4), (0, 2, 4), devices=[0, 1, 2])) == [[2.0, 2.0]]
    assert finishes(schedule, switch, messages_of(switch, (0, 1, 4), devices=[0, 1])) == [[1.0]]


@pytest.mark.parametrize("schedule", SCHEDULERS)
def test_what_comes_does_not_slow_what_goes(schedule):
    # Full duplex: 4 GB there and 8 GB back, each direction has its own 4 GB/s.
    assert finishes(schedule, switch, messages_of(switch, (0, 1, 4), (1, 0, 8), devices=[0, 1])) == [[1.0, 2.0]]
    bus = cluster_of({**SWITCH, "fabric": "bus"})
    # On a bus both share 4 GB/s: 2 each until 2 s, then 4 GB are left for 4 GB/s.
    assert finishes(schedule, bus, messages_of(bus, (0, 1, 4), (1, 0, 8), devices=[0, 1])) == [[2.0, 3.0]]


@pytest.mark.parametrize("schedule", SCHEDULERS)
def test_two_jobs_on_one_uplink_slow_each_other(schedule):
    # Hosts 0 and 1 stand on leaf 0, hosts 2 and 3 on leaf 1; cards and the uplink carry 2 GB/s. Both jobs send 4 GB from
    # leaf 0 to leaf 1, which takes 2 s alone. The second starts at 1 s, when the first has 2 GB left. 1 GB/s each: the
    # first ends at 3 s; the second has sent 2 GB by then and sends the other 2 in 1 s: 4 s, 3 s after its start.
    cluster = clos()
    first = messages_of(cluster, (0, 1, 4), devices=[0, 2])
    second = messages_of(cluster, (0, 1, 4), devices=[1, 3], start_s=1.0)
    assert finishes(schedule, cluster, first, second) == [[3.0], [3.0]]
    assert finishes(schedule, cluster, first) == finishes(schedule, cluster, second) == [[2.0]]


@pytest.mark.parametrize("schedule", SCHEDULERS)
def test_a_message_goes_phase_by_phase(schedule):
    # 4 GB at 4 GB/s and 0.5 s of latency; then 8 and 4 GB into device 0: 2 GB/s each until 2 s, then 4 for the other 4 GB:
    # 3 s, and 0.25 s of latency; then 0.125 s in which nothing is sent. 1.5 + 3.25 + 0.125 s.
    phases = (Phase(0.5, (Flow(0, 1, 4e9),)), Phase(0.25, (Flow(1, 0, 8e9), Flow(2, 0, 4e9))), Phase(0.125, ()))
    job = PlacedJob(execution_of([9.0], num_ranks=3, phases=[phases], members=[[0, 1, 2]]), np.arange(3))
    assert finishes(schedule, switch, job) == [[4.875]]
    # Where links are not shared the task takes the duration that it was given.
    assert finishes(schedule, switch, replace(job, is_fair=False)) == [[9.0]]


@pytest.mark.parametrize("schedule", SCHEDULERS)
@pytest.mark.parametrize("is_fair", [False, True])
def test_computing_and_sending_at_once_slows_both(schedule, is_fair):
    # Alone: rank 0 computes 4 s and sends 8 GB at 4 GB/s in 2 s. Together at 1.25 times the time: the message takes 2.5 s,
    # in which 2 s of the computation are done; the other 2 s take 2 s: 4.5 s.
    def job(compute_s, is_fair):
        execution = execution_of([compute_s, 2.0], phases=[(), sent(0, 1, 8e9)], members=[[], [0, 1]])
        return PlacedJob(execution, np.arange(2), is_fair=is_fair, overlap_slowdown=1.25)

    assert finishes(schedule, switch, job(4.0, is_fair)) == [[4.5, 2.5]]
    # A computation of 1 s takes 1.25 s, in which the message does 1 s of its 2 s.
    assert finishes(schedule, switch, job(1.0, is_fair)) == [[1.25, 2.25]]


@pytest.mark.parametrize("schedule", SCHEDULERS)
def test_a_message_slows_the_ranks_that_take_part_and_no_other(schedule):
    # Ranks 0, 1 and 2 compute 4 s; after rank 3's 1 s a message of 1 s joins ranks 2 and 3. It is slow because rank 2
    # computes: 1 to 3 s at twice the time. Rank 2 does 1 s by then, 1 s during it, and 2 s after it: 5 s.
    execution = execution_of(
        [4.0, 4.0, 4.0, 1.0, 1.0], [(3, 4)], num_ranks=4, ranks=[0, 1, 2, 3, 2], members=[(), (), (), (), (2, 3)]
    )
    job = PlacedJob(execution, np.arange(4), overlap_slowdown=2.0)
    assert finishes(schedule, switch, job) == [[4.0, 4.0, 5.0, 1.0, 3.0]]


def test_no_jobs_take_no_time():
    assert [schedule([], switch) for schedule in SCHEDULERS] == [[], []]
    empty = PlacedJob(execution_of([]), np.arange(2))
    assert finishes(concurrent_jobs.schedule, switch, empty) == [[]]


# --- the kernel and its reference ---


def assert_as_exact(jobs, cluster):
    for compiled, plain in zip(
        concurrent_jobs.schedule(jobs, cluster), concurrent_reference.schedule(jobs, cluster), strict=True
    ):
        for result, exact in zip(compiled, plain, strict=True):
            np.testing.assert_allclose(result, exact, rtol=1e-12, atol=1e-12)


@draws(40)
@given(seeds)
def test_the_kernel_equals_the_exact_reference(seed):
    assert_as_exact(*drawn_jobs(seed))


@draws(25)
@given(seeds)
@example(14764)  # two ends are a share of 3.6e-18 apart, which only rational numbers tell; see `SAME_MOMENT`
def test_the_kernel_equals_the_exact_reference_on_larger_jobs(seed):
    assert_as_exact(*drawn_jobs(seed, max_tasks=20, modes=(True,)))


@draws(100)
@given(seeds)
def test_where_nothing_is_shared_a_job_alone_runs_as_the_plain_kernel_says(seed):
    rng = np.random.default_rng(seed)
    execution = drawn_execution(rng, int(rng.integers(0, 30)), 4)
    (result,) = concurrent_jobs.schedule([PlacedJob(execution, np.arange(4), is_fair=False)], switch)
    assert [times.tobytes() for times in result] == [times.tobytes() for times in kernel.schedule(execution)]


@pytest.mark.parametrize("schedule", SCHEDULERS)
@pytest.mark.parametrize("message_first", [False, True])
@pytest.mark.parametrize("gbytes", [[15, 29, 33], [15, 27, 28], [8, 7, 26, 7, 29], [8, 28, 21, 19, 28, 23, 4, 30]])
def test_what_is_simultaneous_but_for_rounding_is_simultaneous(schedule, gbytes, message_first):
    # Flows leave device 0 over 7 GB/s; the last and largest ends after a seventh of the sum, as a computation does, but in
    # floating-point numbers one spacing earlier or later. After each of the two comes a task on rank 1, and the more urgent
    # one goes first all the same.
    end_s = sum(gbytes) / 7
    after_message_s, after_computed_s = after_a_message_and_a_computation(schedule, gbytes, end_s, message_first)
    first_s, second_s = sorted([after_message_s, after_computed_s])
    assert (after_message_s < after_computed_s) == message_first
    assert [first_s, second_s] == pytest.approx([end_s, end_s + 1], rel=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULERS)
@pytest.mark.parametrize("message_first", [False, True])
@pytest.mark.parametrize("later_s", [1e-12, -1e-12])
def test_what_is_further_apart_than_rounding_is_not_simultaneous(schedule, message_first, later_s):
    # As above, but the computation of 11 s ends 1e-12 s later or earlier, a share of 9e-14: it goes by time.
    gbytes = [15, 29, 33]
    end_s = sum(gbytes) / 7 + later_s
    after_message_s, after_computed_s = after_a_message_and_a_computation(schedule, gbytes, end_s, message_first)
    assert (after_message_s < after_computed_s) == (later_s > 0)


def after_a_message_and_a_computation(schedule, gbytes, end_s, message_first):
    """Starts of two tasks of 1 s on one rank: one waits for the largest flow, one for a computation that ends at ``end_s``."""
    n = len(gbytes)
    last, computed, after_message, after_computed = range(n - 1, n + 3)
    execution = execution_of(
        [0.0] * n + [end_s, 1.0, 1.0],
        [(last, after_message), (computed, after_computed)],
        num_ranks=4,
        ranks=[0] * (n + 1) + [1, 1],
        phases=[*(sent(0, 1 + k % 3, size * 1e9) for k, size in enumerate(gbytes)), (), (), ()],
        priority=[0] * (n + 1) + ([1, 2] if message_first else [2, 1]),
    )
    cluster = cluster_of({**SWITCH, "bandwidth_gbytes_per_s": 7.0})
    ((start_s, _),) = schedule([PlacedJob(execution, np.arange(4))], cluster)
    return start_s[[after_message, after_computed]]


# --- laws ---
