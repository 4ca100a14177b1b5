"""The candidates of a decision: for each degree and placement rule, one block on which the job at hand can start now.

The compiled functions read the arrays of `simulation.dynamics`.
"""

from __future__ import annotations

import numpy as np

from ..compiled import njit

# Deadlines are compared with this relative tolerance, so that rounding never blocks a job.
DEADLINE_TOLERANCE = 1e-9


@njit
def find_candidates(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Fill the candidates of the job at hand.

    For each degree and rule the rule's block among those that are free now, have the memory and meet the deadline.
    A rule that takes the same block as an earlier one of the same degree yields no candidate of its own.
    """
    k = episodes.job[e]
    now_s = episodes.now_s[e]
    graph = episodes.graph_id[e, k]
    num_steps = episodes.num_steps[e, k]
    allowed_s = limit_s(episodes, e, k)
    num_rules = len(problem.rules)
    free_at_s = episodes.block_free_at_s[e]
    episodes.candidate_block[e] = -1
    episodes.candidate_s[e] = np.inf
    episodes.can_place[e] = False
    episodes.can_place[e, 0] = True
    any_candidate = False
    any_feasible = False
    num_blocks = len(problem.degree)
    best = np.empty(num_rules)
    block = 0
    for d in range(len(problem.degrees)):
        best[:] = np.inf
        base = 1 + d * num_rules
        while block < num_blocks and problem.degree[block] == d:
            c = problem.placement_class[block]
            time_s = num_steps * problem.step_s[graph, c]
            if problem.can_run[graph, c] and time_s <= allowed_s:
                any_feasible = True
                if free_at_s[block] <= now_s:
                    any_candidate = True
                    for r in range(num_rules):
                        if best[r] == -np.inf:
                            continue
                        score = _score(problem, free_at_s, now_s, block, time_s, problem.rules[r])
                        if score < best[r]:
                            best[r] = score
                            episodes.candidate_block[e, base + r] = block
                            episodes.candidate_s[e, base + r] = time_s
            block += 1
        for r in range(num_rules):
            b = episodes.candidate_block[e, base + r]
            if b < 0:
                continue
            unique = True
            for q in range(r):
                if episodes.candidate_block[e, base + q] == b:
                    unique = False
            episodes.can_place[e, base + r] = unique
    if any_candidate:
        episodes.obstacle[e] = 1
    elif not any_feasible:
        episodes.obstacle[e] = 4
    else:
        episodes.obstacle[e] = 2
        for i in range(episodes.free_at_s.shape[1]):
            if episodes.free_at_s[e, i] <= now_s:
                episodes.obstacle[e] = 3
                break


@njit
def limit_s(episodes, e, k):  # type: ignore[no-untyped-def]
    """How long job ``k`` may run if it starts now."""
    waited_s = episodes.now_s[e] - episodes.arrival_s[e, k]
    return episodes.allowed_s[e, k] * (1.0 + DEADLINE_TOLERANCE) - waited_s


@njit
def _score(problem, free_at_s, now_s, block, time_s, rule):  # type: ignore[no-untyped-def]
    """How bad a free block is by a rule; the least is taken, minus infinity ends the search."""
    if rule == 0:
        return -np.inf
    if rule == 3:
        return time_s
    score = 0.0
    until_s = min(now_s + time_s, now_s + problem.horizon_s)
    for i in range(problem.neighbour_start[block], problem.neighbour_start[block + 1]):
        other = problem.neighbours[i]
        if rule == 1:  # free blocks that would no longer be free
            if free_at_s[other] <= now_s:
                score += problem.weight[other]
        else:  # time for which other blocks would no longer be free
            score += problem.weight[other] * max(0.0, until_s - max(free_at_s[other], now_s))
    return score
