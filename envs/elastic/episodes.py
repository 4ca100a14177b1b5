"""`ElasticEpisodes`: episodes of elastic jobs side by side, each with a simulation of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ...errors import ConfigError
from ...jobs.readers.elastic import ElasticWorkload
from ...jobs.seeds import FIRST_TRAINING_SEED, FIRST_VALIDATION_SEED
from ...planners.elastic.known_curves import known_curves, rank_choices
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import NOT_YET, BatchRule
from ...simulation.elastic.workload_draws import WorkloadDraws
from ..episodes import Advanced, BatchedEpisodes, Columns, Observations
from .benchmark import TRACE, ElasticBenchmark, load_elastic_benchmark, reference_path
from .observation import Spans, elastic_space
from .round import ElasticRound

Knows = Literal["applications", "profiles"]

FIRST_SEED = {"test": 0, "validation": FIRST_VALIDATION_SEED, "training": FIRST_TRAINING_SEED}
UNIT_S = 1000.0
"""Rewards are in mean completion times of so many seconds."""
MOST_ROUNDS = 20_000
"""An episode is cut after these: a policy may leave a job without ranks for ever."""


class ElasticEpisodes(BatchedEpisodes):
    """Rounds of elastic jobs, decided one job after another; for the arguments see `ElasticEnv`.

    Attributes:
        simulations: of each episode.
        num_ranks: numbers of ranks that are considered, ``(o,)``.

    Raises:
        ConfigError: an argument is none of those that can be, or no folder of data is named.
        InputFileError: a file of the data is missing or malformed.
    """

    def __init__(
        self,
        num_episodes: int,
        benchmark: str | Path | ElasticBenchmark = "preset:elastic-published-1.0",
        *,
        knows: Knows = "applications",
        workload: ElasticWorkload | None = None,
        split: str = "training",
        num_jobs: int = 160,
        trace: str | Path | None = None,
    ) -> None:
        if knows not in ("applications", "profiles"):
            raise ConfigError("unknown knowledge", field="knows", value=knows, choices=["applications", "profiles"])
        if split not in FIRST_SEED:
            raise ConfigError("unknown split", field="split", value=split, choices=FIRST_SEED)
        if num_jobs < 1:
            raise ConfigError("must be at least 1", field="num_jobs", value=num_jobs)
        chosen = benchmark if isinstance(benchmark, ElasticBenchmark) else load_elastic_benchmark(str(benchmark))
        first = chosen.simulation()
        others = (ElasticSimulation(first.applications, first.cluster) for _ in range(num_episodes - 1))
        self.num_episodes, self.simulations = num_episodes, (first, *others)
        self._workload, self._num_jobs, self._first = workload, num_jobs, FIRST_SEED[split]
        self._draws = None if workload is not None else _draws(first, trace)
        self._rule = BatchRule.KNOWN if knows == "applications" else BatchRule.ESTIMATED
        self.num_ranks = rank_choices(first.cluster.num_devices)
        self._curves = known_curves(first) if knows == "applications" else None
        self._most_jobs = num_jobs if workload is None else len(workload.job_names)
        self._playing: dict[int, _Episode] = {}

    @property
    def space(self) -> spaces.Dict:
        """See `BatchedEpisodes`."""
        return elastic_space(self._most_jobs, len(self.num_ranks))

    @property
    def num_actions(self) -> int:
        """See `BatchedEpisodes`."""
        return len(self.num_ranks) + 1

    def reset(self, e: int, rng: np.random.Generator, seed: int | None = None) -> None:
        """Start a workload.

        Raises:
            ConfigError: it does not fit the cluster.
        """
        number = seed if seed is not None else int(rng.integers(2**31))
        workload, simulation = self._workload, self.simulations[e]
        if workload is None:
            assert self._draws is not None, "drawn where none is given"
            workload = self._draws.draw(self._first + number, self._num_jobs)
        simulation.reset([workload], self._rule)
        self._playing[e] = _Episode(simulation, self.num_ranks, Spans(simulation, self.num_ranks, self._curves))

    def advance(self, actions: NDArray[np.int64]) -> Advanced:
        """See `BatchedEpisodes`."""
        rewards, (terminated, truncated) = np.zeros(self.num_episodes), np.zeros((2, self.num_episodes), np.bool_)
        for e, episode in self._playing.items():
            if not (episode.has_ended or episode.is_cut):
                rewards[e] = episode.decide(int(actions[e]))
            terminated[e], truncated[e] = episode.has_ended, episode.is_cut
        return rewards, terminated, truncated

    def shown(self) -> Observations:
        """See `BatchedEpisodes`."""
        masks = self.masks()
        seen = [self._playing[e].round.observation(masks[e], self._most_jobs) for e in range(self.num_episodes)]
        return {key: np.stack([each[key] for each in seen]) for key in seen[0]}

    def masks(self) -> NDArray[np.bool_]:
        """See `BatchedEpisodes`: no ranks are always possible, and come first."""
        found = np.zeros((self.num_episodes, self.num_actions), np.bool_)
        found[:, 0] = True
        for e, episode in self._playing.items():
            if not (episode.has_ended or episode.is_cut):
                found[e] = episode.round.mask()
        return found

    def infos(self, which: Sequence[int]) -> Columns:
        """See `BatchedEpisodes`: the time, and jobs in the system."""
        now_s, active = np.zeros((2, self.num_episodes), np.int64)
        for e in which:
            now_s[e], active[e] = self.simulations[e].jobs.now_s[0], len(self._playing[e].round.active)
        return {"now_s": now_s, "active": active}

    def last_info(self, e: int) -> dict[str, Any]:
        """See `BatchedEpisodes`: the mean completion time where every job has ended."""
        if not self.simulations[e].is_over:
            return {}
        return {"mean_completion_s": self._playing[e].spent_s() / int(self.simulations[e].jobs.num_jobs[0])}

    def frame(self, e: int, mode: str) -> str:
        """A line for each job in the system: application, ranks and age."""
        simulation, now = self.simulations[e], self._playing[e].round
        jobs, (workload,) = simulation.jobs, simulation.workloads
        lines = [f"{workload.name}: {len(now.active)} jobs after {jobs.now_s[0]:,} s"]
        for place, job in enumerate(now.active.tolist()):
            coming = f", next {now.given[place]}" if now.given[place] >= 0 else ""
            age_s = jobs.now_s[0] - jobs.submission_s[0, job]
            lines.append(f"{workload.job_names[job]}: {jobs.num_ranks[0, job]} ranks{coming}, {age_s:,} s old")
        return "\n".join(lines)


class _Episode:
    """The rounds of one workload.

    Args:
        simulation: reset to it.
        num_ranks: numbers of ranks that are considered, ``(o,)``.
        spans: of its jobs.

    Attributes:
        round: that is decided.
        has_ended: whether all jobs have.
    """

    def __init__(self, simulation: ElasticSimulation, num_ranks: NDArray[np.int64], spans: Spans) -> None:
        self._simulation, self._num_ranks, self._spans = simulation, num_ranks, spans
        self._num_rounds, self._paid_s = 0, 0.0
        self._wait()

    @property
    def is_cut(self) -> bool:
        """Whether it has taken too many rounds."""
        return not self.has_ended and self._num_rounds >= MOST_ROUNDS

    def decide(self, action: int) -> float:
        """Decide the current job, and with the last one let the round pass; the reward."""
        self.round.take(action)
        if not self.round.is_decided:
            return 0.0
        node_of_rank = self._simulation.jobs.node_of_rank.copy()
        self.round.give(node_of_rank)
        self._simulation.step(node_of_rank)
        self._num_rounds += 1
        self._wait()
        before_s, self._paid_s = self._paid_s, self.spent_s()
        return -(self._paid_s - before_s) / int(self._simulation.jobs.num_jobs[0]) / UNIT_S

    def spent_s(self) -> float:
        """What all jobs have spent in the system so far."""
        jobs, (is_job,) = self._simulation.jobs, self._simulation.is_job
        end_s = np.where(jobs.completion_s[0] == NOT_YET, jobs.now_s[0], jobs.completion_s[0])
        return float(np.maximum(end_s - jobs.submission_s[0], 0)[is_job].sum())

    def _wait(self) -> None:
        """Let rounds pass until there is a job to decide, or all have ended."""
        simulation = self._simulation
        while True:
            self.round = ElasticRound(simulation, 0, self._num_ranks, self._spans)
            if len(self.round.active) or simulation.is_over:
                break
            simulation.step(simulation.jobs.node_of_rank.copy())
            self._num_rounds += 1
        self.has_ended = len(self.round.active) == 0


def _draws(simulation: ElasticSimulation, trace: str | Path | None) -> WorkloadDraws:
    file = trace if trace is not None else reference_path(TRACE, "trace")
    return WorkloadDraws(file, simulation.applications, simulation.apps, simulation.cluster.devices_per_node)
