"""The compiled fleet does what the plain one does, decision by decision and bit for bit."""

import numpy as np
from hypothesis import given

from meshwright.simulation.fleet import dynamics
from meshwright.simulation.fleet.state import SharingMode

from ...draws import draws
from ...oracles.plain_fleet import PlainFleet
from . import samples


def seen(state):
    """Results of an episode and of each of its jobs."""
    columns = (state.status, state.entry, state.num_restarts, state.start_s, state.finish_s, state.done_steps)
    columns += (state.step_s, state.held_device_s, state.shared_s, state.num_failures, state.lost_device_s)
    jobs = [tuple(column[0, k].item() for column in columns) for k in range(state.status.shape[1])]
    waiting, running = state.waiting[0, : state.num_waiting[0]], state.running[0, : state.num_running[0]]
    hosts = [state.hosts[0, p, : state.num_hosts[0, p]].tolist() for p in state.place[0, running]]
    trunks = state.trunk_share[0, state.place[0, running]].tolist()
    owners, load = state.owner[0].tolist(), state.load[0].tolist()
    return state.now_s[0].item(), waiting.tolist(), running.tolist(), hosts, trunks, owners, load, state.totals[0].tolist(), jobs


def seen_plainly(fleet):
    nan = np.nan
    jobs = [
        (
            int(job.status),
            job.entry.number if job.entry else -1,
            job.restarts,
            nan if job.start_s is None else job.start_s,
            nan if job.finish_s is None else job.finish_s,
            *(job.done, job.step_s, job.held_device_s, job.shared_s, job.failures, job.lost_device_s),
        )
        for job in fleet.jobs
    ]
    waiting, running = [job.number for job in fleet.waiting], [job.number for job in fleet.running]
    hosts = [[host.number for host in job.hosts] for job in fleet.running]
    owners = [-1 if owner is None else owner.number for host in fleet.hosts for owner in host.owners]
    trunks = [job.trunk_share for job in fleet.running]
    return fleet.now_s, waiting, running, hosts, trunks, owners, fleet.load, list(fleet.totals.values()), jobs


def play_both(problem, workload, rng):
    fleet, state = PlainFleet(problem, *workload), samples.started(problem, workload)
    episode = fleet.play()
    decisions, actions = 0, next(episode, None)
    while actions is not None:
        assert not state.is_over[0]
        assert samples.possible(state) == sorted(actions)
        np.testing.assert_equal(seen(state), seen_plainly(fleet))
        action = samples.any_of(sorted(actions), rng, decisions)
        decisions += 1
        dynamics.act(problem, state, 0, action)
        try:
            actions = episode.send(action)
        except StopIteration:
            break
    assert state.is_over[0]
    assert samples.possible(state) == []
    np.testing.assert_equal(seen(state), seen_plainly(fleet))
    return fleet


@draws(40)
@given(samples.fleets())
def test_both_offer_the_same_actions_and_do_the_same(fleet):
    play_both(*fleet)


@draws(24)
@given(samples.fleets(mean_failure_s=300.0, repair_s=40.0))
def test_both_stop_the_same_jobs_when_hosts_fail(fleet):
    play_both(*fleet)


RUNNING = {"visible_running": 3, "every_s": np.inf, "at_events": True, "min_degree": 1, "max_degree": 64}


@draws(24)
@given(samples.fleets(clusters=("two leaves", "four leaves"), rules=[samples.BLOCKS], **RUNNING))
def test_both_decide_running_jobs_at_arrivals_and_ends_on_blocks(fleet):
    play_both(*fleet)


SHARED = {"sharing": int(SharingMode.FAIR), "max_hosts": 8, "max_running": 64, "min_degree": 1, "max_degree": 64}
WIDE = [samples.CONSTRUCT, samples.SPREAD, samples.NEAREST]


@draws(24)
@given(samples.fleets(clusters=("four leaves", "a host a leaf", "torus"), rules=WIDE, **SHARED))
def test_both_slow_down_the_same_jobs(fleet):
    play_both(*fleet)
