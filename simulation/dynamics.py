"""Cluster dynamics: jobs arrive, are cut and placed or turned away, run and leave; many episodes side by side.

Everything is flat arrays stepped by compiled functions. Legend: ``e`` episodes, ``k`` jobs of an episode, ``n``
devices, ``b`` blocks, ``g`` graphs, ``c`` placement classes, ``a`` candidates (number 0 rejects the job; then, for
each degree, one candidate per placement rule). A job that is placed owns its block's devices until it ends; a job
that cannot start on arrival is turned away (there is no queue). Arrays of jobs hold one job more than an episode
decides, so that the state at its end is a state like any other.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Deadlines are compared with this relative tolerance, so that rounding never blocks a job.
DEADLINE_TOLERANCE = 1e-9


class Outcome(IntEnum):
    """What became of a job at its arrival."""

    ACCEPTED = 0
    REJECTED = 1
    NO_DEVICE = 2
    NO_BLOCK = 3
    DEADLINE = 4
    UNDECIDED = 5


OUTCOME_WORDS = {
    Outcome.ACCEPTED: "accepted",
    Outcome.REJECTED: "rejected by choice",
    Outcome.NO_DEVICE: "no free device",
    Outcome.NO_BLOCK: "no free block",
    Outcome.DEADLINE: "deadline out of reach",
    Outcome.UNDECIDED: "undecided",
}


class Rule(IntEnum):
    """Which free block of a degree a candidate takes; ties go to the first in scan order."""

    FIRST_FIT = 0
    BEST_FIT = 1
    ALIGNED = 2
    FASTEST = 3


RULE_NAMES = {"first-fit": Rule.FIRST_FIT, "best-fit": Rule.BEST_FIT, "aligned": Rule.ALIGNED, "fastest": Rule.FASTEST}


class Problem(NamedTuple):
    """What stays fixed over all episodes.

    Attributes:
        start, devices, degree, placement_class, intersects: as in `simulation.space.DecisionSpace`.
        neighbour_start, neighbours: blocks that share a device with block ``i`` (itself among them).
        weight: weight of each block in best fit and alignment, ``(b,)``; one over the number of blocks of its
            degree, so that every degree counts the same.
        degrees: ranks of each degree.
        rules: `Rule` of each placement rule in use.
        step_s: ``(g, c)``.
        communication_share: ``(g, c)``.
        can_run: ``(g, c)``.
        sequential_step_s: ``(g,)``.
        horizon_s: alignment looks this far ahead.
    """

    start: NDArray[np.int64]
    devices: NDArray[np.int64]
    degree: NDArray[np.int64]
    placement_class: NDArray[np.int64]
    intersects: NDArray[np.bool_]
    neighbour_start: NDArray[np.int64]
    neighbours: NDArray[np.int64]
    weight: NDArray[np.float64]
    degrees: NDArray[np.int64]
    rules: NDArray[np.int64]
    step_s: NDArray[np.float64]
    communication_share: NDArray[np.float64]
    can_run: NDArray[np.bool_]
    sequential_step_s: NDArray[np.float64]
    horizon_s: float

    @property
    def num_candidates(self) -> int:
        """Candidates of a decision, the rejection among them."""
        return 1 + len(self.degrees) * len(self.rules)


class Episodes(NamedTuple):
    """The state of ``e`` episodes and the record of what happened in them.

    Attributes:
        job: the job to be decided, ``(e,)``; the last one when an episode is over.
        free_at_s: when each device becomes free, ``(e, n)``.
        block_free_at_s: when all devices of each block are free, ``(e, b)``.
        arrival_s, graph_id, num_steps, allowed_s: the jobs, ``(e, k)``.
        candidate_block: block of each candidate, -1 where there is none, ``(e, a)``.
        candidate_s: completion time of each candidate, ``(e, a)``.
        can_place: whether a candidate is free, fits and meets the deadline, ``(e, a)``; number 0 always is.
        obstacle: the `Outcome` of a rejection at this decision, ``(e,)``.
        chosen, block, completion_s, outcome: what was decided and came of it, ``(e, k)``.
    """

    job: NDArray[np.int64]
    free_at_s: NDArray[np.float64]
    block_free_at_s: NDArray[np.float64]
    arrival_s: NDArray[np.float64]
    graph_id: NDArray[np.int64]
    num_steps: NDArray[np.int64]
    allowed_s: NDArray[np.float64]
    candidate_block: NDArray[np.int64]
    candidate_s: NDArray[np.float64]
    can_place: NDArray[np.bool_]
    obstacle: NDArray[np.int64]
    chosen: NDArray[np.int64]
    block: NDArray[np.int64]
    completion_s: NDArray[np.float64]
    outcome: NDArray[np.int64]


def new_episodes(problem: Problem, num_episodes: int, num_jobs: int, num_devices: int) -> Episodes:
    """Arrays for episodes that `start` fills."""
    e, k, a, b = num_episodes, num_jobs + 1, problem.num_candidates, len(problem.degree)
    return Episodes(
        job=np.zeros(e, np.int64),
        free_at_s=np.zeros((e, num_devices)),
        block_free_at_s=np.zeros((e, b)),
        arrival_s=np.zeros((e, k)),
        graph_id=np.zeros((e, k), np.int64),
        num_steps=np.ones((e, k), np.int64),
        allowed_s=np.full((e, k), np.inf),
        candidate_block=np.full((e, a), -1, np.int64),
        candidate_s=np.full((e, a), np.inf),
        can_place=np.zeros((e, a), np.bool_),
        obstacle=np.full(e, int(Outcome.REJECTED), np.int64),
        chosen=np.zeros((e, k), np.int64),
        block=np.full((e, k), -1, np.int64),
        completion_s=np.full((e, k), np.nan),
        outcome=np.full((e, k), int(Outcome.UNDECIDED), np.int64),
    )


@njit(cache=True)
def start(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Empty the cluster of episode ``e`` and show its first job; its jobs have been written before."""
    episodes.job[e] = 0
    episodes.free_at_s[e] = 0.0
    episodes.block_free_at_s[e] = 0.0
    episodes.chosen[e] = 0
    episodes.block[e] = -1
    episodes.completion_s[e] = np.nan
    episodes.outcome[e] = 5
    find_candidates(problem, episodes, e)


