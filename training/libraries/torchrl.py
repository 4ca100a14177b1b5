"""`TorchRLBatch`: episodes side by side as an environment of TorchRL, masks included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Binary, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase

from ...envs.vector_env import BatchVectorEnv
from ...errors import ConfigError


class TorchRLBatch(EnvBase):  # type: ignore[misc]
    """A vector environment of this project for TorchRL's collectors and losses; its batch size is ``(e,)``.

    ``action_mask`` says which actions are possible, as ``MaskedCategorical`` and the transform ``ActionMask`` read it. TorchRL
    itself begins episodes anew, so the environment must have been made with ``autoreset_mode="Disabled"``.

    Args:
        env: the episodes.
        keys: what is kept of the observation besides the mask; all of it by default.
        device: of torch, where tensors go.

    Raises:
        ConfigError: episodes begin anew by themselves.
    """

    batch_locked = True

    def __init__(self, env: BatchVectorEnv, keys: Sequence[str] | None = None, device: str = "cpu") -> None:
        if env.autoreset_mode is not AutoresetMode.DISABLED:
            raise ConfigError("must be Disabled", field="autoreset_mode", value=env.autoreset_mode.value)
        super().__init__(device=torch.device(device), batch_size=torch.Size([env.num_envs]))
        self._env = env
        space = env.single_observation_space
        self._keys = [key for key in keys or space.spaces if key != "action_mask"]  # type: ignore[attr-defined]
        e, a = env.num_envs, int(env.single_action_space.n)  # type: ignore[attr-defined]
        seen = {}
        for key in self._keys:
            part = env.observation_space[key]  # type: ignore[index]
            seen[key] = Unbounded(shape=part.shape, dtype=torch.from_numpy(np.empty(0, part.dtype)).dtype)
        self.observation_spec = Composite({**seen, "action_mask": Binary(a, shape=(e, a), dtype=torch.bool)}, shape=(e,))
        self.action_spec = Categorical(a, shape=(e,), dtype=torch.int64)
        self.reward_spec = Unbounded(shape=(e, 1), dtype=torch.float32)
        done = Categorical(2, shape=(e, 1), dtype=torch.bool)
        self.done_spec = Composite({key: done.clone() for key in ("done", "terminated", "truncated")}, shape=(e,))
        self._seed: int | None = None

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        chosen = None if tensordict is None else tensordict.get("_reset", None)
        options = None if chosen is None else {"reset_mask": chosen.reshape(-1).cpu().numpy()}
        seen, _ = self._env.reset(seed=self._seed, options=options)
        self._seed = None
        never = torch.zeros((*self.batch_size, 1), dtype=torch.bool)
        return self._tensors(seen, {"done": never, "terminated": never.clone(), "truncated": never.clone()})

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        seen, rewards, terminated, truncated, _ = self._env.step(tensordict["action"].cpu().numpy())
        ends, cut = torch.from_numpy(terminated).unsqueeze(1), torch.from_numpy(truncated).unsqueeze(1)
        reward = torch.from_numpy(rewards).float().unsqueeze(1)
        return self._tensors(seen, {"reward": reward, "done": ends | cut, "terminated": ends, "truncated": cut})

    def _set_seed(self, seed: int | None) -> None:
        self._seed = seed

    def _tensors(self, seen: dict[str, Any], rest: dict[str, torch.Tensor]) -> TensorDictBase:
        tensors = {key: torch.from_numpy(seen[key]) for key in self._keys}
        mask = torch.from_numpy(seen["action_mask"]) > 0
        return TensorDict({**tensors, "action_mask": mask, **rest}, batch_size=self.batch_size).to(self.device)
