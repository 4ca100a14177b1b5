"""A stage of training a fleet's policy: weights of prices are searched for on whole episodes, in compiled code.

The weights are those by which the price of a device-second, the patience and the order of jobs are linear in what is seen
(`planners.fleet.linear_prices`). Each generation of CMA-ES plays all its sets of weights on the same new training episodes and
counts the objective itself, not a sum of rewards. Of the means of the generations that are validated the best is taken; the
network then begins as these weights say.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.fleet import Fleet
from ...envs.fleet.objective import is_better, objective_value
from ...errors import ConfigError
from ...jobs.seeds import FIRST_TRAINING_SEED
from ...planners.fleet.linear_prices import DIRECT, play_by_prices
from ...simulation.fleet.state import PlacementRule
from ..linear.populations import CovarianceAdaptation
from .settings import PriceSearchSettings


def search_prices(
    fleet: Fleet, chosen: PriceSearchSettings, seed: int, validation_seeds: range, progress: Callable[[float], None]
) -> tuple[NDArray[np.float64], list[float]]:
    """Search for weights of prices.

    Args:
        fleet: what is played.
        chosen: constants.
        seed: of the training run; no episode is a test or a validation episode.
        validation_seeds: of the episodes by which one mean is taken.
        progress: called with the share that is done.

    Returns:
        Weights ``(3, x)``, and the objective on the validation episodes of each mean that was validated, the first of no weights.

    Raises:
        ConfigError: hosts are picked one by one, for which prices have no score.
    """
    if PlacementRule.CONSTRUCT in fleet.problem.rule:
        raise ConfigError("prices do not tell which host to pick; leave the search out", field="search", value="fleet.placements")
    shape = (3, len(DIRECT))
    population = CovarianceAdaptation(np.zeros(shape[0] * shape[1]), chosen.spread, chosen.population)
    sign = 1.0 if is_better(fleet.settings, 0.0, 1.0) else -1.0
    best = np.zeros(shape)
    values = [_mean(fleet, best, validation_seeds)]
    for generation in range(chosen.generations):
        progress(generation / chosen.generations)
        rng = np.random.default_rng([FIRST_TRAINING_SEED + seed, generation, 1])
        weights = population.draw(rng)
        episodes = [int(one) for one in rng.integers(FIRST_TRAINING_SEED, 2**62, chosen.num_episodes)]
        costs = np.array([sign * _mean(fleet, row.reshape(shape), episodes) for row in weights])
        population.learn(weights, costs, 1.0 - generation / chosen.generations)
        if (generation + 1) % chosen.validate_every_generations == 0 or generation + 1 == chosen.generations:
            value = _mean(fleet, population.mean.reshape(shape), validation_seeds)
            if all(is_better(fleet.settings, value, other) for other in values):
                best = population.mean.reshape(shape).copy()
            values.append(value)
    return best, values


def _mean(fleet: Fleet, weights: NDArray[np.float64], seeds: range | list[int]) -> float:
    """The objective in the mean of the episodes of some seeds."""
    batch, total = FleetBatch(fleet, 1, observes=False), 0.0
    for seed in seeds:
        batch.reset(0, np.random.default_rng(seed))
        play_by_prices(fleet.problem, batch.state, 0, weights, fleet.mean_duration_s)
        total += objective_value(fleet.settings, batch.state, 0)
    return total / len(seeds)
