"""Small fleets whose events are worked out by hand."""

import math

import numpy as np
import pytest

from meshwright.simulation.fleet import dynamics, sharing
from meshwright.simulation.fleet.placing import find_hosts, placement_class
from meshwright.simulation.fleet.state import JobState, Resource, SharingMode

from . import samples
from .samples import CONSTRUCT, NEAREST, PACKED, SPREAD, Workload, constant, menu_of, network_of, problem_of, ring

NEVER = math.inf


def entry(degree, step_s, num_bytes=0.0):
    return degree, constant(step_s), constant(0.0), ring(num_bytes)


def jobs(*rows):
    """From rows (arrival, type, steps, deadline)."""
    return Workload(*(np.array(column) for column in zip(*rows, strict=True)))


def placed(problem, offer, number=0, choice=0):
    return 1 + (offer * problem.entries_per_job + number) * len(problem.rule) + choice


def first_choice(_, actions):
    """The first job that can start does."""
    return next(action for action in actions if action > 0)


def test_a_queue_of_two():
    # Each job takes the whole host, 10 steps of 1 s. Job 0 runs from 0 to 10; 1 and 2 wait; 3 finds the queue full at 3.
    # Job 4 comes at 15, while 1 runs and 2 waits. So 1 ends at 20, 2 at 30, 4 at 40.
    network = network_of("one host")
    problem = problem_of(network, menu_of(network, [[entry(8, 1.0)]]), queue_capacity=2)
    workload = jobs(*((arrival, 0, 10.0, NEVER) for arrival in (0.0, 1.0, 2.0, 3.0, 15.0)))
    state = samples.play(problem, workload, first_choice)
    assert state.finish_s[0, [0, 1, 2, 4]].tolist() == [10, 20, 30, 40]
    assert state.status[0].tolist() == [JobState.COMPLETED] * 3 + [JobState.REFUSED, JobState.COMPLETED]
    # In the system 10 + 19 + 28 + 0 + 25 s, waiting 9 + 18 + 15 s, 8 devices for 40 s.
    assert state.totals[0].tolist() == [82, 42, 320, 1, 0, 4, 0]


@pytest.mark.parametrize("resource", list(Resource))
@pytest.mark.parametrize(("stored", "ends_s"), [(1, [10, 20, 20, 22]), (2, [10, 10, 20, 22]), (2**62, [10, 10, 10, 22])])
def test_what_the_cluster_keeps_goes_to_who_takes_it_first(resource, stored, ends_s):
    # Three jobs of a host each come at 0; with a tree or a server 10 steps take 10 s, without 20 s. The fourth comes at 12, when
    # those of the first ones are free again.
    network = network_of("one leaf")
    menu = menu_of(network, [[entry(4, 1.0), entry(4, 2.0)]])
    has, holds = np.zeros(2, np.int64), np.zeros((2, 2), np.int64)
    has[resource], holds[0, resource] = stored, 1
    problem = problem_of(network, menu, resource_capacity=has, entry_demand=holds)
    workload = jobs(*((arrival, 0, 10.0, NEVER) for arrival in (0.0, 0.0, 0.0, 12.0)))
    state = samples.play(problem, workload, first_choice)
    assert state.finish_s[0].tolist() == ends_s


def test_two_jobs_on_one_trunk():
    # Two leaves of two hosts of four devices; a host's link carries 10 GB/s, a leaf's trunk 10 GB/s. Each job has a host
    # in each leaf, and sends 10 GB a step either way: each link is busy 1 s of its step of 4 s.
    network = network_of("two leaves")
    menu = menu_of(network, [[entry(8, 4.0, 10e9)]])
    problem = problem_of(network, menu, rules=[(CONSTRUCT, 0)], sharing=int(SharingMode.FAIR))
    state = samples.started(problem, jobs((0.0, 0, 10.0, NEVER), (8.0, 0, 10.0, NEVER)))
    for action in (placed(problem, 0), 0, 2):
        dynamics.act(problem, state, 0, action)
    # Hosts 0 and 2 out (links 0, 4) and in (1, 5), and the trunks (8 to 11) are busy a quarter of the time.
    assert state.load[0].tolist() == [0.25, 0.25, 0, 0, 0.25, 0.25, 0, 0, 0.25, 0.25, 0.25, 0.25]
    for action in (placed(problem, 0), 1, 3):
        dynamics.act(problem, state, 0, action)
    together_s = np.empty(2)
    links = np.array([0, 5, 8, 11, 4, 1, 10, 9, 2, 7, 8, 11, 6, 3, 10, 9])
    four, zeros, one = np.full(2, 4.0), np.zeros(2), np.ones(16)
    sharing.step_times(
        2, four, zeros, np.array([0, 8, 16]), links, one, one, problem.sharing_constants, problem.sharing, together_s
    )
    step_s = together_s[0]
    assert step_s > 4
    # At 8 s job 0 has made 2 of its steps; with the other 8 it ends at 8 + 8 s. Job 1 has made 8 by then, 2 are left alone.
    assert state.is_over[0]
    assert state.finish_s[0] == pytest.approx([8 + 8 * step_s, 16 + 8 * step_s])
    assert state.shared_s[0] == pytest.approx([8 * (step_s - 4)] * 2)


def elastic_problem(**keys):
    """Entries of two and of four devices on one host. Rounds are every 10 s; a restart takes 3 s and the state 2 x 1 s."""
    network = network_of("one host")
    menu = menu_of(network, [[entry(2, 4.0), entry(4, 2.0)]], state_bytes=[1e9])
    given = {"every_s": 10.0, "restart_s": 3.0, "visible_running": 2} | keys
    return problem_of(network, menu, **given)


