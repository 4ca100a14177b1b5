"""Playing published workloads under many schedulers, in one process or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...budget_clock import clock_s
from ...envs.elastic.benchmark import PublishedElastic
from ...planners.elastic.scheduler import ElasticScheduler, play
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import NOT_YET, BatchRule
from ..workers import CarriedPolicies, Workers
from .elastic_figures import ElasticFigures
from .policies import carried_file, elastic_scheduler


@dataclass(frozen=True)
class PlayedWorkloads:
    """A policy on all workloads.

    Attributes:
        views: of each.
        num_decisions: rounds of all workloads.
        decisions_s: that its decisions took in all.
    """

    views: list[ElasticFigures]
    num_decisions: int
    decisions_s: float


def play_all(
    published: PublishedElastic,
    specs: Sequence[str],
    workers: Workers = Workers(),  # noqa: B008 - it cannot change
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, PlayedWorkloads]:
    """Every policy on every workload; those of a policy are played side by side.

    Args:
        published: what is played; workloads may have been left out.
        specs: policies (see `policies`).
        workers: who plays them; the results are the same whoever does.
        progress: called with the number of workloads played and that of all.

    Raises:
        MeshwrightError: a policy is unknown or damaged, or did what is impossible.
    """
    found: dict[str, PlayedWorkloads] = {}
    num_workloads = len(published.workloads)

    def keep(spec: str, played: PlayedWorkloads) -> None:
        found[spec] = played
        if progress is not None:
            progress(len(found) * num_workloads, len(specs) * num_workloads)

    policies = CarriedPolicies(elastic_scheduler, carried_file, specs)
    workers.do(partial(_play, published, policies), specs, keep)
    return found


def _play(published: PublishedElastic, policies: CarriedPolicies[ElasticScheduler], spec: str) -> PlayedWorkloads:
    """One policy on all workloads."""
    scheduler = _Timed(policies[spec])
    spans = play(published.simulation, scheduler, published.workloads)
    jobs, num_devices = published.simulation.jobs, published.simulation.cluster.num_devices
    views = [
        ElasticFigures(
            workload,
            row,
            float(jobs.service_s[e].sum()),
            num_devices,
            float(np.maximum(jobs.num_restarts[e, : len(row)], 0).mean()),
        )
        for e, (workload, row) in enumerate(zip(published.workloads, spans, strict=True))
    ]
    return PlayedWorkloads(views, scheduler.num_decisions, scheduler.spent_s)


class _Timed:
    """A scheduler whose decisions are counted and timed, one for each workload that is not over."""

    def __init__(self, scheduler: ElasticScheduler) -> None:
        self._scheduler = scheduler
        self.num_decisions, self.spent_s = 0, 0.0

    @property
    def batch_rule(self) -> BatchRule:
        return self._scheduler.batch_rule

    def begin(self, simulation: ElasticSimulation) -> None:
        self._scheduler.begin(simulation)

    def allocate(self, simulation: ElasticSimulation) -> NDArray[np.int16]:
        self.num_decisions += int(((simulation.jobs.completion_s == NOT_YET) & simulation.is_job).any(axis=1).sum())
        began = clock_s()
        found = self._scheduler.allocate(simulation)
        self.spent_s += clock_s() - began
        return found
