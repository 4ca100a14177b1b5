"""The published policies on our own episodes: their means compared with the published ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ....simulation.pacml.demands import draw_demands
from ....simulation.pacml.episode import Demand, Episode, Totals
from ....simulation.pacml.heuristics import Agent, agent
from ....simulation.pacml.simulator import Simulator
from ..comparison import ComparedFigure
from .reference import EpisodeFigures

NUM_SEEDS = 10
NUM_DECISIONS = 1000
# Two means agree if they are no farther apart than this many standard errors of their difference.
STANDARD_ERRORS = 3.0

FIGURES = {"blocking_rate": "blocking_rate", "mean_jct": "mean_completion_s", "demand_thr": "demand_bytes_per_s"}


def statistics_rows(
    simulator: Simulator, distribution: str, told: Mapping[str, Sequence[EpisodeFigures]], num_seeds: int = NUM_SEEDS
) -> Iterator[ComparedFigure]:
    """Play each policy on our own episodes of a distribution and compare the means.

    The tolerance is ``3 sqrt(SE1^2 + SE2^2)`` over the reference, with the standard errors of both means.

    Raises:
        PolicyError: the file names an unknown policy.
    """
    pools = [
        draw_demands(np.random.default_rng([seed, 0]), list(simulator.jobs), distribution, NUM_DECISIONS + 1, simulator.defects)
        for seed in range(num_seeds)
    ]
    for name, episodes in told.items():
        choose = agent(name)
        ours = [episode_totals(simulator, pool, choose, np.random.default_rng([seed, 1])) for seed, pool in enumerate(pools)]
        for figure, field in FIGURES.items():
            mine = [value for value in (getattr(totals, field) for totals in ours) if value is not None]
            theirs = [value for value in (getattr(figures, figure) for figures in episodes) if value is not None]
            if len(mine) < 2 or len(theirs) < 2:
                continue
            reference = float(np.mean(theirs))
            allowed = STANDARD_ERRORS * math.hypot(_standard_error(mine), _standard_error(theirs))
            tolerance = allowed / abs(reference) if reference else 0.0
            yield ComparedFigure("statistics", f"{name} on {distribution}", figure, float(np.mean(mine)), reference, tolerance)


def episode_totals(simulator: Simulator, pool: Sequence[Demand], choose: Agent, rng: np.random.Generator) -> Totals:
    """The figures of one episode that an agent decides."""
    episode = Episode(simulator, pool, len(pool) - 1)
    while not episode.is_over:
        episode.decide(choose(episode, rng))
    return episode.totals()


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))
