"""Episodes of elastic jobs side by side, each with a simulation of its own."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError, PolicyError
from ...jobs.readers.elastic import ElasticWorkload
from ...planners.elastic.known_curves import KnownCurves
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import NOT_YET, BatchRule
from ..typed_graph import DecisionArrays, InstanceGraph, Sizes, WorldSpec
from ..world import WorldBatch
from .elastic_round import ElasticRound


@dataclass(frozen=True, eq=False)
class ElasticOutcome:
    """Jobs of one workload, ``j`` of them, as `evaluation.metrics` reads them.

    Attributes:
        submission_s: ``(j,)``.
        completion_s: from the submission of each job to its end, ``(j,)``.
        planner: name of the policy.
        held_device_s: device-seconds that jobs held; None where it is not published.
        num_devices: of the cluster.
        restarts_per_job: mean number of restarts; None where it is not published.
        decision_s: mean seconds in which a scheduler decided a round; None where that is not known.
        note: for readers of results.
    """

    submission_s: NDArray[np.int64]
    completion_s: NDArray[np.int64]
    planner: str
    held_device_s: float | None = None
    num_devices: int = 0
    restarts_per_job: float | None = None
    decision_s: float | None = None
    note: str = ""

    @classmethod
    def from_simulation(cls, simulation: ElasticSimulation, planner: str, decision_s: float | None = None) -> ElasticOutcome:
        """Return what came of the one episode of a simulation that is over."""
        jobs, submission_s = simulation.jobs, simulation.jobs.submission_s[0].copy()
        restarts = float(np.maximum(jobs.num_restarts[0], 0).mean())
        held_s, devices = float(jobs.service_s.sum()), simulation.cluster.num_devices
        return cls(submission_s, jobs.completion_s[0] - submission_s, planner, held_s, devices, restarts, decision_s)

    @property
    def value_s(self) -> float:
        """Mean completion time."""
        return float(self.completion_s.mean())

    @property
    def makespan_s(self) -> float:
        """Time from the first submission to the last end."""
        return float((self.submission_s + self.completion_s).max() - self.submission_s.min())

    @property
    def devices_held(self) -> float | None:
        """Share of device-time that jobs held from the first submission to the last end."""
        return None if self.held_device_s is None else self.held_device_s / (self.num_devices * self.makespan_s)


UNIT_S = 1000.0
"""Rewards are in mean completion times of so many seconds."""
MOST_ROUNDS = 20_000
"""An episode is cut after these: a policy may leave a job without ranks for ever."""


class ElasticEpisodes(WorldBatch[ElasticWorkload]):
    """Each decision gives the next job in the system a number of ranks for the round; see `WorldBatch`.

    In a round all jobs in the system are decided, first come first, while no time passes. Then a job whose number stays keeps
    its nodes, and the others get theirs, the largest first onto the fewest nodes. After the last decision of a round the reward
    is minus the time that jobs spent in the system in the round. It is divided by the number of jobs, in units of 1,000 s. All
    other rewards are 0.

    Args:
        spec: of the world.
        sizes: of the largest workload.
        num_places: of workloads.
        num_episodes: ``E``.
        simulation: of the cluster; each episode has a copy.
        num_ranks: numbers of ranks that are considered, ``(o,)``.
        curves: of applications that ran before; None where jobs are known by their own steps alone.

    Attributes:
        simulations: of each episode.
    """

    is_cut: NDArray[np.bool_]

    def __init__(
        self,
        spec: WorldSpec,
        sizes: Sizes,
        num_places: int,
        num_episodes: int,
        simulation: ElasticSimulation,
        num_ranks: NDArray[np.int64],
        curves: KnownCurves | None,
    ) -> None:
        self.spec, self.instances = spec, [None] * num_places
        self.decisions = DecisionArrays.empty(spec, sizes, num_episodes)
        self.is_live, self.is_cut = np.zeros(num_episodes, np.bool_), np.zeros(num_episodes, np.bool_)
        self.simulations = [copy(simulation) for _ in range(num_episodes)]
        self._num_ranks, self._curves = num_ranks, curves
        self._rule = BatchRule.ESTIMATED if curves is None else BatchRule.KNOWN
        self._rounds: dict[int, ElasticRound] = {}
        self._num_rounds, self._paid_s = np.zeros(num_episodes, np.int64), np.zeros(num_episodes)

    def put(self, at: int, instance: ElasticWorkload) -> None:
        """See `WorldBatch`."""
        self.instances[at] = instance

    def begin(self, e: int, at: int) -> None:
        """See `WorldBatch`.

        Raises:
            ConfigError: the workload does not fit the cluster.
        """
        self.simulations[e].reset([self.instances[at]], self._rule)
        self._num_rounds[e], self._paid_s[e] = 0, 0.0
        self._wait(e)

    def graph(self, e: int) -> InstanceGraph:
        """See `WorldBatch`."""
        return self._rounds[e].graph()

    def step(self, actions: NDArray[np.int64]) -> NDArray[np.float64]:
        """See `WorldBatch`."""
        live, rewards = np.flatnonzero(self.is_live).tolist(), np.zeros(self.num_episodes)
        for e in live:
            share = int(actions[e])
            if not (0 <= share < self.decisions.mask.shape[1] and self.decisions.mask[e, share]):
                raise PolicyError("this job may not have so many ranks", field=f"actions.{e}", value=share)
        for e in live:
            now = self._rounds[e]
            now.take(int(actions[e]))
            if not now.is_decided:
                now.show(self.decisions, e)
                continue
            self.simulations[e].step(now.node_of_rank())
            self._num_rounds[e] += 1
            self._wait(e)
            before_s, self._paid_s[e] = self._paid_s[e], self._spent_s(e)
            rewards[e] = -(self._paid_s[e] - before_s) / int(self.simulations[e].jobs.num_jobs[0]) / UNIT_S
        return rewards

    def _wait(self, e: int) -> None:
        """Let rounds pass until there is a job to decide, or all have ended."""
        simulation = self.simulations[e]
        while True:
            now = ElasticRound(simulation, self._num_ranks, self._curves)
            if len(now.active) or simulation.is_over:
                break
            simulation.step(simulation.jobs.node_of_rank.copy())
            self._num_rounds[e] += 1
        self._rounds[e] = now
        self.is_cut[e] = len(now.active) > 0 and self._num_rounds[e] >= MOST_ROUNDS
        self.is_live[e] = len(now.active) > 0 and not self.is_cut[e]
        now.show(self.decisions, e)

    def _spent_s(self, e: int) -> float:
        """Return what all jobs have spent in the system so far."""
        jobs, (is_job,) = self.simulations[e].jobs, self.simulations[e].is_job
        end_s = np.where(jobs.completion_s[0] == NOT_YET, jobs.now_s[0], jobs.completion_s[0])
        return float(np.maximum(end_s - jobs.submission_s[0], 0)[is_job].sum())

    def value(self, e: int) -> float:
        """See `WorldBatch`: the mean completion time, of a job that has not ended until now, in seconds."""
        return float("inf") if self.is_cut[e] else self._mean_s(e)

    def _mean_s(self, e: int) -> float:
        return self._spent_s(e) / int(self.simulations[e].jobs.num_jobs[0])

    def outcome(self, e: int, name: str) -> ElasticOutcome:
        """See `WorldBatch`."""
        if self.is_cut[e]:
            raise PlanError(f"jobs are not done after {MOST_ROUNDS:,} rounds", field=name, value=self._workload(e).name)
        return ElasticOutcome.from_simulation(self.simulations[e], name)

    def played(self, e: int) -> ElasticSimulation:
        """See `WorldBatch`: the simulation."""
        return self.simulations[e]

    def figures(self, e: int) -> dict[str, NDArray[Any]]:
        """See `WorldBatch`: of `ElasticRound.figures`."""
        return self._rounds[e].figures()

    def info(self, e: int) -> dict[str, Any]:
        """See `WorldBatch`: the workload, the time, jobs in the system, and the mean completion time so far in seconds."""
        about = {"instance": self._workload(e).name, "now_s": int(self.simulations[e].jobs.now_s[0])}
        return about | {"active": len(self._rounds[e].active), "mean_completion_s": self._mean_s(e)}

    def lines(self, e: int) -> list[str]:
        """See `WorldBatch`: a line for each job in the system: application, ranks and age."""
        now, jobs, workload = self._rounds[e], self.simulations[e].jobs, self._workload(e)
        lines = [f"{workload.name}: {len(now.active)} jobs after {jobs.now_s[0]:,} s"]
        for job, ranks in zip(now.active.tolist(), now.ranks().tolist(), strict=True):
            coming = f", next {ranks}" if ranks >= 0 else ""
            age_s = jobs.now_s[0] - jobs.submission_s[0, job]
            lines.append(f"{workload.job_names[job]}: {jobs.num_ranks[0, job]} ranks{coming}, {age_s:,} s old")
        return lines

    def _workload(self, e: int) -> ElasticWorkload:
        (workload,) = self.simulations[e].workloads
        return workload
