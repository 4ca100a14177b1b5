"""`ElasticEnv`: jobs that change their number of ranks and their batch while they run, with measured speeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ...errors import ConfigError, PolicyError
from ...jobs.readers.elastic import ElasticWorkload
from ...jobs.seeds import FIRST_TRAINING_SEED, FIRST_VALIDATION_SEED
from ...planners.elastic.known_curves import known_curves, rank_choices
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import NOT_YET, BatchRule
from ...simulation.elastic.workload_draws import WorkloadDraws
from ..single import check_render_mode, refuse_options, taken_action
from .benchmark import TRACE, ElasticBenchmark, load_elastic_benchmark, reference_path
from .observation import Spans, elastic_space
from .round import ElasticRound

Observation = dict[str, Any]
Knows = Literal["applications", "profiles"]

FIRST_SEED = {"test": 0, "validation": FIRST_VALIDATION_SEED, "training": FIRST_TRAINING_SEED}
UNIT_S = 1000.0
"""Rewards are in mean completion times of so many seconds."""
MOST_ROUNDS = 20_000
"""An episode is cut after these: a policy may leave a job without ranks for ever."""


class ElasticEnv(gymnasium.Env[Observation, np.int64]):
    """Share a cluster among elastic jobs, round after round.

    **Id.** ``meshwright/ElasticJobs-v0``. One episode plays one workload of the published elastic workloads' kind (Pollux, OSDI
    2021): six applications with measured step times and gradient statistics, a restart of 30 s, rounds of 60 s. The
    measurements are not part of the project; the benchmark says where they lie.

    **Action.** ``Discrete(o + 1)``: how many ranks the current job has in the next round; 0 none, else ``num_ranks[action -
    1]``. In a round all jobs in the system are decided one after another, first come first, while no time passes. Then a job
    whose number stays keeps its nodes, and the others get theirs, the largest first onto the fewest nodes. `action_masks` and
    the key ``action_mask`` tell which numbers fit what is left, and can be used by the job. Any other action counts as none;
    ``info["was_possible"]`` is false then.

    **Observation.** ``Dict``; features lie in [0, 1]. ``j`` jobs of the episode, ``o`` numbers of ranks.

    ===============  =======  =========================================================================================
    key              shape    meaning
    ===============  =======  =========================================================================================
    ``jobs``         (j, 8)   active, decided this round, ranks now, ranks given, ranks that its user asks for, device-
                              seconds held, age, restarts; zeros for jobs that have not come or have ended
    ``spans``        (j, o)   remaining time on each number of ranks, ``s / (s + 3600)``; 1 where it cannot be used
    ``cluster``      (1,)     share of devices still to be given this round
    ``current``      ()       the job that is decided
    ``action_mask``  (o+1,)   1 where an action is possible
    ===============  =======  =========================================================================================

    **Reward.** After the last decision of a round minus the time that jobs spent in the system in it, over the number of jobs, in
    units of 1,000 s; else 0. Sums to minus the mean completion time.

    **Episode end.** Terminated when every job has ended; truncated after 20,000 rounds.

    **Info.** ``now_s``, ``active`` jobs; after a step ``was_possible``; at the end ``mean_completion_s``.

    **Arguments.** ``benchmark`` (name, path or settings: measurements and cluster are taken from it), ``knows``
    (``applications``: remaining times are those of jobs whose applications ran before, and jobs choose the batch that is best by
    what was measured; ``profiles``: what jobs saw of their own steps so far, as for Pollux), ``workload`` (always this one),
    ``split`` of the drawn workloads (``training``), ``num_jobs`` of each (160), ``trace`` from which they are drawn,
    ``render_mode`` (``ansi``).

    **Seeds.** ``reset(seed=N)`` plays drawn workload ``N`` of the split; without a seed the next one is drawn. No published
    workload is among them.

    **Version history.** v0: first.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - as in the base

    def __init__(
        self,
        benchmark: str | Path | ElasticBenchmark = "preset:elastic-published-1.0",
        *,
        knows: Knows = "applications",
        workload: ElasticWorkload | None = None,
        split: str = "training",
        num_jobs: int = 160,
        trace: str | Path | None = None,
        render_mode: str | None = None,
    ) -> None:
        """See the class.

        Raises:
            ConfigError: an argument is none of those that can be, or no folder of data is named.
            InputFileError: a file of the data is missing or malformed.
        """
        check_render_mode(render_mode, self.metadata["render_modes"])
        if knows not in ("applications", "profiles"):
            raise ConfigError("unknown knowledge", field="knows", value=knows, choices=["applications", "profiles"])
        if split not in FIRST_SEED:
            raise ConfigError("unknown split", field="split", value=split, choices=FIRST_SEED)
        if num_jobs < 1:
            raise ConfigError("must be at least 1", field="num_jobs", value=num_jobs)
        chosen = benchmark if isinstance(benchmark, ElasticBenchmark) else load_elastic_benchmark(str(benchmark))
        self.render_mode, self.simulation = render_mode, chosen.simulation()
        self._workload, self._num_jobs, self._first = workload, num_jobs, FIRST_SEED[split]
        self._draws = None if workload is not None else _draws(self.simulation, trace)
        self._rule = BatchRule.KNOWN if knows == "applications" else BatchRule.ESTIMATED
        self.num_ranks = rank_choices(self.simulation.cluster.num_devices)
        self._curves = known_curves(self.simulation) if knows == "applications" else None
        size = num_jobs if workload is None else len(workload.job_names)
        num = len(self.num_ranks)
        self._most_jobs = size
        self.action_space = spaces.Discrete(num + 1)
        self.observation_space: spaces.Space[Any] = elastic_space(size, num)
        self._is_over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Start a workload.

        Raises:
            ConfigError: any option is given; there are none. Or the workload does not fit the cluster.
        """
        super().reset(seed=seed)
        refuse_options(options)
        number = seed if seed is not None else int(self.np_random.integers(2**31))
        workload = self._workload
        if workload is None:
            assert self._draws is not None, "drawn where none is given"
            workload = self._draws.draw(self._first + number, self._num_jobs)
        self.simulation.reset([workload], self._rule)
        self._spans = Spans(self.simulation, self.num_ranks, self._curves)
        self._rounds, self._paid_s, self._is_over = 0, 0.0, False
        self._wait()
        return self._observation(), self._info()

    def step(self, action: np.int64 | int) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Decide the current job.

        Raises:
            PolicyError: the action is no number of one, or the episode is over or has not begun.
        """
        if self._is_over:
            raise PolicyError("the episode is over, or none has begun; reset the environment")
        chosen, was_possible = taken_action(action, self.action_masks())  # no ranks are always possible, and the first
        self._round.take(chosen)
        reward = 0.0
        if self._round.is_decided:
            self._run_round()
            self._wait()
            reward = self._reward()
        truncated = not self._is_over and self._rounds >= MOST_ROUNDS
        terminated, self._is_over = self._is_over, self._is_over or truncated
        return self._observation(), reward, terminated, truncated, {**self._info(), "was_possible": was_possible}

    def action_masks(self) -> NDArray[np.bool_]:
        """Actions that are possible, ``(o + 1,)``; the form that MaskablePPO asks for."""
        if self._is_over:
            return np.asarray(np.arange(len(self.num_ranks) + 1) == 0)
        return self._round.mask()

    def render(self) -> str | None:
        """A line for each job in the system: application, ranks and age; None without a render mode."""
        if self.render_mode is None:
            return None
        jobs, (workload,) = self.simulation.jobs, self.simulation.workloads
        active, given = self._round.active, self._round.given
        lines = [f"{workload.name}: {len(active)} jobs after {jobs.now_s[0]:,} s"]
        for place, job in enumerate(active.tolist()):
            told = f", next {given[place]}" if given[place] >= 0 else ""
            age_s = jobs.now_s[0] - jobs.submission_s[0, job]
            lines.append(f"{workload.job_names[job]}: {jobs.num_ranks[0, job]} ranks{told}, {age_s:,} s old")
        return "\n".join(lines)

    def _run_round(self) -> None:
        """Give what was decided and let a round pass."""
        node_of_rank = self.simulation.jobs.node_of_rank.copy()
        self._round.give(node_of_rank)
        self.simulation.step(node_of_rank)
        self._rounds += 1

    def _wait(self) -> None:
        """Let rounds pass until there is a job to decide, or all have ended."""
        while True:
            self._round = ElasticRound(self.simulation, 0, self.num_ranks, self._spans)
            if len(self._round.active) or self.simulation.is_over:
                break
            self.simulation.step(self.simulation.jobs.node_of_rank.copy())
            self._rounds += 1
        self._is_over = len(self._round.active) == 0

    def _spent_s(self) -> float:
        """What all jobs have spent in the system so far."""
        jobs, (is_job,) = self.simulation.jobs, self.simulation.is_job
        end_s = np.where(jobs.completion_s[0] == NOT_YET, jobs.now_s[0], jobs.completion_s[0])
        return float(np.maximum(end_s - jobs.submission_s[0], 0)[is_job].sum())

    def _reward(self) -> float:
        spent_s, before_s = self._spent_s(), self._paid_s
        self._paid_s = spent_s
        return -(spent_s - before_s) / int(self.simulation.jobs.num_jobs[0]) / UNIT_S

    def _info(self) -> dict[str, Any]:
        jobs = self.simulation.jobs
        info: dict[str, Any] = {"now_s": int(jobs.now_s[0]), "active": len(self._round.active)}
        if self._is_over and self.simulation.is_over:
            info["mean_completion_s"] = self._spent_s() / int(jobs.num_jobs[0])
        return info

    def _observation(self) -> Observation:
        return self._round.observation(self.action_masks(), self._most_jobs)


def _draws(simulation: ElasticSimulation, trace: str | Path | None) -> WorkloadDraws:
    file = trace if trace is not None else reference_path(TRACE, "trace")
    return WorkloadDraws(file, simulation.applications, simulation.apps, simulation.cluster.devices_per_node)
