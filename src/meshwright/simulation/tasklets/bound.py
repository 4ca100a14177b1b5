"""A lower bound of all placements of tasklets."""

from __future__ import annotations

import numpy as np

from .instance import TaskletInstance


def lower_bound_s(instance: TaskletInstance) -> float:
    """Return a lower bound of the seconds of every grouping.

    Each device exchanges gradients with ``P - 1`` others, at best its nearest. Each has a hand-over to or from another device. So
    one of the ``K - 1`` hand-overs is at least the largest of all devices' least hand-overs, and none is below the least of all.
    """
    n, k = instance.num_devices, instance.num_stages
    near_s = np.sort(instance.reduce_s + np.diag(np.full(n, np.inf)), axis=1)
    data_s = float(near_s[:, : instance.num_replicas - 1].sum(axis=1).max())
    if k == 1:
        return data_s
    least_s = (instance.hand_over_s + np.diag(np.full(n, np.inf))).min(axis=1)
    return data_s + 2.0 * float(least_s.max() + (k - 2) * least_s.min())
