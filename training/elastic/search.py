"""`ElasticLearner`: the value of shares of a cluster to elastic jobs, by trying weights on drawn workloads.

The cost of a set of weights is its mean completion time over that of the weights by hand, averaged over workloads. So a workload
of long jobs counts no more than another.

Weights are rounded to `DIGITS` digits after the point before they are played. The linear algebra of CMA-ES gives other last
digits on another processor. One such digit may give a device to another job in one round, and everything after that differs.
Rounded, the same seed gives the same weights, bit for bit, also across an interruption.

In the run folder (see `training.run_folder`) ``checkpoint.json`` is the newest generation, ``policy.json`` the best mean on the
validation workloads so far (see `planners.elastic.saved_shares`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...jobs.readers.elastic import ElasticWorkload
from ...jobs.seeds import FIRST_TRAINING_SEED, FIRST_VALIDATION_SEED
from ...models.policy_files import STAGES, stage
from ...planners.elastic.saved_shares import SHARE_RULES, SavedShares
from ...planners.elastic.scheduler import play
from ...simulation.elastic.simulation import ElasticSimulation
from ...worlds.elastic.benchmark import ElasticBenchmark, load_elastic_benchmark
from ..hooks.names import WITHOUT_EFFECT
from ..run import ReportedMeasure, TrainingRun
from ..search import CovarianceAdaptation, Search, SearchLearner
from .settings import ElasticTrainSettings

DIGITS = 6

Batches = Sequence[Sequence[ElasticWorkload]]
"""Workloads; those of one sequence are played side by side."""


class ShareTrial:
    """Weights of a rule on drawn workloads; see `training.search.Trial`.

    Args:
        rule: one of `SHARE_RULES`.
        simulation: plays the workloads.
        training: on which weights are tried.
        validation: on which means are compared.
    """

    def __init__(self, rule: str, simulation: ElasticSimulation, training: Batches, validation: Batches) -> None:
        self._rule, self._simulation, self._training, self._validation = SHARE_RULES[rule], simulation, training, validation
        self.start = np.array(self._rule.by_hand)
        self._by_hand = self._means_s(self.start, training)

    def costs(self, weights: NDArray[np.float64], generation: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the mean completion times of each set over those by hand."""
        return np.array([(self._means_s(each, self._training) / self._by_hand).mean() for each in weights.round(DIGITS)])

    def value(self, mean: NDArray[np.float64]) -> float:
        """Return the mean completion time on the validation workloads, in seconds."""
        return float(self._means_s(mean, self._validation).mean())

    def _means_s(self, weights: NDArray[np.float64], batches: Batches) -> NDArray[np.float64]:
        """Return the mean completion time in each workload with some weights."""
        scheduler = self._rule.scheduler(weights.tolist())
        return np.array([spans.mean() for each in batches for spans in play(self._simulation, scheduler, each)])


def share_search(settings: ElasticTrainSettings, trial: ShareTrial) -> Search:
    """Return a search before its first generation."""
    population, every = (
        CovarianceAdaptation(trial.start, settings.spread, settings.population),
        settings.validate_every_generations,
    )
    return Search(population, trial, settings.generations, every, ((settings.seed,), ()), digits=DIGITS)


class ElasticLearner(SearchLearner):
    """Searches for weights of elastic shares.

    Args:
        settings: the config.

    Raises:
        MeshwrightError: the config, benchmark, data or trace is wrong.
    """

    reported = ReportedMeasure("elastic", "mean_completion_s", "generations")

    def __init__(self, settings: ElasticTrainSettings) -> None:
        benchmark = load_elastic_benchmark(settings.benchmark, changes=settings.changes)
        simulation, self._settings = benchmark.simulation(), settings
        # Training workloads of another seed are others; the validation workloads are always the same.
        first = FIRST_TRAINING_SEED + settings.seed * len(settings.num_jobs)
        training = _drawn(settings, benchmark, simulation, settings.num_jobs, first)
        trial = ShareTrial(settings.rule, simulation, training, validation_workloads(settings, benchmark, simulation))
        self.search = share_search(settings, trial)
        settings_data = settings.model_dump(mode="json", exclude={"benchmark", "changes", "trace", *WITHOUT_EFFECT})
        self._data = {} if benchmark.elastic.folder is not None else {"data": "modelled"}
        self.key = files.digest(
            settings_data,
            benchmark.elastic.cluster.model_dump(mode="json"),
            SHARE_RULES[settings.rule].names,
            *self._data.values(),
        )

    def validate(self, run: TrainingRun, stage: str) -> dict[str, Any]:
        """See `SearchLearner`."""
        (generation, mean_s), costs = self.search.values[-1], self.search.latest
        least = None if costs is None else float(costs.min())
        return {"generation": generation, "validation_mean_completion_s": mean_s, "least_training_cost": least}

    def policy(self, run: TrainingRun) -> SavedShares:
        """See `SearchLearner`."""
        (generation, mean_s), weights = self.search.best_of_all, self.search.best
        figures = {"generation": generation, "validation_mean_completion_s": mean_s}
        made = [stage("search", generation, "generations", mean_s, of=f"{len(weights)} weights")]
        about = {"config": self._settings.name, "seed": self._settings.seed, **self._data, **figures, STAGES: made}
        return SavedShares(self._settings.rule, weights, about)


def validation_workloads(
    settings: ElasticTrainSettings, benchmark: ElasticBenchmark, simulation: ElasticSimulation
) -> list[list[ElasticWorkload]]:
    """Return the workloads on which means are compared; those of equal size are played side by side."""
    return _drawn(settings, benchmark, simulation, settings.validation_num_jobs, FIRST_VALIDATION_SEED)


def _drawn(
    settings: ElasticTrainSettings, benchmark: ElasticBenchmark, simulation: ElasticSimulation, sizes: Sequence[int], first: int
) -> list[list[ElasticWorkload]]:
    draws = benchmark.draws(simulation, settings.trace)
    numbered = groupby(enumerate(sizes), key=lambda each: each[1])
    return [[draws.draw(first + number, size) for number, size in each] for _, each in numbered]
