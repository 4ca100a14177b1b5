"""The published policies on our own episodes: their means compared with the published ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ....errors import PolicyError
from ....planners.policy import Policy
from ....planners.rules import RuleOfThumb, rule_of_thumb
from ....simulation.cluster.scenario import Scenario
from ....simulation.pacml.demands import Demand, draw_demands
from ..comparison import ComparedFigure
from .episodes import PlayedEpisode, play
from .reference import EpisodeFigures

NUM_SEEDS = 10
NUM_DECISIONS = 1000
# Two means agree if they are no farther apart than this many standard errors of their difference.
STANDARD_ERRORS = 3.0

# The published agents as rules of ours, which choose among candidates of the published first fit.
AGENTS = {
    "random": "random",
    "no_parallelism": "fixed-1",
    "max_parallelism": "max",
    "sip_ml": "max",
    "acceptable_jct": "acceptable-jct",
    "oracle_min": "ladder-{up}",
    "best_feasible": "ladder-{down}",
}
FIGURES = {"blocking_rate": "blocking_rate", "mean_jct": "mean_completion_s", "demand_thr": "demand_bytes_per_s"}


def statistics_rows(
    scenario: Scenario, distribution: str, published: Mapping[str, Sequence[EpisodeFigures]], num_seeds: int = NUM_SEEDS
) -> Iterator[ComparedFigure]:
    """Play each policy on our own episodes of a distribution and compare the means.

    The tolerance is ``3 sqrt(SE1^2 + SE2^2)`` over the reference, with the standard errors of both means.

    Raises:
        PolicyError: the file names an unknown policy.
    """
    names, defects = [graph.name for graph in scenario.workload.graphs], scenario.settings.defects
    rngs = [np.random.default_rng([seed, 0]) for seed in range(num_seeds)]
    pools = [draw_demands(rng, names, distribution, NUM_DECISIONS + 1, defects) for rng in rngs]
    for name, episodes in published.items():
        policy = agent(name, scenario)
        ours = [play_agent(policy, seed, scenario, pool) for seed, pool in enumerate(pools)]
        for figure, field in FIGURES.items():
            mine = [value for value in (getattr(totals, field) for totals in ours) if value is not None]
            theirs = [value for value in (getattr(figures, figure) for figures in episodes) if value is not None]
            if len(mine) < 2 or len(theirs) < 2:
                continue
            reference = float(np.mean(theirs))
            allowed = STANDARD_ERRORS * math.hypot(_standard_error(mine), _standard_error(theirs))
            tolerance = allowed / abs(reference) if reference else 0.0
            yield ComparedFigure("statistics", f"{name} on {distribution}", figure, float(np.mean(mine)), reference, tolerance)


def play_agent(policy: Policy, seed: int, scenario: Scenario, pool: Sequence[Demand]) -> PlayedEpisode:
    """Play one episode that an agent decides."""
    policy.reset(seed)
    return play(scenario, pool, lambda waiting: policy.choose(waiting, {}))


def agent(name: str, scenario: Scenario) -> Policy:
    """Return a published agent: ``min_parallelism``, one of `AGENTS`, ``fixedD``, or ``ladderD_D_...``.

    Raises:
        PolicyError: no such agent, or a degree without blocks.
    """
    if name == "min_parallelism":  # two ranks, or one where no two servers are free
        return RuleOfThumb(name, "published", lambda _, offered: int(offered[:2][-1]))
    match = re.fullmatch("(fixed|ladder)([0-9]{1,6}(?:_[0-9]{1,6})*)", name)
    rule = f"{match[1]}-{match[2].replace('_', '-')}" if match else AGENTS.get(name)
    if rule is None:
        raise PolicyError("no such agent", value=name, choices=["min_parallelism", *AGENTS, "fixed8", "ladder4_8_16"])
    degrees = [str(degree) for degree in scenario.space.degrees]
    rule = rule.format(up="-".join(degrees), down="-".join(reversed(degrees)))
    return rule_of_thumb(f"{rule}@published", degrees=scenario.space.degrees, placements=("published",))


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))
