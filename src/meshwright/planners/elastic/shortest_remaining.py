"""Shares by remaining time, of jobs whose applications ran before; the value of a share can be learned.

``T(n)`` is a job's remaining time with ``n`` ranks, with a restart where ``n`` differs from now. Its worth is then ``w (T(1) /
T(n))^c``, and the allocation with the largest sum is taken. Weight ``w`` and concavity ``0 < c < 1`` follow from job and
cluster:

    log w = f . (z, z^2, l, z l, z b)        c = sigmoid(g . (1, z, l, b))

These are logarithms: ``z`` of ``T(1)`` over 1,000 s, ``l`` of the active jobs over 16, ``b`` of all remaining device-seconds
over 10,000 a device. With ``f = (-1, 0, 0, 0, 0)`` and ``c`` near one, the sum counts jobs that end a second.

Source:
    Berg et al., "heSRPT: parallel scheduling to minimize mean slowdown", 2020, for why short jobs get more, yet not all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...simulation.elastic.measured import gain, gradient_statistics, step_times
from ...simulation.elastic.rounds import is_active
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import BatchRule
from .known_curves import KnownCurves, known_curves, remaining_s
from .shares import best_shares, pack

NUM_WEIGHTS = 12
BY_HAND = (-1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -3.0, -3.0)
"""``f`` (5), ``g`` (4), then logarithms: of a restart over 30 s, of what a change of share and what a beginning lose."""

_SIZE_S, _JOBS, _BACKLOG_S = 1000.0, 16.0, 10_000.0
_RESTART_S = 30.0


class ShortestRemaining:
    """Shares by remaining time.

    Args:
        weights: what a share is worth, ``(12,)``, as `BY_HAND` or searched for (see `saved_shares`).
    """

    batch_rule = BatchRule.KNOWN

    def __init__(self, weights: Sequence[float] = BY_HAND) -> None:
        assert len(weights) == NUM_WEIGHTS
        self._weights = np.array(weights, np.float64)
        self._curves: KnownCurves | None = None

    def begin(self, simulation: ElasticSimulation) -> None:
        """See `ElasticScheduler`."""
        self._curves = self._curves or known_curves(simulation)

    def allocate(self, simulation: ElasticSimulation) -> NDArray[np.int16]:
        """See `ElasticScheduler`."""
        node_of_rank = simulation.jobs.node_of_rank.copy()
        size = (simulation.cluster.num_nodes, simulation.cluster.devices_per_node)
        _allocate(simulation.apps, simulation.jobs, self._curves, self._weights, node_of_rank, size)
        return node_of_rank


@njit
def _allocate(apps, jobs, curves, weights, node_of_rank, size):  # type: ignore[no-untyped-def]
    num_nodes, devices_per_node = size
    num_devices = num_nodes * devices_per_node
    for e in range(len(jobs.num_jobs)):
        active = np.array([j for j in range(jobs.num_jobs[e]) if is_active(jobs, e, j)], np.int64)
        spans_s = np.empty((len(active), len(curves.num_ranks)))
        for i, j in enumerate(active):
            job_spans(apps, jobs, e, j, curves, spans_s[i])
        choice = np.empty(len(active), np.int64)
        now = jobs.num_ranks[e][active]
        values = share_values(spans_s, now, curves.num_ranks, num_devices, weights)
        best_shares(values, curves.num_ranks, num_devices, choice)
        give(jobs, e, active, choice, curves.num_ranks, node_of_rank, num_nodes, devices_per_node)


@njit
def share_values(spans_s, ranks_now, num_ranks, num_devices, weights):  # type: ignore[no-untyped-def]
    """Return the value of each number of ranks for each job, ``(jobs, o)``.

    Args:
        spans_s: remaining time of each job on each number of ranks, without a restart, ``(jobs, o)``.
        ranks_now: of each job, ``(jobs,)``.
        num_ranks: the first is one rank, ``(o,)``.
        num_devices: of the cluster.
        weights: as `BY_HAND`, ``(12,)``.
    """
    values = np.zeros(spans_s.shape)
    load = math.log(max(len(spans_s), 1) / _JOBS)
    backlog = math.log1p(spans_s[:, 0].sum() / num_devices / _BACKLOG_S)
    restart_s = _RESTART_S * math.exp(weights[9])
    of_change, of_begin = 1.0 - math.exp(min(weights[10], 0.0)), 1.0 - math.exp(min(weights[11], 0.0))
    for i in range(len(spans_s)):
        size = math.log(max(spans_s[i, 0], 1.0) / _SIZE_S)
        log_weight = weights[0] * size + weights[1] * size * size + weights[2] * load + weights[3] * size * load
        log_weight += weights[4] * size * backlog
        concavity = 1.0 / (1.0 + math.exp(-(weights[5] + weights[6] * size + weights[7] * load + weights[8] * backlog)))
        for o in range(len(num_ranks)):
            if num_ranks[o] == ranks_now[i]:
                span_s, factor = spans_s[i, o], 1.0
            else:
                span_s, factor = spans_s[i, o] + restart_s, of_change if ranks_now[i] > 0 else of_begin
            values[i, o] = factor * math.exp(log_weight) * (spans_s[i, 0] / span_s) ** concavity
    return values


@njit
def job_spans(apps, jobs, e, j, curves, spans_s):  # type: ignore[no-untyped-def]
    """Write the remaining seconds on each number of ranks; on the present one where the job is now."""
    a, epoch = jobs.application[e, j], jobs.epoch[e, j]
    left = apps.progress[a, epoch + 1] - jobs.progress[e, j]
    for o in range(len(curves.num_ranks)):
        spans_s[o] = remaining_s(curves, a, epoch, left, o)
        if curves.num_ranks[o] == jobs.num_ranks[e, j]:
            spans_s[o] *= curves.per_s[a, epoch, o] / present_per_s(apps, jobs, e, j)
            spans_s[o] += jobs.restart_s[e, j]


@njit
def give(jobs, e, active, shares, num_ranks, node_of_rank, num_nodes, devices_per_node):  # type: ignore[no-untyped-def]
    """Write the ranks of every job: where it is if its share stays, else the largest first onto the fewest nodes."""
    free = np.full(num_nodes, devices_per_node)
    requested = np.zeros(len(active), np.int64)
    for i, j in enumerate(active):
        requested[i] = num_ranks[shares[i]] if shares[i] >= 0 else 0
        if requested[i] != jobs.num_ranks[e, j]:
            node_of_rank[e, j] = -1
            continue
        for rank in range(requested[i]):
            free[node_of_rank[e, j, rank]] -= 1
    for i in np.argsort(-requested, kind="mergesort"):
        j = active[i]
        if requested[i] > 0 and requested[i] != jobs.num_ranks[e, j]:
            pack(node_of_rank[e, j], requested[i], free, True)


@njit
def present_per_s(apps, jobs, e, j):  # type: ignore[no-untyped-def]
    """Return the progress per second of a job as it runs."""
    a, local, passes = jobs.application[e, j], jobs.local_batch[e, j], jobs.passes[e, j]
    batch = jobs.num_ranks[e, j] * local * (passes + 1)
    step_s, sync_s = step_times(apps, a, jobs.placement[e, j], jobs.num_hosts[e, j], jobs.num_ranks[e, j], local)
    sqr, var = gradient_statistics(apps, a, batch, jobs.epoch[e, j])
    return gain(sqr, var, batch / apps.initial_batch[a]) / (step_s + passes * (step_s - sync_s))
