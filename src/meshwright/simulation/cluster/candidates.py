"""The candidates of a decision: for each degree and placement rule, where the current job can start now.

The compiled functions read the arrays of `simulation.cluster.problem` and `simulation.cluster.state`.
"""

import numpy as np

from ...compiled import njit
from ..decision_space.block_scores import free_by, lost_time, lost_weight
from ..decision_space.listing import list_blocks
from ..pacml.first_fit import place_all
from .durations import class_durations_s, limit_s
from .problem import Rule
from .state import Outcome


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
    """Why a job finds no block now: no device is free, or no block is."""
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
    """Which candidates can be chosen: those with a block, in time, that no earlier one has; whether any can."""
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
