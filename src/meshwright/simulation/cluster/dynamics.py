"""Cluster dynamics: jobs arrive, are cut and placed or turned away, run and leave; many episodes side by side.

Everything is flat arrays stepped by compiled functions. Legend: ``e`` episodes, ``k`` jobs of an episode, ``n`` devices, ``b``
blocks, ``g`` graphs, ``c`` placement classes, ``a`` candidates. Candidate 0 rejects the job; then come, for each degree, one
candidate per placement rule, then listed blocks. A job that is placed owns its devices until it ends.

With a queue (``queue_capacity`` above 0), a job that is turned down on arrival waits. It needs room in the queue, and some block
that could still meet its deadline. Each time that devices become free, each waiting job is decided once more, in the order of the
queue (`QueueOrder`, by default by arrival). Jobs that no free block suits are passed over. A job that keeps waiting does not hold
up those behind it. A job leaves the queue when it is placed, or as blocked when no block, were it free, could meet its deadline
any more. An episode ends at the arrival after its last job.

Where ``episodes.needs_placement[e]`` is set after a call, a placement must be found first (see
`simulation.pacml.placement_cache`); then `resume` continues.
"""

import numpy as np

from ...compiled import njit
from . import interruptions, queue
from .candidates import find_candidates, obstacle_of_place
from .problem import Rule
from .state import Outcome


