"""`TianshouBatch`: episodes side by side as Tianshou's collectors step them; and a network for its PPO that keeps to the mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from tianshou.data import Batch
from tianshou.env import BaseVectorEnv
from torch import Tensor, nn

from ...envs.vector_env import BatchVectorEnv
from ...errors import ConfigError
from .scorer import CandidateScorer


class TianshouBatch(BaseVectorEnv):  # type: ignore[misc]
    """A vector environment of this project where Tianshou expects one of its own.

    Tianshou itself begins episodes anew, so the environment must have been made with ``autoreset_mode="Disabled"``.

    Args:
        env: the episodes.
        keys: what is kept of the observation; all of it by default. Networks here read the mask as ``action_mask``.

    Raises:
        ConfigError: episodes begin anew by themselves.
    """

    def __init__(self, env: BatchVectorEnv, keys: Sequence[str] | None = None) -> None:
        if env.autoreset_mode is not AutoresetMode.DISABLED:
            raise ConfigError("must be Disabled", field="autoreset_mode", value=env.autoreset_mode.value)
        self._env = env
        self._keys = list(keys or env.single_observation_space.spaces)  # type: ignore[attr-defined]
        self._seeds: list[int | None] = [None] * env.num_envs
        self.env_num = self.wait_num = env.num_envs
        self.is_async, self.is_closed = False, False
        self.workers: list[Any] = []
        self.ready_id = list(range(env.num_envs))

    def get_env_attr(self, key: str, id: Any = None) -> list[Any]:  # noqa: A002 - as in the base
        """An attribute of the environments, equal for all of them."""
        found = {"action_space": self._env.single_action_space, "observation_space": self._env.single_observation_space}
        return [found.get(key, getattr(self._env, key, None)) for _ in range(len(self._ids(id)))]

    def seed(self, seed: int | list[int] | None = None) -> list[list[int] | None]:
        """What the next `reset` of all begins with: ``seed``, ``seed + 1``, ..., or those of a list."""
        count = self.env_num
        self._seeds = [seed + i for i in range(count)] if isinstance(seed, int) else ([None] * count if seed is None else [*seed])
        return [None if each is None else [each] for each in self._seeds]

    def reset(self, env_id: Any = None, **kwargs: Any) -> tuple[Any, NDArray[Any]]:
        """Reset some episodes, by number; all by default."""
        ids = self._ids(env_id)
        mask = np.zeros(self.env_num, np.bool_)
        mask[ids] = True
        given = kwargs.get("seed")
        seeds = [given + i for i in range(self.env_num)] if given is not None else self._seeds
        seen, _ = self._env.reset(seed=seeds, options={"reset_mask": mask})
        for e in ids:
            self._seeds[e] = None
        return self._batch(seen, ids), _numbered(ids)

    def step(self, action: Any, id: Any = None) -> tuple[Any, ...]:  # noqa: A002 - as in the base
        """Step all environments.

        Raises:
            ConfigError: only some of them are to be stepped, as a collector of a number of episodes does at its end.
        """
        ids = self._ids(id)
        if len(ids) != self.env_num:
            raise ConfigError("all are stepped at once: collect a number of steps, not of episodes", field="id", value=len(ids))
        actions = np.asarray(action.cpu() if isinstance(action, Tensor) else action).astype(np.int64)
        seen, rewards, terminated, truncated, _ = self._env.step(actions)
        return self._batch(seen, ids), rewards, terminated, truncated, _numbered(ids)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
        self.is_closed = True

    def _ids(self, given: Any) -> NDArray[np.int64]:
        return np.arange(self.env_num) if given is None else np.atleast_1d(np.asarray(given, np.int64))

    def _batch(self, seen: dict[str, NDArray[Any]], ids: NDArray[np.int64]) -> Any:
        return Batch({key: seen[key][ids] for key in self._keys})


class TianshouActor(nn.Module):
    """Scores of a `CandidateScorer` as Tianshou's policies read them."""

    def __init__(self, scorer: CandidateScorer) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[Tensor, Any]:
        """Scores ``(b, a)`` and the state as it is."""
        return self.scorer(_tensors(obs, self.scorer.keys))[0], state


class TianshouCritic(nn.Module):
    """Values of a `CandidateScorer`."""

    def __init__(self, scorer: CandidateScorer) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, obs: Any, **kwargs: Any) -> Tensor:
        """Values ``(b, 1)``."""
        values: Tensor = self.scorer(_tensors(obs, self.scorer.keys))[1]
        return values.unsqueeze(-1)


def _tensors(observation: Any, keys: Sequence[str]) -> dict[str, Tensor]:
    return {key: torch.as_tensor(observation[key]) for key in keys}


def _numbered(ids: NDArray[np.int64]) -> NDArray[Any]:
    return np.array([{"env_id": int(e)} for e in ids], object)
