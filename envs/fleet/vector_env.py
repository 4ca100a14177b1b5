"""`FleetVectorEnv`: many episodes of a fleet side by side, stepped by compiled functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ...errors import ConfigError
from .batch import FleetBatch
from .benchmark import FleetBenchmark
from .env import FleetObservation, possible_actions, the_fleet
from .fleet import Fleet
from .record import FleetRecord
from .spaces import observation_space


class FleetVectorEnv(VectorEnv[FleetObservation, NDArray[np.int64], NDArray[Any]]):
    """What ``gymnasium.make_vec("meshwright/JobPartitioning-v1", num_envs=e)`` gives; see `FleetEnv` for all but the number.

    An episode that is over begins anew in the next step, whose action is passed over (``AutoresetMode.NEXT_STEP``).

    Args:
        num_envs: ``e``.
        benchmark, fleet, cache: as of `FleetEnv`.
        render_mode: none is known.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as in the base

    def __init__(
        self,
        num_envs: int = 1,
        benchmark: str | Path | FleetBenchmark = "preset:llm-256",
        *,
        fleet: Fleet | None = None,
        cache: str | Path | None = None,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ConfigError("must be at least 1", field="num_envs", value=num_envs)
        if render_mode is not None:
            raise ConfigError("unknown render mode", field="render_mode", value=render_mode, choices=[])
        self.fleet = the_fleet(benchmark, fleet, cache)
        self.num_envs = num_envs
        self.render_mode = None
        self.single_observation_space = observation_space(self.fleet)
        self.single_action_space = spaces.Discrete(self.fleet.problem.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._batch = FleetBatch(self.fleet, num_envs)
        self._rngs = [np.random.default_rng() for _ in range(num_envs)]

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FleetObservation, dict[str, Any]]:
        """Begin every episode anew; with a seed, episode ``i`` has the jobs of ``seed + i``.

        Raises:
            ConfigError: any option is given, or not one seed for each episode.
        """
        if options:
            raise ConfigError("unknown reset option", value=next(iter(options)), choices=[])
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed or [None] * self.num_envs
        if len(seeds) != self.num_envs:
            raise ConfigError(f"one for each of {self.num_envs} episodes is wanted", field="seed", value=len(seeds))
        for e, one in enumerate(seeds):
            if one is not None:
                self._rngs[e] = np.random.default_rng(one)
            self._batch.reset(e, self._rngs[e])
        return self._observation(), self._info()

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[FleetObservation, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Carry out an action in every episode; those that were over begin anew instead, with a reward of 0.

        Raises:
            PolicyError: not a whole number for each episode, or one that no action has.
        """
        was_over = self._batch.state.is_over.copy()
        taken, was_possible = possible_actions(self._batch, np.asarray(actions))
        rewards, is_over = self._batch.step(taken)
        for e in np.flatnonzero(was_over).tolist():
            self._batch.reset(e, self._rngs[e])
        info = self._info() | {"was_possible": was_possible}
        return self._observation(), rewards, is_over & ~was_over, np.zeros(self.num_envs, np.bool_), info

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are possible, ``(e, a)``."""
        possible: NDArray[np.bool_] = self._batch.state.can_act.copy()
        return possible

    def _observation(self) -> FleetObservation:
        return {name: values.copy() for name, values in self._batch.observations._asdict().items()}

    def _info(self) -> dict[str, Any]:
        state = self._batch.state
        info: dict[str, Any] = {name: getattr(state, name).copy() for name in ("now_s", "num_waiting", "num_running")}
        if state.is_over.any():
            counted = self.fleet.settings.counted
            over = [FleetRecord.of(state, e).counts(counted) if state.is_over[e] else None for e in range(self.num_envs)]
            info["episode_counts"], info["_episode_counts"] = np.array(over, object), state.is_over.copy()
        return info
