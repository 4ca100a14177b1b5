"""A rollout buffer whose advantages are relative to those of episodes that meet the same instance.

Source:
    Kool et al., "Buy 4 REINFORCE samples, get a baseline for free!", 2019, for the mean of the others as a baseline; Mao et al.,
    "Variance reduction for reinforcement learning in input-driven environments", 2019, for the same input as its condition.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer
from torch import Tensor

from .vec_env import WorldVecEnv

_MOST_STEPS = 2**32


class GroupedRolloutBuffer(MaskableDictRolloutBuffer):
    """From each advantage, the mean of the others' at the same decision of the same instance is subtracted.

    Args:
        env: that is played; it says which decision of which instance each step was.
    """

    def __init__(self, *args: Any, env: WorldVecEnv, **kwargs: Any) -> None:
        self._env = env
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        """Empty the buffer."""
        self._at: NDArray[np.int64] = np.zeros((self.buffer_size, self.n_envs), np.int64)
        super().reset()

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Keep the decision that the environment has just carried out."""
        self._at[self.pos] = self._env.at[:, 0] * _MOST_STEPS + self._env.at[:, 1]
        super().add(*args, **kwargs)

    def compute_returns_and_advantage(self, last_values: Tensor, dones: NDArray[np.bool_]) -> None:
        """Write advantages and returns; values are learned from returns without the groups' baseline."""
        super().compute_returns_and_advantage(last_values, dones)
        self.advantages[:] = beyond_group(self.advantages, self._at, self._env.group)


def beyond_group(advantages: NDArray[np.float32], at: NDArray[np.int64], group: int) -> NDArray[np.float32]:
    """Return advantages minus the mean of the group's others at the same point; unchanged where no other was there.

    Args:
        advantages: ``(steps, e)``.
        at: point of each, rising from step to step, ``(steps, e)``.
        group: consecutive episodes that form a group.
    """
    found = advantages.copy()
    for first in range(0, advantages.shape[1], group):
        columns = slice(first, first + group)
        points, where = np.unique(at[:, columns], return_inverse=True)
        where = where.reshape(len(advantages), -1)
        own = advantages[:, columns].astype(np.float64)
        sums = np.bincount(where.ravel(), own.ravel(), len(points))[where]
        others = np.bincount(where.ravel(), minlength=len(points))[where] - 1
        found[:, columns] = own - np.where(others > 0, (sums - own) / np.maximum(others, 1), 0.0)
    return found
