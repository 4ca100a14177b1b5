"""Episodes played by a network's values with linear scorers added to them: the compiled player that these are tuned with.

Legend: ``w`` scorers, ``e`` episodes of each, ``a`` candidates, ``f`` features of a linear scorer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..compiled import njit
from ..envs.availability import write_availability
from ..envs.observation import Observer
from ..envs.reward import RewardSettings, reward
from ..planners.afterstate_features import Scorer, score_candidates, state_of_episode
from ..planners.episode_player import begun_for_each, blocking_rates
from ..planners.linear import FEATURES, folded, scorer
from ..simulation.cluster import dynamics
from ..simulation.cluster.scenario import Scenario
from .afterstate_kernel import write_values
from .network import CandidateNetwork


class CorrectedTrial:
    """Plays the candidate with the largest sum of immediate reward, value of the state after it and linear score.

    Args:
        network: whose values are played; with the layers ``after``.
        scenario: that it serves.
        rewards: what decisions pay.

    Attributes:
        scenario: as given.
        placement_rules: those among whose candidates is chosen, all of the scenario's.
    """

    def __init__(self, network: CandidateNetwork, scenario: Scenario, rewards: RewardSettings) -> None:
        self.scenario, self.placement_rules = scenario, scenario.settings.placement_rules
        self._value_weights, self._paid = network.after_weights(), rewards.weights
        self._may_reject = "reject" not in network.settings.without

    def blocking_rates(self, weights: NDArray[np.float64], rngs: Sequence[np.random.Generator]) -> NDArray[np.float64]:
        """Blocking rate of each scorer in each episode, ``(w, e)``; all scorers meet the same episodes.

        Args:
            weights: ``(w, f)``, features in the order of `planners.linear.FEATURES`.
            rngs: one generator per episode, from which its jobs are drawn as in any environment.

        Raises:
            PolicyError: candidates may hold several blocks.
        """
        scenario = self.scenario
        episodes, observer = begun_for_each(scenario, len(weights), rngs), Observer(scenario)
        seen = observer.arrays(len(episodes.job))
        _play(
            scenario.problem,
            episodes,
            scorer(scenario, np.zeros(len(FEATURES))),
            folded(scenario, weights),
            len(rngs),
            observer.layout.shapes,
            seen,
            self._value_weights,
            self._paid,
            scenario.cluster.num_devices * scenario.workload.mean_interarrival_s,
            self._may_reject,
        )
        return blocking_rates(scenario, episodes, len(weights))


@njit
def _play(problem, episodes, base, weights, num_episodes, shapes, seen, value_weights, paid, scale_s, may_reject):  # type: ignore[no-untyped-def]
    block_value, first_value, plain = weights
    num_candidates, num_jobs = episodes.can_place.shape[1], episodes.arrival_s.shape[1]
    after = np.empty((1, num_candidates, 1 + len(value_weights.value)), np.float32)
    scores = np.empty(num_candidates)
    for e in range(len(plain) * num_episodes):
        w = e // num_episodes
        own = Scorer(base.blocks, base.mean_s, block_value[w], first_value[w], plain[w])
        dynamics.start(problem, episodes, e)
        while episodes.job[e] < num_jobs - 1:
            chosen = 0
            if episodes.can_place[e, 1:].any():
                score_candidates(own, state_of_episode(episodes, e, num_jobs - episodes.num_arrived[e]), scores)
                write_availability(problem, episodes, e, shapes, seen)
                mask = seen.action_mask[e]
                for a in range(num_candidates):
                    mask[a] = 1 if a == 0 or episodes.can_place[e, a] else 0
                only = slice(e, e + 1)
                shares, is_any = seen.candidate_shapes[only], seen.candidate_any[only]
                write_values(shares, is_any, seen.episode[only], seen.action_mask[only], value_weights, after)
                highest = -np.inf
                for a in range(0 if may_reject else 1, num_candidates):
                    if mask[a]:
                        total = scores[a] + after[0, a, 0] + reward(problem, episodes, e, a, paid, scale_s)
                        if total > highest:
                            highest, chosen = total, a
            dynamics.decide(problem, episodes, e, chosen)
