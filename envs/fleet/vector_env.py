"""`FleetVectorEnv`: many episodes of a fleet side by side, stepped by compiled functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ...errors import ConfigError
from ...jobs.graph import JobGraph
from ..vector_env import BatchVectorEnv, Infos, Observations, counted, note
from .batch import FleetBatch
from .benchmark import FleetBenchmark
from .env import possible_actions, the_fleet
from .fleet import Fleet
from .menu_lines import fleet_text
from .record import FleetRecord
from .spaces import observation_space, observed_links, with_links


class FleetVectorEnv(BatchVectorEnv):
    """What ``gymnasium.make_vec("meshwright/JobPartitioning-v1", num_envs=e)`` gives; see `FleetEnv` for all but the number.

    Args:
        num_envs: ``e``.
        benchmark: as of `FleetEnv`.
        fleet: as of `FleetEnv`.
        cache: as of `FleetEnv`.
        autoreset_mode: see `BatchVectorEnv`.
        render_mode: ``ansi``: `render` gives a text for each environment.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as in the base
        "render_modes": ["ansi"],
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        benchmark: str | Path | FleetBenchmark = "preset:llm-256",
        *,
        fleet: Fleet | None = None,
        cache: str | Path | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ConfigError("must be at least 1", field="num_envs", value=num_envs)
        self.fleet = the_fleet(benchmark, fleet, cache)
        self._batch = FleetBatch(self.fleet, num_envs)
        self._links = observed_links(self.fleet)
        self._was_possible = np.ones(num_envs, np.bool_)
        actions = spaces.Discrete(self.fleet.problem.num_actions)
        super().__init__(num_envs, observation_space(self.fleet), actions, autoreset_mode, render_mode)

    def action_masks(self) -> NDArray[np.bool_]:
        """Whether each action is possible, ``(e, a)``."""
        possible: NDArray[np.bool_] = self._batch.state.can_act.copy()
        return possible

    def graphs(self) -> tuple[JobGraph, ...]:
        """The job graphs that ``offer_type`` and ``running_type`` number; `fleet.cluster` is where they run."""
        return self.fleet.graphs

    def render(self) -> tuple[Any, ...] | None:
        """The cluster and queue of each environment as text; None without a mode."""
        if self.render_mode is None:
            return None
        return tuple(fleet_text(self.fleet, self._batch.state, e) for e in range(self.num_envs))

    def _begin(self, e: int, rng: np.random.Generator, seed: int | None) -> None:
        self._batch.reset(e, rng)

    def _advance(
        self, actions: NDArray[np.int64], is_stepped: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        taken, self._was_possible = possible_actions(self._batch, actions)
        rewards, is_over = self._batch.step(taken)
        return rewards.astype(np.float64), is_over & is_stepped, np.zeros(self.num_envs, np.bool_)

    def _current(self) -> Observations:
        return with_links(self._links, self._batch.observations._asdict())

    def _begun_infos(self, which: NDArray[np.bool_]) -> Infos:
        infos = Infos()
        for name in ("now_s", "num_waiting", "num_running"):
            note(infos, name, getattr(self._batch.state, name), which)
        return infos

    def _stepped_infos(self, which: NDArray[np.bool_]) -> Infos:
        infos, state = self._begun_infos(which), self._batch.state
        note(infos, "was_possible", self._was_possible, which)
        over = np.flatnonzero(state.is_over & which).tolist()
        if over:
            jobs = self.fleet.settings.counted
            note(infos, "episode_counts", *counted({e: FleetRecord.of(state, e).counts(jobs) for e in over}, self.num_envs))
        return infos
