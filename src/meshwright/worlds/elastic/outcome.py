"""The outcome of an elastic workload: played, or from published completion times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...simulation.elastic.simulation import ElasticSimulation


@dataclass(frozen=True, eq=False)
class ElasticOutcome:
    """Jobs of one workload, ``j`` of them, as `evaluation.metrics` reads them.

    Attributes:
        submission_s: ``(j,)``.
        completion_s: from the submission of each job to its end, ``(j,)``.
        planner: name of the policy.
        held_device_s: device-seconds that jobs held; None where it is not published.
        num_devices: of the cluster.
        restarts_per_job: mean number of restarts; None where it is not published.
        decision_s: mean seconds in which a scheduler decided a round; None where that is not known.
        note: for readers of results.
    """

    submission_s: NDArray[np.int64]
    completion_s: NDArray[np.int64]
    planner: str
    held_device_s: float | None = None
    num_devices: int = 0
    restarts_per_job: float | None = None
    decision_s: float | None = None
    note: str = ""

    @classmethod
    def from_simulation(cls, simulation: ElasticSimulation, planner: str, decision_s: float | None = None) -> ElasticOutcome:
        """Return what came of the one episode of a simulation that is over."""
        jobs, submission_s = simulation.jobs, simulation.jobs.submission_s[0].copy()
        restarts = float(np.maximum(jobs.num_restarts[0], 0).mean())
        held_s, devices = float(jobs.service_s.sum()), simulation.cluster.num_devices
        return cls(submission_s, jobs.completion_s[0] - submission_s, planner, held_s, devices, restarts, decision_s)

    @property
    def value_s(self) -> float:
        """Mean completion time."""
        return float(self.completion_s.mean())

    @property
    def makespan_s(self) -> float:
        """Time from the first submission to the last end."""
        return float((self.submission_s + self.completion_s).max() - self.submission_s.min())

    @property
    def devices_held(self) -> float | None:
        """Share of device-time that jobs held from the first submission to the last end."""
        return None if self.held_device_s is None else self.held_device_s / (self.num_devices * self.makespan_s)
