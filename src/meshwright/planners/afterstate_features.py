"""The compiled linear scorer: a weighted sum of the room that each candidate takes from later jobs.

The room is measured by when blocks of each degree become free, now and after the candidate is taken. A *slot* is a moment
ahead: slot ``i`` is ``i + 1`` mean inter-arrival times from now, the last one means never. `planners.linear` names the
features.

Legend: ``a`` candidates, ``b`` blocks, ``n`` devices, ``d`` degrees, ``h`` slots, ``p`` plain features, ``w`` scorers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import njit
from ..simulation.cluster import dynamics

# Times to the end of a job are squashed around this many mean inter-arrival times.
DURATION_SCALE = 8.0
# Plain features: two of the rejection, then those of a candidate.
NUM_PLAIN = 11


class BlockTable(NamedTuple):
    """The blocks of a cluster, as `simulation.cluster.problem.Problem` has them.

    Attributes:
        num_degrees: ``d``.
        degree: index of each block's degree.
        start: see `simulation.cluster.problem.Problem`.
        neighbour_start: likewise.
        neighbours: likewise.
    """

    num_degrees: int
    degree: NDArray[np.int64]
    start: NDArray[np.int64]
    neighbour_start: NDArray[np.int64]
    neighbours: NDArray[np.int64]


class Scorer(NamedTuple):
    """Weights, ready to be used.

    Attributes:
        blocks: of the cluster.
        mean_s: mean inter-arrival time.
        block_value: of one block of each degree that is free from each slot on, ``(d, h + 1)``.
        first_value: of the first block of each degree that is free from each slot on, ``(d, h + 1)``.
        plain: weights of the other features, ``(p,)``.
    """

    blocks: BlockTable
    mean_s: float
    block_value: NDArray[np.float64]
    first_value: NDArray[np.float64]
    plain: NDArray[np.float64]


class DecisionState(NamedTuple):
    """A decision and the cluster at that moment.

    Attributes:
        now_s: time.
        num_left: arrivals to come, the one that ends the episode among them.
        allowed_s: time from now that meets the deadline.
        free_at_s: when each device becomes free, ``(n,)``.
        block_free_at_s: when each block does, ``(b,)``.
        block: of each candidate, ``(a,)``.
        time_s: completion time of each candidate, ``(a,)``.
        is_offered: which candidates may be chosen, ``(a,)``; number 0 always may.
    """

    now_s: float
    num_left: int
    allowed_s: float
    free_at_s: NDArray[np.float64]
    block_free_at_s: NDArray[np.float64]
    block: NDArray[np.int64]
    time_s: NDArray[np.float64]
    is_offered: NDArray[np.bool_]


@njit
def best_candidate(scorer, state):  # type: ignore[no-untyped-def]
    """Return the candidate of the highest score; among equals the rejection comes last and else the first block first."""
    if not state.is_offered[1:].any():
        return 0
    scores = np.empty(len(state.is_offered))
    score_candidates(scorer, state, scores)
    choice, best, best_block = 0, scores[0], len(scorer.blocks.degree)
    for a in range(1, len(scores)):
        if state.is_offered[a]:
            score, block = scores[a], state.block[a]
            if score > best or (score == best and block < best_block):
                choice, best, best_block = a, score, block
    return choice


@njit
def score_candidates(scorer, state, out):  # type: ignore[no-untyped-def]
    """Write the score of each candidate, ``(a,)``; of those that are not offered zero."""
    blocks, mean_s, plain = scorer.blocks, scorer.mean_s, scorer.plain
    now_s, is_offered, time_s = state.now_s, state.is_offered, state.time_s
    degree, neighbours = blocks.degree, blocks.neighbours
    num_degrees, num_slots = blocks.num_degrees, scorer.block_value.shape[1] - 1
    first_slot = np.empty(len(state.block_free_at_s), np.int64)
    freed = np.zeros((num_degrees, num_slots + 1), np.int64)
    for b in range(len(first_slot)):
        first_slot[b] = _slot(state.block_free_at_s[b] - now_s, mean_s, num_slots)
        freed[degree[b], first_slot[b]] += 1
    first = np.empty(num_degrees, np.int64)
    for d in range(num_degrees):
        first[d] = _first(freed[d], 0)
    num_devices = len(state.free_at_s)
    num_held = 0
    for free_at_s in state.free_at_s:
        if free_at_s > now_s:
            num_held += 1
    load = num_held / num_devices
    out[0] = plain[0] + plain[1] * load
    after = np.empty_like(freed)
    for a in range(1, len(is_offered)):
        if not is_offered[a]:
            out[a] = 0.0
            continue
        block = state.block[a]
        until = _slot(time_s[a], mean_s, num_slots)
        after[:] = freed
        score = 0.0
        for i in range(blocks.neighbour_start[block], blocks.neighbour_start[block + 1]):
            d, slot = degree[neighbours[i]], first_slot[neighbours[i]]
            if slot < until:
                after[d, slot] -= 1
                after[d, until] += 1
                score += scorer.block_value[d, until] - scorer.block_value[d, slot]
        for d in range(num_degrees):
            score += scorer.first_value[d, _first(after[d], first[d])] - scorer.first_value[d, first[d]]
        held = blocks.start[block + 1] - blocks.start[block]
        share, slots = held / num_devices, time_s[a] / mean_s
        device_s, squashed = held * time_s[a] / (num_devices * mean_s), slots / (slots + DURATION_SCALE)
        score += plain[2] * device_s + plain[3] * device_s * load + plain[4] * share * np.ceil(slots)
        score += plain[5] * share + plain[6] * share * load
        score += plain[7] * squashed + plain[8] * squashed * load
        if state.allowed_s < np.inf:
            score += plain[9] * time_s[a] / state.allowed_s
        if slots > state.num_left:
            score += plain[10]
        out[a] = score


@njit
def play_scorers(problem, episodes, scorer, weights, num_episodes):  # type: ignore[no-untyped-def]
    """Play episodes under one scorer after another.

    Args:
        problem: the scenario's arrays; no candidate follows the published first fit.
        episodes: rows ``i * num_episodes`` to ``(i + 1) * num_episodes - 1`` are those of the ``i``-th scorer, their jobs
            written.
        scorer: all but its weights.
        weights: block_value ``(w, d, h + 1)``, first_value ``(w, d, h + 1)`` and plain ``(w, p)`` of the scorers.
        num_episodes: of each scorer.
    """
    block_value, first_value, plain = weights
    for e in range(len(plain) * num_episodes):
        w = e // num_episodes
        own = Scorer(scorer.blocks, scorer.mean_s, block_value[w], first_value[w], plain[w])
        dynamics.start(problem, episodes, e)
        while episodes.job[e] < episodes.arrival_s.shape[1] - 1:
            num_left = episodes.arrival_s.shape[1] - episodes.num_arrived[e]
            dynamics.decide(problem, episodes, e, best_of_episode(own, episodes, e, num_left))


@njit
def best_of_episode(scorer, episodes, e, num_left):  # type: ignore[no-untyped-def]
    """Return the `best_candidate` of the current job in episode ``e``, a number of arrivals before the end."""
    return best_candidate(scorer, state_of_episode(episodes, e, num_left))


@njit
def score_episodes(scorer, episodes, out):  # type: ignore[no-untyped-def]
    """Write `score_candidates` of the current jobs in all episodes, every candidate offered, ``(e, a)``."""
    for e in range(len(out)):
        score_candidates(scorer, state_of_episode(episodes, e, episodes.arrival_s.shape[1] - episodes.num_arrived[e]), out[e])


@njit
def state_of_episode(episodes, e, num_left):  # type: ignore[no-untyped-def]
    """Return the current decision in episode ``e`` with all its candidates, a number of arrivals before the end."""
    k = episodes.job[e]
    now_s = episodes.now_s[e]
    return DecisionState(
        now_s,
        num_left,
        episodes.allowed_s[e, k] - (now_s - episodes.arrival_s[e, k]),
        episodes.free_at_s[e],
        episodes.block_free_at_s[e],
        episodes.candidate_block[e],
        episodes.candidate_s[e],
        episodes.can_place[e],
    )


@njit
def _slot(wait_s, mean_s, num_slots):  # type: ignore[no-untyped-def]
    """Return the first slot by which a time has passed; the number of slots where none is."""
    if wait_s <= mean_s:
        return 0
    if wait_s > num_slots * mean_s:
        return num_slots
    slot = int(wait_s / mean_s) - 1
    while wait_s > (slot + 1) * mean_s:
        slot += 1
    return slot


@njit
def _first(freed, slot):  # type: ignore[no-untyped-def]
    """Return the first slot, from a given one on, that frees a block."""
    while slot < len(freed) - 1 and freed[slot] == 0:
        slot += 1
    return slot
