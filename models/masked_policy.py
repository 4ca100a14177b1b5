"""`CandidateNetwork` as a policy of sb3-contrib's MaskablePPO."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib.common.maskable.distributions import MaskableCategoricalDistribution
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor

from ..envs.static import StaticFeatures
from .network import CandidateNetwork, NetworkSettings

Masks = NDArray[np.bool_] | Tensor | None


class CandidatePolicy(MaskableActorCriticPolicy):
    """Scores candidates by a `CandidateNetwork`; the mask travels in the observation and is applied from there.

    Args:
        network: widths.
        static: the scenario's graphs and degrees.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        *,
        network: NetworkSettings,
        static: StaticFeatures,
        **rest: Any,
    ) -> None:
        self._network_settings = network
        self._static = static
        super().__init__(observation_space, action_space, lr_schedule, features_extractor_class=_NoFeatures, **rest)

    def _build(self, lr_schedule: Schedule) -> None:
        self.network = CandidateNetwork(self._network_settings, self._static)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]

    def set_training_mode(self, mode: bool) -> None:
        """Weights change only in training mode, so leaving or entering it drops what was kept."""
        self.network.forget()
        super().set_training_mode(mode)

    def forward(self, obs: Any, deterministic: bool = False, action_masks: Masks = None) -> tuple[Tensor, Tensor, Tensor]:
        """Actions ``(b,)``, values ``(b, 1)`` and log-probabilities ``(b,)``."""
        scores, values = self.network(obs)
        distribution = self._distribution(scores)
        actions = distribution.get_actions(deterministic=deterministic)
        return actions, values.unsqueeze(1), distribution.log_prob(actions)

    def evaluate_actions(self, obs: Any, actions: Tensor, action_masks: Masks = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values ``(b, 1)``, log-probabilities and entropies ``(b,)`` of given actions."""
        scores, values = self.network(obs)
        distribution = self._distribution(scores)
        return values.unsqueeze(1), distribution.log_prob(actions), distribution.entropy()

    def get_distribution(self, obs: Any, action_masks: Masks = None) -> MaskableCategoricalDistribution:
        """The distribution over candidates."""
        return self._distribution(self.network(obs)[0])

    def predict_values(self, obs: Any) -> Tensor:
        """Values ``(b, 1)``."""
        return self.network.values(obs).unsqueeze(1)

    def _distribution(self, scores: Tensor) -> MaskableCategoricalDistribution:
        distribution = MaskableCategoricalDistribution(scores.shape[1])
        # Candidates that are not offered score so low that their probability is exactly zero.
        return distribution.proba_distribution(scores)


class _NoFeatures(BaseFeaturesExtractor):
    """The network reads the observation itself."""

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__(observation_space, features_dim=1)

    def forward(self, observations: Any) -> Tensor:
        return torch.zeros(len(observations["job"]), 1)
