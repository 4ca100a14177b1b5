"""A stage of training a fleet's policy: direct weights are searched for on whole episodes, in compiled code.

They are those by which prices (`planners.fleet.linear_prices`) or scores (`planners.fleet.linear_scores`) are linear in what is
seen. Each generation of CMA-ES plays all its sets of weights on the same new training episodes, of one fleet or of several, and
counts the objective itself, not a sum of rewards: the mean over the fleets. Of the means of the generations
that are validated the best is taken; the network then begins as these weights say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.fleet import Fleet
from ...envs.fleet.objective import is_better, objective_value
from ...errors import CheckpointError, ConfigError, InputFileError
from ...jobs.seeds import FIRST_TRAINING_SEED, FIRST_VALIDATION_SEED
from ...models.fleet.prices import num_direct, price_units
from ...models.fleet.saved import SavedFleetNetwork
from ...models.policy_files import policy_path
from ...planners.fleet.linear_prices import play_by_prices
from ...planners.fleet.linear_scores import FIRST_WEIGHTS, START, linear_scorer, play_by_scores
from ...planners.fleet.rules import fleet_rule
from ...simulation.fleet.state import JobState, PlacementRule
from ..linear.populations import CovarianceAdaptation
from .settings import WeightSearchSettings

MOST_DECISIONS_PER_JOB = 12
"""Of an episode that is played in a search, picked hosts apart; rules and good weights take up to 6."""
ENDLESS = 1e9
"""What each job counts that has not ended after them."""
ON_THE_WAY = (JobState.TO_COME, JobState.WAITING, JobState.RUNNING)


@dataclass(frozen=True)
class WeightsToSearch:
    """What weights are searched for.

    Attributes:
        fleet: what is played.
        start: weights at the start, of any shape.
        play: plays the only episode of a batch, which has begun, by some weights, for at most so many decisions.
    """

    fleet: Fleet
    start: NDArray[np.float64]
    play: Callable[[FleetBatch, NDArray[np.float64], int], None]


def prices_of(fleet: Fleet, *, relative: bool = False) -> WeightsToSearch:
    """Weights of prices, ``(3, x)``, from zero; ``relative`` as for `models.fleet.prices.price_units`.

    Raises:
        ConfigError: hosts are picked one by one, for which prices have no score.
    """
    if PlacementRule.CONSTRUCT in fleet.problem.rule:
        raise ConfigError("prices do not say which host to pick; leave the search out", field="search", value="fleet.placements")

    units = price_units(fleet, relative=relative)

    def play(batch: FleetBatch, weights: NDArray[np.float64], most: int) -> None:
        play_by_prices(fleet.problem, batch.state, 0, weights, units, most)

    return WeightsToSearch(fleet, np.zeros((3, num_direct(relative=relative))), play)


def scores_of(fleet: Fleet, rule: str) -> WeightsToSearch:
    """Weights of linear scores, ``(x,)``, only those of starts where no job may be refused; a rule picks hosts."""
    picks = fleet_rule(rule, fleet.problem, fleet.work_device_s)

    def play(batch: FleetBatch, weights: NDArray[np.float64], most: int) -> None:
        scorer = linear_scorer(fleet.problem, picks, weights, fleet.mean_duration_s)
        play_by_scores(fleet.problem, batch.state, 0, scorer, most)

    return WeightsToSearch(fleet, FIRST_WEIGHTS if fleet.problem.may_refuse else FIRST_WEIGHTS[: len(START)], play)


def seconds_of_episode(searched: WeightsToSearch) -> float:
    """Return the CPU seconds of an episode by the weights at the start."""
    _mean_on(searched, searched.start, range(FIRST_VALIDATION_SEED, FIRST_VALIDATION_SEED + 1))  # loads compiled code
    begun_s = time.process_time()
    _mean_on(searched, searched.start, range(FIRST_VALIDATION_SEED, FIRST_VALIDATION_SEED + 3))
    return (time.process_time() - begun_s) / 3


class WeightSearch:
    """A search between two generations, of which there may be none.

    Args:
        searched: what is looked for, by fleet; all start with the same weights and have the same objective.
        chosen: constants.
        seed: of the training run; no episode is a test or a validation episode.
        validation_seeds: of the episodes by which one mean is taken.

    Attributes:
        generation: how many have been played.
        values: the objective on the validation episodes, in the mean of all fleets, of the start and then of each mean that was
            validated.
        best: the weights with the best of these, of the shape of the start.
        before_s: seconds of the run before it was killed.

    Raises:
        CheckpointError: the policy to start with is none of a fleet, or has other weights.
        PolicyError: no such shipped policy.
    """

    def __init__(
        self, searched: Sequence[WeightsToSearch], chosen: WeightSearchSettings, seed: int, validation_seeds: range
    ) -> None:
        self._searched, self._chosen, self._seed = searched, chosen, seed
        self._settings, start = searched[0].fleet.settings, searched[0].start
        if chosen.start is not None:
            start = _weights_of(chosen.start, start)
        self._validation_seeds = validation_seeds
        self._shape = start.shape
        self._population = CovarianceAdaptation(start.reshape(-1), chosen.spread, chosen.population)
        self.generation = 0
        self.best = start
        self.values: list[float] = []
        self.before_s, self._since = 0.0, time.perf_counter()

    @property
    def best_value(self) -> float:
        """The value of the best weights so far."""
        return min(self.values) if is_better(self._settings, 0.0, 1.0) else max(self.values)

    @property
    def share(self) -> float:
        """Share of the generations that have been played."""
        return self.generation / max(1, self._chosen.generations)

    def run(self, after: Callable[[float | None], None]) -> None:
        """Play all generations that are left.

        Args:
            after: called after each generation, with the objective on the validation episodes where they were played.
        """
        chosen = self._chosen
        if not self.values:
            after(self._validate(self.best))
        while self.generation < chosen.generations:
            self._play_generation()
            validates = self.generation % chosen.validate_every_generations == 0 or self.generation == chosen.generations
            after(self._validate(self._population.mean.reshape(self._shape)) if validates else None)

    def state(self) -> dict[str, Any]:
        """Plain data that `restore` continues from."""
        best = self.best.reshape(-1).tolist()
        elapsed_s = self.before_s + time.perf_counter() - self._since
        return {
            "generation": self.generation,
            **self._population.state(),
            "best": best,
            "values": self.values,
            "elapsed_s": elapsed_s,
        }

    def restore(self, data: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ArithmeticError, LookupError, TypeError, ValueError: it is none of this search.
        """
        best, values, generation = np.array(data["best"], np.float64), [float(x) for x in data["values"]], data["generation"]
        before_s = float(data["elapsed_s"])
        if generation not in range(self._chosen.generations + 1) or not values or not before_s >= 0.0:
            raise ValueError
        if not np.isfinite([*best, *values, before_s]).all():
            raise ValueError
        self._population.restore(data, self._rng_of)
        self.best, self.values, self.generation = best.reshape(self._shape), values, generation
        self.before_s = before_s

    def _play_generation(self) -> None:
        """Draw a population, play all of it on the same new episodes, and move to the best."""
        chosen, rng = self._chosen, self._rng_of(self.generation)
        weights = self._population.draw(rng)
        episodes = [int(one) for one in rng.integers(FIRST_TRAINING_SEED, 2**62, chosen.num_episodes)]
        sign = 1.0 if is_better(self._settings, 0.0, 1.0) else -1.0
        costs = [sign * _mean(self._searched, row.reshape(self._shape), episodes) for row in weights]
        self._population.learn(weights, np.array(costs), 1.0 - self.generation / chosen.generations)
        self.generation += 1

    def _validate(self, weights: NDArray[np.float64]) -> float:
        value = _mean(self._searched, weights, self._validation_seeds)
        if all(is_better(self._settings, value, other) for other in self.values):
            self.best = weights.copy()
        self.values.append(value)
        return value

    def _rng_of(self, generation: int) -> np.random.Generator:
        return np.random.default_rng([FIRST_TRAINING_SEED + self._seed, generation, 1])


