"""Possible decisions now: jobs on offer, placements of each degree, and the legal actions.

The first ``visible_waiting`` jobs of the queue are on offer. In a round so are the first ``visible_running`` jobs by start that
neither restart nor were decided in it. A running job may be paused, and placed as if its devices were free.

A job may run by an entry on the hosts of a placement choice under three conditions. The choice has hosts, the entry is possible
in their placement class, and a job that has run keeps to ``min_degree`` and ``max_degree``. A waiting job must also be able to
meet its deadline that way, alone and with its restart. It starts only while fewer than ``max_running`` jobs run.

To construct takes enough hosts on which the entry is possible, wherever they lie, by the largest part of a host that divides its
degree. A waiting job must meet its deadline on each of them in their best arrangement. An entry whose messages switches reduce
needs aggregation trees and servers that no other running job holds. Where all are held, the same layout without them remains.

Where refusals are allowed, each waiting job on offer that has never run may be refused. That alone is no decision, unless more
jobs wait than are on offer.

To pass is possible unless time could not advance: if no job runs and none is to come, one that can start must.
"""

import numpy as np

from ...compiled import njit
from .actions import first_pause, first_refusal, start_number
from .menu_table import is_free
from .placing import can_run_on, find_hosts, largest_part, log2, placement_class
from .runs import restart_s
from .state import JobState, PlacementRule, Resource


@njit
def offer(problem, state, e):  # type: ignore[no-untyped-def]
    """Write the jobs that are offered, how each degree could be placed, and which actions are possible."""
    state.can_act[e] = False
    state.can_act[e, 0] = True
    state.offered[e] = -1
    room = np.zeros(problem.menu.step_s.shape[1:3], np.int64)
    if state.num_waiting[e] > 0:
        _find_placements(problem, state, e, 0, state.free[e])
        _count_hosts(problem, state.free[e], room)
    trees, servers = left_of(problem, state, e, -1, Resource.TREES), left_of(problem, state, e, -1, Resource.SERVERS)
    for i in range(min(problem.visible_waiting, state.num_waiting[e])):
        job = state.waiting[e, i]
        state.offered[e, i] = job
        if state.num_running[e] < problem.max_running:
            _offer_job(problem, state, e, i, job, 0, state.free[e], room, trees, servers)
        if problem.may_refuse and np.isnan(state.start_s[e, job]):
            state.can_act[e, first_refusal(problem) + i] = True
    coming = state.num_arrived[e]
    if state.num_running[e] == 0 and (coming == state.arrival_s.shape[1] or state.arrival_s[e, coming] == np.inf):
        state.can_act[e, 0] = not can_start(problem, state, e)
    if not state.in_round[e]:
        return
    place = problem.visible_waiting
    for i in range(state.num_running[e]):
        job = state.running[e, i]
        if place == len(state.offered[e]):
            break
        if state.was_offered[e, job] or state.since_s[e, job] > state.now_s[e]:
            continue
        state.offered[e, place] = job
        free = _free_without(state, e, job)
        number = place - problem.visible_waiting
        _find_placements(problem, state, e, 1 + number, free)
        _count_hosts(problem, free, room)
        trees, servers = left_of(problem, state, e, job, Resource.TREES), left_of(problem, state, e, job, Resource.SERVERS)
        _offer_job(problem, state, e, place, job, 1 + number, free, room, trees, servers)
        state.can_act[e, first_pause(problem) + number] = True
        place += 1


@njit
def can_start(problem, state, e):  # type: ignore[no-untyped-def]
    """Return whether a job on offer can start, or a running one be restarted elsewhere or paused."""
    return state.can_act[e, 1 : first_refusal(problem)].any()


@njit
def has_choice(problem, state, e):  # type: ignore[no-untyped-def]
    """Return whether there is something to decide."""
    if state.num_waiting[e] > problem.visible_waiting and state.can_act[e, first_refusal(problem) :].any():
        return True
    return can_start(problem, state, e)


@njit
def offer_hosts(problem, state, e):  # type: ignore[no-untyped-def]
    """Mark the hosts that may be picked next."""
    entry, place = state.building_entry[e], state.building[e]
    part = largest_part(problem.network.devices_per_host, problem.menu.degree[entry])
    state.can_act[e] = False
    suits = np.zeros(problem.menu.step_s.shape[1], np.bool_)
    for kind in range(len(suits)):
        job = state.offered[e, place]
        suits[kind] = _suits(problem, state, e, job, entry, kind, part, place < problem.visible_waiting)
    for host in range(state.free.shape[1]):
        can = state.free[e, host] >= part and suits[problem.network.host_type[host]]
        for i in range(state.num_built[e]):
            can = can and state.built[e, i] != host
        state.can_act[e, host] = can


