"""Hosts that fail: worked by hand, the same for every policy, and nothing is lost but unfinished steps."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.simulation.fleet import dynamics
from meshwright.simulation.fleet.state import JobState
from meshwright.simulation.fleet.timeline import watch

from ...draws import draws
from ...oracles.plain_player import FAILURE, exponential_s
from . import samples
from .samples import Workload, constant, menu_of, network_of, problem_of, ring

NEVER = math.inf
ONCE = 1e15
"""A mean time between failures by which none comes but those that a test sets."""


def started(problem, workload, fails_at_s):
    """The first decision, and hosts that fail when a test says."""
    state = samples.started(problem, workload)
    state.turns_at_s[0] = fails_at_s
    return state


def entry(degree, step_s):
    return degree, constant(step_s), constant(0.0), ring(0.0)


def first_start(state, actions):
    del state
    return next((action for action in actions if action > 0), 0)


def play(problem, state):
    return watch(problem, state, lambda: first_start(state, samples.possible(state)))


def test_a_job_that_loses_a_host_worked_by_hand():
    # Three hosts of four devices. Job 0 has hosts 0 and 1, 10 steps of 2 s; job 1 has host 2 from 1 s on, 20 steps of 1 s. Host 1
    # fails at 5 s: 2 of 2.5 steps of job 0 stay, half a step of 8 devices is lost. It wants eight devices and gets them when
    # host 1 is repaired at 15 s, restarts for 3 s and makes 8 steps until 34 s. As host 0 fails at 40 s job 2 comes, to another.
    network = network_of("one leaf")
    menu = menu_of(network, [[entry(8, 2.0)], [entry(4, 1.0)]])
    problem = problem_of(network, menu, mean_failure_s=ONCE, repair_s=10.0, restart_s=3.0)
    workload = Workload(np.array([0.0, 1.0, 40.0]), np.array([0, 1, 1]), np.array([10.0, 20.0, 5.0]), np.full(3, NEVER))
    state = started(problem, workload, [40.0, 5.0, NEVER])
    result = play(problem, state)
    assert state.finish_s[0].tolist() == [34, 21, 45]
    assert (state.num_restarts[0].tolist(), state.num_failures[0].tolist()) == ([1, 0, 0], [1, 0, 0])
    assert state.lost_device_s[0].tolist() == [0.5 * 2 * 8, 0, 0]
    assert state.held_device_s[0].tolist() == [8 * 5 + 8 * 19, 4 * 20, 4 * 5]
    # In the system 34, 20 and 5 s; nobody waits for a first start; four devices are out for 10 s and for the last 5 s.
    assert state.totals[0].tolist() == [59, 0, 292, 0, 0, 3, 60]
    assert [(outage.host, outage.begin_s, outage.end_s) for outage in result.outages] == [(1, 5, 15), (0, 40, 45)]
    assert [(stay.begin_s, stay.steps_from_s, stay.end_s) for stay in result.stays if stay.job == 0] == [(0, 0, 5), (15, 18, 34)]


FAILING = {"mean_failure_s": 300.0, "repair_s": 40.0}
"""Often enough that most drawn episodes meet some."""


@draws(6)
@given(samples.fleets(**FAILING), st.integers(0, 2**32 - 1))
def test_every_policy_meets_the_same_failures_which_are_the_drawn_ones(fleet, seed):
    problem, workload, rng = fleet
    schedules = []
    for choose in (np.random.default_rng(seed), rng):
        state, number = samples.started(problem, workload), iter(range(10**6))
        from_s = state.now_s[0]  # what was before the first decision is not watched
        result = watch(problem, state, lambda s=state, r=choose, n=number: samples.any_of(samples.possible(s), r, next(n)))
        schedules.append((state.now_s[0], [(outage.host, outage.begin_s) for outage in result.outages]))
    until_s = min(end_s for end_s, _ in schedules)
    first, other = ([outage for outage in outages if from_s < outage[1] < until_s] for _, outages in schedules)
    assert first == other
    for host in range(problem.num_hosts):
        drawn, up_s = [], 0.0
        while not drawn or drawn[-1] < until_s:
            drawn.append(up_s + exponential_s(problem.mean_failure_s, workload.seed, FAILURE, host, len(drawn)))
            up_s = drawn[-1] + problem.repair_s
        assert [begin_s for at, begin_s in first if at == host] == [fails_s for fails_s in drawn[:-1] if fails_s > from_s]


@draws(6)
@given(samples.fleets(**FAILING))
def test_a_completed_job_has_made_all_its_steps_and_a_stop_undoes_less_than_one(fleet):
    problem, workload, rng = fleet
    state, decisions = samples.started(problem, workload), 0
    steps, restarts = np.zeros((2, len(workload.arrival_s)))

    def note_stops():
        stopped = state.num_restarts[0] > restarts
        stored = state.done_steps[0, stopped]
        assert (stored == np.floor(stored)).all()
        assert (np.abs(steps[stopped] - stored - 0.5) <= 0.5 + 1e-6).all()
        steps[stopped], restarts[:] = stored, state.num_restarts[0]

    while not state.is_over[0]:
        goes_on = dynamics.decide(problem, state, 0, samples.any_of(samples.possible(state), rng, decisions))
        decisions += 1
        note_stops()
        while goes_on:
            running = state.running[0, : state.num_running[0]].copy()
            from_s, step_s = np.maximum(state.since_s[0, running], state.now_s[0]), state.step_s[0, running]
            goes_on = not dynamics.next_event(problem, state, 0)
            steps[running] += np.maximum(0.0, state.now_s[0] - from_s) / step_s
            note_stops()
    completed = state.status[0] == JobState.COMPLETED
    assert steps[completed] == pytest.approx(workload.num_steps[completed], abs=1e-6)


@draws(6)
@given(samples.fleets(mean_failure_s=math.inf))
def test_failures_that_never_come_change_nothing(fleet):
    problem, workload, rng = fleet
    actions = []

    def choose(_, possible):
        actions.append(samples.any_of(possible, rng, len(actions)))
        return actions[-1]

    never = samples.play(problem, workload, choose)
    played = iter(actions)
    rarely = samples.play(problem._replace(mean_failure_s=1e300, repair_s=7.0), workload, lambda *_: next(played))
    for name, values in never._asdict().items():
        if name not in ("waiting", "is_out", "turns_at_s", "host_failures"):  # whose sizes differ
            np.testing.assert_array_equal(values, getattr(rarely, name), err_msg=name)
