"""A rollout buffer that discounts by the time that passes, not by decisions.

Decisions of a fleet come in bursts without time between them, as each picked host is one. A job that has to wait causes one with
every event. A discount for each decision would pay for few decisions. Here the discount is for each mean time between two
arrivals. So is the weight of later differences in generalised advantage estimation:

    A_t = r_t + g^d V_{t+1} - V_t + (g l)^d A_{t+1}

with ``d`` arrivals' time between the decisions, so that a burst is taken as one decision of several parts.

Where episodes form groups that meet the same arrivals, the mean advantage of the others at the same time is subtracted from each
(see `training.graph.groups`). Nearly all variance of returns comes from the arrivals.

Source:
    Bradtke and Duff, "Reinforcement learning methods for continuous-time Markov decision problems", 1994; Schulman et al.,
    "High-dimensional continuous control using generalized advantage estimation", 2016.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer
from torch import Tensor

from ..graph.groups import beyond_group
from .vec_env import FleetVecEnv

_MS_OF_EPISODE = 2**42
"""No episode takes as many milliseconds."""


class TimedRolloutBuffer(MaskableDictRolloutBuffer):
    """Decisions with the time that passed after each.

    Args:
        env: that is played; it has the time.
    """

    def __init__(self, *args: Any, env: FleetVecEnv, **kwargs: Any) -> None:
        self._env = env
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        """Empty the buffer."""
        self.elapsed: NDArray[np.float64] = np.zeros((self.buffer_size, self.n_envs))
        self._at: NDArray[np.int64] = np.zeros((self.buffer_size, self.n_envs), np.int64)
        super().reset()

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Keep the decision that the environment has just carried out."""
        self.elapsed[self.pos] = self._env.elapsed
        self._at[self.pos] = self._env.episode * _MS_OF_EPISODE + (1e3 * self._env.decided_s).astype(np.int64)
        super().add(*args, **kwargs)

    def compute_returns_and_advantage(self, last_values: Tensor, dones: NDArray[np.bool_]) -> None:
        """Write advantages and returns.

        Args:
            last_values: of the states after the last decisions, ``(e,)``.
            dones: whether these ended an episode, ``(e,)``.
        """
        following = last_values.detach().cpu().numpy().flatten()
        not_done = 1.0 - np.asarray(dones, np.float64)
        advantage = np.zeros(self.n_envs)
        for step in reversed(range(self.buffer_size)):
            discount = not_done * self.gamma ** self.elapsed[step]
            surprise = self.rewards[step] + discount * following - self.values[step]
            advantage = surprise + discount * self.gae_lambda ** self.elapsed[step] * advantage
            self.advantages[step] = advantage
            following, not_done = self.values[step], 1.0 - self.episode_starts[step]
        self.returns = self.advantages + self.values
        if self._env.group > 1:
            self.advantages[:] = beyond_group(self.advantages, self._at, self._env.group, _MS_OF_EPISODE)