def _weights_of(policy: str, start: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights of a policy in the shape of others: of prices, ``(3, x)``, or linear scores, ``(x,)``.

    Raises:
        CheckpointError: it is no policy of a fleet, or has none of this shape.
        PolicyError: no such shipped policy.
    """
    try:
        saved = SavedFleetNetwork.load(policy_path(policy, ".fleet.pt", "fleets"))
        weights = saved.price_weights(policy) if start.ndim == 2 else saved.linear_scores(policy)[: start.size]
    except (CheckpointError, InputFileError) as error:
        raise error.at(field="search.start") from None
    if weights.shape != start.shape:
        problem = f"has weights of the shape {weights.shape}, and those searched have {start.shape}"
        raise CheckpointError(problem, field="search.start", value=policy)
    return weights


def _mean(searched: Sequence[WeightsToSearch], weights: NDArray[np.float64], seeds: range | list[int]) -> float:
    """The mean of `_mean_on` over the fleets."""
    return sum(_mean_on(one, weights, seeds) for one in searched) / len(searched)


def _mean_on(searched: WeightsToSearch, weights: NDArray[np.float64], seeds: range | list[int]) -> float:
    """The objective in the mean of the episodes of some seeds; far worse than any where one of them finds no end.

    Jobs that are moved in every round make next to no steps, and such weights are among those that are tried.
    """
    fleet = searched.fleet
    batch, total, num_left = FleetBatch(fleet, 1, observes=False), 0.0, 0
    most = fleet.settings.num_jobs * MOST_DECISIONS_PER_JOB
    if PlacementRule.CONSTRUCT in fleet.problem.rule:
        most *= 1 + fleet.problem.max_hosts
    for seed in seeds:
        batch.reset(0, np.random.default_rng(seed))
        searched.play(batch, weights, most)
        if batch.state.is_over[0]:
            total += objective_value(fleet.settings, batch.state, 0)
        else:
            num_left += int(np.isin(batch.state.status[0], ON_THE_WAY).sum())
    if num_left:
        return ENDLESS * num_left * (1.0 if is_better(fleet.settings, 0.0, 1.0) else -1.0)
    return total / len(seeds)
