"""An elastic workload that was played, or of which completion times are published, as `evaluation.metrics` reads it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...jobs.readers.elastic import ElasticWorkload


@dataclass(frozen=True, eq=False)
class ElasticFigures:
    """A view of one workload; ``j`` jobs.

    Attributes:
        workload: whose jobs they are.
        completion_s: from the submission of each job to its end, ``(j,)``.
        held_device_s: device-seconds that jobs held; None where it is not published.
        num_devices: of the cluster.
        restarts_per_job: mean number of restarts; None where it is not published.
    """

    workload: ElasticWorkload
    completion_s: NDArray[np.int64]
    held_device_s: float | None = None
    num_devices: int = 0
    restarts_per_job: float | None = None

    @property
    def makespan_s(self) -> float:
        """Time from the first submission to the last end."""
        submission_s = self.workload.submission_s
        return float((submission_s + self.completion_s).max() - submission_s.min())

    @property
    def devices_held(self) -> float | None:
        """Share of device-time that jobs held from the first submission to the last end."""
        return None if self.held_device_s is None else self.held_device_s / (self.num_devices * self.makespan_s)
