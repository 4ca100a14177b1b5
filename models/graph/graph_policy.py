"""`PlayedNetwork`: a `GraphNetwork` that decides in compiled code while it plays, for PPO."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .compiled_head import scores_and_values
from .graph_network import GraphNetwork


class PlayedNetwork(GraphNetwork):
    """Decides in compiled code where no gradients are wanted and graphs do not change."""

    def forward(self, seen: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """See `GraphNetwork`."""
        if torch.is_grad_enabled() or self.spec.changes or seen["state"].device.type != "cpu":
            return super().forward(seen)
        return scores_and_values(self, seen)
