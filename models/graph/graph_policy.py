"""`GraphPolicy`: a `GraphNetwork` as a policy of sb3-contrib's MaskablePPO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor

from ...worlds.world import WorldSpec
from ..masked_policy import ScorePolicy
from .compiled_head import scores_and_values
from .graph_network import GraphBank, GraphNetwork
from .hetero_gnn import GraphNetworkSettings


class GraphPolicy(ScorePolicy):
    """Acts by the scores of a `GraphNetwork`.

    Args:
        spec: of the world.
        network: widths.
        bank: the graphs that observations name.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        *,
        spec: WorldSpec,
        network: GraphNetworkSettings,
        bank: GraphBank,
        **rest: Any,
    ) -> None:
        self._made_of = spec, network, bank
        super().__init__(observation_space, action_space, lr_schedule, **rest)

    def make_network(self) -> GraphNetwork:
        """See `ScorePolicy.make_network`."""
        return _PlayedNetwork(*self._made_of)

    def set_training_mode(self, mode: bool) -> None:
        """Set the mode as Stable-Baselines3 does, and drop kept embeddings: the weights may have changed."""
        self.network.forget()
        super().set_training_mode(mode)


class _PlayedNetwork(GraphNetwork):
    """Decides in compiled code where no gradients are wanted."""

    def forward(self, seen: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        if torch.is_grad_enabled() or seen["state"].device.type != "cpu":
            return super().forward(seen)
        return scores_and_values(self, seen)
