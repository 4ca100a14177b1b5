"""Populations of a search by trial: where they start, and how they move to the best of what was tried.

Legend: ``w`` sets of weights that are tried, ``f`` weights of a set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Population(Protocol):
    """Draws sets of weights around a mean.

    Attributes:
        mean: of what is drawn next, ``(f,)``.
    """

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean of what is drawn next, ``(f,)``."""

    def draw(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Sets of weights to be tried, ``(w, f)``."""

    def learn(self, weights: NDArray[np.float64], costs: NDArray[np.float64], left: float) -> None:
        """Move to what cost least.

        Args:
            weights: what was drawn last, ``(w, f)``.
            costs: of each, ``(w,)``.
            left: share of the search that is left, from 1 to 0.
        """

    def state(self) -> dict[str, Any]:
        """Plain data that `restore` continues from."""

    def restore(self, state: dict[str, Any], rng_of: Callable[[int], np.random.Generator]) -> None:
        """Continue from a state; ``rng_of`` returns the generators that the first, second, ... population was drawn with.

        Raises:
            ArithmeticError, LookupError, TypeError, ValueError: it is none of this population.
        """


LARGE = 1e100
"""No weight and no cost is as large; the square of it is still a number."""


class CrossEntropy:
    """Every weight by itself; the next mean and spread are those of the best.

    Args:
        mean: at the start, ``(f,)``.
        spread: standard deviation of each weight at the start.
        size: ``w``.
        elite: how many are the best.
        added_spread: added to that of the elite, times the share of the search that is left.
    """

    def __init__(self, mean: NDArray[np.float64], spread: float, size: int, elite: int, added_spread: float) -> None:
        self._mean, self._spread = mean, np.full(len(mean), spread)
        self._size, self._elite, self._added_spread = size, elite, added_spread

    @property
    def mean(self) -> NDArray[np.float64]:
        """See `Population`."""
        return self._mean

    def draw(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """See `Population`; the mean itself is among them."""
        drawn = rng.standard_normal((self._size, len(self._mean)))
        drawn[0] = 0.0
        return self._mean + self._spread * drawn

    def learn(self, weights: NDArray[np.float64], costs: NDArray[np.float64], left: float) -> None:
        """See `Population`."""
        elite = weights[np.argsort(costs, kind="stable")[: self._elite]]
        self._mean = elite.mean(axis=0)
        self._spread = elite.std(axis=0) + self._added_spread * left

    def state(self) -> dict[str, Any]:
        """See `Population`."""
        return {"mean": self._mean.tolist(), "spread": self._spread.tolist()}

    def restore(self, state: dict[str, Any], rng_of: Callable[[int], np.random.Generator]) -> None:
        """See `Population`."""
        mean, spread = np.array(state["mean"], np.float64), np.array(state["spread"], np.float64)
        if not mean.shape == spread.shape == self._mean.shape or not (np.abs([mean, spread]) < LARGE).all() or (spread < 0).any():
            raise ValueError
        self._mean, self._spread = mean, spread


class CovarianceAdaptation:
    """CMA-ES: weights that go together are drawn together, by pycma.

    Args:
        mean: at the start, ``(f,)``.
        spread: standard deviation of each weight at the start.
        size: ``w``.

    Source:
        Hansen and Ostermeier, "Completely derandomized self-adaptation in evolution strategies", 2001.
    """

    def __init__(self, mean: NDArray[np.float64], spread: float, size: int) -> None:
        import cma  # takes 1.4 s, with matplotlib's windows, and every training run imports this module

        self._rng, self._size = np.random.default_rng(0), size
        never = {"maxiter": np.inf, "tolfun": 0.0, "tolx": 0.0, "tolflatfitness": np.inf, "tolstagnation": np.inf}
        options = {"popsize": size, "randn": self._normal, "seed": np.nan, "verbose": -9, **never}
        self._strategy = cma.CMAEvolutionStrategy(mean, spread, options)
        self._costs: list[list[float]] = []

    @property
    def mean(self) -> NDArray[np.float64]:
        """See `Population`."""
        return np.array(self._strategy.mean, np.float64)

    def draw(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """See `Population`."""
        self._rng = rng
        return np.array(self._strategy.ask(), np.float64)

    def learn(self, weights: NDArray[np.float64], costs: NDArray[np.float64], left: float) -> None:
        """See `Population`."""
        self._strategy.tell(list(weights), costs.tolist())
        self._costs.append(costs.tolist())

    def state(self) -> dict[str, Any]:
        """See `Population`: all costs so far, for the strategy's own state is no plain data; `restore` draws all again."""
        return {"costs": self._costs}

    def restore(self, state: dict[str, Any], rng_of: Callable[[int], np.random.Generator]) -> None:
        """See `Population`."""
        known = [np.array(costs, np.float64) for costs in state["costs"]]
        if len(known) != state.get("generation", len(known)) or not all(
            costs.shape == (self._size,) and (np.abs(costs) < LARGE).all() for costs in known
        ):
            raise ValueError
        for generation, costs in enumerate(known):
            self.learn(self.draw(rng_of(generation)), costs, 0.0)

    def _normal(self, *shape: int) -> NDArray[np.float64]:
        return self._rng.standard_normal(shape)
