"""Waiting jobs may be refused, and make room for those behind them."""

import math

import numpy as np

from meshwright.planners.fleet.rollout import play_rule
from meshwright.planners.fleet.rules import fleet_rule
from meshwright.simulation.fleet import dynamics
from meshwright.simulation.fleet.state import JobState, Total

from . import samples
from .samples import Workload, constant, menu_of, network_of, problem_of

NEVER = math.inf


def one_host(**keys):
    """Every job takes the whole host, 1 s a step."""
    network = network_of("one host")
    menu = menu_of(network, [[(8, constant(1.0), constant(0.0), samples.ring(0.0))]], work_device_s=[8.0])
    return problem_of(network, menu, may_refuse=True, **keys)


def jobs(*steps):
    """All come at 0."""
    count = len(steps)
    return Workload(np.zeros(count), np.zeros(count, np.int64), np.array(steps, float), np.full(count, NEVER))


def test_a_refused_job_makes_room_for_the_next_one():
    # One job on offer. Job 0 is refused at once; 1 runs to 10 s; while it runs 2 is refused, and 3 runs from 10 to 14 s.
    problem = one_host(visible_waiting=1)
    state = samples.started(problem, jobs(99.0, 10.0, 99.0, 4.0))
    refusal = problem.first_refusal
    assert samples.possible(state) == [0, 1, refusal]
    dynamics.act(problem, state, 0, refusal)
    assert state.status[0, 0] == JobState.REFUSED
    assert state.totals[0, Total.BLOCKED] == 1
    dynamics.act(problem, state, 0, 1)
    assert state.now_s[0] == 0
    assert samples.possible(state) == [0, refusal]  # nothing fits, but job 3 is not on offer yet
    dynamics.act(problem, state, 0, refusal)
    assert state.now_s[0] == 10
    dynamics.act(problem, state, 0, 1)
    assert state.is_over[0]
    assert state.status[0].tolist() == [JobState.REFUSED, JobState.COMPLETED, JobState.REFUSED, JobState.COMPLETED]
    assert state.finish_s[0, [1, 3]].tolist() == [10, 14]


def test_a_rule_that_refuses_is_not_held_up_by_those_it_refuses():
    """Two long jobs hold the only places on offer: without refusals one has to run before a short one behind them is seen."""
    work = np.arange(101) * 8.0 * 0.5  # a half of all jobs has more than 25 steps
    stored = {}
    for may_refuse in (False, True):
        problem = one_host(visible_waiting=2, queue_capacity=9)._replace(may_refuse=may_refuse)
        rule = fleet_rule("fifo+refuse-50", problem, work)
        state = samples.started(problem, jobs(90.0, 90.0, 1.0, 1.0, 1.0))
        play_rule(problem, state, 0, rule)
        stored[may_refuse] = state.finish_s[0, 2:].tolist()
        assert (state.status[0, :2] == JobState.REFUSED).all() == may_refuse
    assert stored == {False: [91.0, 92.0, 93.0], True: [1.0, 2.0, 3.0]}
