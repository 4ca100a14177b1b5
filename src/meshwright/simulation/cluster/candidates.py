"""The candidates of a decision: for each degree and placement rule, where the current job can start now.

The compiled functions read the arrays of `simulation.cluster.problem` and `simulation.cluster.state`.
"""

import numpy as np

from ...compiled import njit
from ..decision_space.block_bits import count
from ..decision_space.block_scores import free_by, lost_time, lost_weight
from ..pacml.first_fit import place_all
from ..random_times import GAMMA, MIX_1, MIX_2, SHIFT_1, SHIFT_2, SHIFT_3
from .problem import Rule
from .queue import class_durations_s, limit_s
from .state import Outcome


@njit
def list_blocks(problem, episodes, e, first, blocks, class_s, free):  # type: ignore[no-untyped-def]
    """Fill the candidates from number ``first`` on with free blocks, one for each class of equivalent blocks.

    Two free blocks of one degree are equivalent under two conditions. The current job takes equally long on them. And taking
    them costs equally many blocks of each shape at each moment, up to the horizon, at which running jobs end. Then the cluster
    offers the same blocks afterwards, whichever is taken. The first in scan order represents them.

    Where more remain than there is room for, those that best fit prefers stay: the best of each degree, then the second of each.

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
    """Return a hash of what taking a block costs: of the number of blocks of each shape at each level."""
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


@njit
def find_candidates(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Fill the candidates of the current job.

    For each degree and rule this is the rule's block among those that are free now, have the memory and meet the deadline. Listed
    blocks follow. A candidate on the same block as an earlier one of the same degree cannot be chosen. The published first fit
    ignores deadlines: a placement that would miss its deadline is shown but cannot be chosen. While that placement is unknown,
    ``episodes.needs_placement[e]`` is set and all other results are invalid until `simulation.pacml.placement_cache` finds it.
    """
    k = episodes.job[e]
    now_s = episodes.now_s[e]
    allowed_s = limit_s(problem, episodes, e, k)
    episodes.candidate_block[e] = -1
    episodes.candidate_s[e] = np.inf
    episodes.can_place[e] = False
    episodes.can_place[e, 0] = True
    episodes.needs_placement[e] = False
    class_s = class_durations_s(problem, episodes, e, k)
    first_free = np.full(len(problem.degrees), -1, np.int64)
    blocks = np.empty(problem.num_blocks, np.int64)
    num_found = 0
    degree, placement_class, block_free_at_s = problem.degree, problem.placement_class, episodes.block_free_at_s[e]
    for block in range(len(block_free_at_s)):
        if block_free_at_s[block] <= now_s:
            if first_free[degree[block]] < 0:
                first_free[degree[block]] = block
            time_s = class_s[placement_class[block]]
            if time_s <= allowed_s and time_s < np.inf:
                blocks[num_found] = block
                num_found += 1
    if problem.published.is_on and not place_all(problem, episodes, e, first_free):
        episodes.needs_placement[e] = True
        return
    _choose(problem, episodes, e, blocks[:num_found], class_s)
    any_candidate = _mark_placeable(problem, episodes, e, allowed_s)
    if any_candidate:
        episodes.obstacle[e] = Outcome.REJECTED
    elif not (class_s <= allowed_s).any() or class_s.min() == np.inf:
        episodes.obstacle[e] = Outcome.DEADLINE
    else:
        episodes.obstacle[e] = obstacle_of_place(episodes, e)


@njit
def obstacle_of_place(episodes, e):  # type: ignore[no-untyped-def]
    """Return why a job finds no block now: no device is free, or no block is."""
    for i in range(episodes.free_at_s.shape[1]):
        if episodes.free_at_s[e, i] <= episodes.now_s[e]:
            return Outcome.NO_BLOCK
    return Outcome.NO_DEVICE


@njit
def _choose(problem, episodes, e, blocks, class_s):  # type: ignore[no-untyped-def]
    """Fill the candidates of the rules that take one block."""
    now_s = episodes.now_s[e]
    num_rules = len(problem.rules)
    listed = 1 + len(problem.degrees) * num_rules
    is_listing = listed < len(problem.candidate_rule)
    is_aligning, is_scoring = is_listing, is_listing
    for rule in problem.rules:
        is_aligning |= rule == Rule.ALIGNED
        is_scoring |= rule == Rule.BEST_FIT or rule == Rule.ALIGNED
    if is_scoring:
        begin_s, free = free_by(problem, episodes, e, not is_aligning)
    best = np.empty(num_rules)
    neighbours, degree_start, weight = problem.bits.neighbours, problem.bits.degree_start, problem.weight
    degree, placement_class, rules = problem.degree, problem.placement_class, problem.rules
    candidate_block, candidate_s = episodes.candidate_block[e], episodes.candidate_s[e]
    last = -1
    for block in blocks:
        d = degree[block]
        if d != last:
            best[:] = np.inf
            last = d
        time_s = class_s[placement_class[block]]
        for r in range(num_rules):
            rule = rules[r]
            score = -np.inf
            if rule == Rule.PUBLISHED or best[r] == -np.inf:
                continue
            if rule == Rule.BEST_FIT:
                score = lost_weight(neighbours[block], free[0], degree_start, weight)
            elif rule == Rule.ALIGNED:
                until_s = now_s + min(time_s, problem.horizon_s)
                score = lost_time(neighbours[block], free, degree_start, weight, begin_s, until_s, best[r])
            elif rule == Rule.FASTEST:
                score = time_s
            if score < best[r]:
                best[r] = score
                candidate_block[1 + d * num_rules + r] = block
                candidate_s[1 + d * num_rules + r] = time_s
    if is_listing:
        list_blocks(problem, episodes, e, listed, blocks, class_s, free)


@njit
def _mark_placeable(problem, episodes, e, allowed_s):  # type: ignore[no-untyped-def]
    """Return which candidates can be chosen: those with a block, in time, that no earlier one has; whether any can."""
    any_candidate = False
    for a in range(1, len(problem.candidate_rule)):
        block = episodes.candidate_block[e, a]
        if block < 0 or episodes.candidate_s[e, a] > allowed_s:
            continue
        d = problem.degree[block]
        is_first = True
        for other in range(1 + d * len(problem.rules), min(a, 1 + (d + 1) * len(problem.rules))):
            if episodes.candidate_block[e, other] == block and episodes.can_place[e, other]:
                is_first = False
                break
        episodes.can_place[e, a] = is_first
        any_candidate = True
    return any_candidate
