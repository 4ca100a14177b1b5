"""The state of many episodes side by side and the record of what happened in them, as flat arrays.

Legend: ``e`` episodes, ``k`` jobs of an episode, ``n`` devices, ``b`` blocks, ``g`` graphs, ``d`` degrees, ``a``
candidates. Arrays of jobs hold one job more than an episode decides, so that the state at its end is a state like any
other.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numba_records import by_reference
from ..ragged import arrays_of
from .problem import Problem


class Outcome(IntEnum):
    """The outcome of a job.

    ``RUNNING`` occurs in records only, and only where jobs that run when an episode ends count as blocked.
    """

    ACCEPTED = 0
    REJECTED = 1
    NO_DEVICE = 2
    NO_BLOCK = 3
    DEADLINE = 4
    UNDECIDED = 5
    EXPIRED = 6
    WAITING = 7
    RUNNING = 8


OUTCOME_WORDS = {
    Outcome.ACCEPTED: "accepted",
    Outcome.REJECTED: "rejected by choice",
    Outcome.NO_DEVICE: "no free device",
    Outcome.NO_BLOCK: "no free block",
    Outcome.DEADLINE: "deadline out of reach",
    Outcome.UNDECIDED: "undecided",
    Outcome.EXPIRED: "deadline expired while waiting",
    Outcome.WAITING: "waiting",
    Outcome.RUNNING: "running at the end",
}


@by_reference
class Episodes(NamedTuple):
    """The state of ``e`` episodes and the record of what happened in them.

    Attributes:
        job: the job to be decided, ``(e,)``; the last one when an episode is over.
        now_s: when it is to be decided, ``(e,)``: its arrival, or later if it waits.
        num_arrived: jobs that have come, the one at hand among them, ``(e,)``.
        waiting: the jobs of the queue in order, ``(e, queue_capacity)``.
        num_waiting: how many there are, ``(e,)``.
        queue_index: place in the queue of the current job; the number of waiting jobs if it has just arrived, ``(e,)``.
        num_expired: jobs whose deadline expired since the decision before, ``(e,)``.
        free_at_s: when each device becomes free, ``(e, n)``: its job ends, so far as is known, or its repair does.
        block_free_at_s: when all devices of each block are free, ``(e, b)``.
        arrival_s, graph_id, num_steps, allowed_s: the jobs, ``(e, k)``.
        candidate_block: block (or placement by the published rule) of each candidate, -1 where there is none, ``(e, a)``.
        candidate_s: completion time of each candidate, ``(e, a)``.
        can_place: whether a candidate is free, fits and meets the deadline, ``(e, a)``; number 0 always is.
        obstacle: the `Outcome` of a rejection at this decision, ``(e,)``.
        chosen, block, completion_s, outcome: what was decided and came of it, ``(e, k)``.
        start_s, finish_s: when a placed job began and ends, so far as is known, ``(e, k)``.
        fixed_block: block or placement whose step time holds for a graph and degree for the rest of the episode, ``(e, g, d)``;
            -1 before there is one. Empty where each block has its own step time.
        wanted: key of a placement by the published rule that is not known yet, ``(e, length of a key)``.
        needs_placement: whether the candidates wait for it to be found, ``(e,)`` (see `simulation.pacml.placement_cache`).
        seed: of all failures and preemptions of an episode, ``(e,)``.
        holder: the job that was placed last on each device, -1 before the first, ``(e, n)``. This and all below are
            empty where nothing is interrupted.
        fails_at_s: when each device fails next, ``(e, n)``.
        device_failures: failures of each device so far, ``(e, n)``.
        work_s: how long each placed job runs if nothing interrupts it, ``(e, k)``.
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
    queue_index: NDArray[np.int64]
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
    fixed_block: NDArray[np.int64]
    wanted: NDArray[np.int64]
    needs_placement: NDArray[np.bool_]
    seed: NDArray[np.int64]
    holder: NDArray[np.int64]
    fails_at_s: NDArray[np.float64]
    device_failures: NDArray[np.int64]
    work_s: NDArray[np.float64]
    runs_from_s: NDArray[np.float64]
    saved_s: NDArray[np.float64]
    preempted_at_s: NDArray[np.float64]
    num_failures: NDArray[np.int64]
    num_preemptions: NDArray[np.int64]
    lost_work_s: NDArray[np.float64]
    delay_s: NDArray[np.float64]


def new_episodes(problem: Problem, num_episodes: int, num_jobs: int, num_devices: int) -> Episodes:
    """Return arrays for episodes that `start` fills."""
    e, k, a, b = num_episodes, num_jobs + 1, problem.num_candidates, problem.num_blocks
    fixed = (len(problem.sequential_step_s), len(problem.degrees)) if problem.is_keyed_by_degree else (0, 0)
    is_on = problem.interruptions.is_on
    return arrays_of(
        Episodes,
        {
            "job now_s num_arrived num_waiting queue_index num_expired obstacle needs_placement seed": e,
            "waiting": (e, problem.queue_capacity),
            "free_at_s": (e, num_devices),
            "block_free_at_s": (e, b),
            "arrival_s graph_id num_steps allowed_s chosen block completion_s outcome start_s finish_s": (e, k),
            "candidate_block candidate_s can_place": (e, a),
            "fixed_block": (e, *fixed),
            "wanted": (e, problem.published.keys.shape[1]),
            "holder fails_at_s device_failures": (e, num_devices if is_on else 0),
            "work_s runs_from_s saved_s preempted_at_s num_failures num_preemptions lost_work_s delay_s": (e, k if is_on else 0),
        },
        {
            "num_arrived num_steps": 1,
            "waiting candidate_block block fixed_block wanted holder": -1,
            "allowed_s candidate_s fails_at_s preempted_at_s": np.inf,
            "completion_s start_s finish_s work_s runs_from_s": np.nan,
            "obstacle": Outcome.REJECTED,
            "outcome": Outcome.UNDECIDED,
        },
    )
