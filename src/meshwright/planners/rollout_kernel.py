"""The compiled part of the rollout planner: candidates of one decision played on in sampled futures by a base policy.

All candidates of a decision meet the same futures. A linear scorer continues in the dynamics themselves. A ladder of degrees
has a few lines of its own, which know when each block becomes free, no more. A test holds them equal to the dynamics.

Legend: ``s`` futures, ``c`` candidates that are tried, ``b`` blocks, ``g`` graphs, ``d`` degrees.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import njit
from ..simulation.cluster import dynamics
from ..simulation.cluster.candidates import find_candidates
from ..simulation.decision_space.block_scores import lost_weight
from .afterstate_features import Scorer, best_of_episode

# Of `simulation.cluster.problem.Rule`.
FIRST_FIT, BEST_FIT = 0, 1


class Base(NamedTuple):
    """The policy that plays on.

    Attributes:
        is_linear: whether it is the linear scorer, else the ladder.
        ladder: indices of degrees, the preferred ones first.
        rule: first fit, best fit or, any other number, the fastest block.
        scorer: a linear scorer.
    """

    is_linear: bool
    ladder: NDArray[np.int64]
    rule: int
    scorer: Scorer


class CurrentDecision(NamedTuple):
    """The current decision.

    Attributes:
        now_s: time.
        num_left: arrivals to come, the one that ends the episode among them.
        free_at_s: when each device becomes free, ``(n,)``.
        block_free_at_s: when each block does, ``(b,)``.
        fixed_block: see `simulation.cluster.state.Episodes`, ``(g, d)``.
        until_s: a job that ends later earns nothing.
        num_decisions: how many decisions follow in a future.
    """

    now_s: float
    num_left: int
    free_at_s: NDArray[np.float64]
    block_free_at_s: NDArray[np.float64]
    fixed_block: NDArray[np.int64]
    until_s: float
    num_decisions: int


@njit
def earnings(problem, futures, base, current, block, time_s, first, end, out):  # type: ignore[no-untyped-def]
    """Write the earnings of each candidate and the decisions after it: one for each job that is placed and ends in time.

    Args:
        problem: the scenario's arrays, with the candidates of the base policy where that is linear.
        futures: a row of episodes per future, the current job and those that follow it written.
        base: who decides about those.
        current: the decision.
        block: of each candidate, -1 to turn the job away, ``(c,)``.
        time_s: completion time of each candidate, ``(c,)``.
        first: the first future to play.
        end: the first one not to be played.
        out: earnings, ``(c, s)``.
    """
    block_free_at_s, fixed_block = np.empty_like(current.block_free_at_s), np.empty_like(current.fixed_block)
    for s in range(first, end):
        for c in range(len(block)):
            if base.is_linear:
                out[c, s] = _by_scorer(problem, futures, s, base.scorer, current, block[c], time_s[c])
            else:
                block_free_at_s[:] = current.block_free_at_s
                fixed_block[:] = current.fixed_block
                state = block_free_at_s, fixed_block
                earned = 0
                if block[c] >= 0:
                    _hold(problem, state, futures.graph_id[s, 0], block[c], current.now_s + time_s[c])
                    earned += current.now_s + time_s[c] <= current.until_s
                for k in range(1, current.num_decisions + 1):
                    taken, lasts_s = _by_ladder(problem, futures, s, k, futures.arrival_s[s, k], base, state)
                    if taken >= 0:
                        ends_s = futures.arrival_s[s, k] + lasts_s
                        _hold(problem, state, futures.graph_id[s, k], taken, ends_s)
                        earned += ends_s <= current.until_s
                out[c, s] = earned


@njit
def block_of_base(problem, futures, base, current):  # type: ignore[no-untyped-def]
    """Return the block that the base policy would take for the current job, -1 where it turns it away."""
    if not base.is_linear:
        return _by_ladder(problem, futures, 0, 0, current.now_s, base, (current.block_free_at_s, current.fixed_block))[0]
    _set_back(futures, 0, current)
    find_candidates(problem, futures, 0)
    candidate = best_of_episode(base.scorer, futures, 0, current.num_left)
    return futures.candidate_block[0, candidate] if candidate > 0 else -1


@njit
def _by_ladder(problem, futures, s, k, now_s, base, state):  # type: ignore[no-untyped-def]
    """Return the block that a ladder takes for job ``k`` of a future, -1 where none fits, and how long the job runs on it."""
    block_free_at_s, fixed_block = state
    graph = futures.graph_id[s, k]
    limit_s = futures.allowed_s[s, k] * (1.0 + problem.deadline_tolerance)
    placement_class, num_blocks = problem.placement_class, len(block_free_at_s)
    free = np.zeros(problem.bits.neighbours.shape[1] if base.rule == BEST_FIT else 0, np.uint64)
    for b in range(num_blocks if base.rule == BEST_FIT else 0):
        if block_free_at_s[b] <= now_s:
            free[problem.bits.word[b]] |= problem.bits.bit[b]
    for d in base.ladder:
        fixed = fixed_block[graph, d] if problem.is_keyed_by_degree else -1
        result, found_s, best = -1, np.inf, np.inf
        for b in range(np.searchsorted(problem.degree[:num_blocks], d), num_blocks):
            if problem.degree[b] != d:
                break
            if block_free_at_s[b] > now_s or not problem.can_run[graph, placement_class[b]]:
                continue
            time_s = futures.num_steps[s, k] * problem.step_s[graph, placement_class[fixed if fixed >= 0 else b]]
            if time_s > limit_s or time_s == np.inf:
                continue
            score = time_s
            if base.rule == FIRST_FIT:
                return b, time_s
            if base.rule == BEST_FIT:
                score = lost_weight(problem.bits.neighbours[b], free, problem.bits.degree_start, problem.weight)
            if score < best:
                result, found_s, best = b, time_s, score
        if result >= 0:
            return result, found_s
    return -1, np.inf


@njit
def _hold(problem, state, graph, block, until_s):  # type: ignore[no-untyped-def]
    """Let a job hold a block until a moment."""
    block_free_at_s, fixed_block = state
    if problem.is_keyed_by_degree and fixed_block[graph, problem.degree[block]] < 0:
        fixed_block[graph, problem.degree[block]] = block
    for i in range(problem.neighbour_start[block], problem.neighbour_start[block + 1]):
        other = problem.neighbours[i]
        block_free_at_s[other] = max(block_free_at_s[other], until_s)


@njit
def _by_scorer(problem, futures, s, scorer, current, block, time_s):  # type: ignore[no-untyped-def]
    """Return the earnings of a candidate in a future that a linear scorer continues."""
    _set_back(futures, s, current)
    candidate = 0
    if block >= 0:
        candidate = 1
        futures.candidate_block[s, 1] = block
        futures.candidate_s[s, 1] = time_s
        futures.can_place[s, 1] = True
    earned = 0
    while True:
        ends_s = futures.now_s[s] + futures.candidate_s[s, candidate]
        if dynamics.decide(problem, futures, s, candidate) and ends_s <= current.until_s:
            earned += 1
        if futures.job[s] > current.num_decisions:
            return earned
        candidate = best_of_episode(scorer, futures, s, current.num_left - futures.job[s])


@njit
def _set_back(futures, s, current):  # type: ignore[no-untyped-def]
    """Write the state of the current decision in a row of futures, without candidates."""
    futures.job[s] = 0
    futures.now_s[s] = current.now_s
    futures.num_arrived[s] = 1
    futures.free_at_s[s] = current.free_at_s
    futures.block_free_at_s[s] = current.block_free_at_s
    futures.fixed_block[s] = current.fixed_block
    futures.can_place[s] = False
