"""How bad it is to take a free block: what other blocks would no longer be free, counted by bits.

Legend: ``b`` blocks, ``w`` words of bits (see `simulation.decision_space.block_bits`), ``l`` levels. Level 0 is now; the others
are the moments, up to the horizon, at which running jobs end.
"""

import numpy as np

from ...compiled import njit
from .block_bits import count


@njit
def free_by(problem, episodes, e, is_one_level):  # type: ignore[no-untyped-def]
    """Return the time of each level, ``(l,)``, and the blocks that are free by then, as bits, ``(l, w)``."""
    now_s = episodes.now_s[e]
    ends_s = np.empty(episodes.free_at_s.shape[1] + 1)
    ends_s[0] = now_s
    num = 1
    if not is_one_level:
        for free_at_s in episodes.free_at_s[e]:
            if free_at_s <= now_s or free_at_s >= now_s + problem.horizon_s:
                continue
            place = _place(ends_s, num, free_at_s)
            if place < num and ends_s[place] == free_at_s:
                continue
            for i in range(num, place, -1):
                ends_s[i] = ends_s[i - 1]
            ends_s[place] = free_at_s
            num += 1
    word, bit, block_free_at_s = problem.bits.word, problem.bits.bit, episodes.block_free_at_s[e]
    free = np.zeros((num, problem.bits.neighbours.shape[1]), np.uint64)
    for block in range(len(word)):
        free_at_s = block_free_at_s[block]
        if free_at_s <= now_s:
            free[0, word[block]] |= bit[block]
        elif free_at_s <= ends_s[num - 1]:
            free[_place(ends_s, num, free_at_s), word[block]] |= bit[block]
    for level in range(1, num):
        for word in range(free.shape[1]):
            free[level, word] |= free[level - 1, word]
    return ends_s[:num], free


@njit
def _place(ends_s, num, moment_s):  # type: ignore[no-untyped-def]
    """Return how many of the first ``num`` ascending numbers are below one."""
    low, high = 0, num
    while low < high:
        middle = (low + high) // 2
        if ends_s[middle] < moment_s:
            low = middle + 1
        else:
            high = middle
    return low


@njit
def lost_weight(neighbours, free, degree_start, weight):  # type: ignore[no-untyped-def]
    """Return the weight of the blocks that are both among the neighbours of a block and among ``free``."""
    total = 0.0
    for d in range(len(weight)):
        total += weight[d] * count(neighbours, free, degree_start[d], degree_start[d + 1])
    return total


@njit
def lost_weights(space, weight, first, end):  # type: ignore[no-untyped-def]
    """Return `lost_weight` of blocks ``first`` to ``end - 1`` where every block is free, without bits or lists of neighbours.

    Args:
        space: first device of each block, its devices, the first block of each device, its blocks, and the degree of
            each block.
        weight: of the blocks of each degree, ``(d,)``.
        first: block.
        end: block.
    """
    start, devices, device_start, device_blocks, degree = space
    last_seen = np.full(len(degree), -1, np.int64)
    result = np.empty(end - first)
    num = np.empty(len(weight), np.int64)
    for block in range(first, end):
        num[:] = 0
        for i in range(start[block], start[block + 1]):
            for j in range(device_start[devices[i]], device_start[devices[i] + 1]):
                other = device_blocks[j]
                if last_seen[other] != block:
                    last_seen[other] = block
                    num[degree[other]] += 1
        total = 0.0
        for d in range(len(weight)):
            total += weight[d] * num[d]
        result[block - first] = total
    return result


@njit
def lost_time(neighbours, free, degree_start, weight, begin_s, until_s, enough):  # type: ignore[no-untyped-def]
    """Return the weighted time until ``until_s`` for which blocks would be free if this one were not taken.

    Args:
        neighbours: of the block.
        free: blocks that are free at each level.
        degree_start: first word of each degree.
        weight: of the blocks of each degree.
        begin_s: when each level begins.
        until_s: end of the job, or the horizon.
        enough: the search may stop at this much.
    """
    total = 0.0
    for level in range(len(begin_s)):
        if begin_s[level] >= until_s or total >= enough:
            break
        end_s = min(begin_s[level + 1], until_s) if level + 1 < len(begin_s) else until_s
        total += (end_s - begin_s[level]) * lost_weight(neighbours, free[level], degree_start, weight)
    return total
