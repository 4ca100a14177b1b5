"""A round of elastic jobs: all jobs in the system get their numbers of ranks one after another, first come first.

Legend of shapes: ``j`` jobs in the system, ``o`` numbers of ranks above zero. Share 0 is of no ranks, share ``i`` of the
``i``-th number of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...planners.elastic.expected_remaining import FIRST_S, job_goodputs
from ...planners.elastic.known_curves import KnownCurves
from ...planners.elastic.shortest_remaining import give, job_spans
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import NOT_YET
from ..typed_graph import DecisionArrays, InstanceGraph, Triple

MAY_HAVE: Triple = ("job", "may_have", "share")
MAY_BE_OF: Triple = ("share", "may_be_of", "job")
JOB = ("ranks", "asked", "held", "age", "restarts")
"""Shares of all devices that it has now and that its user asks for; device-seconds held, age and restarts."""
SHARE = ("ranks", "is_none")
MAY = ("span", "speedup", "is_now")
"""Remaining time; how many times shorter it is than on one rank, for each rank; whether the job has this number now."""
ROUND = ("jobs",)
STATE = ("left", "decided")
"""Shares of the devices that are still to be given in this round, and of the jobs that are decided."""

_HELD_S, _AGE_S, _RESTARTS, _SPAN_S, _JOBS = 36_000.0, 3_600.0, 4.0, 3_600.0, 16.0
"""Seconds held ``x`` are observed as ``x / (x + _HELD_S)``, and so on."""


class ElasticRound:
    """The decisions in a round of an episode.

    Args:
        simulation: of one episode, reset.
        num_ranks: numbers of ranks that are considered, ``(o,)``.
        curves: of applications that ran before; None where jobs are known by their own steps alone.

    Attributes:
        active: jobs in the system, by arrival, ``(j,)``.
        place: of the job that is decided next.
        share: of each job, -1 of those that are not decided, ``(j,)``.
    """

    def __init__(self, simulation: ElasticSimulation, num_ranks: NDArray[np.int64], curves: KnownCurves | None) -> None:
        self._simulation, self._num_ranks = simulation, num_ranks
        self.active, self.place = active_jobs(simulation), 0
        self.share = np.full(len(self.active), -1, np.int64)
        spans = [_spans_s(simulation, num_ranks, curves, job) for job in self.active.tolist()]
        self._spans_s = np.array(spans).reshape(-1, len(num_ranks))
        self._may = self._made_may()
        self._left = simulation.cluster.num_devices
        self._graph: InstanceGraph | None = None

    @property
    def is_decided(self) -> bool:
        """Whether every job has its number."""
        return self.place == len(self.active)

    def take(self, share: int) -> None:
        """Decide the next job by a possible share."""
        self.share[self.place] = share
        self._left -= int(self._num_ranks[share - 1]) if share > 0 else 0
        self.place += 1

    def node_of_rank(self) -> NDArray[np.int16]:
        """Return the nodes of every job's ranks, as `ElasticSimulation.step` takes them."""
        cluster, jobs = self._simulation.cluster, self._simulation.jobs
        result = jobs.node_of_rank.copy()
        give(jobs, 0, self.active, self.share - 1, self._num_ranks, result, cluster.num_nodes, cluster.devices_per_node)
        return result

    def ranks(self) -> NDArray[np.int64]:
        """Return the ranks of each job in the next round, -1 of those that are not decided, ``(j,)``."""
        return np.append(np.append(0, self._num_ranks), -1)[self.share]

    def show(self, decisions: DecisionArrays, e: int) -> None:
        """Write the next decision of an episode: the current job with each share."""
        decisions.member[e], decisions.mask[e], decisions.nodes[e], decisions.features[e] = -1, False, -1, 0.0
        decisions.member[e, : len(self.share)] = self.share
        decisions.state[e] = self._left / self._simulation.cluster.num_devices, self.place / max(1, len(self.active))
        if self.is_decided:
            return
        decisions.mask[e, 0] = True
        decisions.mask[e, 1:] = np.isfinite(self._spans_s[self.place]) & (self._num_ranks <= self._left)
        decisions.nodes[e, :, 0], decisions.nodes[e, :, 1] = self.place, np.arange(1 + len(self._num_ranks))
        decisions.nodes[e, ~decisions.mask[e]] = -1
        decisions.features[e, 1:] = self._may[self.place]

    def graph(self) -> InstanceGraph:
        """Return the jobs in the system with the shares that they may have; the same object in all of the round."""
        self._graph = self._graph or self._made_graph()
        return self._graph

    def _made_graph(self) -> InstanceGraph:
        jobs, active, devices = self._simulation.jobs, self.active, self._simulation.cluster.num_devices
        held, age = jobs.service_s[0, active], jobs.now_s[0] - jobs.submission_s[0, active]
        restarts = np.maximum(jobs.num_restarts[0, active], 0)
        features = (
            jobs.num_ranks[0, active] / devices,
            jobs.requested_ranks[0, active] / devices,
            held / (held + _HELD_S),
            age / (age + _AGE_S),
            restarts / (restarts + _RESTARTS),
        )
        ranks = np.append(0, self._num_ranks)
        job, choice = np.nonzero(np.isfinite(self._spans_s))
        ends, may = np.stack([job, choice + 1]), self._may[job, choice]
        return InstanceGraph(
            {
                "job": np.stack(features, axis=1).astype(np.float32),
                "share": np.stack([ranks / devices, ranks == 0], axis=1).astype(np.float32),
            },
            {MAY_HAVE: ends, MAY_BE_OF: ends[::-1].copy()},
            {MAY_HAVE: may, MAY_BE_OF: may},
            np.array([len(active) / (len(active) + _JOBS)], np.float32),
        )

    def _made_may(self) -> NDArray[np.float32]:
        """Return `MAY` of each job with each number of ranks, ``(j, o, 3)``; 0 where it cannot be used."""
        can, spans = np.isfinite(self._spans_s), np.where(np.isfinite(self._spans_s), self._spans_s, 1.0)
        speedup = np.where(can[:, :1], spans[:, :1], 0.0) / np.maximum(spans * self._num_ranks, 1e-9)
        is_now = self._num_ranks == self._simulation.jobs.num_ranks[0, self.active, None]
        result = np.stack([spans / (spans + _SPAN_S), np.minimum(speedup, 4.0), is_now], axis=2)
        return np.where(can[:, :, None], result, 0.0).astype(np.float32)

    def figures(self) -> dict[str, NDArray[Any]]:
        """Return the next job in plain figures.

        Of each action ``ranks`` and ``remaining_s``, from now to the end with them. The others are the same for all actions:
        ``job``, ``current_ranks``, ``requested_ranks``, ``age_s``, ``held_device_s``, ``restarts``, ``ranks_left`` and
        ``num_jobs``.
        """
        jobs, job = self._simulation.jobs, self.active[self.place]
        same = {
            "job": job,
            "current_ranks": jobs.num_ranks[0, job],
            "requested_ranks": jobs.requested_ranks[0, job],
            "age_s": jobs.now_s[0] - jobs.submission_s[0, job],
            "held_device_s": jobs.service_s[0, job],
            "restarts": max(0, jobs.num_restarts[0, job]),
            "ranks_left": self._left,
            "num_jobs": len(self.active),
        }
        own = {"ranks": np.append(0, self._num_ranks), "remaining_s": np.append(np.inf, self._spans_s[self.place])}
        return own | {name: np.full(len(self._num_ranks) + 1, value) for name, value in same.items()}


