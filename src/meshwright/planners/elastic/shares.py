"""The best shares of ranks, from the value of every number of ranks for every job, and the places of a job's ranks."""

import numpy as np

from ...compiled import njit


@njit
def best_shares(values, num_ranks, num_devices, choice):  # type: ignore[no-untyped-def]
    """Write the number of ranks of each job for which the sum of values is largest: a knapsack, solved exactly.

    Args:
        values: of each number of ranks for each job, ``(jobs, o)``; no ranks are worth nothing, and what is not above zero is
            never taken.
        num_ranks: ``(o,)``.
        num_devices: that may be shared.
        choice: takes the index of the number of ranks, -1 for none, ``(jobs,)``.
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
        choice[i] = taken[i, left]
        if choice[i] >= 0:
            left -= num_ranks[choice[i]]


@njit
def pack(ranks, num_ranks, free, is_tight=False):  # type: ignore[no-untyped-def]
    """Place a job on the nodes with the most free devices, the first one of equals first.

    Args:
        ranks: takes the node of each rank, ``(d,)``.
        num_ranks: of the job; at most as many as there are free devices.
        free: devices of each node, changed in place, ``(nodes,)``.
        is_tight: whether what fits on one node goes to the node that it fills best.
    """
    ranks[:] = -1
    placed = 0
    while placed < num_ranks:
        target = num_ranks - placed
        node = _best_filled(free, target) if is_tight else free.argmax()
        taken = min(free[node], target)
        ranks[placed : placed + taken] = node
        free[node] -= taken
        placed += taken


@njit
def _best_filled(free, num_ranks):  # type: ignore[no-untyped-def]
    """Return the node with the least free devices of those that hold so many ranks; where none does, the one with the most."""
    node = free.argmax()
    for other in range(len(free)):
        if num_ranks <= free[other] < free[node]:
            node = other
    return node
