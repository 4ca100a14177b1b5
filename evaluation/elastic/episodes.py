"""Published elastic workloads, as `evaluation.playing` plays them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...budget_clock import clock_s
from ...envs.elastic.benchmark import PublishedElastic
from ...planners.elastic.scheduler import ElasticScheduler, play
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import NOT_YET, BatchRule
from ..playing import PlayedEpisodes
from ..workers import CarriedPolicies
from .elastic_figures import ElasticFigures
from .policies import carried_file, elastic_scheduler

MOST_AT_A_TIME = 1_000
"""All workloads of a scheduler are played side by side."""


def carried(specs: Sequence[str]) -> CarriedPolicies[ElasticScheduler]:
    """Schedulers by their spelling (see `policies`)."""
    return CarriedPolicies(elastic_scheduler, carried_file, specs)


def play_workloads(published: PublishedElastic, scheduler: ElasticScheduler, cases: Sequence[int]) -> PlayedEpisodes:
    """Views of some workloads that are played side by side, and the seconds that all decisions took."""
    timed, workloads = _Timed(scheduler), [published.workloads[case] for case in cases]
    spans = play(published.simulation, timed, workloads)
    jobs, num_devices = published.simulation.jobs, published.simulation.cluster.num_devices
    views = []
    for e, (workload, row) in enumerate(zip(workloads, spans, strict=True)):
        restarts = float(np.maximum(jobs.num_restarts[e, : len(row)], 0).mean())
        views.append(ElasticFigures(workload, row, float(jobs.service_s[e].sum()), num_devices, restarts))
    return PlayedEpisodes(views, [timed.spent_s], timed.num_decisions)


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
