"""Least attained service in two queues, with the ranks and batch that users ask for (Tiresias).

A job begins in the first queue and moves to the end of the second one when its device-seconds reach a threshold. Devices go
to the first queue before the second, within a queue in order of entry; whom the rest does not serve is skipped.

Source:
    Gu et al., "Tiresias: a GPU cluster manager for distributed deep learning", NSDI 2019, as in the artifact of Pollux.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...simulation.elastic.rounds import is_active
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import BatchRule
from .shares import pack

THRESHOLD_S = 16 * 3600
"""Device-seconds after which a job leaves the first queue."""


class AttainedService:
    """Two queues of least attained service."""

    batch_rule = BatchRule.FIXED

    def begin(self, simulation: ElasticSimulation) -> None:
        """Empty the queues."""
        shape = simulation.jobs.application.shape
        self._queue = np.full((shape[0], 2, shape[1]), -1, np.int64)
        self._checked_s, self._ran_s = np.full(shape, -1, np.int64), np.zeros(shape, np.int64)

    def allocate(self, simulation: ElasticSimulation) -> NDArray[np.int16]:
        """See `ElasticScheduler`."""
        node_of_rank = simulation.jobs.node_of_rank.copy()
        cluster = simulation.cluster
        _allocate(
            simulation.jobs, self._queue, self._checked_s, self._ran_s, node_of_rank, cluster.num_nodes, cluster.devices_per_node
        )
        return node_of_rank


@njit
def _allocate(jobs, queue, checked_s, ran_s, node_of_rank, num_nodes, devices_per_node):  # type: ignore[no-untyped-def]
    free = np.empty(num_nodes, np.int64)
    for e in range(len(jobs.num_jobs)):
        _enter_and_leave(jobs, e, queue[e], checked_s[e])
        for j in range(jobs.num_jobs[e]):
            if not is_active(jobs, e, j):
                continue
            if jobs.num_ranks[e, j] > 0:
                ran_s[e, j] += jobs.now_s[e] - checked_s[e, j]
                if ran_s[e, j] * jobs.requested_ranks[e, j] >= THRESHOLD_S and (queue[e, 0] == j).any():
                    _remove(queue[e, 0], j)
                    queue[e, 1, (queue[e, 1] >= 0).sum()] = j
            checked_s[e, j] = jobs.now_s[e]
        left = num_nodes * devices_per_node
        free[:] = devices_per_node
        for level in range(2):
            for j in queue[e, level]:
                if j < 0:
                    break
                if jobs.requested_ranks[e, j] > left:
                    node_of_rank[e, j] = -1
                    continue
                left -= jobs.requested_ranks[e, j]
                for rank in range(jobs.num_ranks[e, j]):
                    free[node_of_rank[e, j, rank]] -= 1
        left = num_nodes * devices_per_node
        for level in range(2):
            for j in queue[e, level]:
                if j < 0:
                    break
                if jobs.requested_ranks[e, j] <= left:
                    left -= jobs.requested_ranks[e, j]
                    if jobs.num_ranks[e, j] == 0:
                        pack(node_of_rank[e, j], jobs.requested_ranks[e, j], free)


@njit
def _enter_and_leave(jobs, e, queue, checked_s):  # type: ignore[no-untyped-def]
    """Take ended jobs from their queue, and enter new ones in the first."""
    for level in range(2):
        for j in queue[level].copy():
            if j >= 0 and not is_active(jobs, e, j):
                _remove(queue[level], j)
    num = (queue[0] >= 0).sum()
    for j in range(jobs.num_jobs[e]):
        if checked_s[j] < 0 and is_active(jobs, e, j):
            queue[0, num] = j
            num += 1


@njit
def _remove(row, j):  # type: ignore[no-untyped-def]
    """Take a job out of a queue; those behind it move up."""
    left = row[row != j]
    row[: len(left)] = left
    row[len(left) :] = -1
