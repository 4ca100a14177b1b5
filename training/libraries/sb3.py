"""Episodes side by side in the form of Stable-Baselines3, with the masks that sb3-contrib's MaskablePPO asks for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from ...envs.episodes import BatchedEpisodes, Observations
from ...envs.registration import IDS
from ...envs.vector_env import BatchVectorEnv
from ...errors import ConfigError
from ...jobs.seeds import FIRST_TRAINING_SEED
from ...worlds import benchmark_files as kinds
from ...worlds.registry import world_key

VecStep = tuple[Observations, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]

_NAMESPACE = "meshwright/"
_CLUSTER, _FLEET, *_, _WORLD = IDS
_ID_OF_KIND = {kinds.SCENARIO: _CLUSTER, kinds.FLEET: _FLEET}


def sb3_env(name: str, num_envs: int = 16, *, seed: int = 0, **options: Any) -> VecEnv:
    """Make a vector environment of Stable-Baselines3.

    Episodes restart by themselves. MaskablePPO reads their action masks, and logs returns and lengths.

    Args:
        name: id of an environment, or a benchmark: ``preset:NAME`` or a path.
        num_envs: episodes side by side.
        seed: of the episodes; they include no test or validation episode.
        options: further arguments of the environment.

    Raises:
        ConfigError: there is no such environment or benchmark, or an argument is wrong.
    """
    if num_envs < 1:
        raise ConfigError("must be at least 1", field="num_envs", value=num_envs)
    full = name if name.startswith(_NAMESPACE) else _NAMESPACE + name
    if full not in IDS:
        kind = _WORLD if world_key(name) else _ID_OF_KIND.get(kinds.kind_of(name) or "")
        if kind is None:
            kinds.find_benchmark(name)
            raise ConfigError("is neither an environment's id nor a benchmark", field="name", value=name, choices=IDS)
        full, options = kind, {"benchmark": name, **options}
    env = gymnasium.make_vec(full, num_envs, **options).unwrapped
    assert isinstance(env, BatchVectorEnv)
    return VecMonitor(SeededVecEnv(env.batch, seed))


class MaskedVecEnv(VecEnv):
    """Equal episodes side by side that restart by themselves; their only method is ``action_masks``.

    A subclass steps them by `decide`, and starts one by `_begin`.
    """

    render_mode: str | None = None
    _actions: NDArray[np.int64]

    @abstractmethod
    def observations(self) -> Observations:
        """Return copies of the current observations, ``(e, ...)`` each."""

    @abstractmethod
    def action_masks(self) -> NDArray[np.bool_]:
        """Return whether each action is possible, ``(e, a)``."""

    @abstractmethod
    def decide(self) -> tuple[NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Carry out the stored actions; episodes that are over stay at their end.

        Returns:
            Rewards and which episodes are over, ``(e,)`` each, and what Stable-Baselines3 reads about the latter.
        """

    @abstractmethod
    def _begin(self, e: int) -> None:
        """Start the next episode of an environment."""

    def reset(self) -> Observations:
        """Start an episode in every environment."""
        for e in range(self.num_envs):
            self._begin(e)
        return self.observations()

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Store the actions."""
        self._actions = np.asarray(actions).reshape(-1)

    def step_wait(self) -> VecStep:
        """Carry out the actions; an environment whose episode ends starts the next one."""
        rewards, is_over, infos = self.decide()
        for e in np.flatnonzero(is_over).tolist():
            self._begin(e)
        return self.observations(), rewards, is_over, infos

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of each environment; only ``action_masks`` is offered."""
        if method_name != "action_masks":
            raise AttributeError(method_name)
        return list(self.action_masks()[list(self._get_indices(indices))])  # of VecEnv for its subclasses, as _reset_seeds

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute, equal for all environments."""
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: environments here have no attributes of their own."""
        raise AttributeError(attr_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False for each: no environment is wrapped."""
        return [False for _ in self._get_indices(indices)]

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class EpisodesVecEnv(MaskedVecEnv):
    """A vector environment of Stable-Baselines3 from `BatchedEpisodes`.

    Args:
        batch: the episodes.
        space: of an observation, where it is another than that of the episodes.
    """

    def __init__(self, batch: BatchedEpisodes, space: spaces.Dict | None = None) -> None:
        self.batch: Any = batch
        super().__init__(batch.num_episodes, space or batch.space, spaces.Discrete(batch.num_actions))

    def observations(self) -> Observations:
        """See `MaskedVecEnv`."""
        return {key: values.copy() for key, values in self.batch.shown().items()}

    def action_masks(self) -> NDArray[np.bool_]:
        """See `MaskedVecEnv`."""
        masks: NDArray[np.bool_] = self.batch.masks()
        return masks.copy()


class SeededVecEnv(EpisodesVecEnv):
    """Episodes of any environment, each with a generator of its own, as by `gymnasium.make_vec`.

    Args:
        batch: the episodes.
        seed: of the first reset: environment ``i`` has ``1000 + seed + i``.
    """

    def __init__(self, batch: BatchedEpisodes, seed: int) -> None:
        super().__init__(batch)
        self._rngs = [seeding.np_random()[0] for _ in range(self.num_envs)]
        self._has_begun = False
        self.seed(seed)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Set the seeds of the next reset, beyond those of test and validation; None leaves the generators."""
        self._seeds = [None if seed is None else FIRST_TRAINING_SEED + seed + e for e in range(self.num_envs)]
        return self._seeds

    def decide(self) -> tuple[NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Carry out the actions; an info says how an episode ended, and is empty where none did."""
        batch = self.batch
        taken, was_possible = batch.taken(self._actions)
        rewards, terminated, truncated = batch.advance(taken)
        is_over = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        columns = {**batch.infos(np.flatnonzero(is_over).tolist()), **batch.step_infos()} if is_over.any() else {}
        columns |= {} if was_possible is None else {"was_possible": was_possible}
        for e in np.flatnonzero(is_over).tolist():
            infos[e] = {
                **{name: values[e] for name, values in columns.items()},
                **batch.last_info(e),
                "TimeLimit.truncated": bool(truncated[e] and not terminated[e]),
                "terminal_observation": {key: values[e].copy() for key, values in batch.shown().items()},
            }
        return rewards.astype(np.float32), is_over, infos

    def reset(self) -> Observations:
        """Start an episode in every environment."""
        for e, seed in enumerate(self._seeds):
            if seed is not None and not (self._has_begun and self.batch.ignores_later_seeds):
                self._rngs[e] = seeding.np_random(seed)[0]
            self.batch.reset(e, self._rngs[e], seed)
        self._has_begun = True
        self._reset_seeds()
        return self.observations()

    def _begin(self, e: int) -> None:
        self.batch.reset(e, self._rngs[e])
