"""Episodes of a fleet as a vector environment of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.fleet import Fleet
from ...envs.fleet.spaces import observation_space

MAX_SEED = 2**63


class FleetVecEnv(VecEnv):
    """``e`` episodes, each begun anew when it is over.

    Args:
        fleet: what is played.
        num_envs: ``e``.
        seed: of all jobs.
    """

    def __init__(self, fleet: Fleet, num_envs: int, seed: int) -> None:
        self.batch = FleetBatch(fleet, num_envs)
        self._rngs = [np.random.default_rng([seed, number]) for number in range(num_envs)]
        self._actions = np.zeros(num_envs, np.int64)
        super().__init__(num_envs, observation_space(fleet), spaces.Discrete(fleet.problem.num_actions))

    def reset(self) -> dict[str, NDArray[Any]]:
        """Begin every episode."""
        for e, rng in enumerate(self._rngs):
            self.batch.reset(e, rng)
        return self.seen()

    def seen(self) -> dict[str, NDArray[Any]]:
        """Copies of the observations."""
        return {name: values.copy() for name, values in self.batch.observations._asdict().items()}

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Keep the actions."""
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[dict[str, NDArray[Any]], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Carry them out; what is over begins anew."""
        rewards, over = self.batch.step(self._actions)
        for e in np.flatnonzero(over).tolist():
            self.batch.reset(e, self._rngs[e])
        return self.seen(), rewards, over, [{} for _ in range(self.num_envs)]

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """As Stable-Baselines3 asks."""
        return [getattr(self, attr_name, None) for _ in self._indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refused: episodes have no attributes of their own."""
        raise AttributeError(attr_name)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Masks by the name that sb3-contrib knows."""
        if method_name != "action_masks":
            raise AttributeError(method_name)
        return [self.batch.observations.action_mask[e].astype(bool) for e in self._indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """None is."""
        return [False for _ in self._indices(indices)]

    def _indices(self, indices: Any) -> Sequence[int]:
        return list(self._get_indices(indices))
