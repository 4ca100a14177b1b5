"""`Search`: weights of any rule by trying them, a population at a time. `SearchLearner`: a run that is one search.

Every generation draws a population of weights around a mean, plays all of them on the same episodes and moves the mean to the
best. The same seed gives the same numbers, bit for bit, also across an interruption.

Legend: ``w`` sets of weights that are tried, ``f`` weights of a set.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .hooks.callback import TrainingStopped
from .run import Learner, TrainingRun

Weights = NDArray[np.float64]

LARGE = 1e100
"""No cost is as large; the square of it is still a number."""


class CrossEntropy:
    """Every weight by itself; the next mean and spread are those of the best.

    Args:
        mean: at the start, ``(f,)``.
        spread: standard deviation of each weight at the start.
        size: ``w``.
        elite: how many are the best.
        added_spread: added to that of the elite, times the share of the search that is left.

    Attributes:
        mean: of what is drawn next, ``(f,)``.
        spread: the same, ``(f,)``.

    Source:
        Rubinstein, "The cross-entropy method for combinatorial and continuous optimization", 1999; the added spread: Szita and
        Lorincz, "Learning Tetris using the noisy cross-entropy method", 2006.
    """

    def __init__(self, mean: Weights, spread: float, size: int, elite: int, added_spread: float) -> None:
        self.mean, self.spread = mean, np.full(len(mean), spread)
        self._size, self._elite, self._added_spread = size, elite, added_spread

    def draw(self, rng: np.random.Generator) -> Weights:
        """Return sets of weights to be tried, ``(w, f)``; the mean itself is among them."""
        drawn = rng.standard_normal((self._size, len(self.mean)))
        drawn[0] = 0.0
        return self.mean + self.spread * drawn

    def learn(self, weights: Weights, costs: Weights, left: float) -> None:
        """Move to what cost least.

        Args:
            weights: what was drawn last, ``(w, f)``.
            costs: of each, ``(w,)``.
            left: share of the search that is left, from 1 to 0.
        """
        elite = weights[np.argsort(costs, kind="stable")[: self._elite]]
        self.mean = elite.mean(axis=0)
        self.spread = elite.std(axis=0) + self._added_spread * left


class CovarianceAdaptation:
    """CMA-ES: weights that go together are drawn together, by pycma; methods as of `CrossEntropy`.

    Args:
        mean: at the start, ``(f,)``.
        spread: standard deviation of each weight at the start.
        size: ``w``.

    Source:
        Hansen and Ostermeier, "Completely derandomized self-adaptation in evolution strategies", 2001.
    """

    def __init__(self, mean: Weights, spread: float, size: int) -> None:
        import cma  # takes 1.4 s, with matplotlib's windows, and every training run imports this module

        self._rng = np.random.default_rng(0)
        never = {"maxiter": np.inf, "tolfun": 0.0, "tolx": 0.0, "tolflatfitness": np.inf, "tolstagnation": np.inf}
        options = {"popsize": size, "randn": self._normal, "seed": np.nan, "verbose": -9, **never}
        self._strategy = cma.CMAEvolutionStrategy(mean, spread, options)

    @property
    def mean(self) -> Weights:
        """The mean of what is drawn next, ``(f,)``."""
        return np.array(self._strategy.mean, np.float64)

    def draw(self, rng: np.random.Generator) -> Weights:
        """Return sets of weights to be tried, ``(w, f)``."""
        self._rng = rng
        return np.array(self._strategy.ask(), np.float64)

    def learn(self, weights: Weights, costs: Weights, left: float) -> None:
        """Move to what cost least."""
        self._strategy.tell(list(weights), costs.tolist())

    def _normal(self, *shape: int) -> Weights:
        return self._rng.standard_normal(shape)


class Trial(Protocol):
    """Episodes on which weights are tried."""

    def costs(self, weights: Weights, generation: int, rng: np.random.Generator) -> Weights:
        """Return what each set of weights ``(w, f)`` costs in a generation's training episodes, ``(w,)``; less is better.

        ``rng`` is that by which the population was drawn.
        """

    def value(self, mean: Weights) -> float:
        """Return what is validated of a mean ``(f,)``."""


class Search:
    """The state between two generations.

    Args:
        population: at its start.
        trial: plays weights.
        generations: how often a population is drawn; 0: the start is validated alone.
        validate_every: generations between two validations of the mean.
        seed: words that seed the generators, before and behind the number of the generation.
        is_less_better: whether less of a validation is better.
        digits: to which means are rounded; None: they are not.

    Attributes:
        generation: how many have been played.
        values: of each validation, its generation and value; the start is the first.
        best: the best mean of all validations, ``(f,)``.
        latest: costs of the latest generation, ``(w,)``; None before the first.
    """

    def __init__(
        self,
        population: CrossEntropy | CovarianceAdaptation,
        trial: Trial,
        generations: int,
        validate_every: int,
        seed: tuple[tuple[int, ...], tuple[int, ...]],
        *,
        is_less_better: bool = True,
        digits: int | None = None,
    ) -> None:
        self._population, self.trial, self.generations = population, trial, generations
        self._every, self._seed = validate_every, seed
        self._sign, self._digits = 1.0 if is_less_better else -1.0, digits
        self.generation = 0
        self.values: list[tuple[int, float]] = []
        self.best = self.mean
        self._costs: list[list[float]] = []

    @property
    def mean(self) -> Weights:
        """Return the mean of the next generation, ``(f,)``."""
        return self._population.mean if self._digits is None else self._population.mean.round(self._digits)

    @property
    def latest(self) -> Weights | None:
        """Costs of the latest generation, ``(w,)``; None before the first."""
        return np.array(self._costs[-1]) if self._costs else None

    @property
    def best_of_all(self) -> tuple[int, float]:
        """Generation and value of the best validation; the first one of several."""
        return min(self.values, key=lambda each: self._sign * each[1])

    @property
    def is_validated(self) -> bool:
        """Whether the latest generation was validated."""
        return bool(self.values) and self.values[-1][0] == self.generation

    @property
    def share(self) -> float:
        """Share of the generations that have been played."""
        return self.generation / max(1, self.generations)

    def run(self, after: Callable[[], None]) -> None:
        """Play all generations that are left, with validations; ``after`` is called after each and at the start."""
        if not self.values:
            self._validate()
            after()
        while self.generation < self.generations:
            rng = self._rng_of(self.generation)
            drawn = self._population.draw(rng)
            self._learn(drawn, self.trial.costs(drawn, self.generation, rng))
            if self.generation % self._every == 0 or self.generation == self.generations:
                self._validate()
            after()

    def run_stage(self, run: TrainingRun) -> None:
        """Play the generations that are left; the run is saved after each. A callback may end it early."""

        def after() -> None:
            run.save()
            value = self.values[-1][1] if self.is_validated else None
            run.staged("search", self.share, value, self.best_of_all[1])

        with suppress(TrainingStopped):
            self.run(after)

    def state(self) -> dict[str, Any]:
        """Return plain data that `restore` continues from: costs, by which the populations are drawn again, and validations."""
        return {"costs": self._costs, "values": [list(each) for each in self.values], "best": self.best.tolist()}

    def restore(self, data: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ArithmeticError, LookupError, TypeError, ValueError: it is none of this search.
        """
        known, best = [np.array(costs, np.float64) for costs in data["costs"]], np.array(data["best"], np.float64)
        values = [(int(generation), float(value)) for generation, value in data["values"]]
        if best.shape != self.mean.shape or not values or len(known) > self.generations:
            raise ValueError
        if not np.isfinite([*best, *(value for _, value in values)]).all() or values[-1][0] > len(known):
            raise ValueError
        for costs in known:
            drawn = self._population.draw(self._rng_of(self.generation))
            if costs.shape != (len(drawn),) or not (np.abs(costs) < LARGE).all():
                raise ValueError
            self._learn(drawn, costs)
        self.values, self.best = values, best

    def _learn(self, drawn: Weights, costs: Weights) -> None:
        self.generation += 1
        self._population.learn(drawn, costs, 1.0 - self.generation / self.generations)
        self._costs.append(costs.tolist())

    def _validate(self) -> None:
        mean = self.mean
        value = self.trial.value(mean)
        if not self.values or self._sign * value < self._sign * self.best_of_all[1]:
            self.best = mean.copy()
        self.values.append((self.generation, value))

    def _rng_of(self, generation: int) -> np.random.Generator:
        before, behind = self._seed
        return np.random.default_rng([*before, generation, *behind])


class SearchLearner(Learner):
    """Learns weights by a search: the steps are its generations, and what is kept are its best weights.

    Attributes:
        search: at its start.
    """

    search: Search

    @property
    def step(self) -> int:
        """See `Learner`."""
        return self.search.generation

    @property
    def total_steps(self) -> int:  # type: ignore[override]
        """See `Learner`."""
        return self.search.generations

    def learn(self, run: TrainingRun) -> None:
        """See `Learner`."""
        self.search.run(lambda: run.between("search", validates=self.search.is_validated, saves=True))

    def state(self) -> dict[str, Any]:
        """See `Learner`."""
        return self.search.state()

    def restore(self, state: dict[str, Any], file: Path) -> None:
        """See `Learner`."""
        self.search.restore(state)
