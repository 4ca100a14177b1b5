"""The search for the value of shares of a cluster to elastic jobs, by trying weights on drawn workloads.

Every generation draws a population of weights around a mean by CMA-ES, plays all of them on the same training workloads and
moves the mean to the best. A set of weights costs the mean, over workloads, of its mean completion time over that of the
weights by hand, so that a workload of long jobs counts no more than another.

Weights are rounded to `DIGITS` digits after the point before they are played. The linear algebra of CMA-ES gives other last
digits on another processor; one such digit may give a device to another job in one round, and from there on everything is
other. Rounded, the same seed gives the same weights, bit for bit, also across an interruption.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...jobs.readers.elastic import ElasticWorkload
from ...models.policy_files import STAGES, stage
from ...planners.elastic.saved_shares import SHARE_RULES, SavedShares
from ...planners.elastic.scheduler import play
from ...simulation.elastic.simulation import ElasticSimulation
from ..linear.populations import CovarianceAdaptation
from .settings import ElasticTrainSettings

DIGITS = 6

Batches = Sequence[Sequence[ElasticWorkload]]
"""Workloads; those of one sequence are played side by side."""


class ElasticSearch:
    """The state between two generations.

    Args:
        chosen: constants.
        simulation: plays the workloads.
        training: on which weights are tried.
        validation: on which means are compared.

    Attributes:
        generation: how many have been played.
        curve: a row per validation.
        best: the best mean of all validations and its figures; empty before the first.
    """

    def __init__(
        self, chosen: ElasticTrainSettings, simulation: ElasticSimulation, training: Batches, validation: Batches
    ) -> None:
        self.chosen, self._simulation, self._training, self._validation = chosen, simulation, training, validation
        by_hand = np.array(SHARE_RULES[chosen.rule].by_hand)
        self._population = CovarianceAdaptation(by_hand, chosen.spread, chosen.population)
        self._by_hand = self._means_s(by_hand, training)
        self.generation = 0
        self.curve: list[dict[str, Any]] = []
        self.best: dict[str, Any] = {}
        self._before_s, self._since = 0.0, time.perf_counter()

    @property
    def mean(self) -> NDArray[np.float64]:
        """What the next generation is drawn around, rounded."""
        return self._population.mean.round(DIGITS)

    def run(self, after: Callable[[], None]) -> None:
        """Play all generations that are left, with validations; ``after`` is called after each."""
        if not self.curve:
            self._validate(None)
            after()
        while self.generation < self.chosen.generations:
            least = self._play_generation()
            if self.generation % self.chosen.validate_every_generations == 0 or self.generation == self.chosen.generations:
                self._validate(least)
            after()

    def saved(self, trained: dict[str, Any]) -> SavedShares:
        """The best mean so far, with how it was found, added to what is given."""
        figures = {name: value for name, value in self.best.items() if name != "weights"}
        value, of = self.best["validation_mean_completion_s"], f"{len(self.best['weights'])} weights"
        made = {STAGES: [stage("search", self.best["generation"], "generations", value, of=of)]}
        about = {**trained, "seed": self.chosen.seed, **figures, **made}
        return SavedShares(self.chosen.rule, np.array(self.best["weights"]), about)

    def state(self) -> dict[str, Any]:
        """Plain data that `restore` continues from."""
        kept = {"generation": self.generation, "curve": self.curve, "best": self.best}
        return {**kept, **self._population.state(), "elapsed_s": self._elapsed_s()}

    def restore(self, data: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ArithmeticError, LookupError, TypeError, ValueError: it is none of this search.
        """
        generation, curve, best = data["generation"], list(data["curve"]), dict(data["best"])
        weights = np.array(best["weights"], np.float64)
        if generation not in range(self.chosen.generations + 1) or not curve or weights.shape != self.mean.shape:
            raise ValueError
        self._population.restore(data, self._rng_of)
        self.generation, self.curve, self.best, self._before_s = generation, curve, best, float(data["elapsed_s"])

    def _play_generation(self) -> float:
        """Draw a population, play it, and move to the best; the least cost."""
        drawn = self._population.draw(self._rng_of(self.generation))
        costs = [(self._means_s(weights, self._training) / self._by_hand).mean() for weights in drawn.round(DIGITS)]
        self.generation += 1
        self._population.learn(drawn, np.array(costs), 1.0 - self.generation / self.chosen.generations)
        return float(min(costs))

    def _validate(self, least: float | None) -> None:
        """A row of the learning curve."""
        mean_s = float(self._means_s(self.mean, self._validation).mean())
        row = {"generation": self.generation, "validation_mean_completion_s": mean_s, "least_training_cost": least}
        self.curve.append({**row, "elapsed_s": self._elapsed_s()})
        if not self.best or mean_s < self.best["validation_mean_completion_s"]:
            best = {"generation": self.generation, "validation_mean_completion_s": mean_s}
            self.best = {**best, "weights": self.mean.tolist()}

    def _means_s(self, weights: NDArray[np.float64], batches: Batches) -> NDArray[np.float64]:
        """Mean completion time in each workload with some weights."""
        scheduler = SHARE_RULES[self.chosen.rule].scheduler(weights.tolist())
        return np.array([spans.mean() for each in batches for spans in play(self._simulation, scheduler, each)])

    def _rng_of(self, generation: int) -> np.random.Generator:
        return np.random.default_rng([self.chosen.seed, generation])

    def _elapsed_s(self) -> float:
        """Since the search began, interruptions left out."""
        return self._before_s + time.perf_counter() - self._since
