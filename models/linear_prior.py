"""The linear scorer within a network.

Its features are those of `planners.linear`. Its weights are searched for before PPO, for the blocking rate of the scores alone.
PPO learns the weight of the scores and corrections to them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..planners.afterstate_features import score_candidates, score_episodes
from ..planners.linear import LinearWeights, check_single_blocks, scorer, state_of
from ..simulation.cluster.decision import Decision
from ..simulation.cluster.scenario import Scenario
from ..simulation.cluster.state import Episodes

KEY = "candidate_prior"
"""Of an observation: the scores of the linear scorer, ``(a,)``; zero for candidates that are not offered."""


class LinearPrior:
    """A linear scorer bound to a scenario.

    Args:
        weights: of its features.
        scenario: in which it scores.
    """

    def __init__(self, weights: LinearWeights, scenario: Scenario) -> None:
        self._scenario = scenario
        self._scorer = scorer(scenario, weights.weights)
        self._num_blocks = scenario.space.num_blocks

    def of_decision(self, decision: Decision) -> NDArray[np.float32]:
        """Return the scores of a decision's candidates, ``(a,)``; zero for those that hold several blocks, as published.

        Raises:
            PolicyError: the decision holds nothing about the cluster.
        """
        is_offered = decision.can_place & (decision.block < self._num_blocks)
        result = np.empty(len(is_offered))
        score_candidates(self._scorer, state_of(decision, is_offered), result)
        return result.astype(np.float32)

    def of_episodes(self, episodes: Episodes) -> NDArray[np.float32]:
        """Return the scores of the candidates of each episode's current decision, ``(e, a)``.

        Raises:
            PolicyError: candidates may hold several blocks.
        """
        check_single_blocks(self._scenario)
        result = np.empty(episodes.can_place.shape)
        score_episodes(self._scorer, episodes, result)
        return result.astype(np.float32)
