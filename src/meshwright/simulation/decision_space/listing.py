"""Every free block as a candidate of its own; one for each class of equivalent blocks.

Two free blocks of one degree are equivalent under two conditions. The current job takes equally long on them. And taking them
costs equally many blocks of each shape at each moment, up to the horizon, at which running jobs end. Then the cluster offers the
same blocks afterwards, whichever is taken. The first in scan order represents them.

Where more remain than there is room for, those that best fit prefers stay: the best of each degree, then the second of each.
"""

import numpy as np

from ...compiled import njit
from ..random_times import GAMMA, MIX_1, MIX_2, SHIFT_1, SHIFT_2, SHIFT_3
from .block_bits import count
from .block_scores import lost_weight


@njit
def list_blocks(problem, episodes, e, first, blocks, class_s, free):  # type: ignore[no-untyped-def]
    """Fill the candidates from number ``first`` on with free blocks.

    Args:
        problem: the scenario's arrays.
        episodes: the state.
        e: episode.
        first: candidate.
        blocks: blocks that are free and on which the current job can run in time, ascending.
        class_s: how long it runs on the blocks of each class.
        free: blocks that are free at each level, see `simulation.decision_space.block_scores.free_by`.
    """
    room = episodes.candidate_block.shape[1] - first
    kept_blocks = np.empty(len(blocks), np.int64)
    marks = np.empty(len(blocks), np.uint64)
    neighbours, group_start = problem.bits.neighbours, problem.bits.group_start
    num_kept, begin = 0, 0
    for block in blocks:
        time_s = class_s[problem.placement_class[block]]
        if num_kept > begin and problem.degree[kept_blocks[begin]] != problem.degree[block]:
            begin = num_kept
        mark = _mark(neighbours[block], free, group_start)
        is_new = True
        for j in range(begin, num_kept):
            if marks[j] == mark and class_s[problem.placement_class[kept_blocks[j]]] == time_s:
                is_new = False
                break
        if is_new:
            kept_blocks[num_kept], marks[num_kept] = block, mark
            num_kept += 1
    choice = np.ones(num_kept, np.bool_)
    if num_kept > room:
        choice[np.argsort(_ranks(problem, kept_blocks[:num_kept], free[0]), kind="mergesort")[room:]] = False
    a = first
    for i in range(num_kept):
        if choice[i]:
            block = kept_blocks[i]
            episodes.candidate_block[e, a] = block
            episodes.candidate_s[e, a] = class_s[problem.placement_class[block]]
            a += 1


@njit
def _mark(neighbours, free, start):  # type: ignore[no-untyped-def]
    """A hash of what taking a block costs: of the number of blocks of each shape at each level."""
    mark = np.uint64(0)
    for level in range(free.shape[0]):
        for group in range(len(start) - 1):
            lost = count(neighbours, free[level], start[group], start[group + 1])
            mark = mark + GAMMA * (np.uint64(lost) + np.uint64(1))
            mark = (mark ^ (mark >> SHIFT_1)) * MIX_1
    mark = (mark ^ (mark >> SHIFT_2)) * MIX_2
    return mark ^ (mark >> SHIFT_3)


@njit
def _ranks(problem, kept_blocks, free):  # type: ignore[no-untyped-def]
    """Place of each block among those of its degree by best fit, ``(len(kept),)``."""
    score = np.empty(len(kept_blocks))
    for i in range(len(kept_blocks)):
        score[i] = lost_weight(problem.bits.neighbours[kept_blocks[i]], free, problem.bits.degree_start, problem.weight)
    rank = np.zeros(len(kept_blocks), np.int64)
    for i in range(len(kept_blocks)):
        for j in range(len(kept_blocks)):
            if problem.degree[kept_blocks[i]] == problem.degree[kept_blocks[j]] and (
                score[j] < score[i] or (score[j] == score[i] and j < i)
            ):
                rank[i] += 1
    return rank
