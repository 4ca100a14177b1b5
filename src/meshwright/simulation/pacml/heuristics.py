"""The published agents: rules that look at the mask of degrees and at the job's deadline.

Names are those of the published simulator; its paper calls ``sip_ml`` Para_max and ``acceptable_jct`` Para_min.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np

from ...errors import PolicyError
from .episode import MAX_DEGREE, Episode

Agent = Callable[[Episode, np.random.Generator], int]
"""The degree for the current job; draws from nothing but the generator."""

SIP_ML_DEGREE = 16


def agent(name: str) -> Agent:
    """The agent of a name: one of `AGENTS`, ``fixedD``, or ``ladderD_D_...``.

    A ladder takes the first of its degrees that really fits now and meets the deadline.

    Raises:
        PolicyError: no such agent, or a degree that the action space lacks.
    """
    if name in AGENTS:
        return AGENTS[name]
    match = re.fullmatch("(fixed|ladder)([0-9]{1,6}(?:_[0-9]{1,6})*)", name)
    degrees = [int(text) for text in match[2].split("_")] if match else []
    if match is None or (match[1] == "fixed" and len(degrees) > 1):
        raise PolicyError("no such agent", value=name, choices=[*AGENTS, "fixed8", "ladder4_8_16"])
    for degree in degrees:
        if not 1 <= degree <= MAX_DEGREE:
            raise PolicyError(f"degrees are 1 to {MAX_DEGREE}", field=name, value=degree)
    return _first_valid(degrees[0]) if match[1] == "fixed" else _ladder(degrees)


def _valid(episode: Episode) -> list[int]:
    return [int(degree) for degree in np.flatnonzero(episode.mask())[1:]]


def _random(episode: Episode, rng: np.random.Generator) -> int:
    valid = _valid(episode)
    return int(rng.choice(valid)) if valid else 0


def _max_parallelism(episode: Episode, rng: np.random.Generator) -> int:
    return max(_valid(episode), default=0)


def _sip_ml(episode: Episode, rng: np.random.Generator) -> int:
    return min(SIP_ML_DEGREE, max(_valid(episode), default=0))


def _acceptable_jct(episode: Episode, rng: np.random.Generator) -> int:
    valid = _valid(episode)
    wanted = math.ceil(1 / episode.demand.fraction)
    return next((degree for degree in valid if degree >= wanted), max(valid, default=0))


def _first_valid(*degrees: int) -> Agent:
    def choose(episode: Episode, rng: np.random.Generator) -> int:
        valid = _valid(episode)
        return next((degree for degree in degrees if degree in valid), 0)

    return choose


def _ladder(degrees: list[int]) -> Agent:
    def choose(episode: Episode, rng: np.random.Generator) -> int:
        valid = _valid(episode)
        return next((degree for degree in degrees if degree in valid and episode.would_be_accepted(degree)), 0)

    return choose


AGENTS: dict[str, Agent] = {
    "random": _random,
    "no_parallelism": _first_valid(1),
    "min_parallelism": _first_valid(2, 1),
    "max_parallelism": _max_parallelism,
    "sip_ml": _sip_ml,
    "acceptable_jct": _acceptable_jct,
    "oracle_min": _ladder([1, *range(2, MAX_DEGREE + 1, 2)]),
    "best_feasible": _ladder([*range(MAX_DEGREE, 1, -2), 1]),
}
