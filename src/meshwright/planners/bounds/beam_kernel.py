"""The compiled beam search of `planners.bounds.beam_search`: many partial episodes side by side, arrival by arrival.

A state is known by the arrival from which on each block is free. Its score is the number of counted jobs accepted so
far, less what the blocks that are still held are worth.

Legend: ``w`` states, ``k`` arrivals, ``b`` blocks, ``c`` placement classes, ``g`` graphs, ``d`` degrees.
"""

import numpy as np

from ...compiled import njit
from ...simulation.random_times import GAMMA, MIX_1, MIX_2, SHIFT_1, SHIFT_2, SHIFT_3


@njit
def search(width, jobs, blocks, value_until, weight, is_keyed):  # type: ignore[no-untyped-def]
    """Choose a block, or none, for each arrival.

    Args:
        width: most states that are kept at a time, ``w``.
        jobs: arrival_s ``(k + 1,)``, graph ``(k,)``, limit_s ``(k,)``, is_counted ``(k,)``, end_s, and class_s ``(k, c)``. The
            last has the seconds of each job on each class, infinite where it cannot run.
        blocks: degree ``(b,)``, placement_class ``(b,)``, neighbour_start ``(b + 1,)`` and neighbours, the blocks that
            share a device with each.
        value_until: what a device is worth from the beginning to each arrival, ``(k + 2,)``.
        weight: of a block of each degree in the worth of what is held, ``(d,)``.
        is_keyed: whether the first class that a graph and degree use in an episode fixes their time.

    Returns:
        The block of each arrival, -1 where it is turned away, ``(k,)``, and how many counted jobs are accepted.
    """
    arrival_s, graph, limit_s, is_counted, end_s, class_s = jobs
    degree, placement_class, neighbour_start, neighbours = blocks
    num_jobs, num_blocks = len(graph), len(degree)
    free_from = np.zeros((width, num_blocks), np.int32)
    fixed = np.full((width, graph.max() + 1 if is_keyed else 0, len(weight)), -1, np.int32)
    accepted = np.zeros(width, np.int64)
    next_free_from, next_fixed, next_accepted = free_from.copy(), fixed.copy(), accepted.copy()
    parent, taken = np.full((num_jobs, width), -1, np.int32), np.full((num_jobs, width), -1, np.int32)
    children = _no_children(4 * width)
    score, mark, of, block_of, until = children
    num_states = 1
    for k in range(num_jobs):
        num = 0
        for s in range(num_states):
            held, sign = _look_at(free_from[s], k, degree, weight, value_until)
            for b in range(-1, num_blocks):
                if num == len(score):
                    num = _keep_best(children, num, width)
                if b < 0:  # the job is turned away
                    score[num], mark[num], of[num], block_of[num], until[num] = accepted[s] - held, sign, s, b, k
                    num += 1
                    continue
                if not is_counted[k] or free_from[s, b] > k:
                    continue
                c = placement_class[b]
                if class_s[k, c] == np.inf:
                    continue
                if is_keyed and fixed[s, graph[k], degree[b]] >= 0:
                    c = fixed[s, graph[k], degree[b]]
                if class_s[k, c] > limit_s[k] or arrival_s[k] + class_s[k, c] > end_s:
                    continue
                slot = np.searchsorted(arrival_s, arrival_s[k] + class_s[k, c])
                cost, change = held, sign
                for i in range(neighbour_start[b], neighbour_start[b + 1]):
                    other = neighbours[i]
                    before = max(free_from[s, other], k)
                    if before < slot:
                        cost += weight[degree[other]] * (value_until[slot] - value_until[before])
                        change += _mix(degree[other], slot)
                        if before > k:
                            change -= _mix(degree[other], before)
                score[num], mark[num], of[num], block_of[num], until[num] = accepted[s] + 1 - cost, change, s, b, slot
                num += 1
        num_states = _keep_best(children, num, width)
        for i in range(num_states):
            s, b = of[i], block_of[i]
            parent[k, i], taken[k, i] = s, b
            next_free_from[i], next_fixed[i], next_accepted[i] = free_from[s], fixed[s], accepted[s]
            if b >= 0:
                next_accepted[i] += 1
                for j in range(neighbour_start[b], neighbour_start[b + 1]):
                    other = neighbours[j]
                    next_free_from[i, other] = max(next_free_from[i, other], until[i])
                if is_keyed and fixed[s, graph[k], degree[b]] < 0:
                    next_fixed[i, graph[k], degree[b]] = placement_class[b]
        free_from, next_free_from = next_free_from, free_from
        fixed, next_fixed = next_fixed, fixed
        accepted, next_accepted = next_accepted, accepted
    best = np.argmax(accepted[:num_states])
    num_accepted = accepted[best]
    choice = np.full(num_jobs, -1, np.int64)
    for k in range(num_jobs - 1, -1, -1):
        choice[k] = taken[k, best]
        best = parent[k, best]
    return choice, num_accepted


@njit
def _no_children(room):  # type: ignore[no-untyped-def]
    """Return arrays for scores, marks, the states that children come from, their blocks, and the arrivals that free these."""
    return np.empty(room), np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)


@njit
def _look_at(free_from, k, degree, weight, value_until):  # type: ignore[no-untyped-def]
    """Return the worth of the devices held in a state from arrival ``k`` on, and the state's mark.

    States of one mark have, for each degree and arrival, equally many blocks that are free from then on. A state and its mirror
    image thus have one mark.
    """
    held, sign = 0.0, np.uint64(0)
    for b in range(len(free_from)):
        if free_from[b] > k:
            held += weight[degree[b]] * (value_until[free_from[b]] - value_until[k])
            sign += _mix(degree[b], free_from[b])
    return held, sign


@njit
def _keep_best(children, num, width):  # type: ignore[no-untyped-def]
    """Move the best ``width`` children of different marks to the front; how many there are."""
    score, mark, of, block_of, until = children
    order = np.argsort(-score[:num], kind="mergesort")
    size = 1
    while size < 4 * width:
        size *= 2
    table = np.full(size, -1, np.int64)
    choice = np.empty(width, np.int64)
    num_kept = 0
    for i in order:
        place = np.int64(mark[i] & np.uint64(size - 1))
        while table[place] >= 0 and mark[table[place]] != mark[i]:
            place = (place + 1) & (size - 1)
        if table[place] < 0:
            table[place] = i
            choice[num_kept] = i
            num_kept += 1
            if num_kept == width:
                break
    choice = choice[:num_kept]
    score[:num_kept], mark[:num_kept], of[:num_kept] = score[choice], mark[choice], of[choice]
    block_of[:num_kept], until[:num_kept] = block_of[choice], until[choice]
    return num_kept


@njit
def _mix(number, slot):  # type: ignore[no-untyped-def]
    """Return a hash of two whole numbers."""
    bits = np.uint64(number + 1) * GAMMA + np.uint64(slot) * MIX_1
    bits = (bits ^ (bits >> SHIFT_1)) * MIX_1
    bits = (bits ^ (bits >> SHIFT_2)) * MIX_2
    return bits ^ (bits >> SHIFT_3)
