"""`TaskletVectorEnv`: many episodes of filling stages side by side, stepped by compiled functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ...errors import ConfigError
from ...simulation.tasklets.instance import TaskletInstance
from ..vector_env import BatchVectorEnv, Infos, Observations, note, taken_actions
from .batch import FillingBatch
from .benchmark import TaskletBenchmark
from .env import NetworkSource
from .observation import filling_space, new_filling_observations, observe_filling, observe_network


class TaskletVectorEnv(BatchVectorEnv):
    """What ``gymnasium.make_vec`` gives for a benchmark of tasklets; see `TaskletEnv` for all else.

    Args:
        num_envs: ``e``.
        benchmark: as of `TaskletEnv`.
        instance: as of `TaskletEnv`.
        split: as of `TaskletEnv`.
        num_instances: as of `TaskletEnv`.
        autoreset_mode: see `BatchVectorEnv`.
        render_mode: none is known.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as in the base

    def __init__(
        self,
        num_envs: int = 1,
        benchmark: str | Path | TaskletBenchmark = "preset:tasklets-64",
        *,
        instance: TaskletInstance | None = None,
        split: str = "training",
        num_instances: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ConfigError("must be at least 1", field="num_envs", value=num_envs)
        self._source = NetworkSource(benchmark, instance, split, num_instances)
        n = self._source.most_devices
        self._seen = new_filling_observations(num_envs, n)
        self._batch = FillingBatch.with_room(num_envs, num_envs, n)
        self._was_possible = np.ones(num_envs, np.bool_)
        super().__init__(num_envs, filling_space(n), spaces.Discrete(n), autoreset_mode, render_mode)

    @property
    def instances(self) -> tuple[TaskletInstance, ...]:
        """The network of each environment, ``e`` of them."""
        return tuple(self._batch.instances)

    def action_masks(self) -> NDArray[np.bool_]:
        """Devices that may join, ``(e, n)``."""
        may: NDArray[np.bool_] = self._seen.action_mask > 0
        return may

    def _begin(self, e: int, rng: np.random.Generator, seed: int | None) -> None:
        drawn = self._source.instance(self._source.number(rng, seed))
        if self._batch.instances[e] is not drawn:
            self._batch.put(e, drawn)
        self._batch.begin_with(e, e)
        is_it = np.zeros(self.num_envs, np.bool_)
        is_it[e] = True
        observe_network(self._batch.stacked, self._batch.state, e, self._seen)
        observe_filling(self._batch.stacked, self._batch.state, is_it, self._seen)

    def _advance(
        self, actions: NDArray[np.int64], is_stepped: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        batch = self._batch
        taken, self._was_possible = taken_actions(actions, batch.state.can_join)
        rewards = batch.step(taken)
        observe_filling(batch.stacked, batch.state, is_stepped, self._seen)
        return rewards, ~batch.is_live & is_stepped, np.zeros(self.num_envs, np.bool_)

    def _current(self) -> Observations:
        return dict(self._seen._asdict())

    def _begun_infos(self, which: NDArray[np.bool_]) -> Infos:
        batch, infos = self._batch, Infos()
        names = np.array([None if each is None else each.name for each in batch.instances], object)
        note(infos, "instance", names, which)
        note(infos, "bound_s", batch.stacked.scale_s, which)
        note(infos, "value_s", batch.state.value_s, which)
        return infos

    def _stepped_infos(self, which: NDArray[np.bool_]) -> Infos:
        infos = self._begun_infos(which)
        note(infos, "was_possible", self._was_possible, which)
        return infos
