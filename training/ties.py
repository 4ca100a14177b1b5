"""Whether policies differ on a benchmark, which is checked before hours are spent on learning.

Training keeps the policy that blocks fewest jobs on the validation episodes. If all policies block equally many, as without
deadlines and with a queue that never fills, it would keep its first network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..envs.job_partitioning import play_episode
from ..errors import NothingToLearnError
from ..planners.policy import Policy
from ..planners.rules import NAMES, rule_of_thumb
from ..simulation.cluster.decision import Decision
from ..simulation.cluster.scenario import Scenario

# Of decisions at which `Picky` turns a job away that has a place.
SHARE_TURNED_AWAY = 0.5


class Picky:
    """Turns every second job away at random and places the others anywhere, to see whether turning away matters."""

    name = "picky"
    observes = False

    def __init__(self, others: Policy) -> None:
        self._others = others
        self._rng = np.random.default_rng(0)

    def reset(self, seed: int) -> None:
        """Restart the generators."""
        self._rng = np.random.default_rng([seed, 3])
        self._others.reset(seed)

    def choose(self, decision: Decision, observation: Mapping[str, NDArray[Any]]) -> int:
        """See `planners.policy.Policy`."""
        return 0 if self._rng.random() < SHARE_TURNED_AWAY else self._others.choose(decision, observation)


def check_something_to_learn(name: str, scenario: Scenario, seeds: Sequence[int]) -> None:
    """Raise if all policies block equally many jobs in every validation episode.

    Rules of all kinds are played, those first that differ most. So it takes an episode or two wherever there is something to
    learn. If all of them block no job, no policy blocks fewer. If they block some, turning jobs away must make no difference
    either.

    Args:
        name: of the benchmark.
        scenario: what is validated on.
        seeds: of the validation episodes.

    Raises:
        NothingToLearnError: they do.
    """
    if (rates := _tied_rates(scenario, seeds)) is None:
        return
    low, high = 100 * min(rates), 100 * max(rates)
    share = f"{low:.3g} %" if low == high else f"{low:.3g} to {high:.3g} %"
    problem = (
        "gives nothing to learn: in each validation episode all rules of thumb and all numbers of ranks block equally many jobs "
        f"({share}), and training keeps the policy that blocks fewest"
    )
    raise NothingToLearnError(problem, field="benchmark", value=name)


def _tied_rates(scenario: Scenario, seeds: Sequence[int]) -> list[float] | None:
    """Return the blocking rate of each episode, the same for all policies; None where one of them differs."""
    results: dict[int, float] = {}
    *rules, picky = _choosers(scenario)
    for choosers in (rules, [picky]):
        for seed in seeds:
            for chooser in choosers:
                rate = play_episode(chooser, scenario, seed).blocking_rate(scenario.settings.counted)
                if results.setdefault(seed, rate) != rate:
                    return None
        if not any(results.values()):
            break
    return list(results.values())


def _choosers(scenario: Scenario) -> Iterator[Policy]:
    """Yield the rules of thumb by every placement rule, the last one picky; those first that differ most."""
    degrees, placements = scenario.space.degrees, scenario.settings.placement_rules
    names = ["max", "min", *NAMES, *(f"fixed-{degree}" for degree in degrees)]
    for name in dict.fromkeys(f"{name}@{placement}" for placement in placements for name in names):
        yield rule_of_thumb(name, degrees=degrees, placements=placements)
    yield Picky(rule_of_thumb(f"random@{placements[0]}", degrees=degrees, placements=placements))
