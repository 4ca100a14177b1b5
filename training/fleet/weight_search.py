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

import numpy as np
from numpy.typing import NDArray

from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.fleet import Fleet
from ...envs.fleet.reward import is_better, objective_value
from ...errors import CheckpointError, ConfigError, InputFileError
from ...jobs.seeds import FIRST_TRAINING_SEED, validation_seeds
from ...models.fleet.prices import num_direct, price_units
from ...models.fleet.saved import SavedFleetNetwork
from ...models.policy_files import policy_path
from ...planners.fleet.linear_prices import play_by_prices
from ...planners.fleet.linear_scores import FIRST_WEIGHTS, START, linear_scorer, play_by_scores
from ...planners.fleet.rules import fleet_rule
from ...simulation.fleet.state import JobState, PlacementRule
from ..search import CovarianceAdaptation, Search
from .settings import WeightSearchSettings

MOST_DECISIONS_PER_JOB = 12
"""Of an episode that is played in a search, picked hosts apart; rules and good weights take up to 6."""
ENDLESS = 1e9
"""The value of each job that has not ended after them."""
ON_THE_WAY = (JobState.TO_COME, JobState.WAITING, JobState.RUNNING)


@dataclass(frozen=True)
class WeightsToSearch:
    """A problem of weights.

    Attributes:
        fleet: what is played.
        start: weights at the start, of any shape.
        play: plays the only episode of a batch, which has begun, by some weights, for at most so many decisions.
    """

    fleet: Fleet
    start: NDArray[np.float64]
    play: Callable[[FleetBatch, NDArray[np.float64], int], None]


def prices_of(fleet: Fleet, *, relative: bool = False) -> WeightsToSearch:
    """Return the weights of prices, ``(3, x)``, from zero; ``relative`` as for `models.fleet.prices.price_units`.

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
    """Return the weights of linear scores, ``(x,)``, only those of starts where no job may be refused; a rule picks hosts."""
    picks = fleet_rule(rule, fleet.problem, fleet.work_device_s)

    def play(batch: FleetBatch, weights: NDArray[np.float64], most: int) -> None:
        scorer = linear_scorer(fleet.problem, picks, weights, fleet.mean_duration_s)
        play_by_scores(fleet.problem, batch.state, 0, scorer, most)

    return WeightsToSearch(fleet, FIRST_WEIGHTS if fleet.problem.may_refuse else FIRST_WEIGHTS[: len(START)], play)


def seconds_of_episode(searched: WeightsToSearch) -> float:
    """Return the CPU seconds of an episode by the weights at the start."""
    _mean_on(searched, searched.start, validation_seeds(1))  # loads compiled code
    begun_s = time.process_time()
    _mean_on(searched, searched.start, validation_seeds(3))
    return (time.process_time() - begun_s) / 3


@dataclass(frozen=True)
class FleetTrial:
    """Weights on whole episodes, in the mean of fleets; see `training.search.Trial`.

    Attributes:
        searched: what is looked for, by fleet; all start with the same weights and have the same objective.
        num_episodes: of each generation.
        validation_seeds: of the episodes by which one mean is taken.
    """

    searched: Sequence[WeightsToSearch]
    num_episodes: int
    validation_seeds: range

    @property
    def is_less_better(self) -> bool:
        """Whether less of the objective is better."""
        return is_better(self.searched[0].fleet.settings, 0.0, 1.0)

    def costs(self, weights: NDArray[np.float64], generation: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the objective of each set of weights, its sign changed where more is better; the same new episodes for all."""
        episodes = [int(one) for one in rng.integers(FIRST_TRAINING_SEED, 2**62, self.num_episodes)]
        sign = 1.0 if self.is_less_better else -1.0
        return np.array([sign * self._mean(row, episodes) for row in weights])

    def value(self, mean: NDArray[np.float64]) -> float:
        """Return the objective on the validation episodes."""
        return self._mean(mean, self.validation_seeds)

    def _mean(self, weights: NDArray[np.float64], seeds: range | list[int]) -> float:
        return sum(_mean_on(one, weights.reshape(one.start.shape), seeds) for one in self.searched) / len(self.searched)


def weight_search(
    searched: Sequence[WeightsToSearch], settings: WeightSearchSettings, seed: int, validation_seeds: range
) -> Search:
    """Return a search before its first generation.

    Args:
        searched: what is looked for, by fleet.
        settings: constants.
        seed: of the training run; no episode is a test or a validation episode.
        validation_seeds: of the episodes by which one mean is taken.

    Raises:
        CheckpointError: the policy to start with is none of a fleet, or has other weights.
        PolicyError: no such shipped policy.
    """
    start, trial = searched[0].start, FleetTrial(searched, settings.num_episodes, validation_seeds)
    if settings.start is not None:
        start = _weights_of(settings.start, start)
    population, words = CovarianceAdaptation(start.reshape(-1), settings.spread, settings.population), FIRST_TRAINING_SEED + seed
    every, less = settings.validate_every_generations, trial.is_less_better
    return Search(population, trial, settings.generations, every, ((words,), (1,)), is_less_better=less)


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


def _mean_on(searched: WeightsToSearch, weights: NDArray[np.float64], seeds: range | list[int]) -> float:
    """Return the objective in the mean of the episodes of some seeds; far worse than any where one of them finds no end.

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
