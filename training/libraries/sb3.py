"""Episodes side by side in the form of Stable-Baselines3, with the masks that sb3-contrib's MaskablePPO asks for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from ...envs.registration import IDS
from ...errors import ConfigError
from ...jobs.seeds import FIRST_TRAINING_SEED
from ...worlds import benchmark_files as kinds
from ...worlds.registry import world_key

Observations = dict[str, NDArray[Any]]

_NAMESPACE = "meshwright/"
_CLUSTER, _FLEET, _, _ELASTIC, _WORLD = IDS
_ID_OF_KIND = {kinds.SCENARIO: _CLUSTER, kinds.FLEET: _FLEET, kinds.ELASTIC: _ELASTIC}


def sb3_env(name: str, num_envs: int = 16, *, seed: int = 0, **options: Any) -> VecEnv:
    """Make a vector environment of Stable-Baselines3.

    Episodes restart by themselves. MaskablePPO reads their action masks, and logs returns and lengths.

    Args:
        name: id of an environment, or a benchmark: ``preset:NAME`` or a path.
        num_envs: episodes side by side.
        seed: of the episodes, none of which is a test or validation episode.
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
    vector: dict[str, Any] = {"autoreset_mode": "SameStep"}
    if gymnasium.spec(full).vector_entry_point is None:
        vector = {"vectorization_mode": "sync", "vector_kwargs": vector}
    return VecMonitor(SameStepVecEnv(gymnasium.make_vec(full, num_envs, **vector, **options), seed))


class MaskedVecEnv(VecEnv):
    """Base of all vector environments here: equal episodes whose only method is ``action_masks``.

    A subclass resets and steps them; `step_async` stores its actions.
    """

    render_mode: str | None = None
    _actions: NDArray[np.int64]

    @abstractmethod
    def action_masks(self) -> NDArray[np.bool_]:
        """Return whether each action is possible, ``(e, a)``."""

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Store the actions."""
        self._actions = np.asarray(actions).reshape(-1)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of each environment; only ``action_masks`` is offered."""
        if method_name != "action_masks":
            raise AttributeError(method_name)
        return list(self.action_masks()[list(self._get_indices(indices))])

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


class SameStepVecEnv(MaskedVecEnv):
    """A vector environment of Gymnasium whose episodes restart in the same step and whose observations hold their masks.

    Args:
        env: the episodes.
        seed: of the first reset: environment ``i`` has ``1000 + seed + i``.
    """

    def __init__(self, env: gymnasium.vector.VectorEnv[Any, Any, Any], seed: int) -> None:
        self._env, self._seen = env, Observations()
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self.seed(seed)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Set the seeds of the next reset, beyond those of test and validation; None leaves the generators."""
        self._seeds = [None if seed is None else FIRST_TRAINING_SEED + seed + e for e in range(self.num_envs)]
        return self._seeds

    def reset(self) -> Observations:
        """Start an episode in every environment."""
        self._seen, _ = self._env.reset(seed=self._seeds)  # type: ignore[arg-type]  # Gymnasium takes a list too
        self._reset_seeds()
        return self._seen

    def step_wait(self) -> tuple[Observations, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Carry out the actions; an info says how an episode ended, and is empty where none did."""
        self._seen, rewards, terminated, truncated, told = self._env.step(self._actions)
        is_over = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for e in np.flatnonzero(is_over).tolist():
            infos[e] = {
                **_of_one(told["final_info"], e),
                "TimeLimit.truncated": bool(truncated[e] and not terminated[e]),
                "terminal_observation": told["final_obs"][e],
            }
        return self._seen, rewards.astype(np.float32), is_over, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """Return whether each action is possible, ``(e, a)``."""
        possible: NDArray[np.bool_] = self._seen["action_mask"] > 0
        return possible

    def close(self) -> None:
        """Close the episodes."""
        self._env.close()


def _of_one(infos: dict[str, Any], e: int) -> dict[str, Any]:
    """The entries of one environment, of infos as Gymnasium's vector environments return them."""
    entries = {name: values for name, values in infos.items() if f"_{name}" in infos and infos[f"_{name}"][e]}
    return {name: _of_one(values, e) if isinstance(values, dict) else values[e] for name, values in entries.items()}
