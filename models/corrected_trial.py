"""Episodes played by a network's values with linear scorers added to them: what these are tuned with.

Legend: ``w`` scorers, ``e`` episodes of each, ``a`` candidates, ``f`` features of a linear scorer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..envs.batch import EpisodeBatch
from ..envs.reward import RewardSettings
from ..planners.episode_player import blocking_rates
from ..planners.linear import LinearWeights
from ..simulation.cluster.scenario import Scenario
from ..simulation.cluster.state import Episodes
from .linear_prior import LinearPrior
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
        self._network, self._rewards = network, rewards

    def blocking_rates(self, weights: NDArray[np.float64], rngs: Sequence[np.random.Generator]) -> NDArray[np.float64]:
        """See `planners.episode_player.LinearTrial.blocking_rates`."""
        batch = EpisodeBatch(self.scenario, len(weights) * len(rngs), self._rewards)
        firsts = range(0, batch.num_episodes, len(rngs))
        priors = [LinearPrior(LinearWeights(weight, self.placement_rules), self.scenario) for weight in weights]
        for e, rng in enumerate(rngs):
            arrivals = self.scenario.sample(rng, self.scenario.settings.num_jobs + 1)
            seed = int(rng.integers(2**63)) if self.scenario.problem.interruptions.is_on else 0
            for first in firsts:
                batch.begin_with(first + e, arrivals, seed)
        parts = [Episodes._make(array[first : first + len(rngs)] for array in batch.episodes) for first in firsts]
        while not batch.is_over.all():
            offered = batch.observations.action_mask > 0
            if "reject" in self._network.settings.without:
                offered[:, 0] &= ~offered[:, 1:].any(axis=1)
            total = batch.immediate_rewards() + self._network.candidates_after(batch.observations)[:, :, 0]
            total += np.concatenate([prior.of_episodes(part) for prior, part in zip(priors, parts, strict=True)])
            batch.step(np.where(offered, total, -np.inf).argmax(axis=1), ~batch.is_over)
        return blocking_rates(self.scenario, batch.episodes, len(weights))
