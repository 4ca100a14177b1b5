"""The jobs of an episode: a pool of equally many jobs of each graph with deadlines drawn before the first arrives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from ...jobs.deadlines import SkewNormalDeadline, UniformDeadline
from .semantics import Defects

LOWEST, HIGHEST, DECIMALS = 0.1, 1.0, 2
TINY = 1e-9
# Skewness of the published distributions of deadlines; A is uniform.
SKEWNESS: dict[str, float | None] = {"A": None, "B": 5.0, "C": 0.0, "D": -5.0}


@dataclass(frozen=True)
class Demand:
    """A job that arrives.

    Attributes:
        graph: name of its graph.
        fraction: allowed completion time over the sequential one.
    """

    graph: str
    fraction: float


def draw_demands(
    rng: np.random.Generator, graphs: Sequence[str], distribution: str, num_jobs: int, defects: Defects
) -> list[Demand]:
    """Draw the jobs of an episode in the order of their arrival.

    Args:
        rng: the episode's generator.
        graphs: names of the graphs; the pool holds equally many jobs of each.
        distribution: of the allowed completion time over the sequential one, ``A`` to ``D``.
        num_jobs: jobs that arrive.
        defects: without `Defects.pool_in_given_order` the order of the names does not matter.

    Raises:
        ConfigError: no graph, no job, or no such distribution.
    """
    if not graphs or num_jobs < 1:
        raise ConfigError("at least one graph and one job are wanted", field="num_jobs", value=num_jobs)
    names = list(graphs) if defects.pool_in_given_order else sorted(graphs)
    copies = -(-num_jobs // len(names))
    fractions = draw_fractions(rng, distribution, copies * len(names), defects)
    order = rng.permutation(copies * len(names))[:num_jobs]
    return [Demand(names[job % len(names)], float(fractions[job])) for job in order.tolist()]


def draw_fractions(rng: np.random.Generator, distribution: str, num_jobs: int, defects: Defects) -> NDArray[np.float64]:
    """Return the allowed completion times over sequential ones, ``(num_jobs,)``.

    Raises:
        ConfigError: no such distribution.
    """
    if distribution not in SKEWNESS:
        raise ConfigError("no such distribution", field="distribution", value=distribution, choices=SKEWNESS)
    skewness = SKEWNESS[distribution]
    if skewness is None:
        return UniformDeadline(kind="uniform", low=LOWEST, high=HIGHEST, decimals=DECIMALS).draw(rng, num_jobs)
    deadline = SkewNormalDeadline(kind="skew_normal", low=LOWEST, high=HIGHEST, skewness=skewness, decimals=DECIMALS)
    return deadline.draw(rng, num_jobs) if defects.resample_clips else draw_without_clipping(rng, deadline, num_jobs)


def draw_without_clipping(rng: np.random.Generator, deadline: SkewNormalDeadline, num_jobs: int) -> NDArray[np.float64]:
    """Draw fractions, and draw those below the least of the distribution again in place of raising them, ``(num_jobs,)``."""
    unclipped = deadline.model_copy(update={"low": TINY, "decimals": None})
    result = unclipped.draw(rng, num_jobs)
    while (result < deadline.low).any():
        result = np.where(result < deadline.low, unclipped.draw(rng, num_jobs), result)
    return result if deadline.decimals is None else np.round(result, deadline.decimals)
