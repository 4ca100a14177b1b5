"""A round of elastic jobs: all jobs in the system get their numbers of ranks one after another, first come first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...planners.elastic.shortest_remaining import give
from ...planners.policy import WorldDecision
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import NOT_YET
from .observation import AGE_S, HELD_S, JOB, RESTARTS, SPAN_S, Spans


class ElasticRound:
    """What is decided in a round of one episode; action 0 gives a job no ranks, action ``i`` the ``i``-th number of them.

    Args:
        simulation: reset.
        e: the episode.
        num_ranks: numbers of ranks that are considered, ``(o,)``.
        spans: of this episode.

    Attributes:
        active: jobs in the system, by arrival, ``(a,)``.
        place: of the job that is decided next.
        given: ranks of those decided so far, -1 beyond, ``(a,)``.
    """

    def __init__(self, simulation: ElasticSimulation, e: int, num_ranks: NDArray[np.int64], spans: Spans) -> None:
        self._simulation, self._e, self._num_ranks = simulation, e, num_ranks
        jobs = simulation.jobs
        is_here = (jobs.submission_s[e] <= jobs.now_s[e]) & (jobs.completion_s[e] == NOT_YET) & simulation.is_job[e]
        self.active, self.place = np.flatnonzero(is_here), 0
        self._choice = np.full(len(self.active), -1, np.int64)
        self.given = np.full(len(self.active), -1, np.int64)
        self._spans_s = np.array([spans.of(job) for job in self.active.tolist()]).reshape(-1, len(num_ranks))

    @property
    def is_decided(self) -> bool:
        """Whether every job has its number."""
        return self.place == len(self.active)

    def mask(self) -> NDArray[np.bool_]:
        """Actions that are possible, ``(o + 1,)``: numbers of ranks that are left, and that the job can use."""
        mask = np.zeros(len(self._num_ranks) + 1, np.bool_)
        mask[0] = True
        if not self.is_decided:
            mask[1:] = np.isfinite(self._spans_s[self.place]) & (self._num_ranks <= self._left())
        return mask

    def take(self, action: int) -> None:
        """Decide the next job by a possible action."""
        self._choice[self.place] = action - 1
        self.given[self.place] = self._num_ranks[action - 1] if action > 0 else 0
        self.place += 1

    def give(self, node_of_rank: NDArray[np.int16]) -> None:
        """Write the nodes of every job's ranks."""
        cluster = self._simulation.cluster
        size = cluster.num_nodes, cluster.devices_per_node
        give(self._simulation.jobs, self._e, self.active, self._choice, self._num_ranks, node_of_rank, *size)

    def observation(self, mask: NDArray[np.bool_], num_jobs: int) -> dict[str, Any]:
        """Observe the next job as an agent does, in new arrays of an `elastic_space` for so many jobs."""
        jobs, e, active, devices = self._simulation.jobs, self._e, self.active, self._simulation.cluster.num_devices
        rows, spans = np.zeros((num_jobs, len(JOB)), np.float32), np.zeros((num_jobs, len(self._num_ranks)), np.float32)
        held, age = jobs.service_s[e, active], jobs.now_s[e] - jobs.submission_s[e, active]
        restarts = np.maximum(jobs.num_restarts[e, active], 0)
        features = (
            np.ones(len(active)),
            self.given >= 0,
            jobs.num_ranks[e, active] / devices,
            np.maximum(self.given, 0) / devices,
            jobs.requested_ranks[e, active] / devices,
            held / (held + HELD_S),
            age / (age + AGE_S),
            restarts / (restarts + RESTARTS),
        )
        rows[active] = np.stack(features, axis=1)
        with np.errstate(invalid="ignore"):
            spans[active] = np.where(np.isinf(self._spans_s), 1.0, self._spans_s / (self._spans_s + SPAN_S))
        return {
            "jobs": rows,
            "spans": spans,
            "cluster": np.array([1.0 - np.maximum(self.given, 0).sum() / devices], np.float32),
            "current": 0 if self.is_decided else int(active[self.place]),
            "action_mask": mask.astype(np.int8),
        }

    def decision(self) -> WorldDecision:
        """The next job in plain figures.

        Of each action ``ranks`` and ``remaining_s``, from now to the end with them; the others are the same for all: ``job``,
        ``current_ranks``, ``requested_ranks``, ``age_s``, ``held_device_s``, ``restarts``, ``ranks_left`` and ``num_jobs``.
        """
        return WorldDecision(self._simulation, self.mask(), self._figures)

    def _figures(self) -> dict[str, NDArray[Any]]:
        jobs, e, job = self._simulation.jobs, self._e, self.active[self.place]
        same = {
            "job": job,
            "current_ranks": jobs.num_ranks[e, job],
            "requested_ranks": jobs.requested_ranks[e, job],
            "age_s": jobs.now_s[e] - jobs.submission_s[e, job],
            "held_device_s": jobs.service_s[e, job],
            "restarts": max(0, jobs.num_restarts[e, job]),
            "ranks_left": self._left(),
            "num_jobs": len(self.active),
        }
        own = {"ranks": np.append(0, self._num_ranks), "remaining_s": np.append(np.inf, self._spans_s[self.place])}
        return own | {name: np.full(len(self._num_ranks) + 1, value) for name, value in same.items()}

    def _left(self) -> int:
        return self._simulation.cluster.num_devices - int(np.maximum(self.given, 0).sum())
