"""Laws of every fleet, under any decisions."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.simulation.fleet import dynamics
from meshwright.simulation.fleet.network import FleetNetwork
from meshwright.simulation.fleet.state import JobState, SharingMode, Total, new_state

from ...draws import draws
from . import samples
from .samples import PACKED


def check(problem, state):
    """The books balance."""
    network, running = problem.network, state.running[0, : state.num_running[0]].tolist()
    owner = state.owner[0].reshape(len(network.host_group), network.devices_per_host)
    is_out = state.is_out[0] if state.is_out.size else np.zeros(len(owner), np.bool_)
    assert (owner[is_out] < 0).all()  # no job runs on a host that is out
    assert state.free[0].tolist() == np.where(is_out, 0, (owner < 0).sum(axis=1)).tolist()
    assert sorted(set(owner[owner >= 0].tolist())) == sorted(running)
    for job in running:
        held = (owner == job).sum(axis=1)
        place = state.place[0, job]
        assert held.sum() == problem.menu.degree[state.entry[0, job]]
        assert set(held[held > 0].tolist()) == {state.part[0, place].item()}
        assert sorted(state.hosts[0, place, : state.num_hosts[0, place]].tolist()) == np.flatnonzero(held).tolist()
    assert (state.status[0, running] == JobState.RUNNING).all()
    assert (state.finish_s[0, running] >= state.now_s[0]).all()
    waiting = state.waiting[0, : state.num_waiting[0]].tolist()
    assert waiting == np.flatnonzero(state.status[0] == JobState.WAITING).tolist()


@draws(20)
@given(samples.fleets())
def test_devices_time_and_jobs_add_up(fleet):
    problem, workload, rng = fleet
    before = {}

    def choose(state, actions):
        if state.building[0] < 0:
            check(problem, state)
        if before:
            assert state.now_s[0] >= before["now_s"]
            stopped = state.num_restarts[0] > before["num_restarts"]
            lost = (before["done_steps"] - state.done_steps[0])[stopped & (state.now_s[0] == before["now_s"])]
            assert (lost < 1).all()
            assert (lost > -1e-6).all()
        before.update(now_s=state.now_s[0], num_restarts=state.num_restarts[0].copy(), done_steps=state.done_steps[0].copy())
        before["decisions"] = before.get("decisions", 0) + 1
        return samples.any_of(actions, rng, before["decisions"])

    state = samples.play(problem, workload, choose)
    status, totals = state.status[0], state.totals[0]
    completed = status == JobState.COMPLETED
    assert np.isin(status, (JobState.COMPLETED, JobState.REFUSED, JobState.EXPIRED)).all()
    assert totals[Total.BLOCKED] == (~completed).sum()
    assert totals[Total.LATE] == (state.finish_s[0, completed] > workload.deadline_s[completed]).sum()
    assert totals[Total.LATE] + totals[Total.MET] == completed.sum()
    assert totals[Total.HELD_DEVICE_S] == pytest.approx(state.held_device_s[0].sum())
    if completed.all():
        assert totals[Total.IN_SYSTEM_S] == pytest.approx((state.finish_s[0] - workload.arrival_s).sum())
    alone_s = state.start_s[0] + workload.num_steps * state.alone_s[0]
    uninterrupted = completed & (state.num_restarts[0] == 0)
    assert (state.finish_s[0] >= alone_s - 1e-9 * (1 + alone_s))[uninterrupted].all()
    if problem.sharing == SharingMode.NONE:  # so no job is another's business
        assert (state.finish_s[0] == alone_s)[uninterrupted].all()


@draws(15)
@given(samples.fleets(), st.integers(0, 2**32 - 1))
def test_episodes_side_by_side_are_as_they_are_alone(fleet, seed):
    problem, workload, _ = fleet
    rng, played = np.random.default_rng(seed), []

    def choose(_, actions):
        played.append(samples.any_of(actions, rng, len(played)))
        return played[-1]

    alone = samples.play(problem, workload, choose)
    both = new_state(problem, 2, len(workload.arrival_s))
    for e in range(2):
        for name, values in workload._asdict().items():
            getattr(both, name)[e] = values
        dynamics.start(problem, both, e)
    for at, action in enumerate(played):
        dynamics.act(problem, both, 1, action)
        if at % 2 == 0:
            dynamics.act(problem, both, 0, played[at // 2])
    for name in ("now_s", "status", "start_s", "finish_s", "totals", "load", "owner"):
        np.testing.assert_array_equal(getattr(both, name)[1], getattr(alone, name)[0])


def leaves(sizes):
    """Leaves of so many hosts of four devices; trunks of 10 GB/s."""
    num = len(sizes)
    group = np.repeat(np.arange(num), sizes)
    ways = [[] if a == b else [2 * a, 2 * b + 1] for a in range(num) for b in range(num)]
    return FleetNetwork(
        host_group=group,
        class_group=group,
        host_type=np.zeros_like(group),
        num_groups=num,
        group_site=np.zeros(num, np.int64),
        num_sites=1,
        num_trunks=num,
        group_first=np.cumsum([0, *sizes]),
        group_hosts=np.arange(len(group)),
        devices_per_host=4,
        way_first=np.cumsum([0, *map(len, ways)]),
        way_links=np.array([2 * len(group) + link for way in ways for link in way]),
        capacity_bytes_per_s=np.full(2 * len(group) + 2 * num, 10e9),
    )


@draws(20)
@given(st.permutations([1, 2, 4]), st.sampled_from([SharingMode.NONE, SharingMode.FAIR]), st.integers(0, 2**32 - 1))
def test_renumbering_leaves_of_different_sizes_changes_no_time(sizes, sharing, seed):
    # Jobs take whole hosts, so that leaves are as full as their free hosts say, and no two are alike from the start; where
    # two become alike, the larger leaf is told apart by its number alone, so such episodes are left out.
    finish_s, told_apart = [], []
    for order in ([1, 2, 4], sizes):
        rng, network = np.random.default_rng(seed), leaves(order)
        step_s = rng.uniform(1, 3, 4)
        types = [
            [(4 * hosts, samples.constant(step_s[i]), samples.constant(0.0), samples.ring(5e9))]
            for i, hosts in enumerate((1, 2, 3, 4))
        ]
        menu = samples.menu_of(network, types)
        workload = samples.Workload(
            np.cumsum(rng.exponential(4.0, 6)), rng.integers(0, 4, 6), rng.integers(1, 6, 6) + 0.0, np.full(6, np.inf)
        )
        problem = samples.problem_of(network, menu, rules=[(PACKED, 0)], sharing=int(sharing), queue_capacity=10)

        def choose(state, actions, order=order):
            free = np.add.reduceat(state.free[0], np.cumsum([0, *order[:-1]])) // 4
            told_apart.append(len(set(free.tolist()) - {0}) == (free > 0).sum())
            return next((action for action in actions if action > 0), 0)

        finish_s.append(samples.play(problem, workload, choose).finish_s[0])
    assume(all(told_apart))
    assert finish_s[0] == pytest.approx(finish_s[1])
