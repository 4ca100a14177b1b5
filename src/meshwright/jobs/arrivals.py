"""Jobs that arrive over time: the arrays that a simulation reads, and when jobs arrive by rule.

Legend of shapes: ``j`` jobs in order of arrival. The first arrives at time zero. Arrivals of recorded traces are in `trace`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..errors import GraphError
from ..settings import Settings
from .graph import JobGraph
from .job import Job


@dataclass(frozen=True, eq=False)
class Arrivals:
    """The jobs of one episode.

    Attributes:
        arrival_s: when each job arrives, not decreasing, the first at 0, ``(j,)``.
        graph_id: index of each job's graph in `Workload.graphs`, ``(j,)``.
        num_steps: steps of each job, at least 1, ``(j,)``.
        deadline_fraction: allowed completion time over sequential time; infinite without a deadline, ``(j,)``.
        requested_gpus: what its user asks for, ``(j,)``; None where nothing is known.
    """

    arrival_s: NDArray[np.float64]
    graph_id: NDArray[np.int64]
    num_steps: NDArray[np.int64]
    deadline_fraction: NDArray[np.float64]
    requested_gpus: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        for field, dtype in (("arrival_s", float), ("graph_id", np.int64), ("num_steps", np.int64), ("deadline_fraction", float)):
            values = np.array(getattr(self, field), dtype)
            if values.shape != self.arrival_s.shape or values.ndim != 1:
                raise GraphError(f"has shape {values.shape} for {len(self.arrival_s)} jobs", field=field)
            values.flags.writeable = False
            object.__setattr__(self, field, values)
        if self.num_jobs and (self.arrival_s[0] != 0 or (np.diff(self.arrival_s) < 0).any()):
            raise GraphError("must start at 0 and not decrease", field="arrival_s")

    @property
    def num_jobs(self) -> int:
        """Number of jobs, ``j``."""
        return len(self.arrival_s)

    def job(self, index: int, graphs: Sequence[JobGraph]) -> Job:
        """Return one of the jobs, its graph taken from the workload's graphs."""
        job = Job(graphs[self.graph_id[index]], int(self.num_steps[index]), float(self.arrival_s[index]))
        fraction = float(self.deadline_fraction[index])
        if fraction == np.inf:
            return job
        return Job(job.graph, job.num_steps, job.arrival_s, fraction * job.sequential_s)


class FixedArrivals(Settings):
    """Jobs that arrive at fixed intervals."""

    kind: Literal["fixed"]
    interarrival_s: float = Field(gt=0)

    @property
    def mean_interarrival_s(self) -> float:
        """Seconds between two arrivals."""
        return self.interarrival_s

    def times_s(self, rng: np.random.Generator, num_jobs: int) -> NDArray[np.float64]:
        """Return the arrival times, ``(num_jobs,)``; the generator is not used."""
        return self.interarrival_s * np.arange(num_jobs, dtype=np.float64)


class PoissonArrivals(Settings):
    """A Poisson process: independent exponential times between arrivals."""

    kind: Literal["poisson"]
    mean_interarrival_s: float = Field(gt=0)

    def times_s(self, rng: np.random.Generator, num_jobs: int) -> NDArray[np.float64]:
        """Return the arrival times, ``(num_jobs,)``; the first is moved to zero."""
        gaps = rng.exponential(self.mean_interarrival_s, num_jobs)
        gaps[0] = 0.0
        return np.cumsum(gaps)
