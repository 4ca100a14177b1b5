"""The value of the state after a candidate, computed from when blocks of each shape become free.

Legend: ``v`` candidates, ``s`` shapes, ``d`` degrees, ``h`` slots (see `envs.availability`).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..envs.static_features import StaticFeatures
from .encoders import KnownProfileEncoder, ProfileEncoder, StaticTensors

ProfileSum = ProfileEncoder | KnownProfileEncoder
# Of figures of the latest arrivals: where one hardly differs, differences are not blown up further.
LEAST_SCALE = 0.005


class AfterstateValue(nn.Module):
    """Estimates the discounted reward that follows, from the state after a decision alone.

    Its layers are bounded (tanh), so the values of states that were never visited stay bounded. With unbounded layers they grew,
    and drew the policy to such states.

    Args:
        widths: of the two layers.
        shapes, degrees: how the profiles of each are summed, to the first width.
        num_recent: figures ``r`` of the latest arrivals.
        standardised: whether these are read in standard deviations ``recent_scale`` from their mean ``recent_mean``, ``(r,)``
            each. Both are saved with the weights.

    Source:
        Afterstates: Sutton and Barto, "Reinforcement learning: an introduction", 2018, section 6.8.
    """

    recent_mean: Tensor
    recent_scale: Tensor

    def __init__(
        self, widths: tuple[int, ...], shapes: ProfileSum, degrees: ProfileSum, num_recent: int = 0, standardised: bool = False
    ) -> None:
        super().__init__()
        first, second = widths
        self.shapes, self.degrees = shapes, degrees
        self.episode = nn.Linear(1 + num_recent, first)
        self.second = nn.Linear(first, second)
        self.value = nn.Linear(second, 1)
        self.standardised = standardised
        if standardised:
            self.register_buffer("recent_mean", torch.zeros(num_recent))
            self.register_buffer("recent_scale", torch.ones(num_recent))

    @torch.no_grad()
    def standardise(self, recent: NDArray[np.float32]) -> None:
        """Read figures of the latest arrivals by their mean and standard deviation in a sample, ``(n, r)``, if so made."""
        if self.standardised:
            self.recent_mean.copy_(torch.as_tensor(recent.mean(axis=0)))
            self.recent_scale.copy_(torch.as_tensor(recent.std(axis=0)).clamp(min=LEAST_SCALE))

    @classmethod
    def from_features(
        cls, static: StaticFeatures, widths: tuple[int, ...], kind_hidden: int | None, standardised: bool = False
    ) -> AfterstateValue:
        """Make the value network of a scenario.

        Args:
            static: its shapes and degrees.
            widths: of the two layers.
            kind_hidden: of the networks that make the weights of a shape or degree. None: each shape and degree of this scenario
                has weights of its own, and no others are known.
            standardised: see above.
        """
        sums: list[ProfileSum] = []
        for kinds in (torch.as_tensor(static.shapes), torch.as_tensor(static.degrees)):
            if kind_hidden is None:
                sums.append(KnownProfileEncoder(kinds, static.shape_slots, widths[0]))
            else:
                sums.append(ProfileEncoder(kinds.shape[1], static.shape_slots, widths[0], kind_hidden))
        return cls(widths, sums[0], sums[1], static.num_recent, standardised)

    def forward(self, static: StaticTensors, shapes: Tensor, is_any: Tensor, episode: Tensor) -> tuple[Tensor, Tensor]:
        """Values ``(v,)`` and what they are read from, ``(v, second)``.

        Args:
            static: the scenario's shapes and degrees.
            shapes: share of the blocks of each shape that are free by each slot, ``(v, s, h)``.
            is_any: whether any block of each degree is, ``(v, d, h)``.
            episode: how near the end of the episode is, and figures of the latest arrivals, ``(v, 1 + recent)``.
        """
        if self.standardised:
            episode = torch.cat([episode[:, :1], (episode[:, 1:] - self.recent_mean) / self.recent_scale], dim=1)
        lifted = self.shapes(static.shapes, shapes) + self.degrees(static.degrees, is_any) + self.episode(episode)
        hidden = torch.tanh(self.second(torch.tanh(lifted)))
        return self.value(hidden).squeeze(1), hidden
