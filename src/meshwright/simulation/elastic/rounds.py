"""The compiled core: a round in which jobs run where they are, and the change of places between two rounds."""

import math

import numpy as np

from ...compiled import njit
from .batch_size import choose_batch
from .fitting import observe
from .measured import gain, gradient_statistics, placement_index, placement_key, step_times
from .state import NOT_YET


@njit
def run_round(apps, jobs, round_s, num_nodes, interference, learns):  # type: ignore[no-untyped-def]
    """Run every job for a round with the ranks that it has.

    Args:
        apps: all applications.
        jobs: all jobs; changed in place.
        round_s: whole seconds.
        num_nodes: of the cluster.
        interference: share of its speed that a job on several nodes loses while it shares one with another such job.
        learns: whether jobs fit their own step times.

    Returns:
        Episode and job with a step outside the measurements, or (-1, -1).
    """
    num_spread = np.zeros(num_nodes, np.int64)
    for e in range(len(jobs.num_jobs)):
        if interference > 0.0:
            _count_spread(jobs, e, num_spread)
        for j in range(jobs.num_jobs[e]):
            if jobs.num_ranks[e, j] == 0 or jobs.completion_s[e, j] != NOT_YET:
                continue
            slowed = 0.0
            if interference > 0.0 and jobs.num_hosts[e, j] > 1:
                for rank in range(jobs.num_ranks[e, j]):
                    if num_spread[jobs.node_of_rank[e, j, rank]] > 1:
                        slowed = interference
            if not _run_job(apps, jobs, e, j, round_s, slowed, learns):
                return e, j
        jobs.now_s[e] += round_s
    return -1, -1


@njit
def _count_spread(jobs, e, num_spread):  # type: ignore[no-untyped-def]
    """Count how many jobs on several nodes each node has."""
    num_spread[:] = 0
    for j in range(jobs.num_jobs[e]):
        if jobs.num_hosts[e, j] > 1:
            for rank in range(jobs.num_ranks[e, j]):
                node = jobs.node_of_rank[e, j, rank]
                if rank == 0 or node != jobs.node_of_rank[e, j, rank - 1]:
                    num_spread[node] += 1


@njit
def _run_job(apps, jobs, e, j, round_s, slowed, learns):  # type: ignore[no-untyped-def]
    """Restart, then epoch by epoch; False where a step was never measured."""
    a, num_ranks, left_s = jobs.application[e, j], jobs.num_ranks[e, j], round_s
    waiting_s = min(jobs.restart_s[e, j], left_s)
    jobs.restart_s[e, j] -= waiting_s
    jobs.service_s[e, j] += waiting_s * num_ranks
    left_s -= waiting_s
    while left_s > 0 and jobs.completion_s[e, j] == NOT_YET:
        local, passes, epoch = jobs.local_batch[e, j], jobs.passes[e, j], jobs.epoch[e, j]
        batch = num_ranks * local * (passes + 1)
        step_s, sync_s = step_times(apps, a, jobs.placement[e, j], jobs.num_hosts[e, j], num_ranks, local)
        sqr, var = gradient_statistics(apps, a, batch, epoch)
        if math.isnan(step_s) or math.isnan(sqr):
            return False
        if learns:
            jobs.grad_sqr[e, j], jobs.grad_var[e, j] = sqr, var
            observe(jobs, e, j, step_s, sync_s)
        worth = gain(sqr, var, batch / apps.initial_batch[a])
        per_s = worth / (step_s + (step_s - sync_s) * passes) * (1.0 - slowed)
        goal = apps.progress[a, epoch + 1]
        if jobs.progress[e, j] + per_s * left_s < goal:
            jobs.progress[e, j] += per_s * left_s
            took_s = left_s
        else:
            took_s = np.int64(np.rint((goal - jobs.progress[e, j]) / per_s))  # as Python rounds, halves to even
            jobs.progress[e, j] = goal
            jobs.epoch[e, j] += 1
            if jobs.epoch[e, j] == apps.num_epochs[a]:
                jobs.completion_s[e, j] = jobs.now_s[e] + round_s - left_s + took_s
        jobs.service_s[e, j] += took_s * num_ranks
        left_s -= took_s
        # Without a model of its own a job chooses the same until its epoch or its ranks are others.
        if jobs.completion_s[e, j] == NOT_YET and (learns or jobs.epoch[e, j] != epoch):
            choose_batch(apps, jobs, e, j)
    return True


@njit
def is_active(jobs, e, j):  # type: ignore[no-untyped-def]
    """Return whether a job has come and not ended."""
    return jobs.submission_s[e, j] <= jobs.now_s[e] and jobs.completion_s[e, j] == NOT_YET


@njit
def move_jobs(apps, jobs, node_of_rank, num_nodes, devices_per_node, restart_s):  # type: ignore[no-untyped-def]
    """Move every active job to the decided ranks; a job whose ranks change restarts.

    Args:
        apps: all applications.
        jobs: all jobs; changed in place.
        node_of_rank: as in the state, ``(e, j, d)``; entries of inactive jobs are ignored.
        num_nodes: of the cluster.
        devices_per_node: of the cluster.
        restart_s: whole seconds.

    Returns:
        Episode and job whose ranks are impossible, or (-1, -1). Causes are an absent node, too many ranks on a node, ranks of a
        node apart, or a rank behind a gap.
    """
    num_devices = node_of_rank.shape[2]
    used = np.zeros(num_nodes, np.int64)
    counts = np.zeros(num_nodes, np.int64)
    for e in range(len(jobs.num_jobs)):
        used[:] = 0
        for j in range(jobs.num_jobs[e]):
            if not is_active(jobs, e, j):
                if jobs.num_ranks[e, j] > 0:
                    _place(apps, jobs, e, j, node_of_rank[e, j, :0], counts)
                continue
            num_ranks = 0
            while num_ranks < num_devices and node_of_rank[e, j, num_ranks] >= 0:
                node = node_of_rank[e, j, num_ranks]
                if node >= num_nodes or used[node] == devices_per_node:
                    return e, j
                used[node] += 1
                num_ranks += 1
            ranks = node_of_rank[e, j, :num_ranks]
            if (node_of_rank[e, j, num_ranks:] >= 0).any():
                return e, j
            if np.array_equal(ranks, jobs.node_of_rank[e, j, : jobs.num_ranks[e, j]]):
                continue
            if not _place(apps, jobs, e, j, ranks, counts):
                return e, j
            if num_ranks > 0:
                choose_batch(apps, jobs, e, j)
                jobs.restart_s[e, j] = restart_s
                jobs.num_restarts[e, j] += 1
    return -1, -1


@njit
def _place(apps, jobs, e, j, ranks, counts):  # type: ignore[no-untyped-def]
    """Write where the ranks are; False where those of a node are apart."""
    num_hosts = 0
    for rank in range(len(ranks)):
        if rank == 0 or ranks[rank] != ranks[rank - 1]:
            for before in range(rank):
                if ranks[before] == ranks[rank]:
                    return False
            counts[num_hosts] = 0
            num_hosts += 1
        counts[num_hosts - 1] += 1
    jobs.node_of_rank[e, j] = -1
    jobs.node_of_rank[e, j, : len(ranks)] = ranks
    jobs.num_ranks[e, j], jobs.num_hosts[e, j] = len(ranks), num_hosts
    jobs.local_batch[e, j] = 0
    if num_hosts > 0:
        key = placement_key(counts, num_hosts)
        jobs.placement[e, j] = placement_index(apps, jobs.application[e, j], key)
    return True
