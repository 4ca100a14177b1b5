"""Rules of thumb: a fixed degree, the largest or smallest one, the cheapest or fastest candidate, or any.

Each rule has a name and, after ``@``, the placement rule that picks its block (``first-fit`` unless said
otherwise): ``fixed-8``, ``fixed-8@best-fit``, ``max``, ``min@aligned``.

With ``@published``, first fit as the published PAC-ML simulator has it, rules choose among what its mask shows. As
published that mask ignores which devices are free, so the job may then find no place: ``max@published`` is the paper's
Para_max, ``acceptable-jct@published`` its Para_min.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PolicyError
from ..simulation.cluster.decision import Decision
from ..simulation.cluster.problem import RULE_NAMES
from .policy import Policy
from .policy_names import parsed

DEFAULT_PLACEMENT = "first-fit"
# Of a quotient of times.
ROUNDING = 1e-9

Choice = Callable[[Decision, NDArray[np.int64]], int]


class RuleOfThumb:
    """Looks at the candidates of one placement rule and picks one by a simple criterion; rejects where none is offered."""

    observes = False

    def __init__(self, name: str, placement: str, pick: Choice) -> None:
        self.name = name
        self.placement = placement
        self._pick = pick

    def reset(self, seed: int) -> None:
        """Do nothing: the rule has no state."""

    def choose(self, decision: Decision, observation: Mapping[str, NDArray[Any]]) -> int:
        """See `planners.policy.Policy`."""
        offered = decision.offered(self.placement)
        return self._pick(decision, offered) if len(offered) else 0


class Random(RuleOfThumb):
    """Any offered candidate of a placement rule with equal probability; never rejects where one is offered."""

    def __init__(self, name: str, placement: str) -> None:
        super().__init__(name, placement, lambda _, offered: int(self._rng.choice(offered)))
        self._rng = np.random.default_rng(0)

    def reset(self, seed: int) -> None:
        """Restart the generator."""
        self._rng = np.random.default_rng([seed, 1])


def _least(decision: Decision, offered: NDArray[np.int64], figure: NDArray[np.float64]) -> int:
    fits = offered[decision.can_place[offered]]
    return int(fits[np.argmin(figure[fits])]) if len(fits) else 0


def _acceptable(decision: Decision, offered: NDArray[np.int64]) -> int:
    """Return the least degree that would meet the deadline if ranks shared the work evenly, else the largest."""
    target = math.ceil(decision.sequential_s / decision.allowed_s - ROUNDING) if decision.allowed_s > 0 else math.inf
    enough = offered[decision.degree[offered] >= target]
    return int(enough[0] if len(enough) else offered[-1])


def _of_degree(degree: int) -> Choice:
    def pick(decision: Decision, offered: NDArray[np.int64]) -> int:
        match = offered[decision.degree[offered] == degree]
        return int(match[0]) if len(match) else 0

    return pick


def _ladder(degrees: list[int]) -> Choice:
    def pick(decision: Decision, offered: NDArray[np.int64]) -> int:
        fits = offered[decision.can_place[offered]]
        return next((int(match[0]) for d in degrees if len(match := fits[decision.degree[fits] == d])), 0)

    return pick


RULES: dict[str, Choice] = {
    "max": lambda _, offered: int(offered[-1]),
    "min": lambda _, offered: int(offered[0]),
    "cheapest-feasible": lambda decision, offered: _least(decision, offered, decision.device_seconds),
    "fastest-feasible": lambda decision, offered: _least(decision, offered, decision.completion_s),
    "acceptable-jct": _acceptable,
}
NAMES = ("random", *RULES)
# Rules that name degrees.
DEGREES = r"(fixed|ladder)-([0-9]{1,6}(?:-[0-9]{1,6})*)"


def rule_of_thumb(name: str, *, degrees: Iterable[int], placements: Iterable[str]) -> Policy:
    """Return the rule of a name.

    Args:
        name: ``random``, ``max``, ``min``, ``cheapest-feasible``, ``fastest-feasible``, ``acceptable-jct``, ``fixed-K`` or
            ``ladder-K-K-...`` (the first of these degrees that fits), each with an optional ``@PLACEMENT``.
        degrees: degrees of the scenario, the valid ``K``.
        placements: placement rules of the scenario.

    Raises:
        PolicyError: an unknown rule, degree or placement; the nearest valid one is named.
    """
    bare, *_, mode = parsed(name)
    placements, degrees = list(placements), list(degrees)
    placement = DEFAULT_PLACEMENT if mode is None else mode
    if placement not in placements:
        known = "is not among the scenario's placement rules" if placement in RULE_NAMES else "unknown placement rule"
        raise PolicyError(known, field=name, value=placement, choices=placements)
    if bare == "random":
        return Random(name, placement)
    if bare in RULES:
        return RuleOfThumb(name, placement, RULES[bare])
    named = re.fullmatch(DEGREES, bare)
    if named:
        target = [int(degree) for degree in named[2].split("-")]
        for degree in target:
            if degree not in degrees:
                raise PolicyError(f"no block of {degree} devices; degrees are {', '.join(map(str, degrees))}", value=name)
        if named[1] == "ladder" or len(target) == 1:
            return RuleOfThumb(name, placement, _ladder(target) if named[1] == "ladder" else _of_degree(target[0]))
    raise PolicyError("unknown policy", value=name, choices=[*NAMES, "best-fixed", *(f"fixed-{d}" for d in degrees)])