def test_a_job_that_grows():
    problem = elastic_problem()
    state = samples.started(problem, jobs((0.0, 0, 10.0, NEVER)))
    dynamics.act(problem, state, 0, placed(problem, 0, 0))
    assert state.finish_s[0, 0] == 40
    # At the round of 10 s it has made 2.5 steps, of which 2 stay. With 5 s for the restart and 8 steps of 2 s it ends at 31;
    # by the round of 20 s it has made 2.5 more.
    assert state.now_s[0] == 10
    dynamics.act(problem, state, 0, placed(problem, problem.visible_waiting, 1))
    assert state.now_s[0] == 20
    assert state.done_steps[0, 0] == 4.5
    while not state.is_over[0]:
        dynamics.act(problem, state, 0, 0)
    assert state.finish_s[0, 0] == 31
    assert state.held_device_s[0, 0] == 10 * 2 + 21 * 4
    assert state.num_restarts[0, 0] == 1


@pytest.mark.parametrize(
    ("rule", "free", "degree", "hosts"),
    [
        # Eight hosts of two devices, two a leaf; the trunks of leaves 0 to 3 carry .5, .2, .1 and 0 of what they can.
        (PACKED, [1, 2, 0, 2, 2, 2, 1, 1], 2, [3]),  # leaves 0 and 1 have one such host: leaf 1 has fewer free devices
        (PACKED, [0, 2, 1, 2, 2, 2, 1, 1], 4, [4, 5]),
        (PACKED, [0, 2, 1, 2, 2, 2, 1, 1], 6, [4, 5, 1]),
        (PACKED, [0, 2, 1, 2, 2, 2, 1, 1], 10, []),
        (SPREAD, [0, 2, 1, 2, 2, 2, 1, 1], 2, [4]),  # leaf 3 carries nothing, but has no such host
        (SPREAD, [0, 2, 1, 2, 2, 2, 1, 1], 6, [4, 5, 3]),
        (SPREAD, [0, 0, 1, 2, 0, 0, 0, 0], 1, [3]),  # the emptiest host
        (PACKED, [0, 0, 1, 2, 0, 0, 0, 0], 1, [2]),  # the fullest host
        (NEAREST, [0, 1, 1, 1, 0, 0, 0, 1], 4, [2, 3, 1, 7]),  # one device of each
        (NEAREST, [0, 1, 1, 1, 0, 0, 0, 0], 4, []),
    ],
)
def test_hosts_of_each_rule(rule, free, degree, hosts):
    network = network_of("four leaves")
    problem = problem_of(network, menu_of(network, [[entry(degree, 1.0)]]), rules=[(rule, 0)])
    load = np.zeros(24)
    load[16::2] = [0.5, 0.2, 0.1, 0.0]
    result = np.empty(8, np.int64)
    part = find_hosts(problem, np.array(free), load, degree, rule, 0, result)
    assert result[: degree // part if part else 0].tolist() == hosts


@pytest.mark.parametrize(
    ("free", "degree", "hosts", "spread"),
    [
        ([2, 2, 2, 2, 2, 2], 4, [4, 5], 1),  # the smallest leaf that holds them
        ([2, 2, 2, 2, 2, 2], 6, [0, 1, 2], 1),
        ([2, 2, 0, 2, 2, 0], 6, [0, 1, 3], 0),  # no leaf holds them, the first site does: two leaves, rounded down one host each
        ([0, 2, 0, 2, 2, 0], 4, [1, 3], 0),
        ([0, 2, 0, 0, 2, 2], 6, [4, 5, 1], 2),  # no site holds them: the one with more hosts, then the other
        ([2, 2, 2, 2, 2, 2], 12, [0, 1, 2, 3, 4, 5], 3),
    ],
)
def test_packed_hosts_share_a_site_where_they_can(free, degree, hosts, spread):
    network = network_of("two sites")
    problem = problem_of(network, menu_of(network, [[entry(degree, 1.0)]]), rules=[(PACKED, 0)])
    result = np.empty(6, np.int64)
    assert find_hosts(problem, np.array(free), np.zeros(22), degree, PACKED, 0, result) == 2
    assert result[: degree // 2].tolist() == hosts
    assert placement_class(problem, result, degree // 2) == spread


@pytest.mark.parametrize(("stores_by_host", "restart_s"), [(False, 2.0), (True, 1.5)])
def test_the_state_of_a_job_goes_over_the_storage_of_the_hosts_that_it_leaves_and_of_those_that_it_starts_on(
    stores_by_host, restart_s
):
    """From one host of four devices to two: 1 GB written at 1 GB/s and read at twice that, or both at 1 GB/s."""
    network = network_of("two leaves")
    size = network.devices_per_host
    menu = menu_of(network, [[entry(size, 4.0), entry(2 * size, 2.0)]], state_bytes=[1e9])
    problem = problem_of(network, menu, every_s=10.0, visible_running=1, stores_by_host=stores_by_host)
    state = samples.started(problem, jobs((0.0, 0, 10.0, NEVER)))
    dynamics.act(problem, state, 0, placed(problem, 0, 0))
    dynamics.act(problem, state, 0, placed(problem, problem.visible_waiting, 1))
    # At 10 s 2.5 of 10 steps are done, of which 2 stay; 8 of 2 s are left.
    while not state.is_over[0]:
        dynamics.act(problem, state, 0, 0)
    assert state.finish_s[0, 0] == 10 + restart_s + 8 * 2
    assert state.last_hosts[0, 0] == 2
