"""`ScorePolicy`: a network that scores actions as a policy of sb3-contrib's MaskablePPO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib.common.maskable.distributions import MaskableCategoricalDistribution
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor

from .network import NOT_OFFERED

Masks = NDArray[np.bool_] | Tensor | None


class ScorePolicy(MaskableActorCriticPolicy):
    """Acts by the scores of a network; the mask travels in the observation and is applied from there.

    Args:
        make_network: makes the network, which maps observations to scores ``(b, a)`` and values ``(b,)``. It has ``values``, for
            the values alone, and ``forget``, which drops its cache for constant weights.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        *,
        make_network: Callable[[], Any],
        **rest: Any,
    ) -> None:
        self._make_network = make_network
        super().__init__(observation_space, action_space, lr_schedule, **rest)

    def _build(self, lr_schedule: Schedule) -> None:  # by which sb3-contrib lets a policy make its own network
        self.network = self._make_network()
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]

    def set_training_mode(self, mode: bool) -> None:
        """Set the mode as Stable-Baselines3 does, and drop what the network kept: a fused optimizer changes weights unseen."""
        self.network.forget()
        super().set_training_mode(mode)

    def forward(self, obs: Any, deterministic: bool = False, action_masks: Masks = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the actions ``(b,)``, values ``(b, 1)`` and log-probabilities ``(b,)``."""
        scores, values = self.network(obs)
        log_share = log_shares(scores, action_masks)
        actions = log_share.argmax(dim=1) if deterministic else torch.multinomial(log_share.exp(), 1).squeeze(1)
        return actions, values.unsqueeze(1), _at(log_share, actions)

    def evaluate_actions(self, obs: Any, actions: Tensor, action_masks: Masks = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the values ``(b, 1)``, log-probabilities and entropies ``(b,)`` of given actions."""
        scores, values = self.network(obs)
        log_share = log_shares(scores, action_masks)
        return values.unsqueeze(1), _at(log_share, actions), -(log_share.exp() * log_share).sum(dim=1)

    def get_distribution(self, obs: Any, action_masks: Masks = None) -> MaskableCategoricalDistribution:
        """Return the distribution over candidates."""
        log_share = log_shares(self.network(obs)[0], action_masks)
        return MaskableCategoricalDistribution(log_share.shape[1]).proba_distribution(log_share)

    def predict_values(self, obs: Any) -> Tensor:
        """Return the values ``(b, 1)``."""
        values: Tensor = self.network.values(obs)
        return values.unsqueeze(1)


def log_shares(scores: Tensor, action_masks: Masks = None) -> Tensor:
    """Return the log-probabilities of all candidates, ``(b, a)``.

    Candidates that are not offered score so low that their probability is exactly zero. Masks come only from a caller
    who forbids more than that.
    """
    if action_masks is not None:
        allowed = torch.as_tensor(action_masks, dtype=torch.bool, device=scores.device).reshape(scores.shape)
        scores = scores.masked_fill(~allowed, NOT_OFFERED)
    return torch.log_softmax(scores, dim=1)


def _at(log_share: Tensor, actions: Tensor) -> Tensor:
    return log_share.gather(1, actions.long().reshape(-1, 1)).squeeze(1)
