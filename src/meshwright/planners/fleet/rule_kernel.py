"""Rules that choose a fleet's next action, compiled: which job, which entry, which placement.

Every rule visits the offered jobs in its order. The first job that can start by the rule starts. A job that cannot start blocks
those behind it, unless the rule fills in behind it (``backfills``). A job that would miss its deadline on as many free devices
as the rule gives it gets the next larger number that meets it. Where hosts are picked one by one, a rule picks those that it
would have taken at once.

The normalised order counts a job's speed on a type of device relative to its mean speed over all types. An equal share gives it
that mean. The order evens out the work of jobs since arrival over the work by an equal share. A type with more value for the
other jobs on offer is left to them where another type is free.

Source:
    Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads", 2020, section 4.1, which
    maximises the least normalised throughput. There a linear program gives shares of time on each type. Here each decision
    raises the least share, and a job keeps its devices.
"""

import numpy as np

from ...compiled import njit
from ...simulation.fleet.actions import first_pause, first_refusal, start_number
from ...simulation.fleet.offers import choice_hosts, choice_step_s
from ...simulation.fleet.placing import can_run_on, find_hosts, largest_part, step_on
from ...simulation.fleet.runs import restart_s
from ...simulation.fleet.shared_steps import shared_step_times
from ...simulation.fleet.state import PlacementRule
from .rule import WAIT_FOR, EntryRule, JobOrder, PlacementChoice
from .wanted_degrees import device_second_price, fastest_s, wanted_degree

PARTS = 4.0
"""Resolution of shares of service, so that running jobs are not exchanged for a trifle."""


@njit
def choose(problem, state, e, rule):  # type: ignore[no-untyped-def]
    """Return the action of a rule in episode ``e``; one of those that are possible, its job's best where it must not pass."""
    if state.building[e] >= 0:
        return _pick(problem, state, e, rule)
    action = _rule_action(problem, state, e, rule)
    if action == 0 and not state.can_act[e, 0]:
        for place in range(problem.visible_waiting):
            if state.offered[e, place] >= 0 and action == 0:
                action = best_action(problem, state, e, rule, place, -1)
    return action


@njit
def _rule_action(problem, state, e, rule):  # type: ignore[no-untyped-def]
    """Return the action of a rule; 0 where it would pass."""
    if rule.preempts and state.in_round[e]:
        action = _preempt(problem, state, e, rule)
        if action > 0:
            return action
    if problem.may_refuse:
        for place in range(problem.visible_waiting):
            refusal = first_refusal(problem) + place
            if state.can_act[e, refusal] and _is_refused(problem, state, e, rule, state.offered[e, place]):
                return refusal
    is_done = np.zeros(problem.visible_waiting, np.bool_)
    for _ in range(problem.visible_waiting):
        best = -1
        for place in range(problem.visible_waiting):
            if state.offered[e, place] < 0 or is_done[place] or _is_refused(problem, state, e, rule, state.offered[e, place]):
                continue
            if best < 0 or _key(problem, state, e, rule, state.offered[e, place]) < _key(
                problem, state, e, rule, state.offered[e, best]
            ):
                best = place
        if best < 0:
            return 0
        is_done[best] = True
        action = start_action(problem, state, e, rule, best)
        if action > 0 or not rule.backfills:
            return max(action, 0)
    return 0


@njit
def _is_refused(problem, state, e, rule, job):  # type: ignore[no-untyped-def]
    return problem.menu.work_device_s[state.job_type[e, job]] * state.num_steps[e, job] > rule.most_work_device_s


@njit
def _key(problem, state, e, rule, job):  # type: ignore[no-untyped-def]
    """Return the sort key of a job, the least first; ties by arrival."""
    work = problem.menu.work_device_s[state.job_type[e, job]]
    if rule.order == JobOrder.SJF:
        return work * state.num_steps[e, job]
    if rule.order == JobOrder.SRTF:
        return work * (state.num_steps[e, job] - state.done_steps[e, job])
    if rule.order == JobOrder.EDF:
        return state.deadline_s[e, job]
    if rule.order == JobOrder.LAS:
        return 1.0 * (state.held_device_s[e, job] >= rule.service_limit_device_s)
    if rule.order == JobOrder.NORMALISED:
        return served_share(problem, state, e, job)
    return 0.0


@njit
def start_action(problem, state, e, rule, place):  # type: ignore[no-untyped-def]
    """Return the action that starts a waiting job by the rule, 0 where it cannot start or is to wait."""
    job = state.offered[e, place]
    d = wanted_degree(problem, state, e, rule, place, job)
    if rule.entry == EntryRule.PRICED:
        return _priced_action(problem, state, e, rule, place, d)
    if d < 0 or state.deadline_s[e, job] == np.inf:
        return best_action(problem, state, e, rule, place, d)
    for larger in range(d, len(problem.degrees)):
        action = best_action(problem, state, e, rule, place, larger)
        if action > 0:
            return action
    return 0


