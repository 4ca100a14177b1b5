"""A rollout buffer whose advantages are relative to those of episodes that meet the same instance.

Sources of the baseline: see `groups`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer
from torch import Tensor

from .groups import beyond_group
from .vec_env import WorldVecEnv

_MOST_STEPS = 2**32


class GroupedRolloutBuffer(MaskableDictRolloutBuffer):
    """A buffer that subtracts from each advantage the mean of the same decision in others, and the part explained by the past.

    The mean of the others is a baseline. So is the part of the rest that follows from how much more than they an episode has lost
    before: one with a longer schedule so far has less to lose. That part is linear, with a slope for each distance from the end.
    Advantages are in the mean results of the others, so that no kind of instance outweighs others.

    Nothing is learned from decisions of episodes that the rollout cuts off, unless values are learned. Without values the later
    costs of these decisions are unknown, and rewards until then alone would make a policy short-sighted.

    Args:
        env: that is played; it numbers the instance and decision of each step.
        has_values: whether values are learned.
    """

    def __init__(self, *args: Any, env: WorldVecEnv, has_values: bool = False, **kwargs: Any) -> None:
        self._env, self._has_values = env, has_values
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        """Empty the buffer."""
        self._at: NDArray[np.int64] = np.zeros((self.buffer_size, self.n_envs), np.int64)
        self._past: NDArray[np.float32] = np.zeros((self.buffer_size, self.n_envs), np.float32)
        super().reset()

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Keep the decision that the environment has just carried out."""
        self._at[self.pos] = self._env.at[:, 0] * _MOST_STEPS + self._env.at[:, 1]
        self._past[self.pos] = self._env.past
        super().add(*args, **kwargs)

    def compute_returns_and_advantage(self, last_values: Tensor, dones: NDArray[np.bool_]) -> None:
        """Write advantages and returns; values are learned from returns without the groups' baseline."""
        super().compute_returns_and_advantage(last_values, dones)
        left, group = steps_left(self.episode_starts, dones), self._env.group
        beyond, past = (beyond_group(each, self._at, group) for each in (self.advantages, self._past))
        whole = self._past + self.returns
        others = np.abs(whole - beyond_group(whole, self._at, group))
        unit = np.where(others > 0, others, 1.0).astype(np.float32)
        self.advantages[:] = np.where((left > 0) | self._has_values, beyond_past(beyond / unit, past / unit, left), 0.0)


def steps_left(episode_starts: NDArray[np.float32], dones: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the steps until each one's episode ends, itself among them; 0 where that is beyond the rollout, ``(steps, e)``.

    Args:
        episode_starts: 1 where a step is the first of its episode, ``(steps, e)``.
        dones: whether the last step ended an episode, ``(e,)``.
    """
    ends = np.concatenate([episode_starts[1:], dones[None]]) > 0
    left = np.zeros((len(ends) + 1, ends.shape[1]), np.int64)
    for step in range(len(ends) - 1, -1, -1):
        left[step] = np.where(ends[step], 1, left[step + 1] + (left[step + 1] > 0))
    return left[:-1]


def beyond_past(
    advantages: NDArray[np.floating[Any]], past: NDArray[np.floating[Any]], left: NDArray[np.int64]
) -> NDArray[np.floating[Any]]:
    """Return advantages minus what is linear in the past, with a slope for each power of two of the steps left.

    Args:
        advantages: less the mean of the group's others, ``(steps, e)``.
        past: rewards before the step, less the mean of the group's others, ``(steps, e)``.
        left: steps until the end, 0 where that is not known, ``(steps, e)``.
    """
    result, distance = advantages.copy(), np.log2(np.maximum(left, 1)).astype(np.int64)
    for each in range(int(distance.max()) + 1):
        rows = (distance == each) & (left > 0)
        slope = float((advantages[rows] * past[rows]).sum()) / max(float((past[rows] ** 2).sum()), 1e-12)
        result[rows] -= slope * past[rows]
    return result
