"""`JobPartitioningVecEnv`: many episodes stepped by one compiled call, as Stable-Baselines3 wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from ..envs.batch import EpisodeBatch
from ..envs.reward import RewardSettings
from ..simulation.scenario import Scenario

Observations = dict[str, NDArray[Any]]
FIRST_TRAINING_SEED = 1000


class JobPartitioningVecEnv(VecEnv):
    """``e`` episodes that restart by themselves; episode after episode has a seed of its own.

    The ``i``-th episode of environment ``j`` draws its jobs from the seed sequence
    ``(1000 + seed, j, i)``, so that what is seen does not depend on when it is seen.

    Args:
        scenario: cluster, workload and rules.
        num_envs: ``e``.
        rewards: weights of the reward's terms.
        seed: of the run.
    """

    def __init__(self, scenario: Scenario, num_envs: int, rewards: RewardSettings, seed: int) -> None:
        self._batch = EpisodeBatch(scenario, num_envs, rewards)
        self.scenario = scenario
        self._seed = seed
        self._round = np.zeros(num_envs, np.int64)
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)
        self._actions = np.zeros(num_envs, np.int64)
        self.render_mode = None
        action_space = spaces.Discrete(scenario.problem.num_candidates)
        super().__init__(num_envs, self._batch.observer.space, action_space)

    def reset(self) -> Observations:
        """Start the first episode of every environment."""
        self._round[:] = 0
        self._return[:] = 0
        self._length[:] = 0
        for e in range(self.num_envs):
            self._begin(e)
        return self._observations()

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Take note of the actions."""
        self._actions = np.asarray(actions).reshape(-1)

    def step_wait(self) -> tuple[Observations, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Carry out the actions; an episode that ends is truncated and its environment starts the next one."""
        rewards, is_over = self._batch.step(self._actions)
        self._return += rewards
        self._length += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for e in np.flatnonzero(is_over).tolist():
            infos[e] = {
                "TimeLimit.truncated": True,
                "terminal_observation": {key: value[e].copy() for key, value in self._batch.observations.shown().items()},
                "episode": {"r": float(self._return[e]), "l": int(self._length[e]), "t": 0.0},
                "blocking_rate": self._blocking_rate(e),
            }
            self._return[e] = 0.0
            self._length[e] = 0
            self._begin(e)
        return self._observations(), rewards, is_over, infos

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays from which `restore` continues exactly."""
        own = {"round": self._round.copy(), "return": self._return.copy(), "length": self._length.copy()}
        return {**self._batch.state(), **own}

    def restore(self, state: dict[str, NDArray[Any]]) -> Observations:
        """Continue from a state of an equal environment; returns the observations that were current then."""
        self._round[:] = state["round"]
        self._return[:] = state["return"]
        self._length[:] = state["length"]
        self._batch.restore(state)
        return self._observations()

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Only ``action_masks`` is offered."""
        if method_name != "action_masks":
            raise AttributeError(method_name)
        return list(self._batch.observations.action_mask[list(self._get_indices(indices))].astype(np.bool_))

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute, equal for all environments."""
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def has_attr(self, attr_name: str) -> bool:
        """Whether environments have an attribute or method."""
        return attr_name == "action_masks" or hasattr(self, attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Environments here have no attributes of their own."""
        raise AttributeError(attr_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """No environment is wrapped."""
        return [False for _ in self._get_indices(indices)]

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """The run's seed is given once, at construction."""
        return [self._seed] * self.num_envs

    def close(self) -> None:
        """Nothing to close."""

    def _begin(self, e: int) -> None:
        sequence = np.random.SeedSequence([FIRST_TRAINING_SEED + self._seed, e, int(self._round[e])])
        self._round[e] += 1
        self._batch.begin(e, np.random.default_rng(sequence))

    def _blocking_rate(self, e: int) -> float:
        return self._batch.record(e).blocking_rate(self.scenario.settings.counted)

    def _observations(self) -> Observations:
        return {key: value.copy() for key, value in self._batch.observations.shown().items()}
