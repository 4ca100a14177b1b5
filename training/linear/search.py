"""The search for the weights of a linear scorer by trying them.

Every generation draws a population of weights around a mean, plays all of them on the same new training episodes and
moves the mean to the best ones (see `training.linear.populations`). The same seed gives the same numbers, bit for bit, also
across an interruption.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...jobs.seeds import FIRST_TRAINING_SEED, validation_seeds
from ...models.policy_files import STAGES, stage
from ...planners.linear import FEATURES, LinearWeights
from ...simulation.cluster.scenario import Scenario
from .populations import CovarianceAdaptation, CrossEntropy, Population
from .settings import SearchSettings

MOST_SECONDS = 1e10
"""No search takes three hundred years."""

# Where the search begins: every job is placed, anywhere.
START = {"reject": -1.0}


class Trial(Protocol):
    """Plays linear scorers."""

    @property
    def scenario(self) -> Scenario:
        """The scenario in which candidates are played."""

    @property
    def placement_rules(self) -> tuple[str, ...]:
        """Among whose candidates they choose."""

    def blocking_rates(self, weights: NDArray[np.float64], rngs: Sequence[np.random.Generator]) -> NDArray[np.float64]:
        """Blocking rate of each scorer in each episode, ``(w, e)`` (see `planners.episode_player.LinearTrial`)."""


class LinearSearch:
    """The state between two generations.

    Args:
        chosen: constants.
        trial: plays the scorers.
        seed: of the weights that are tried and of the training episodes.
        start: weights where the search begins, by the names of features; others are zero.

    Attributes:
        population: what the next generation is drawn from, features in the order of `planners.linear.FEATURES`.
        generation: how many have been played.
        curve: a row per validation.
        best: the best mean of all validations, and its figures; empty before the first.
    """

    def __init__(self, chosen: SearchSettings, trial: Trial, seed: int, start: Mapping[str, float] = START) -> None:
        self.chosen, self.trial, self.seed = chosen, trial, seed
        self.population = _population(chosen, np.array([start.get(name, 0.0) for name in FEATURES]))
        self.generation = 0
        self.curve: list[dict[str, Any]] = []
        self.best: dict[str, Any] = {}
        self.before_s = 0.0
        self.since = time.perf_counter()
        self.training_rate: float | None = None

    @property
    def steps(self) -> int:
        """Decisions that have been played so far, those of validation apart."""
        return self.generation * self.chosen.population * self.chosen.num_episodes * self.trial.scenario.settings.num_jobs

    def play_generation(self) -> None:
        """Draw a population, play it, and move to the best."""
        chosen, g, first = self.chosen, self.generation, FIRST_TRAINING_SEED + self.seed
        weights = self.population.draw(self._rng_of(g))
        rngs = [np.random.default_rng([first, g, i]) for i in range(chosen.num_episodes)]
        rates = self.trial.blocking_rates(weights, rngs).mean(axis=1)
        self.population.learn(weights, rates, 1.0 - (g + 1) / chosen.generations)
        self.training_rate = float(rates.mean())
        self.generation += 1

    def validate(self) -> None:
        """A row of the learning curve."""
        rngs = [np.random.default_rng(seed) for seed in validation_seeds(self.chosen.num_validation_seeds)]
        mean = self.population.mean
        rate = float(self.trial.blocking_rates(mean[None], rngs).mean())
        row = {
            "steps": self.steps,
            "generation": self.generation,
            "validation_blocking_rate": rate,
            "training_blocking_rate": self.training_rate,
            "elapsed_s": self.elapsed_s(),
        }
        self.curve.append(row)
        if not self.best or rate < self.best["validation_blocking_rate"]:
            self.best = {"generation": self.generation, "validation_blocking_rate": rate, "weights": mean.tolist()}

    def run(self, after: Callable[[], None] | None = None) -> None:
        """Play all generations that are left, with validations; ``after`` is called after each."""
        chosen = self.chosen
        if not self.curve:
            self.validate()
            if after is not None:
                after()
        while self.generation < chosen.generations:
            self.play_generation()
            if self.generation % chosen.validate_every_generations == 0 or self.generation == chosen.generations:
                self.validate()
            if after is not None:
                after()

    def weights(self, trained: dict[str, Any]) -> LinearWeights:
        """The best mean so far, with how it was found, added to what is given."""
        generation, rate = self.best["generation"], self.best["validation_blocking_rate"]
        made = [stage("search", generation, "generations", rate, of=f"{len(self.best['weights'])} weights")]
        found = {**trained, "seed": self.seed, "generation": generation, "validation_blocking_rate": rate, STAGES: made}
        return LinearWeights(np.array(self.best["weights"]), self.trial.placement_rules, found)

    def state(self) -> dict[str, Any]:
        """Plain data that `restore` continues from."""
        return {
            "generation": self.generation,
            **self.population.state(),
            "training_rate": self.training_rate,
            "curve": self.curve,
            "best": self.best,
            "elapsed_s": self.elapsed_s(),
        }

    def restore(self, data: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ArithmeticError, LookupError, TypeError, ValueError: it is none of this search.
        """
        generation, curve, best = data["generation"], list(data["curve"]), dict(data["best"])
        rates = [row["validation_blocking_rate"] for row in (*curve, best)]
        weights = np.array(best["weights"], np.float64)
        if generation not in range(self.chosen.generations + 1) or not curve:
            raise ValueError
        if any(row["generation"] not in range(generation + 1) or not 0 <= row["elapsed_s"] < MOST_SECONDS for row in curve):
            raise ValueError
        if not all(math.isfinite(rate) for rate in rates) or best["generation"] not in range(generation + 1):
            raise ValueError
        if (
            weights.shape != self.population.mean.shape
            or not np.isfinite(weights).all()
            or not 0 <= data["elapsed_s"] < MOST_SECONDS
        ):
            raise ValueError
        self.population.restore(data, self._rng_of)
        self.generation, self.curve, self.best = generation, curve, best
        self.training_rate, self.before_s = data["training_rate"], float(data["elapsed_s"])

    def _rng_of(self, generation: int) -> np.random.Generator:
        return np.random.default_rng([FIRST_TRAINING_SEED + self.seed, generation])

    def elapsed_s(self) -> float:
        """Since the search began, interruptions left out."""
        return self.before_s + time.perf_counter() - self.since


def _population(chosen: SearchSettings, mean: NDArray[np.float64]) -> Population:
    if chosen.strategy == "cma-es":
        return CovarianceAdaptation(mean, chosen.spread, chosen.population)
    return CrossEntropy(mean, chosen.spread, chosen.population, chosen.elite, chosen.added_spread)