@njit
def start(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Empty the cluster of episode ``e`` and show its first job; its jobs and its seed have been written before."""
    episodes.job[e] = 0
    episodes.now_s[e] = episodes.arrival_s[e, 0]
    episodes.num_arrived[e] = 1
    episodes.waiting[e] = -1
    episodes.num_waiting[e] = 0
    episodes.queue_index[e] = 0
    episodes.num_expired[e] = 0
    episodes.free_at_s[e] = 0.0
    episodes.block_free_at_s[e] = 0.0
    episodes.chosen[e] = 0
    episodes.block[e] = -1
    episodes.completion_s[e] = np.nan
    episodes.outcome[e] = Outcome.UNDECIDED
    episodes.start_s[e] = np.nan
    episodes.finish_s[e] = np.nan
    episodes.fixed_block[e] = -1
    if problem.interruptions.is_on:
        interruptions.draw_interruptions(problem, episodes, e)
    find_candidates(problem, episodes, e)


@njit
def hold(problem, episodes, e, free_at_s):  # type: ignore[no-untyped-def]
    """Hold devices of episode ``e`` for others until they become free, ``(n,)``, and offer its current job the rest."""
    episodes.free_at_s[e] = free_at_s
    for block in range(episodes.block_free_at_s.shape[1]):
        latest_s = 0.0
        for i in range(problem.start[block], problem.start[block + 1]):
            latest_s = max(latest_s, free_at_s[problem.devices[i]])
        episodes.block_free_at_s[e, block] = latest_s
    find_candidates(problem, episodes, e)


@njit
def decide(problem, episodes, e, candidate):  # type: ignore[no-untyped-def]
    """Carry out a candidate for the current job and go to the next decision.

    Returns:
        Whether the job was accepted. A candidate that cannot be placed turns the job down.
    """
    k = episodes.job[e]
    if candidate > 0 and problem.is_keyed_by_degree:
        _fix_time(problem, episodes, e, candidate)
    accepted = candidate > 0 and episodes.can_place[e, candidate]
    has_waited = episodes.queue_index[e] < episodes.num_waiting[e]
    episodes.num_expired[e] = 0
    if accepted:
        now_s = episodes.now_s[e]
        block = episodes.candidate_block[e, candidate]
        until_s = now_s + episodes.candidate_s[e, candidate]
        for i in range(problem.start[block], problem.start[block + 1]):
            episodes.free_at_s[e, problem.devices[i]] = until_s
        for i in range(problem.neighbour_start[block], problem.neighbour_start[block + 1]):
            other = problem.neighbours[i]
            episodes.block_free_at_s[e, other] = max(episodes.block_free_at_s[e, other], until_s)
        episodes.chosen[e, k] = candidate
        episodes.block[e, k] = block
        episodes.completion_s[e, k] = (now_s - episodes.arrival_s[e, k]) + episodes.candidate_s[e, candidate]
        episodes.outcome[e, k] = Outcome.ACCEPTED
        episodes.start_s[e, k] = now_s
        episodes.finish_s[e, k] = until_s
        if problem.interruptions.is_on:
            interruptions.place(problem, episodes, e, k, episodes.candidate_s[e, candidate])
        if has_waited:
            queue.leave(episodes, e, episodes.queue_index[e])
    elif has_waited:
        episodes.queue_index[e] += 1
    elif queue.can_wait(problem, episodes, e):
        queue.enter(problem, episodes, e, k)
        episodes.queue_index[e] = episodes.num_waiting[e]
        episodes.outcome[e, k] = Outcome.WAITING
    else:
        episodes.outcome[e, k] = _reason(problem, episodes, e, candidate)
    if problem.queue_capacity > 0 or problem.interruptions.is_on:
        _go_on(problem, episodes, e)
    else:
        _arrive(episodes, e)
        find_candidates(problem, episodes, e)
    return accepted


@njit
def resume(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Go on after a placement that the candidates waited for has been found."""
    find_candidates(problem, episodes, e)
    if episodes.needs_placement[e]:
        return
    if episodes.queue_index[e] < episodes.num_waiting[e] and episodes.obstacle[e] != Outcome.REJECTED:
        episodes.queue_index[e] += 1
        _go_on(problem, episodes, e)


@njit
def drain(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Run the placed jobs of an episode to their ends, whatever interrupts them; nothing more is decided."""
    if not problem.interruptions.is_on:
        return
    while True:
        until_s = -np.inf
        for k in range(episodes.num_arrived[e]):
            if episodes.block[e, k] >= 0:
                until_s = max(until_s, episodes.finish_s[e, k])
        next_s = interruptions.next_s(episodes, e, episodes.now_s[e])
        if next_s >= until_s:
            return
        episodes.now_s[e] = next_s
        interruptions.happen(problem, episodes, e, next_s)


@njit
def _fix_time(problem, episodes, e, candidate):  # type: ignore[no-untyped-def]
    """Fix the step time of a graph and degree by their first placement in an episode, even if it then misses the deadline."""
    block = episodes.candidate_block[e, candidate]
    if block < 0:
        return
    graph, d = episodes.graph_id[e, episodes.job[e]], problem.degree[block]
    if episodes.fixed_block[e, graph, d] < 0:
        episodes.fixed_block[e, graph, d] = block


@njit
def _reason(problem, episodes, e, candidate):  # type: ignore[no-untyped-def]
    """Return why the current job is turned away; the published first fit may be tried where it fails."""
    if candidate == 0 or problem.candidate_rule[candidate] != Rule.PUBLISHED:
        return episodes.obstacle[e]
    return obstacle_of_place(episodes, e) if episodes.candidate_block[e, candidate] < 0 else Outcome.DEADLINE


@njit
def _arrive(episodes, e):  # type: ignore[no-untyped-def]
    k = episodes.num_arrived[e]
    episodes.job[e] = k
    episodes.now_s[e] = episodes.arrival_s[e, k]
    episodes.num_arrived[e] = k + 1


@njit
def _go_on(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Put up the next waiting job that some free block suits, or let time pass until there is one or a job arrives."""
    while True:
        while episodes.queue_index[e] < episodes.num_waiting[e]:
            episodes.job[e] = episodes.waiting[e, episodes.queue_index[e]]
            find_candidates(problem, episodes, e)
            if episodes.obstacle[e] == Outcome.REJECTED or episodes.needs_placement[e]:
                return
            episodes.queue_index[e] += 1
        now_s = episodes.now_s[e]
        arrival_s = episodes.arrival_s[e, episodes.num_arrived[e]]
        freed_s = np.inf
        if episodes.num_waiting[e] > 0:
            for i in range(episodes.free_at_s.shape[1]):
                if episodes.free_at_s[e, i] > now_s:
                    freed_s = min(freed_s, episodes.free_at_s[e, i])
        interrupted_s = np.inf
        if problem.interruptions.is_on:
            interrupted_s = interruptions.next_s(episodes, e, now_s)
        if min(freed_s, interrupted_s) > arrival_s:
            _arrive(episodes, e)
            queue.expire(problem, episodes, e)
            episodes.queue_index[e] = episodes.num_waiting[e]
            find_candidates(problem, episodes, e)
            return
        episodes.now_s[e] = min(freed_s, interrupted_s)
        if interrupted_s <= freed_s:
            interruptions.happen(problem, episodes, e, interrupted_s)
        if freed_s <= interrupted_s:
            queue.expire(problem, episodes, e)
            episodes.queue_index[e] = 0