def active_jobs(simulation: ElasticSimulation) -> NDArray[np.int64]:
    """Return the jobs in the system of the first episode, by arrival, ``(j,)``."""
    jobs = simulation.jobs
    is_here = (jobs.submission_s[0] <= jobs.now_s[0]) & (jobs.completion_s[0] == NOT_YET) & simulation.is_job[0]
    return np.flatnonzero(is_here)


def _spans_s(
    simulation: ElasticSimulation, num_ranks: NDArray[np.int64], curves: KnownCurves | None, job: int
) -> NDArray[np.float64]:
    """Return seconds to a job's end on each number of ranks, infinite where it cannot be used, ``(o,)``.

    Known by its own steps alone a job is expected to take as long again as it has had, as by `ExpectedRemaining`.
    """
    jobs, result = simulation.jobs, np.full(len(num_ranks), np.inf)
    if curves is not None:
        job_spans(simulation.apps, jobs, 0, job, curves, result)
        return result
    goodputs, most = np.zeros(len(num_ranks)), int(simulation.most_ranks[jobs.application[0, job]])
    job_goodputs(simulation.apps, jobs, 0, job, most, num_ranks, simulation.cluster.devices_per_node, goodputs)
    can = goodputs > 0.0
    result[can] = (FIRST_S + jobs.service_s[0, job]) * goodputs[0] / goodputs[can]
    return result
