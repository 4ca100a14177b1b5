"""`PlacementVectorEnv`: many episodes of operator placement side by side, stepped by compiled functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ...errors import ConfigError
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import lower_bound
from ..vector_env import BatchVectorEnv, Infos, Observations, note, taken_actions
from .batch import PlacementBatch
from .benchmark import PlacementBenchmark
from .env import InstanceSource
from .observation import new_placement_observations, observe_placements, placement_space


class PlacementVectorEnv(BatchVectorEnv):
    """What ``gymnasium.make_vec("meshwright/OperatorPlacement-v0", num_envs=e)`` gives; see `OperatorPlacementEnv` for all else.

    Drawing an instance takes longer than placing its ops: with ``num_instances`` each is drawn once.

    Args:
        num_envs: ``e``.
        benchmark: as of `OperatorPlacementEnv`.
        instance: as of `OperatorPlacementEnv`.
        split: as of `OperatorPlacementEnv`.
        num_instances: as of `OperatorPlacementEnv`.
        autoreset_mode: see `BatchVectorEnv`.
        render_mode: none is known.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as in the base

    def __init__(
        self,
        num_envs: int = 1,
        benchmark: str | Path | PlacementBenchmark = "preset:latency-tight",
        *,
        instance: OperatorInstance | None = None,
        split: str = "training",
        num_instances: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ConfigError("must be at least 1", field="num_envs", value=num_envs)
        self._source = InstanceSource.of(benchmark, instance, split, num_instances)
        n, m = self._source.most
        self._seen = new_placement_observations(num_envs, n, m)
        # Places of instances: those that are drawn once, then one for each environment.
        self._num_kept = 1 if instance is not None else num_instances or 0
        self._batch = PlacementBatch.with_room(self._num_kept + num_envs, self._source.objective, num_envs, (n, m))
        self._names = np.full(self._num_kept + num_envs, None, object)
        self._bound_s = np.zeros(self._num_kept + num_envs)
        self._was_possible = np.ones(num_envs, np.bool_)
        self._everyone = np.ones(num_envs, np.bool_)
        super().__init__(num_envs, placement_space(n, m), spaces.Discrete(m), autoreset_mode, render_mode)

    @property
    def instances(self) -> tuple[OperatorInstance, ...]:
        """What each environment places, ``e`` of them."""
        return tuple(self._batch.instances[at] for at in self._batch.state.instance.tolist())

    def action_masks(self) -> NDArray[np.bool_]:
        """Devices that may be chosen, ``(e, m)``."""
        may: NDArray[np.bool_] = self._seen.action_mask > 0
        return may

    def _begin(self, e: int, rng: np.random.Generator, seed: int | None) -> None:
        number = self._source.number(rng, seed)
        at = number if number < self._num_kept else self._num_kept + e
        if at >= self._num_kept or not self._batch.is_filled(at):
            drawn = self._source.instance(number)
            self._batch.put(at, drawn)
            self._names[at], self._bound_s[at] = drawn.name, lower_bound(drawn, self._source.objective)
        self._batch.begin_with(e, at)
        batch = self._batch
        is_it = np.zeros(self.num_envs, np.bool_)
        is_it[e] = True
        observe_placements(batch.stacked, batch.state, batch.lead, is_it, self._seen)

    def _advance(
        self, actions: NDArray[np.int64], is_stepped: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        batch = self._batch
        devices, self._was_possible = taken_actions(actions, batch.state.can_place)
        rewards = batch.step(devices)
        observe_placements(batch.stacked, batch.state, batch.lead, is_stepped, self._seen)
        return rewards, ~batch.is_live & is_stepped, np.zeros(self.num_envs, np.bool_)

    def _current(self) -> Observations:
        return dict(self._seen._asdict())

    def _begun_infos(self, which: NDArray[np.bool_]) -> Infos:
        batch, infos = self._batch, Infos()
        at = batch.state.instance
        note(infos, "instance", self._names[at], which)
        note(infos, "bound_s", self._bound_s[at], which)
        note(infos, "value_s", batch.state.value_s, which)
        return infos

    def _stepped_infos(self, which: NDArray[np.bool_]) -> Infos:
        infos = self._begun_infos(which)
        note(infos, "was_possible", self._was_possible, which)
        note(infos, "infeasible", self._everyone, self._batch.is_dead & which)
        return infos
