"""`GroupedPPO`: MaskablePPO whose decisions are collected by groups of environments, by any workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from ..updates.ppo import CandidatePPO
from ..vec_env_wrappers import CentredReward, wrapper_of
from .group import GroupPlayer, GroupRollout, GroupTask
from .overlap import Begin


class Groups(NamedTuple):
    """What collects decisions.

    Attributes:
        size: environments of a group, of one scenario each.
        play: plays a task.
        begin: who do it.
        is_overlapped: whether each rollout is begun before the update by the one before.
    """

    size: int
    play: GroupPlayer
    begin: Begin
    is_overlapped: bool = False


class GroupedPPO(CandidatePPO):
    """PPO whose rollouts do not depend on who plays them, nor on how many do, nor on when.

    Each group draws its actions from a generator of its own, seeded by the run's seed, the decisions so far and the group.

    Overlapped, every rollout but the first of a phase is collected with the weights of one update before. The ratios of PPO are
    those to the probabilities by which the actions were drawn, whatever weights these are of; values and advantages are of the
    same weights.

    Attributes:
        groups: who collects; to be set before `learn`.
        behaviour: the weights by which the next rollout is collected, where these are not the newest ones; a run that goes on
            from a checkpoint needs them.
    """

    groups: Groups
    behaviour: dict[str, NDArray[Any]] | None = None
    _collect: Callable[[], list[GroupRollout]] | None = None

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        rollout_buffer: RolloutBuffer,
        n_rollout_steps: int,
        use_masking: bool = True,
    ) -> bool:
        """Collect rollouts as sb3-contrib does, by groups; callbacks run for each decision after all of them."""
        assert isinstance(rollout_buffer, MaskableDictRolloutBuffer)
        self._flat_adam()
        self.policy.set_training_mode(False)
        rollout_buffer.reset()
        callback.on_rollout_start()
        played = self._played(n_rollout_steps * env.num_envs)
        goes_on = True
        for step in range(n_rollout_steps):
            self.num_timesteps += env.num_envs
            infos = [info for rollout in played for info in rollout.infos[step]]
            following = [rollout.starts[step + 1] if step + 1 < n_rollout_steps else rollout.last_starts for rollout in played]
            callback.update_locals({"infos": infos, "dones": np.concatenate(following)})
            goes_on = callback.on_step()
            if not goes_on:
                return False
            self._update_info_buffer(infos, np.concatenate(following))
        _fill(rollout_buffer, played)
        last_values = torch.from_numpy(np.concatenate([rollout.last_values for rollout in played]))
        last_starts = np.concatenate([rollout.last_starts for rollout in played])
        rollout_buffer.compute_returns_and_advantage(last_values=last_values, dones=last_starts)
        callback.on_rollout_end()
        return True

    def _played(self, num_steps: int) -> list[GroupRollout]:
        """The next rollout, of so many decisions; where rollouts are overlapped, the one after it is begun."""
        collect = self._collect or self._begin(self.num_timesteps, self.behaviour or self._weights())
        played = collect()
        self.behaviour = self._collect = None
        env = wrapper_of(self, CentredReward)
        for rollout, first in zip(played, self._firsts(), strict=True):
            env.episodes.restore_part(first, rollout.state)
        self._last_episode_starts = np.concatenate([rollout.last_starts for rollout in played])
        self._last_obs = env.venv.observations()
        steps = self.num_timesteps + num_steps
        if self.groups.is_overlapped and steps < self._total_timesteps:
            self.behaviour = self._weights()
            self._collect = self._begin(steps, self.behaviour)
        return played

    def _begin(self, steps: int, weights: dict[str, NDArray[Any]]) -> Callable[[], list[GroupRollout]]:
        """Begin the rollout after so many decisions."""
        return self.groups.begin(self.groups.play, self._tasks(steps, weights))

    def _weights(self) -> dict[str, NDArray[Any]]:
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.policy.state_dict().items()}

    def _firsts(self) -> range:
        """The number of each group's first environment."""
        return range(0, self.n_envs, self.groups.size)

    def _tasks(self, steps: int, weights: dict[str, NDArray[Any]]) -> list[GroupTask]:
        env = wrapper_of(self, CentredReward)
        starts = np.asarray(self._last_episode_starts, np.bool_)
        of_each = env.num_envs // len(env.episodes.batches)
        return [
            GroupTask(
                first // of_each,
                first,
                env.episodes.state_of_part(first, self.groups.size),
                starts[first : first + self.groups.size],
                weights,
                float(env.reward_centre[first // of_each]),
                env.reward_scale,
                (int(self.seed or 0), steps, first),
            )
            for first in self._firsts()
        ]


def _fill(buffer: MaskableDictRolloutBuffer, played: Sequence[GroupRollout]) -> None:
    """Put whole rollouts into an empty buffer, with their observations where they have brought these."""

    def put(to: np.ndarray, parts: list[np.ndarray]) -> None:
        to[:] = (parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)).reshape(to.shape)

    observations: dict[str, Any] = buffer.observations
    for key in played[0].observations:
        put(observations[key], [rollout.observations[key] for rollout in played])
    put(buffer.actions, [rollout.actions for rollout in played])
    put(buffer.rewards, [rollout.rewards for rollout in played])
    put(buffer.episode_starts, [rollout.starts for rollout in played])
    put(buffer.values, [rollout.values for rollout in played])
    put(buffer.log_probs, [rollout.log_probs for rollout in played])
    buffer.pos, buffer.full = buffer.buffer_size, True
