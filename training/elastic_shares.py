"""The search for what shares of a cluster are worth to elastic jobs, by trying weights on drawn workloads.

Every generation draws a population of weights around a mean by CMA-ES, plays all of them on the same training workloads and
moves the mean to the best. A set of weights costs the mean, over workloads, of its mean completion time over that of the
weights by hand, so that a workload of long jobs counts no more than another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..jobs.readers.elastic import ElasticWorkload
from ..planners.elastic.scheduler import play
from ..planners.elastic.shortest_remaining import BY_HAND, ShortestRemaining
from ..simulation.elastic.simulation import ElasticSimulation
from .linear.populations import CovarianceAdaptation

POPULATION, SPREAD = 10, 0.3

Report = Callable[[int, float, NDArray[np.float64]], None]
"""Told after each generation: its number, the least cost of its population, and the mean that it moved to."""


def search_weights(
    simulation: ElasticSimulation,
    workloads: Sequence[Sequence[ElasticWorkload]],
    *,
    seed: int,
    generations: int,
    report: Report | None = None,
) -> NDArray[np.float64]:
    """Weights for `ShortestRemaining`; the same seed gives the same ones.

    Args:
        simulation: plays the workloads.
        workloads: for training; those of one sequence are played side by side.
        seed: of the weights that are tried.
        generations: how many populations are tried.
        report: told of each.
    """
    by_hand = mean_completions_s(simulation, BY_HAND, workloads)
    population = CovarianceAdaptation(np.array(BY_HAND), SPREAD, POPULATION)
    for generation in range(generations):
        tried = population.draw(np.random.default_rng([seed, generation]))
        costs = np.array([(mean_completions_s(simulation, each, workloads) / by_hand).mean() for each in tried.tolist()])
        population.learn(tried, costs, 1.0 - (generation + 1) / generations)
        if report is not None:
            report(generation, float(costs.min()), population.mean)
    return population.mean


def mean_completions_s(
    simulation: ElasticSimulation, weights: Sequence[float], workloads: Sequence[Sequence[ElasticWorkload]]
) -> NDArray[np.float64]:
    """Mean completion time in each workload with some weights."""
    scheduler = ShortestRemaining(weights)
    return np.array([spans.mean() for each in workloads for spans in play(simulation, scheduler, each)])
