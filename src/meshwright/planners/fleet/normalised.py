"""Throughput of jobs normalised over types of devices: a job's service over its own equal share, and its type.

A job's speed on a type counts relative to its mean speed over all types. An equal share gives it that mean. The order of the
queue evens out the work of jobs since arrival over the work by an equal share. A type with more value for the other jobs on
offer is left to them where another type is free.

Source:
    Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads", 2020, section 4.1, which
    maximises the least normalised throughput. There a linear program gives shares of time on each type. Here each decision
    raises the least share, and a job keeps its devices.
"""

from __future__ import annotations

import numpy as np

from ...compiled import njit

PARTS = 4.0
"""Resolution of shares of service, so that running jobs are not exchanged for a trifle."""


@njit
def served_share(problem, state, e, job):  # type: ignore[no-untyped-def]
    """Return a job's work since arrival over that of an equal share of the types, in steps of a quarter."""
    waited_s = state.now_s[e] - state.arrival_s[e, job]
    if waited_s <= 0:
        return 0.0
    mean, kinds = 0.0, problem.menu.step_s.shape[1]
    for kind in range(kinds):
        mean += _speed(problem, state, e, job, kind) / kinds
    return np.floor(PARTS * state.done_steps[e, job] / (waited_s * mean)) / PARTS if mean > 0 else 0.0


@njit
def relative_speed_of_others(problem, state, e, job, kind):  # type: ignore[no-untyped-def]
    """Mean relative speed of the other jobs on offer that wait, on a type of devices; 1 where there are none."""
    total, count = 0.0, 0
    for place in range(problem.visible_waiting):
        other = state.offered[e, place]
        if other >= 0 and other != job:
            total += relative_speed(problem, state, e, other, kind)
            count += 1
    return total / count if count else 1.0


@njit
def relative_speed(problem, state, e, job, kind):  # type: ignore[no-untyped-def]
    """Speed of a job on a type of devices over its mean speed on all."""
    mean, kinds = 0.0, problem.menu.step_s.shape[1]
    for other in range(kinds):
        mean += _speed(problem, state, e, job, other) / kinds
    return _speed(problem, state, e, job, kind) / mean if mean > 0 else 0.0


@njit
def _speed(problem, state, e, job, kind):  # type: ignore[no-untyped-def]
    """Steps a second of a job's fastest entry on as many devices of a type as its user asks for, or else on any number."""
    menu, job_type = problem.menu, state.job_type[e, job]
    least, least_of_any = np.inf, np.inf
    for entry in range(menu.first_entry[job_type], menu.first_entry[job_type + 1]):
        step_s = menu.step_s[entry, kind].min()
        least_of_any = min(least_of_any, step_s)
        if menu.degree[entry] == state.requested[e, job]:
            least = min(least, step_s)
    chosen = least if least < np.inf else least_of_any
    return 0.0 if chosen == np.inf else 1.0 / chosen
