"""Cluster dynamics: jobs arrive, are cut and placed or turned away, run and leave; many episodes side by side.

Everything is flat arrays stepped by compiled functions. Legend: ``e`` episodes, ``k`` jobs of an episode, ``n``
devices, ``b`` blocks, ``g`` graphs, ``c`` placement classes, ``a`` candidates (number 0 rejects the job; then, for
each degree, one candidate per placement rule). A job that is placed owns its block's devices until it ends. Arrays of
jobs hold one job more than an episode decides, so that the state at its end is a state like any other.

With a queue (``queue_capacity`` above 0), a job that is turned down on arrival waits, if there is room and some block
could still meet its deadline. Each time that devices become free, the waiting jobs are put up for decision again, in
the order of their arrival and each once; those that no free block suits are passed over, and one that is kept waiting
does not hold up those behind it. A job leaves the queue when it is placed, or as blocked when no block, were it free,
could meet its deadline any more. An episode ends when the arrival after its last one comes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import njit
from . import interruptions, waiting
from .candidates import find_candidates
from .interruptions import Interruptions


class Outcome(IntEnum):
    """What became of a job."""

    ACCEPTED = 0
    REJECTED = 1
    NO_DEVICE = 2
    NO_BLOCK = 3
    DEADLINE = 4
    UNDECIDED = 5
    EXPIRED = 6
    WAITING = 7


OUTCOME_WORDS = {
    Outcome.ACCEPTED: "accepted",
    Outcome.REJECTED: "rejected by choice",
    Outcome.NO_DEVICE: "no free device",
    Outcome.NO_BLOCK: "no free block",
    Outcome.DEADLINE: "deadline out of reach",
    Outcome.UNDECIDED: "undecided",
    Outcome.EXPIRED: "deadline expired while waiting",
    Outcome.WAITING: "waiting",
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
        queue_capacity: jobs that may wait at a time.
        interruptions: failures and preemptions.
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
    queue_capacity: int
    interruptions: Interruptions

    @property
    def num_candidates(self) -> int:
        """Candidates of a decision, the rejection among them."""
        return 1 + len(self.degrees) * len(self.rules)


class Episodes(NamedTuple):
    """The state of ``e`` episodes and the record of what happened in them.

    Attributes:
        job: the job to be decided, ``(e,)``; the last one when an episode is over.
        now_s: when it is to be decided, ``(e,)``: its arrival, or later if it waits.
        num_arrived: jobs that have come, the one at hand among them, ``(e,)``.
        waiting: the jobs of the queue in order, ``(e, queue_capacity)``.
        num_waiting: how many there are, ``(e,)``.
        at_hand: place in the queue of the job at hand; the number of waiting jobs if it has just arrived, ``(e,)``.
        num_expired: jobs whose deadline expired since the decision before, ``(e,)``.
        free_at_s: when each device becomes free, ``(e, n)``: its job ends, so far as is known, or its repair does.
        block_free_at_s: when all devices of each block are free, ``(e, b)``.
        arrival_s, graph_id, num_steps, allowed_s: the jobs, ``(e, k)``.
        candidate_block: block of each candidate, -1 where there is none, ``(e, a)``.
        candidate_s: completion time of each candidate, ``(e, a)``.
        can_place: whether a candidate is free, fits and meets the deadline, ``(e, a)``; number 0 always is.
        obstacle: the `Outcome` of a rejection at this decision, ``(e,)``.
        chosen, block, completion_s, outcome: what was decided and came of it, ``(e, k)``.
        start_s, finish_s: when a placed job began and ends, so far as is known, ``(e, k)``.
        seed: of all failures and preemptions of an episode, ``(e,)``.
        holder: the job that was placed last on each device, -1 before the first, ``(e, n)``. This and all below are
            empty where nothing is interrupted.
        fails_at_s: when each device fails next, ``(e, n)``.
        device_failures: failures of each device so far, ``(e, n)``.
        runs_from_s: when each job began to run, or will after a restart, ``(e, k)``.
        saved_s: seconds of work in its checkpoint then, ``(e, k)``.
        preempted_at_s: when it is preempted next, ``(e, k)``.
        num_failures, num_preemptions: interruptions of each job, ``(e, k)``.
        lost_work_s: work that it had to do again, ``(e, k)``.
        delay_s: by how much it ends later than it would have without interruptions, ``(e, k)``.
    """

    job: NDArray[np.int64]
    now_s: NDArray[np.float64]
    num_arrived: NDArray[np.int64]
    waiting: NDArray[np.int64]
    num_waiting: NDArray[np.int64]
    at_hand: NDArray[np.int64]
    num_expired: NDArray[np.int64]
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
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    seed: NDArray[np.int64]
    holder: NDArray[np.int64]
    fails_at_s: NDArray[np.float64]
    device_failures: NDArray[np.int64]
    runs_from_s: NDArray[np.float64]
    saved_s: NDArray[np.float64]
    preempted_at_s: NDArray[np.float64]
    num_failures: NDArray[np.int64]
    num_preemptions: NDArray[np.int64]
    lost_work_s: NDArray[np.float64]
    delay_s: NDArray[np.float64]


def new_episodes(problem: Problem, num_episodes: int, num_jobs: int, num_devices: int) -> Episodes:
    """Arrays for episodes that `start` fills."""
    e, k, a, b = num_episodes, num_jobs + 1, problem.num_candidates, len(problem.degree)
    return Episodes(
        job=np.zeros(e, np.int64),
        now_s=np.zeros(e),
        num_arrived=np.ones(e, np.int64),
        waiting=np.full((e, problem.queue_capacity), -1, np.int64),
        num_waiting=np.zeros(e, np.int64),
        at_hand=np.zeros(e, np.int64),
        num_expired=np.zeros(e, np.int64),
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
        start_s=np.full((e, k), np.nan),
        finish_s=np.full((e, k), np.nan),
        **interruptions.new_arrays(problem.interruptions, e, k, num_devices),
    )


@njit
def start(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Empty the cluster of episode ``e`` and show its first job; its jobs and its seed have been written before."""
    episodes.job[e] = 0
    episodes.now_s[e] = episodes.arrival_s[e, 0]
    episodes.num_arrived[e] = 1
    episodes.waiting[e] = -1
    episodes.num_waiting[e] = 0
    episodes.at_hand[e] = 0
    episodes.num_expired[e] = 0
    episodes.free_at_s[e] = 0.0
    episodes.block_free_at_s[e] = 0.0
    episodes.chosen[e] = 0
    episodes.block[e] = -1
    episodes.completion_s[e] = np.nan
    episodes.outcome[e] = 5
    episodes.start_s[e] = np.nan
    episodes.finish_s[e] = np.nan
    if problem.interruptions.is_on:
        interruptions.begin(problem, episodes, e)
    find_candidates(problem, episodes, e)


