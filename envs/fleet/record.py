"""The record of an episode of a fleet, job by job, as arrays that outlive its state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...simulation.fleet.state import FleetState, JobState, Total

OUTCOME_NAMES = {
    JobState.TO_COME: "to come",
    JobState.WAITING: "waiting",
    JobState.RUNNING: "running",
    JobState.COMPLETED: "completed",
    JobState.REFUSED: "refused",
    JobState.EXPIRED: "expired",
}


@dataclass(frozen=True, eq=False)
class FleetRecord:
    """An episode so far; ``k`` jobs.

    Attributes:
        end_s: its time.
        arrival_s, finish_s, deadline_s: ``(k,)``; ``finish_s`` nan where a job has not completed.
        start_s: first start, nan before, ``(k,)``.
        job_type, entry: ``(k,)``; the entry is the last by which a job ran, -1 where it never did.
        num_steps: ``(k,)``.
        status: `JobState`, ``(k,)``.
        num_restarts: ``(k,)``.
        held_device_s: device-seconds that each job held, ``(k,)``.
        shared_s: seconds by which sharing stretched its steps, ``(k,)``.
        num_failures: how often a failing host stopped it, a part of ``num_restarts``, ``(k,)``.
        lost_device_s: device-seconds of its unfinished steps that failures undid, ``(k,)``.
        totals: of all jobs, see `Total`.
    """

    end_s: float
    arrival_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    deadline_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    job_type: NDArray[np.int64]
    entry: NDArray[np.int64]
    num_steps: NDArray[np.float64]
    status: NDArray[np.int64]
    num_restarts: NDArray[np.int64]
    held_device_s: NDArray[np.float64]
    shared_s: NDArray[np.float64]
    num_failures: NDArray[np.int64]
    lost_device_s: NDArray[np.float64]
    totals: NDArray[np.float64]

    @classmethod
    def from_state(cls, state: FleetState, e: int) -> FleetRecord:
        """Return a copy of what the state knows of episode ``e``."""
        status = state.status[e].copy()
        return cls(
            end_s=float(state.now_s[e]),
            finish_s=np.where(status == JobState.COMPLETED, state.finish_s[e], np.nan),
            status=status,
            totals=state.totals[e].copy(),
            **{name: getattr(state, name)[e].copy() for name in _COPIED},
        )

    @property
    def is_completed(self) -> NDArray[np.bool_]:
        """Whether each job was completed, ``(k,)``."""
        return np.asarray(self.status == JobState.COMPLETED)

    @property
    def is_blocked(self) -> NDArray[np.bool_]:
        """Jobs that were turned away, or ended after their deadline, ``(k,)``."""
        return np.isin(self.status, (JobState.REFUSED, JobState.EXPIRED)) | (self.finish_s > self.deadline_s)

    def counts(self, counted: slice) -> dict[str, int]:
        """Return the jobs by what became of them, of those that are counted."""
        return {name: int((self.status[counted] == code).sum()) for code, name in OUTCOME_NAMES.items()}

    def total(self, which: Total) -> float:
        """Return the value of one of the totals."""
        return float(self.totals[which])


_COPIED = (
    "arrival_s",
    "deadline_s",
    "start_s",
    "job_type",
    "entry",
    "num_steps",
    "num_restarts",
    "held_device_s",
    "shared_s",
    "num_failures",
    "lost_device_s",
)