@njit(cache=True)
def decide(problem, episodes, e, candidate):  # type: ignore[no-untyped-def]
    """Carry out a candidate for the job at hand and go to the next arrival.

    Returns:
        Whether the job was accepted. A candidate that cannot be placed rejects the job.
    """
    k = episodes.job[e]
    accepted = candidate > 0 and episodes.can_place[e, candidate]
    episodes.chosen[e, k] = candidate if accepted else 0
    if accepted:
        block = episodes.candidate_block[e, candidate]
        until_s = episodes.arrival_s[e, k] + episodes.candidate_s[e, candidate]
        for i in range(problem.start[block], problem.start[block + 1]):
            episodes.free_at_s[e, problem.devices[i]] = until_s
        for i in range(problem.neighbour_start[block], problem.neighbour_start[block + 1]):
            other = problem.neighbours[i]
            episodes.block_free_at_s[e, other] = max(episodes.block_free_at_s[e, other], until_s)
        episodes.block[e, k] = block
        episodes.completion_s[e, k] = episodes.candidate_s[e, candidate]
        episodes.outcome[e, k] = 0
    else:
        episodes.outcome[e, k] = episodes.obstacle[e]
    episodes.job[e] = k + 1
    find_candidates(problem, episodes, e)
    return accepted


@njit(cache=True)
def find_candidates(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Fill the candidates of the job at hand.

    For each degree and rule the rule's block among those that are free now, have the memory and meet the deadline.
    A rule that takes the same block as an earlier one of the same degree yields no candidate of its own.
    """
    k = episodes.job[e]
    now_s = episodes.arrival_s[e, k]
    graph = episodes.graph_id[e, k]
    num_steps = episodes.num_steps[e, k]
    allowed_s = episodes.allowed_s[e, k] * (1.0 + DEADLINE_TOLERANCE)
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


@njit(cache=True)
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