@njit
def best_action(problem, state, e, rule, place, d):  # type: ignore[no-untyped-def]
    """Return the best possible action for a job on offer on one degree (-1: all); 0 where there is none."""
    menu, job = problem.menu, state.offered[e, place]
    choices = len(problem.rule)
    number = max(0, place - problem.visible_waiting + 1)
    begin = menu.first_entry[state.job_type[e, job]]
    best, least = 0, np.inf
    must_build = _must_build(problem)
    hosts = np.empty(problem.max_hosts, np.int64)
    for entry in range(begin, menu.first_entry[state.job_type[e, job] + 1]):
        if d >= 0 and problem.entry_degree[entry] != d:
            continue
        for choice in range(choices):
            action = start_number(problem, place, entry - begin, choice)
            if not state.can_act[e, action] or (problem.rule[choice] == PlacementRule.CONSTRUCT and not must_build):
                continue
            if must_build:
                value = _to_build(problem, state, e, rule, entry, job, hosts)
            else:
                value = choice_step_s(problem, state, e, job, number, entry, choice)
                if rule.placement == PlacementChoice.LEAST_INTERFERENCE:
                    part = choice_hosts(problem, state, e, job, entry, choice, hosts)
                    if part > 0:
                        value *= _interference(problem, state, e, entry, hosts, menu.degree[entry] // part, part, value)
                elif problem.rule[choice] != rule.placement and problem.rule[choice] != PlacementRule.BLOCKS:
                    value *= 1.0 + 1e-3 if problem.rule[choice] == PlacementRule.NEAREST else 1e6
            if rule.entry == EntryRule.LEAST_DEVICE_SECONDS:
                value *= menu.degree[entry]
            if rule.order == JobOrder.NORMALISED and not must_build:
                value *= relative_speed_of_others(problem, state, e, job, problem.rule_type[choice])
            if value < least:
                best, least = action, value
    return best


@njit
def _must_build(problem):  # type: ignore[no-untyped-def]
    """Return whether hosts can be picked only one by one."""
    others = 0
    for choice in range(len(problem.rule)):
        others += problem.rule[choice] != PlacementRule.CONSTRUCT
    return others == 0


@njit
def _pick(problem, state, e, rule):  # type: ignore[no-untyped-def]
    """Return the next host for a job that is being placed; the first possible one where the rule finds none."""
    hosts = np.empty(problem.max_hosts, np.int64)
    entry, job = state.building_entry[e], state.offered[e, state.building[e]]
    if _to_build(problem, state, e, rule, entry, job, hosts) < np.inf:
        part = largest_part(problem.network.devices_per_host, problem.menu.degree[entry])
        for i in range(problem.menu.degree[entry] // part):
            if state.can_act[e, hosts[i]]:
                return hosts[i]
    return np.argmax(state.can_act[e])


@njit
def _to_build(problem, state, e, rule, entry, job, hosts):  # type: ignore[no-untyped-def]
    """Write the hosts that a rule picks for an entry, of the device type and by the placement that are best.

    Returns:
        Seconds of a step there, by ``LEAST_INTERFERENCE`` times its cost to all. Infinite where there are no hosts, or where
        the job alone would miss its deadline.
    """
    degree = problem.menu.degree[entry]
    part = largest_part(problem.network.devices_per_host, degree)
    need = degree // part
    left = state.num_steps[e, job] - state.done_steps[e, job]
    most_s = state.deadline_s[e, job] - state.now_s[e] - restart_s(problem, state, e, job, need)
    free = state.free[e].copy()
    for i in range(state.num_hosts[e, state.place[e, job]] if state.place[e, job] >= 0 else 0):
        free[state.hosts[e, state.place[e, job], i]] += state.part[e, state.place[e, job]]
    result = np.empty(problem.max_hosts, np.int64)
    least = np.inf
    looks_at_all = rule.placement == PlacementChoice.LEAST_INTERFERENCE
    for placement in (PlacementRule.PACKED, PlacementRule.SPREAD):
        if not looks_at_all and (placement == PlacementRule.SPREAD) != (rule.placement == PlacementChoice.SPREAD):
            continue
        for kind in range(problem.menu.step_s.shape[1]):
            if not can_run_on(problem, entry, kind, part):
                continue
            if find_hosts(problem, free, state.load[e], degree, placement, kind, result) != part:
                continue
            step_s, _ = step_on(problem, entry, result, need, part)
            if step_s * left > most_s:
                continue
            value = step_s * _interference(problem, state, e, entry, result, need, part, step_s) if looks_at_all else step_s
            if rule.order == JobOrder.NORMALISED:
                value *= relative_speed_of_others(problem, state, e, job, kind)
            if value < least:
                least = value
                hosts[:need] = result[:need]
    return least


@njit
def _interference(problem, state, e, entry, hosts, num_hosts, part, own_s):  # type: ignore[no-untyped-def]
    """Return the sum of the relative step times of all jobs if one more ran on some hosts, over that without it."""
    count, jobs, _, step_s = shared_step_times(problem, state, e, entry, hosts, num_hosts, part)
    before, after = 1.0, 0.0
    for i in range(count):
        if jobs[i] >= 0:
            alone = state.alone_s[e, jobs[i]]
            before += state.step_s[e, jobs[i]] / alone
            after += step_s[i] / alone
        else:
            after += step_s[i] / own_s
    return after / before


@njit
def _priced_action(problem, state, e, rule, place, target):  # type: ignore[no-untyped-def]
    """Return the possible action of least cost by `degree_by_price`; 0 where the wanted degree costs less by over `WAIT_FOR`."""
    menu, job = problem.menu, state.offered[e, place]
    price, best, least = device_second_price(problem, state, e, rule), 0, np.inf
    for d in range(len(problem.degrees)):
        action = best_action(problem, state, e, rule, place, d)
        if action > 0:
            number = (action - 1) // len(problem.rule) - place * problem.entries_per_job
            step_s = choice_step_s(
                problem, state, e, job, 0, menu.first_entry[state.job_type[e, job]] + number, (action - 1) % len(problem.rule)
            )
            cost = step_s * (1.0 + price * problem.degrees[d])
            if cost < least:
                best, least = action, cost
    ideal = fastest_s(problem, state, e, job, target) * (1.0 + price * problem.degrees[target])
    can_wait = state.can_act[e, 0] and state.deadline_s[e, job] == np.inf
    return 0 if can_wait and least > ideal * (1.0 + WAIT_FOR) else best


@njit
def _preempt(problem, state, e, rule):  # type: ignore[no-untyped-def]
    """Resize a running job in a round by its share, or pause one that another comes before; 0 for neither."""
    if rule.entry == EntryRule.FAIR_SHARE or rule.entry == EntryRule.PRICED:
        action = _resize(problem, state, e, rule)
        if action > 0 or (rule.order != JobOrder.SRTF and rule.order != JobOrder.LAS):
            return action
    first = first_pause(problem)
    waits, target = -1, 0
    for place in range(problem.visible_waiting):
        job = state.offered[e, place]
        if job >= 0 and (waits < 0 or _key(problem, state, e, rule, job) < _key(problem, state, e, rule, waits)):
            waits = job
            d = wanted_degree(problem, state, e, rule, place, job)
            target = problem.degrees[d] if 0 <= d < len(problem.degrees) else state.requested[e, job]
    if waits < 0 or state.free[e].sum() >= target:
        return 0
    worst = -1
    for place in range(problem.visible_waiting, len(state.offered[e])):
        job = state.offered[e, place]
        if job >= 0 and (
            worst < 0 or _key(problem, state, e, rule, job) > _key(problem, state, e, rule, state.offered[e, worst])
        ):
            worst = place
    if worst < 0 or _key(problem, state, e, rule, waits) >= _key(problem, state, e, rule, state.offered[e, worst]):
        return 0
    return first + worst - problem.visible_waiting


@njit
def _resize(problem, state, e, rule):  # type: ignore[no-untyped-def]
    """Shrink jobs beyond what the rule wants for them while others wait; grow those below it while nobody does."""
    for place in range(problem.visible_waiting, len(state.offered[e])):
        job = state.offered[e, place]
        if job < 0:
            continue
        d = wanted_degree(problem, state, e, rule, place, job)
        held = problem.menu.degree[state.entry[e, job]]
        target = problem.degrees[d]
        left = state.num_steps[e, job] - state.done_steps[e, job]
        if target * 2 <= held and state.num_waiting[e] > 0:
            action = best_action(problem, state, e, rule, place, d)
            if action > 0:
                return action
        if target >= held * 2 and state.num_waiting[e] == 0:
            saved = left * (state.step_s[e, job] - fastest_s(problem, state, e, job, d))
            count = target // largest_part(problem.network.devices_per_host, target)
            if saved > 2.0 * restart_s(problem, state, e, job, count):
                action = best_action(problem, state, e, rule, place, d)
                if action > 0:
                    return action
    return 0


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
    """Return the mean relative speed of the other jobs on offer that wait, on a type of devices; 1 where there are none."""
    total, count = 0.0, 0
    for place in range(problem.visible_waiting):
        other = state.offered[e, place]
        if other >= 0 and other != job:
            total += relative_speed(problem, state, e, other, kind)
            count += 1
    return total / count if count else 1.0


@njit
def relative_speed(problem, state, e, job, kind):  # type: ignore[no-untyped-def]
    """Return the speed of a job on a type of devices over its mean speed on all."""
    mean, kinds = 0.0, problem.menu.step_s.shape[1]
    for other in range(kinds):
        mean += _speed(problem, state, e, job, other) / kinds
    return _speed(problem, state, e, job, kind) / mean if mean > 0 else 0.0


@njit
def _speed(problem, state, e, job, kind):  # type: ignore[no-untyped-def]
    """Return steps a second of a job's fastest entry on as many devices of a type as its user asks for, else on any."""
    menu, job_type = problem.menu, state.job_type[e, job]
    least, least_of_any = np.inf, np.inf
    for entry in range(menu.first_entry[job_type], menu.first_entry[job_type + 1]):
        step_s = menu.step_s[entry, kind].min()
        least_of_any = min(least_of_any, step_s)
        if menu.degree[entry] == state.requested[e, job]:
            least = min(least, step_s)
    choice = least if least < np.inf else least_of_any
    return 0.0 if choice == np.inf else 1.0 / choice
