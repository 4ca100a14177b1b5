"""How many devices a rule of a fleet wants for a job, compiled: the part of `rule_kernel` that `EntryRule` names.

Degrees are indices into ``problem.degrees``, the numbers of devices that entries of the menu have, rising.
"""

import numpy as np

from ...compiled import njit
from .rule import EntryRule


@njit
def wanted_degree(problem, state, e, rule, place, job):  # type: ignore[no-untyped-def]
    """Return the degree that a rule wants for the job at a place of offer; -1 where any will do."""
    if rule.entry == EntryRule.REQUESTED:
        return np.searchsorted(problem.degrees, state.requested[e, job])
    if rule.entry == EntryRule.FIXED:
        return _usable(problem, state, e, job, rule.degree)
    if rule.entry == EntryRule.FAIR_SHARE:
        return _within(problem, state, e, job, _share(problem, state, e, rule))
    if rule.entry == EntryRule.MARGINAL_GAIN:
        return _by_gain(problem, state, e, place)
    if rule.entry == EntryRule.PRICED:
        return degree_by_price(problem, state, e, rule, job)
    return -1


@njit
def device_second_price(problem, state, e, rule):  # type: ignore[no-untyped-def]
    """Return the price of a device-second, in seconds: the jobs that wait for it."""
    devices = problem.network.devices_per_host * len(problem.network.host_group)
    return (rule.waiting_weight * state.num_waiting[e] + state.num_running[e]) / devices


@njit
def degree_by_price(problem, state, e, rule, job):  # type: ignore[no-untyped-def]
    """Return the degree that costs a job least if all devices were free, its own time and the price of its device-seconds."""
    price, best, least = device_second_price(problem, state, e, rule), -1, np.inf
    for d in range(len(problem.degrees)):
        cost = fastest_s(problem, state, e, job, d) * (1.0 + price * problem.degrees[d])
        if cost < least:
            best, least = d, cost
    return best


@njit
def _share(problem, state, e, rule):  # type: ignore[no-untyped-def]
    """Return devices of each job when all in the cluster get the same of hosts that are up, and none less than the least."""
    devices = (len(problem.network.host_group) - state.is_out[e].sum()) * problem.network.devices_per_host
    return max(problem.degrees[rule.degree], devices / max(1, state.num_waiting[e] + state.num_running[e]))


@njit
def fastest_s(problem, state, e, job, d):  # type: ignore[no-untyped-def]
    """Return the least seconds of a step of a job on a degree, infinite where it cannot."""
    menu, kind = problem.menu, state.job_type[e, job]
    least = np.inf
    for entry in range(menu.first_entry[kind], menu.first_entry[kind + 1]):
        if problem.entry_degree[entry] == d:
            least = min(least, menu.step_s[entry].min())
    return least


@njit
def _usable(problem, state, e, job, d):  # type: ignore[no-untyped-def]
    """Return the largest degree up to ``d`` on which a job runs; the smallest of all where there is none."""
    for smaller in range(d, -1, -1):
        if fastest_s(problem, state, e, job, smaller) < np.inf:
            return smaller
    for larger in range(d, len(problem.degrees)):
        if fastest_s(problem, state, e, job, larger) < np.inf:
            return larger
    return d


@njit
def _within(problem, state, e, job, share):  # type: ignore[no-untyped-def]
    """Return the degree of the fastest entry within a share of devices; the smallest that runs where none is within it."""
    best, least = -1, np.inf
    for d in range(len(problem.degrees)):
        step_s = fastest_s(problem, state, e, job, d)
        if step_s == np.inf:
            continue
        if (problem.degrees[d] <= share or best < 0) and step_s < 0.97 * least:  # a larger part must be worth it
            best, least = d, step_s
    return best


@njit
def _by_gain(problem, state, e, target):  # type: ignore[no-untyped-def]
    """Return the degree that an offered job gets when free devices go where they save most time."""
    free = state.free[e].sum()
    got = np.full(problem.visible_waiting, -1, np.int64)
    while True:
        best, most, into = -1, 0.0, -1
        for place in range(problem.visible_waiting):
            job = state.offered[e, place]
            if job < 0:
                continue
            left = state.num_steps[e, job] - state.done_steps[e, job]
            held = 0 if got[place] < 0 else problem.degrees[got[place]]
            now_s = 1e3 * left if got[place] < 0 else left * fastest_s(problem, state, e, job, got[place])
            for d in range(got[place] + 1, len(problem.degrees)):
                step_s = fastest_s(problem, state, e, job, d)
                if step_s == np.inf or problem.degrees[d] - held > free:
                    continue
                gain = (now_s - left * step_s) / (problem.degrees[d] - held)
                if got[place] < 0:
                    gain = 1e12 / max(left * step_s * problem.degrees[d], 1e-9)  # everybody first, the shortest before others
                if gain > most:
                    best, most, into = place, gain, d
                break
        if best < 0:
            break
        free -= problem.degrees[into] - (0 if got[best] < 0 else problem.degrees[got[best]])
        got[best] = into
    return got[target] if got[target] >= 0 else len(problem.degrees)
