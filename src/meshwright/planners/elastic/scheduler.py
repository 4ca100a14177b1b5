"""The interface of schedulers of elastic jobs, the published ones by name, and the play of episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...jobs.readers.elastic import ElasticWorkload
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import BatchRule
from .attained_service import AttainedService
from .marginal_gain import MarginalGain


class ElasticScheduler(Protocol):
    """Decides every round which nodes each job has."""

    @property
    def batch_rule(self) -> BatchRule:
        """The rule that chooses the batches of the jobs that it schedules."""

    def begin(self, simulation: ElasticSimulation) -> None:
        """Forget earlier episodes; the simulation has been reset."""

    def allocate(self, simulation: ElasticSimulation) -> NDArray[np.int16]:
        """Return the node of each rank of each active job, -1 beyond the last one, ``(e, j, d)``."""


PUBLISHED: dict[str, Callable[[], ElasticScheduler]] = {"tiresias": AttainedService, "optimus": MarginalGain}


def play(
    simulation: ElasticSimulation, scheduler: ElasticScheduler, workloads: Sequence[ElasticWorkload]
) -> list[NDArray[np.int64]]:
    """Return the completion time of each job of each workload, in seconds after its submission.

    Raises:
        PolicyError: the scheduler gave a job impossible ranks.
        ConfigError: it let a job run in a way that was never measured.
    """
    simulation.reset(workloads, scheduler.batch_rule)
    scheduler.begin(simulation)
    while not simulation.is_over:
        simulation.step(scheduler.allocate(simulation))
    jobs = simulation.jobs
    spans = jobs.completion_s - jobs.submission_s
    return [row[:num] for row, num in zip(spans, jobs.num_jobs.tolist(), strict=True)]
