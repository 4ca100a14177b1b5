"""From the value of every number of ranks for every job to the best shares, and from shares to nodes."""

from __future__ import annotations

import numpy as np

from ...compiled import njit


@njit
def best_shares(values, num_ranks, num_devices, chosen):  # type: ignore[no-untyped-def]
    """Which number of ranks each job gets, so that the sum of values is largest: a knapsack, exactly.

    Args:
        values: of each number of ranks for each job, ``(jobs, o)``; no ranks are worth nothing, and what is not above zero is
            never taken.
        num_ranks: ``(o,)``.
        num_devices: that may be shared.
        chosen: takes the index of the number of ranks, -1 for none, ``(jobs,)``.
    """
    num = len(values)
    best = np.zeros(num_devices + 1)
    taken = np.full((num, num_devices + 1), -1, np.int8)
    useful = np.empty(len(num_ranks), np.int64)
    for i in range(num):
        # More ranks that are worth no more than fewer are never taken.
        num_useful, most = 0, 0.0
        for o in range(len(num_ranks)):
            if values[i, o] > most:
                most = values[i, o]
                useful[num_useful] = o
                num_useful += 1
        for devices in range(num_devices, 0, -1):
            most = best[devices]
            for o in useful[:num_useful]:
                if num_ranks[o] > devices:
                    break
                worth = best[devices - num_ranks[o]] + values[i, o]
                if worth > most:
                    most = worth
                    taken[i, devices] = o
            best[devices] = most
    left = num_devices
    for i in range(num - 1, -1, -1):
        chosen[i] = taken[i, left]
        if chosen[i] >= 0:
            left -= num_ranks[chosen[i]]


@njit
def pack_tightly(ranks, num_ranks, free):  # type: ignore[no-untyped-def]
    """Put a job on as few nodes as can be, its rest on the node that it fills best.

    Args:
        ranks: takes the node of each rank, ``(d,)``.
        num_ranks: of the job; at most as many as there are free devices.
        free: devices of each node, changed in place, ``(nodes,)``.
    """
    ranks[:] = -1
    placed = 0
    while placed < num_ranks:
        wanted = num_ranks - placed
        node = -1
        for other in range(len(free)):
            if free[other] == 0:
                continue
            if node < 0:
                node = other
            elif free[other] >= wanted:
                if free[node] < wanted or free[other] < free[node]:
                    node = other
            elif free[node] < wanted and free[other] > free[node]:
                node = other
        taken = min(free[node], wanted)
        ranks[placed : placed + taken] = node
        free[node] -= taken
        placed += taken
