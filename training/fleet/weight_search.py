"""A stage of training a fleet's policy: direct weights are searched for on whole episodes, in compiled code.

They are those by which prices (`planners.fleet.linear_prices`) or scores (`planners.fleet.linear_scores`) are linear in what is
seen. Each generation of CMA-ES plays all its sets of weights on the same new training episodes and counts the objective itself,
not a sum of rewards. Of the means of the generations that are validated the best is taken; the network then begins as these
weights say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.fleet import Fleet
from ...envs.fleet.objective import is_better, objective_value
from ...errors import CheckpointError, ConfigError, InputFileError
from ...jobs.seeds import FIRST_TRAINING_SEED
from ...models.fleet.saved import SavedFleetNetwork
from ...planners.fleet.linear_prices import DIRECT, play_by_prices
from ...planners.fleet.linear_scores import FIRST_WEIGHTS, START, linear_scorer, play_by_scores
from ...planners.fleet.rules import fleet_rule
from ...simulation.fleet.state import PlacementRule
from ..linear.populations import CovarianceAdaptation
from .settings import WeightSearchSettings


@dataclass(frozen=True)
class WeightsToSearch:
    """What weights are searched for.

    Attributes:
        start: weights at the start, of any shape.
        play: plays the only episode of a batch, which has begun, by some weights.
    """

    start: NDArray[np.float64]
    play: Callable[[FleetBatch, NDArray[np.float64]], None]


def prices_of(fleet: Fleet) -> WeightsToSearch:
    """Weights of prices, ``(3, x)``, from zero.

    Raises:
        ConfigError: hosts are picked one by one, for which prices have no score.
    """
    if PlacementRule.CONSTRUCT in fleet.problem.rule:
        raise ConfigError("prices do not tell which host to pick; leave the search out", field="search", value="fleet.placements")

    def play(batch: FleetBatch, weights: NDArray[np.float64]) -> None:
        play_by_prices(fleet.problem, batch.state, 0, weights, fleet.mean_duration_s)

    return WeightsToSearch(np.zeros((3, len(DIRECT))), play)


def scores_of(fleet: Fleet, rule: str) -> WeightsToSearch:
    """Weights of linear scores, ``(x,)``, where nobody may be refused those of starts; hosts are picked by a rule."""
    picks = fleet_rule(rule, fleet.problem, fleet.work_device_s)

    def play(batch: FleetBatch, weights: NDArray[np.float64]) -> None:
        scorer = linear_scorer(fleet.problem, picks, weights, fleet.mean_duration_s)
        play_by_scores(fleet.problem, batch.state, 0, scorer)

    return WeightsToSearch(FIRST_WEIGHTS if fleet.problem.may_refuse else FIRST_WEIGHTS[: len(START)], play)


def found_elsewhere(policy: str) -> NDArray[np.float64]:
    """The linear scores of another run's policy, ``(x,)``.

    Raises:
        CheckpointError: it is no policy of a fleet, or has none.
    """
    try:
        return SavedFleetNetwork.load(policy).linear_scores(policy)
    except (CheckpointError, InputFileError) as error:
        raise error.at(field="search.found") from None


def search_weights(
    fleet: Fleet,
    searched: WeightsToSearch,
    chosen: WeightSearchSettings,
    seed: int,
    validation_seeds: range,
    progress: Callable[[float], None],
) -> tuple[NDArray[np.float64], list[float]]:
    """Search for weights, or take those that another run has found.

    Args:
        fleet: what is played.
        searched: what is looked for.
        chosen: constants.
        seed: of the training run; no episode is a test or a validation episode.
        validation_seeds: of the episodes by which one mean is taken.
        progress: called with the share that is done.

    Returns:
        Weights, and the objective on the validation episodes of each mean that was validated, the first at the start.

    Raises:
        CheckpointError: what has been found elsewhere is no policy with linear scores.
    """
    shape = searched.start.shape
    population = CovarianceAdaptation(searched.start.reshape(-1), chosen.spread, chosen.population)
    sign = 1.0 if is_better(fleet.settings, 0.0, 1.0) else -1.0
    best = searched.start
    values = [_mean(fleet, searched, best, validation_seeds)]
    if chosen.found is not None:
        found = found_elsewhere(chosen.found)[: best.size].reshape(shape)
        return found, [*values, _mean(fleet, searched, found, validation_seeds)]
    for generation in range(chosen.generations):
        progress(generation / chosen.generations)
        rng = np.random.default_rng([FIRST_TRAINING_SEED + seed, generation, 1])
        weights = population.draw(rng)
        episodes = [int(one) for one in rng.integers(FIRST_TRAINING_SEED, 2**62, chosen.num_episodes)]
        costs = np.array([sign * _mean(fleet, searched, row.reshape(shape), episodes) for row in weights])
        population.learn(weights, costs, 1.0 - generation / chosen.generations)
        if (generation + 1) % chosen.validate_every_generations == 0 or generation + 1 == chosen.generations:
            value = _mean(fleet, searched, population.mean.reshape(shape), validation_seeds)
            if all(is_better(fleet.settings, value, other) for other in values):
                best = population.mean.reshape(shape).copy()
            values.append(value)
    return best, values


def _mean(fleet: Fleet, searched: WeightsToSearch, weights: NDArray[np.float64], seeds: range | list[int]) -> float:
    """The objective in the mean of the episodes of some seeds."""
    batch, total = FleetBatch(fleet, 1, observes=False), 0.0
    for seed in seeds:
        batch.reset(0, np.random.default_rng(seed))
        searched.play(batch, weights)
        total += objective_value(fleet.settings, batch.state, 0)
    return total / len(seeds)
