"""What the state after a candidate is worth, from when blocks of each shape become free.

Legend: ``v`` candidates, ``s`` shapes, ``d`` degrees, ``h`` slots (see `envs.foresight`).
"""

from __future__ import annotations

from torch import Tensor, nn

from ..envs.static import DEGREE_FEATURES, SHAPE_FEATURES
from .encoders import ProfileEncoder, StaticTensors

# Width of the network that makes the weights of a shape or degree from its features.
KIND_HIDDEN = 32


class AfterstateValue(nn.Module):
    """Estimates the discounted reward that follows, from the state after a decision alone.

    Args:
        num_slots: ``h``.
        widths: of the two layers.

    Source:
        Afterstates: Sutton and Barto, "Reinforcement learning: an introduction", 2018, section 6.8.
    """

    def __init__(self, num_slots: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        first, second = widths
        self.shapes = ProfileEncoder(len(SHAPE_FEATURES), num_slots, first, KIND_HIDDEN)
        self.degrees = ProfileEncoder(len(DEGREE_FEATURES), num_slots, first, KIND_HIDDEN)
        self.episode = nn.Linear(1, first)
        self.hidden = nn.Sequential(nn.ReLU(), nn.Linear(first, second), nn.ReLU())
        self.value = nn.Linear(second, 1)

    def forward(self, static: StaticTensors, shapes: Tensor, is_any: Tensor, episode: Tensor) -> tuple[Tensor, Tensor]:
        """Values ``(v,)`` and what they are read from, ``(v, second)``.

        Args:
            static: the scenario's shapes and degrees.
            shapes: share of the blocks of each shape that are free by each slot, ``(v, s, h)``.
            is_any: whether any block of each degree is, ``(v, d, h)``.
            episode: how near the end of the episode is, ``(v, 1)``.
        """
        lifted = self.shapes(static.shapes, shapes) + self.degrees(static.degrees, is_any) + self.episode(episode)
        hidden: Tensor = self.hidden(lifted)
        return self.value(hidden).squeeze(1), hidden
