"""A job: a job graph to be run for a number of steps, from an arrival time on, perhaps against a deadline."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import quantities
from ..errors import GraphError
from .graph import JobGraph

MAX_STEPS = 2**53
"""More steps than this a float64 does not count one by one."""


@dataclass(frozen=True)
class Job:
    """A training job.

    Attributes:
        graph: one training step.
        num_steps: equal, non-overlapping steps that the job runs.
        arrival_s: when it arrives.
        deadline_s: allowed completion time, counted from the arrival; None means that there is no deadline.

    Raises:
        GraphError: no step or more than `MAX_STEPS`, an arrival before time zero, or a deadline that is not positive.
    """

    graph: JobGraph
    num_steps: int
    arrival_s: float = 0.0
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise GraphError("a job has at least one step", field="num_steps", value=self.num_steps)
        if self.num_steps > MAX_STEPS:
            raise GraphError(f"a job has {MAX_STEPS} steps at most", field="num_steps", value=self.num_steps)
        if not (math.isfinite(self.arrival_s) and self.arrival_s >= 0):
            raise GraphError("must be finite and not negative", field="arrival_s", value=str(self.arrival_s))
        if self.deadline_s is not None and not (math.isfinite(self.deadline_s) and self.deadline_s > 0):
            raise GraphError("must be finite and positive, or absent", field="deadline_s", value=str(self.deadline_s))
        problem = None if self.deadline_s is None else quantities.problem("deadline_s", self.deadline_s)
        if problem is not None:
            raise GraphError(problem, field="deadline_s", value=str(self.deadline_s))

    @property
    def sequential_s(self) -> float:
        """Seconds that the whole job takes on a single reference device."""
        return self.num_steps * self.graph.step_s
