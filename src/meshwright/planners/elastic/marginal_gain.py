"""Devices one by one to the job whose remaining time shrinks most, with the batch that users ask for (Optimus).

It knows the measured step time of each application on compact placements and how many steps a job still takes. Every job
gets a device first, in the order of the workload. A job keeps its places while its number of ranks stays.

Source:
    Peng et al., "Optimus: an efficient dynamic resource scheduler for deep learning clusters", EuroSys 2018, as in the artifact
    of Pollux: step times and steps by measurement, and a gain of zero counts as the end.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...simulation.elastic.measured import ROUNDING, compact_placement, step_times
from ...simulation.elastic.rounds import is_active
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import BatchRule
from .shares import pack


class MarginalGain:
    """Greedy by remaining time."""

    batch_rule = BatchRule.FIXED

    def begin(self, simulation: ElasticSimulation) -> None:
        """See `ElasticScheduler`."""

    def allocate(self, simulation: ElasticSimulation) -> NDArray[np.int16]:
        """See `ElasticScheduler`."""
        node_of_rank = simulation.jobs.node_of_rank.copy()
        cluster, limits = simulation.cluster, simulation.most_ranks
        _allocate(simulation.apps, simulation.jobs, limits, node_of_rank, cluster.num_nodes, cluster.devices_per_node)
        return node_of_rank


@njit
def _allocate(apps, jobs, most_ranks, node_of_rank, num_nodes, devices_per_node):  # type: ignore[no-untyped-def]
    free = np.empty(num_nodes, np.int64)
    num_ranks, gains = np.empty(jobs.application.shape[1], np.int64), np.empty(jobs.application.shape[1])
    for e in range(len(jobs.num_jobs)):
        num_ranks[:], gains[:] = 0, 0.0
        left = num_nodes * devices_per_node
        for j in range(jobs.num_jobs[e]):
            if is_active(jobs, e, j) and left > 0:
                num_ranks[j] = 1
                left -= 1
                gains[j] = _gain(apps, jobs, e, j, 1, most_ranks, devices_per_node) if left > 0 else 0.0
        while left > 0 and gains.max() > 0.0:
            best = gains.argmax()
            num_ranks[best] += 1
            left -= 1
            gains[best] = _gain(apps, jobs, e, best, num_ranks[best], most_ranks, devices_per_node)
        free[:] = devices_per_node
        for j in range(jobs.num_jobs[e]):
            if jobs.num_ranks[e, j] != num_ranks[j]:
                node_of_rank[e, j] = -1
            elif is_active(jobs, e, j):
                for rank in range(num_ranks[j]):
                    free[node_of_rank[e, j, rank]] -= 1
        for j in np.argsort(num_ranks[: jobs.num_jobs[e]], kind="mergesort"):
            if num_ranks[j] > 0 and jobs.num_ranks[e, j] != num_ranks[j]:
                pack(node_of_rank[e, j], num_ranks[j], free)


@njit
def _gain(apps, jobs, e, j, num_ranks, most_ranks, devices_per_node):  # type: ignore[no-untyped-def]
    """Return the seconds that one more rank saves a job."""
    a, batch = jobs.application[e, j], jobs.fixed_batch[e, j]
    if num_ranks + 1 > min(batch // apps.min_local[a], most_ranks[a]):
        return 0.0
    now_s = _compact_step_s(apps, a, batch, num_ranks, devices_per_node)
    return (now_s - _compact_step_s(apps, a, batch, num_ranks + 1, devices_per_node)) * _steps_left(
        apps, a, batch, jobs.epoch[e, j]
    )


@njit
def _steps_left(apps, a, batch, epoch):  # type: ignore[no-untyped-def]
    """Return the steps until the job ends; 1 in its last epoch."""
    last = apps.num_epochs[a] - 1
    if last <= epoch:
        return 1.0
    return _iterations(apps, a, batch, last) - _iterations(apps, a, batch, epoch)


@njit
def _iterations(apps, a, batch, epoch):  # type: ignore[no-untyped-def]
    """Return the steps taken by the end of an epoch, between measured batches in proportion."""
    high = np.searchsorted(apps.batch[a, : apps.num_batches[a]], batch)
    above = apps.batch[a, high]
    if above == batch:
        return apps.iteration[a, high, epoch]
    below = apps.batch[a, high - 1]
    to, fro = batch - below, above - batch
    return (to * apps.iteration[a, high, epoch] + fro * apps.iteration[a, high - 1, epoch]) / (above - below)


@njit
def _compact_step_s(apps, a, batch, num_ranks, devices_per_node):  # type: ignore[no-untyped-def]
    """Return the seconds of a step of a batch on full nodes and a rest, its accumulated passes among them."""
    placement, num_hosts = compact_placement(apps, a, num_ranks, devices_per_node)
    local = math.ceil(batch / num_ranks - ROUNDING)
    passes = math.ceil(local / apps.max_local[a] - ROUNDING) - 1
    if num_ranks == 1:
        passes = max(1, passes)
    per_pass = math.ceil(local / (passes + 1) - ROUNDING)
    per_pass = min(per_pass, apps.max_batch[a] // (num_ranks * (passes + 1)))
    step_s, sync_s = step_times(apps, a, placement, num_hosts, num_ranks, per_pass)
    return step_s + (step_s - sync_s) * passes
