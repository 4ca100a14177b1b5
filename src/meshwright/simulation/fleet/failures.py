"""Hosts of a fleet that fail and are repaired, compiled.

Each host fails after independent exponential times of being up, whoever uses it, so that all policies meet the same failures in
an episode. It is out for ``repair_s``. While it is out none of its devices is free. Jobs on it go back to the queue.
"""

import numpy as np

from ...compiled import njit
from ..random_times import FAILURE, exponential_s
from .runs import send_back
from .shared_steps import share_links


@njit
def draw_failures(problem, state, e):  # type: ignore[no-untyped-def]
    """Draw the first failure of every host; all are up."""
    state.is_out[e] = False
    state.host_failures[e] = 0
    state.num_failures[e] = 0
    state.lost_device_s[e] = 0.0
    for host in range(state.turns_at_s.shape[1]):
        state.turns_at_s[e, host] = exponential_s(problem.mean_failure_s, state.seed[e], FAILURE, host, 0)


@njit
def next_turn(state, e):  # type: ignore[no-untyped-def]
    """The host that fails or is repaired next, of several the first, and when; infinite where none does."""
    result, time = -1, np.inf
    for host in range(state.turns_at_s.shape[1]):
        if state.turns_at_s[e, host] < time:
            result, time = host, state.turns_at_s[e, host]
    return result, time


@njit
def turn(problem, state, e, host):  # type: ignore[no-untyped-def]
    """A host that is up fails, one that is out is repaired."""
    size = problem.network.devices_per_host
    if state.is_out[e, host]:
        state.is_out[e, host] = False
        state.free[e, host] = size
        up_s = exponential_s(problem.mean_failure_s, state.seed[e], FAILURE, host, state.host_failures[e, host])
        state.turns_at_s[e, host] = state.now_s[e] + up_s
        return
    state.is_out[e, host] = True
    state.host_failures[e, host] += 1
    state.turns_at_s[e, host] = state.now_s[e] + problem.repair_s
    for device in range(host * size, (host + 1) * size):
        job = state.owner[e, device]
        if job >= 0:
            place, done = state.place[e, job], state.done_steps[e, job]
            held = state.num_hosts[e, place] * state.part[e, place]
            state.num_failures[e, job] += 1
            send_back(problem, state, e, job)
            state.lost_device_s[e, job] += max(0.0, done - state.done_steps[e, job]) * state.step_s[e, job] * held
    state.free[e, host] = 0
    share_links(problem, state, e)