@njit
def _find_placements(problem, state, e, number, free):  # type: ignore[no-untyped-def]
    """Find how each degree could be placed by each choice on free devices."""
    hosts = np.empty(problem.max_hosts, np.int64)
    size = problem.network.devices_per_host
    for d in range(len(problem.degrees)):
        degree = problem.degrees[d]
        for choice in range(len(problem.rule)):
            if problem.rule[choice] == PlacementRule.CONSTRUCT:
                part = largest_part(size, degree)
                count = 0
                for host in range(len(free)):
                    count += free[host] >= part
                can = degree // part <= min(count, problem.max_hosts)
                state.part_index[e, number, d, choice] = log2(part) if can else -1
                state.spread_index[e, number, d, choice] = 0
                continue
            if problem.rule[choice] == PlacementRule.BLOCKS:
                state.part_index[e, number, d, choice] = log2(size)
                state.spread_index[e, number, d, choice] = 0
                continue
            part = find_hosts(problem, free, state.load[e], degree, problem.rule[choice], problem.rule_type[choice], hosts)
            if problem.rule[choice] == PlacementRule.NEAREST and part == largest_part(size, degree):
                part = 0  # as packed
            state.part_index[e, number, d, choice] = log2(part) if part > 0 else -1
            if part > 0:
                state.spread_index[e, number, d, choice] = placement_class(problem, hosts, degree // part)


@njit
def _count_hosts(problem, free, room):  # type: ignore[no-untyped-def]
    """Write how many hosts of each type have a part of each size free, ``(types, log2 sizes)``; for constructions."""
    room[:] = 0
    for host in range(len(free)):
        kind = problem.network.host_type[host]
        for g in range(room.shape[1]):
            room[kind, g] += free[host] >= 1 << g


@njit
def _offer_job(problem, state, e, place, job, number, free, room, trees, servers):  # type: ignore[no-untyped-def]
    """Mark the actions that a job on offer allows, to which so many devices of each host, trees and servers are left."""
    menu, kind = problem.menu, state.job_type[e, job]
    choices = len(problem.rule)
    steps_left = state.num_steps[e, job] - state.done_steps[e, job]
    begin = menu.first_entry[kind]
    has_run = not np.isnan(state.start_s[e, job])
    for entry in range(begin, menu.first_entry[kind + 1]):
        d = problem.entry_degree[entry]
        if problem.entry_demand[entry, Resource.TREES] > trees or problem.entry_demand[entry, Resource.SERVERS] > servers:
            continue
        if has_run and not problem.min_degree <= problem.degrees[d] <= problem.max_degree:
            continue
        for choice in range(choices):
            if state.part_index[e, number, d, choice] < 0:
                continue
            step_s = _found_step_s(problem, state, e, number, entry, choice)
            if problem.rule[choice] == PlacementRule.CONSTRUCT:
                if not _can_construct(problem, state, e, job, entry, room, number == 0):
                    continue
            elif problem.rule[choice] == PlacementRule.BLOCKS:
                step_s = _block_step_s(problem, state, e, job, entry, choice, free)
            if step_s == np.inf:
                continue
            if number == 0:
                count = problem.degrees[d] >> state.part_index[e, number, d, choice]
                left_s = step_s * steps_left + restart_s(problem, state, e, job, count)
                if state.now_s[e] + left_s > state.deadline_s[e, job]:
                    continue
            state.can_act[e, start_number(problem, place, entry - begin, choice)] = True


@njit
def left_of(problem, state, e, job, resource):  # type: ignore[no-untyped-def]
    """Return the amount of a `Resource` that no other running job holds."""
    left = problem.resource_capacity[resource]
    for i in range(state.num_running[e]):
        other = state.running[e, i]
        if other != job:
            left -= problem.entry_demand[state.entry[e, other], resource]
    return left


@njit
def _suits(problem, state, e, job, entry, kind, part, waits):  # type: ignore[no-untyped-def]
    """Return whether an entry is possible on hosts of a type, and a waiting job can meet its deadline at its best there."""
    if not can_run_on(problem, entry, kind, part):
        return False
    if not waits:
        return True
    left = state.num_steps[e, job] - state.done_steps[e, job]
    step_s = problem.menu.step_s[entry, kind, log2(part)].min()
    again_s = restart_s(problem, state, e, job, problem.menu.degree[entry] // part)
    return state.now_s[e] + (step_s * left + again_s) <= state.deadline_s[e, job]


@njit
def _can_construct(problem, state, e, job, entry, room, waits):  # type: ignore[no-untyped-def]
    """Return whether there are hosts enough that suit an entry; ``room`` as `_count_hosts` has counted."""
    degree = problem.menu.degree[entry]
    part = largest_part(problem.network.devices_per_host, degree)
    need = degree // part
    for kind in range(problem.menu.step_s.shape[1]):
        if room[kind, log2(part)] > 0 and _suits(problem, state, e, job, entry, kind, part, waits):
            need -= room[kind, log2(part)]
    return need <= 0


@njit
def _free_without(state, e, job):  # type: ignore[no-untyped-def]
    """Return free devices of each host if a running job had stopped."""
    free = state.free[e].copy()
    held = state.place[e, job]
    for j in range(state.num_hosts[e, held]):
        free[state.hosts[e, held, j]] += state.part[e, held]
    return free


@njit
def find_block(problem, state, e, job, entry, wanted_type, free):  # type: ignore[no-untyped-def]
    """Return the first free block for an entry on which a waiting job meets its deadline, alone and with its restart; else -1."""
    blocks, degree = problem.blocks, problem.menu.degree[entry]
    step_s = problem.menu.step_s[entry, wanted_type, log2(problem.network.devices_per_host)]
    left = state.num_steps[e, job] - state.done_steps[e, job]
    again_s = restart_s(problem, state, e, job, degree // problem.network.devices_per_host)
    limit_s = np.inf if state.status[e, job] == JobState.RUNNING else state.deadline_s[e, job]
    for block in range(len(blocks.degree)):
        if blocks.degree[block] != degree or not is_free(problem, free, block, wanted_type):
            continue
        taken_s = step_s[blocks.place_class[block]]
        if taken_s < np.inf and state.now_s[e] + (taken_s * left + again_s) <= limit_s:
            return block
    return -1


@njit
def choice_hosts(problem, state, e, job, entry, choice, hosts):  # type: ignore[no-untyped-def]
    """Write the hosts that a placement choice finds for a job by an entry, on free devices; devices a host, 0 for none."""
    degree, wanted_type = problem.menu.degree[entry], problem.rule_type[choice]
    if problem.rule[choice] != PlacementRule.BLOCKS:
        return find_hosts(problem, state.free[e], state.load[e], degree, problem.rule[choice], wanted_type, hosts)
    block = find_block(problem, state, e, job, entry, wanted_type, state.free[e])
    if block < 0:
        return 0
    first, last = problem.blocks.first_host[block], problem.blocks.first_host[block + 1]
    hosts[: last - first] = problem.blocks.hosts[first:last]
    return problem.network.devices_per_host


@njit
def choice_step_s(problem, state, e, job, number, entry, choice):  # type: ignore[no-untyped-def]
    """Return the seconds of a step of an entry alone on the hosts that a placement choice finds; of a construction at best."""
    if problem.rule[choice] == PlacementRule.BLOCKS:
        free = state.free[e] if number == 0 else _free_without(state, e, job)
        return _block_step_s(problem, state, e, job, entry, choice, free)
    return _found_step_s(problem, state, e, number, entry, choice)


@njit
def _block_step_s(problem, state, e, job, entry, choice, free):  # type: ignore[no-untyped-def]
    block = find_block(problem, state, e, job, entry, problem.rule_type[choice], free)
    if block < 0:
        return np.inf
    part_index = log2(problem.network.devices_per_host)
    return problem.menu.step_s[entry, problem.rule_type[choice], part_index, problem.blocks.place_class[block]]


@njit
def _found_step_s(problem, state, e, number, entry, choice):  # type: ignore[no-untyped-def]
    d = problem.entry_degree[entry]
    part = state.part_index[e, number, d, choice]
    if problem.rule[choice] == PlacementRule.CONSTRUCT:
        return problem.menu.step_s[entry, :, part].min()
    return problem.menu.step_s[entry, problem.rule_type[choice], part, state.spread_index[e, number, d, choice]]