@njit
def decide(problem, episodes, e, candidate):  # type: ignore[no-untyped-def]
    """Carry out a candidate for the job at hand and go to the next decision.

    Returns:
        Whether the job was accepted. A candidate that cannot be placed turns the job down.
    """
    k = episodes.job[e]
    accepted = candidate > 0 and episodes.can_place[e, candidate]
    has_waited = episodes.at_hand[e] < episodes.num_waiting[e]
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
        episodes.outcome[e, k] = 0
        episodes.start_s[e, k] = now_s
        episodes.finish_s[e, k] = until_s
        if problem.interruptions.is_on:
            interruptions.place(problem, episodes, e, k)
        if has_waited:
            waiting.leave(episodes, e, episodes.at_hand[e])
    elif has_waited:
        episodes.at_hand[e] += 1
    elif waiting.can_wait(problem, episodes, e):
        episodes.waiting[e, episodes.num_waiting[e]] = k
        episodes.num_waiting[e] += 1
        episodes.at_hand[e] = episodes.num_waiting[e]
        episodes.outcome[e, k] = 7
    else:
        episodes.outcome[e, k] = episodes.obstacle[e]
    if problem.queue_capacity > 0 or problem.interruptions.is_on:
        _go_on(problem, episodes, e)
    else:
        _arrive(episodes, e)
        find_candidates(problem, episodes, e)
    return accepted


@njit
def drain(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Let the placed jobs of an episode run to their ends, whatever interrupts them; nothing more is decided."""
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
def _arrive(episodes, e):  # type: ignore[no-untyped-def]
    k = episodes.num_arrived[e]
    episodes.job[e] = k
    episodes.now_s[e] = episodes.arrival_s[e, k]
    episodes.num_arrived[e] = k + 1


@njit
def _go_on(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Put up the next waiting job that some free block suits, or let time pass until there is one or a job arrives."""
    while True:
        while episodes.at_hand[e] < episodes.num_waiting[e]:
            episodes.job[e] = episodes.waiting[e, episodes.at_hand[e]]
            find_candidates(problem, episodes, e)
            if episodes.obstacle[e] == 1:
                return
            episodes.at_hand[e] += 1
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
            waiting.expire(problem, episodes, e)
            episodes.at_hand[e] = episodes.num_waiting[e]
            find_candidates(problem, episodes, e)
            return
        episodes.now_s[e] = min(freed_s, interrupted_s)
        if interrupted_s <= freed_s:
            interruptions.happen(problem, episodes, e, interrupted_s)
        if freed_s <= interrupted_s:
            waiting.expire(problem, episodes, e)
            episodes.at_hand[e] = 0
