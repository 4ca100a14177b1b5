"""`JobPartitioningVectorEnv`: many episodes of `JobPartitioning-v0` side by side, stepped by compiled functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ..errors import ConfigError
from ..jobs.graph import JobGraph
from ..simulation.cluster.scenario import Scenario
from ..simulation.cluster.state import OUTCOME_WORDS, Outcome
from . import viewer
from .batch import EpisodeBatch
from .benchmark import BenchmarkSettings, load_benchmark
from .vector_env import BatchVectorEnv, Infos, Observations, counted, note

_WORDS = np.array([OUTCOME_WORDS[outcome] for outcome in sorted(Outcome)], object)


class JobPartitioningVectorEnv(BatchVectorEnv):
    """What ``gymnasium.make_vec("meshwright/JobPartitioning-v0", num_envs=e)`` gives; see `JobPartitioningEnv` for the rest.

    Args:
        num_envs: ``e``.
        benchmark: as of `JobPartitioningEnv`.
        scenario: as of `JobPartitioningEnv`.
        graphs_dir: as of `JobPartitioningEnv`.
        autoreset_mode: see `BatchVectorEnv`.
        render_mode: ``rgb_array`` or ``ansi``: `render` gives a frame for each environment.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as in the base
        "render_modes": ["rgb_array", "ansi"],
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        benchmark: str | Path | BenchmarkSettings = "preset:quickstart",
        *,
        scenario: Scenario | None = None,
        graphs_dir: str | Path | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ConfigError("must be at least 1", field="num_envs", value=num_envs)
        self.benchmark = benchmark if isinstance(benchmark, BenchmarkSettings) else load_benchmark(str(benchmark))
        self.scenario = (
            scenario
            if scenario is not None
            else self.benchmark.build(graphs_dir=None if graphs_dir is None else Path(graphs_dir))
        )
        self._batch = EpisodeBatch(self.scenario, num_envs, self.benchmark.reward)
        self._job = np.zeros(num_envs, np.int64)
        actions = spaces.Discrete(self.scenario.problem.num_candidates)
        super().__init__(num_envs, self._batch.observer.space, actions, autoreset_mode, render_mode)

    def graphs(self) -> tuple[JobGraph, ...]:
        """The job graphs that ``graph_id`` numbers."""
        return self.scenario.workload.graphs

    def action_masks(self) -> NDArray[np.bool_]:
        """Whether each candidate is offered, ``(e, a)``."""
        offered: NDArray[np.bool_] = self._batch.observations.action_mask > 0
        return offered

    def render(self) -> tuple[Any, ...] | None:
        """A frame for each environment; None without a render mode."""
        if self.render_mode is None:
            return None
        draw = viewer.rgb_array if self.render_mode == "rgb_array" else viewer.ansi
        return tuple(draw(self.scenario, self._batch.episodes, e) for e in range(self.num_envs))

    def _counts_first_seed_only(self) -> bool:
        return self.scenario.settings.defects.reset_ignores_seed

    def _begin(self, e: int, rng: np.random.Generator, seed: int | None) -> None:
        self._batch.reset(e, rng)

    def _advance(
        self, actions: NDArray[np.int64], is_stepped: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        self._job[:] = self._batch.episodes.job
        rewards, is_over = self._batch.step(actions, is_stepped)
        return rewards.astype(np.float64), np.zeros(self.num_envs, np.bool_), is_over & is_stepped

    def _current(self) -> Observations:
        return self._batch.observations.current()

    def _begun_infos(self, which: NDArray[np.bool_]) -> Infos:
        return {}

    def _stepped_infos(self, which: NDArray[np.bool_]) -> Infos:
        episodes, settings, infos = self._batch.episodes, self.scenario.settings, Infos()
        outcome = np.where(which, episodes.outcome[np.arange(self.num_envs), np.minimum(self._job, settings.num_jobs - 1)], 0)
        note(infos, "outcome", _WORDS[outcome], which)
        note(infos, "accepted", outcome == Outcome.ACCEPTED, which)
        if settings.queue_capacity > 0:
            note(infos, "num_expired", episodes.num_expired.copy(), which)
        over = np.flatnonzero(self._batch.is_over & which).tolist()
        if over:
            note(
                infos,
                "episode_counts",
                *counted({e: self._batch.record(e).counts(settings.counted) for e in over}, self.num_envs),
            )
        return infos
