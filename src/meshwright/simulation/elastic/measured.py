"""Figures of an application on a placement with a batch: the time and the progress of a step.

Source:
    Qiao et al., "Pollux", OSDI 2021, sections 3 and 5.3; the interpolations are those of its artifact.
"""

from __future__ import annotations

import math

import numpy as np

from ...compiled import njit

# A point this far outside a tetrahedron counts as inside, as in scipy.
_SLACK = 100 * np.finfo(np.float64).eps
# Ceilings are taken of numbers that rounding may have lifted above a whole one.
ROUNDING = 1e-8
MAX_HOSTS = 16
"""On how many hosts steps were measured."""


@njit
def placement_key(counts, num_hosts):  # type: ignore[no-untyped-def]
    """Return the digits of a placement, turned so that they are the smallest number: rings have no beginning.

    Args:
        counts: ranks on each host, at most 9, ``(hosts,)``.
        num_hosts: at most 18.
    """
    best = np.int64(0)
    for turn in range(num_hosts):
        key = np.int64(0)
        for i in range(num_hosts):
            key = key * 10 + counts[(i + turn) % num_hosts]
        if turn == 0 or key < best:
            best = key
    return best


@njit
def placement_index(apps, a, key):  # type: ignore[no-untyped-def]
    """Return the number of a placement among the measured ones, -1 if it was not measured."""
    num = apps.num_placements[a]
    result = np.searchsorted(apps.placement[a, :num], key)
    return result if result < num and apps.placement[a, result] == key else -1


@njit
def compact_placement(apps, a, num_ranks, devices_per_node):  # type: ignore[no-untyped-def]
    """Return the index and number of hosts of the placement of full hosts and a rest."""
    num_hosts = -(-num_ranks // devices_per_node)
    counts = np.full(num_hosts, devices_per_node)
    counts[num_hosts - 1] = num_ranks - (num_hosts - 1) * devices_per_node
    return placement_index(apps, a, placement_key(counts, num_hosts)), num_hosts


@njit
def step_times(apps, a, placement, num_hosts, num_ranks, local_batch):  # type: ignore[no-untyped-def]
    """Return the seconds of a step and of its wait for gradients; not a number where nothing was measured around it.

    A measured placement is interpolated between its own local batches, any other one between all that was measured at
    like numbers of hosts and ranks.

    Args:
        apps: all applications.
        a: the application.
        placement: by `placement_index`.
        num_hosts: hosts of the job.
        num_ranks: ranks of the job.
        local_batch: samples of a rank.
    """
    if placement < 0:
        return _between(apps, a, min(num_hosts, MAX_HOSTS), num_ranks, local_batch)
    first, end = apps.first_step[a, placement], apps.first_step[a, placement + 1]
    at = apps.local_batch[first:end]
    if local_batch < at[0] or local_batch > at[-1]:
        return math.nan, math.nan
    high = min(max(np.searchsorted(at, local_batch), 1), len(at) - 1)
    low = high - 1
    over, width = float(local_batch - at[low]), float(at[high] - at[low])
    lower, upper = apps.measured_s[first + low], apps.measured_s[first + high]
    return (upper[0] - lower[0]) / width * over + lower[0], (upper[1] - lower[1]) / width * over + lower[1]


@njit
def _between(apps, a, num_hosts, num_ranks, local_batch):  # type: ignore[no-untyped-def]
    """Interpolate linearly in the tetrahedron that holds the point."""
    point = (float(num_hosts), float(num_ranks), float(local_batch))
    share = np.empty(4)
    first, end = apps.first_tetrahedron[a], apps.first_tetrahedron[a + 1]
    s = first
    for _ in range(end - first):
        _coordinates(apps.transform[s], point, share)
        away = -1
        for corner in range(4):
            if not share[corner] >= -_SLACK:
                away = corner
                break
        if away < 0:
            return _blended(apps, s, share)
        if math.isnan(share[away]) or apps.neighbour[s, away] < 0:
            break
        s = apps.neighbour[s, away]
    # The walk fails at flat tetrahedra; then all are tried.
    for s in range(first, end):
        _coordinates(apps.transform[s], point, share)
        if share[0] >= -_SLACK and share[1] >= -_SLACK and share[2] >= -_SLACK and share[3] >= -_SLACK:
            return _blended(apps, s, share)
    return math.nan, math.nan


@njit
def _coordinates(transform, point, share):  # type: ignore[no-untyped-def]
    share[3] = 1.0
    for i in range(3):
        share[i] = 0.0
        for k in range(3):
            share[i] += transform[i, k] * (point[k] - transform[3, k])
        share[3] -= share[i]


@njit
def _blended(apps, s, share):  # type: ignore[no-untyped-def]
    step_s = sync_s = 0.0
    for corner in range(4):
        times = apps.point_s[apps.corner[s, corner]]
        step_s += share[corner] * times[0]
        sync_s += share[corner] * times[1]
    return step_s, sync_s


@njit
def gradient_statistics(apps, a, batch, epoch):  # type: ignore[no-untyped-def]
    """Return the squared norm of the mean gradient and its variance in an epoch; not a number beyond the measured batches."""
    num = apps.num_batches[a]
    if batch < apps.batch[a, 0] or batch > apps.batch[a, num - 1]:
        return math.nan, math.nan
    high = np.searchsorted(apps.batch[a, :num], batch)
    above = apps.batch[a, high]
    if above == batch:
        return apps.grad_sqr[a, high, epoch], apps.grad_var[a, high, epoch]
    below = apps.batch[a, high - 1]
    to, fro, width = float(batch - below), float(above - batch), float(above - below)
    sqr = (to * apps.grad_sqr[a, high, epoch] + fro * apps.grad_sqr[a, high - 1, epoch]) / width
    var = (to * apps.grad_var[a, high, epoch] + fro * apps.grad_var[a, high - 1, epoch]) / width
    return sqr, var


@njit
def gain(sqr: float, var: float, scale: float) -> float:
    """Return the number of steps of the smallest batch that equal one step of a batch ``scale`` times as large."""
    return (var + sqr) / (var / scale + sqr)


@njit
def split_batch(apps, a, batch, num_ranks):  # type: ignore[no-untyped-def]
    """Return the samples of a rank and further accumulated passes for a global batch that the user fixed."""
    local = math.ceil(batch / num_ranks - ROUNDING)
    passes = math.ceil(local / apps.max_local[a] - ROUNDING) - 1
    if num_ranks == 1 and batch > apps.initial_batch[a]:
        passes = max(1, passes)
    per_pass = math.ceil(local / (passes + 1) - ROUNDING)
    return min(per_pass, apps.max_batch[a] // (num_ranks * (passes + 1))), passes
