"""How linear scorers do on given episodes: the compiled player that they are tuned with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import PolicyError
from ..simulation.cluster.records import record
from ..simulation.cluster.scenario import Scenario
from ..simulation.cluster.state import Episodes
from .afterstate_features import play_scorers
from .linear import FEATURES, check_single_blocks, folded, scorer


@dataclass(frozen=True, eq=False)
class LinearTrial:
    """Plays linear scorers in a scenario.

    Attributes:
        scenario: made by `only`, so that every candidate is one of the placement rules that the scorers choose among.
    """

    scenario: Scenario

    @classmethod
    def only(cls, scenario: Scenario, placement_rules: Sequence[str] | None) -> LinearTrial:
        """Return a trial in a scenario that is limited to some placement rules.

        Args:
            scenario: the whole.
            placement_rules: the choices. None takes ``all-blocks`` where the scenario has it. Otherwise it takes all rules but
                ``published``, by which a job may hold several blocks.

        Raises:
            PolicyError: a rule is not among the scenario's, or is ``published``.
        """
        offered = [rule for rule in scenario.settings.placement_rules if rule != "published"]
        choice = placement_rules or (["all-blocks"] if "all-blocks" in offered else offered)
        for rule in choice:
            if rule not in offered:
                problem = "a linear scorer can only choose among candidates of single blocks that the scenario has"
                raise PolicyError(problem, field="placement_rules", value=rule, choices=offered)
        if not choice:
            raise PolicyError("the scenario has no rule by which a job holds one block", field="placement_rules")
        return cls(replace(scenario, settings=scenario.settings.model_copy(update={"placement_rules": tuple(choice)})))

    @property
    def placement_rules(self) -> tuple[str, ...]:
        """The placement rules that scorers choose among."""
        return self.scenario.settings.placement_rules

    def blocking_rates(self, weights: NDArray[np.float64], rngs: Sequence[np.random.Generator]) -> NDArray[np.float64]:
        """Return the blocking rate of each scorer in each episode, ``(w, e)``; all scorers meet the same episodes.

        Args:
            weights: ``(w, f)``, features in the order of `planners.linear.FEATURES`.
            rngs: one generator per episode, from which its jobs are drawn as in any environment.

        Raises:
            PolicyError: candidates may hold several blocks.
        """
        scenario, num = self.scenario, len(rngs)
        episodes = begun_for_each(scenario, len(weights), rngs)
        ready = scorer(scenario, np.zeros(len(FEATURES)))
        play_scorers(scenario.problem, episodes, ready, folded(scenario, weights), num)
        return blocking_rates(scenario, episodes, len(weights))


def begun_for_each(scenario: Scenario, num_scorers: int, rngs: Sequence[np.random.Generator]) -> Episodes:
    """Return episodes ``(w e,)`` whose jobs are drawn, scorer after scorer; all scorers meet the same ones.

    Raises:
        PolicyError: candidates may hold several blocks.
    """
    check_single_blocks(scenario)
    num = len(rngs)
    episodes = scenario.new_episodes(num_scorers * num)
    for e, rng in enumerate(rngs):
        arrivals = scenario.sample(rng, scenario.settings.num_jobs + 1)
        seed = int(rng.integers(2**63)) if scenario.problem.interruptions.is_on else 0
        scenario.reset(episodes, e, arrivals, seed)
    for jobs in (episodes.arrival_s, episodes.graph_id, episodes.num_steps, episodes.allowed_s, episodes.seed):
        jobs[num:] = np.tile(jobs[:num], (num_scorers - 1, *[1] * (jobs.ndim - 1)))
    return episodes


def blocking_rates(scenario: Scenario, episodes: Episodes, num_scorers: int) -> NDArray[np.float64]:
    """Return the blocking rate of each scorer in each of its episodes once they are over, ``(w, e)``."""
    num, counted = len(episodes.job), scenario.settings.counted
    rates = [record(scenario, episodes, e).blocking_rate(counted) for e in range(num)]
    return np.array(rates).reshape(num_scorers, num // num_scorers)
