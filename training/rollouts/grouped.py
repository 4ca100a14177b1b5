"""`GroupedPPO`: MaskablePPO whose decisions are collected by groups of environments, by any workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from ..updates.ppo import CandidatePPO
from ..vec_env_wrappers import CentredReward, wrapper_of
from .group import GroupPlayer, GroupRollout, GroupTask

Play = Callable[[GroupTask], GroupRollout]
ShareOut = Callable[[Play, Sequence[GroupTask], Callable[[GroupTask, GroupRollout], None]], None]
"""Does tasks and hands over each with its result, in their order: `evaluation.workers.workers.Workers.do`."""


def alone(play: Play, tasks: Sequence[GroupTask], keep: Callable[[GroupTask, GroupRollout], None]) -> None:
    """A `ShareOut` in this process."""
    for task in tasks:
        keep(task, play(task))


class Groups(NamedTuple):
    """Who collects decisions.

    Attributes:
        size: environments of a group, of one scenario each.
        play: plays a task.
        share_out: who do it.
    """

    size: int
    play: GroupPlayer
    share_out: ShareOut


class GroupedPPO(CandidatePPO):
    """PPO whose rollouts do not depend on who plays them, nor on how many do.

    Each group draws its actions from a generator of its own, seeded by the run's seed, the decisions so far and the group.

    Attributes:
        groups: who collects; to be set before `learn`.
    """

    groups: Groups

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        rollout_buffer: RolloutBuffer,
        n_rollout_steps: int,
        use_masking: bool = True,
    ) -> bool:
        """As sb3-contrib does, but for who plays; callbacks are called for each decision after all of them."""
        assert isinstance(rollout_buffer, MaskableDictRolloutBuffer)
        self._flat_adam()
        self.policy.set_training_mode(False)
        rollout_buffer.reset()
        callback.on_rollout_start()
        episodes = wrapper_of(self, CentredReward).episodes
        tasks = self._tasks()
        played: list[GroupRollout] = []
        self.groups.share_out(self.groups.play, tasks, lambda task, rollout: played.append(rollout))
        for task, rollout in zip(tasks, played, strict=True):
            episodes.restore_part(task.first, rollout.state)
        goes_on = True
        for step in range(n_rollout_steps):
            self.num_timesteps += env.num_envs
            infos = [info for rollout in played for info in rollout.infos[step]]
            following = [rollout.starts[step + 1] if step + 1 < n_rollout_steps else rollout.last_starts for rollout in played]
            callback.update_locals({"infos": infos, "dones": np.concatenate(following)})
            goes_on = callback.on_step()
            if not goes_on:
                break
            self._update_info_buffer(infos, np.concatenate(following))

            def of_all(name: str, step: int = step) -> np.ndarray:
                return np.concatenate([getattr(rollout, name)[step] for rollout in played])

            rollout_buffer.add(
                {key: np.concatenate([rollout.observations[key][step] for rollout in played]) for key in played[0].observations},
                of_all("actions").reshape(-1, 1),
                of_all("rewards"),
                of_all("starts"),
                torch.from_numpy(of_all("values")),
                torch.from_numpy(of_all("log_probs")),
            )
        self._last_episode_starts = np.concatenate([rollout.last_starts for rollout in played])
        self._last_obs = wrapper_of(self, CentredReward).venv.observations()
        if not goes_on:
            return False
        last_values = torch.from_numpy(np.concatenate([rollout.last_values for rollout in played]))
        rollout_buffer.compute_returns_and_advantage(last_values=last_values, dones=self._last_episode_starts)
        callback.on_rollout_end()
        return True

    def _tasks(self) -> list[GroupTask]:
        env = wrapper_of(self, CentredReward)
        starts = np.asarray(self._last_episode_starts, np.bool_)
        weights = {name: tensor.detach().cpu().clone() for name, tensor in self.policy.state_dict().items()}
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
                (int(self.seed or 0), self.num_timesteps, first),
            )
            for first in range(0, env.num_envs, self.groups.size)
        ]
