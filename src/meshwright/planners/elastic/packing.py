"""Where the ranks of a job go, given how many."""

from __future__ import annotations

from ...compiled import njit


@njit
def pack(ranks, num_ranks, free):  # type: ignore[no-untyped-def]
    """Put a job onto the nodes with the most free devices, the first one of equals first.

    Args:
        ranks: takes the node of each rank, ``(d,)``.
        num_ranks: of the job; at most as many as there are free devices.
        free: devices of each node, changed in place, ``(nodes,)``.
    """
    ranks[:] = -1
    placed = 0
    while placed < num_ranks:
        node = free.argmax()
        taken = min(free[node], num_ranks - placed)
        ranks[placed : placed + taken] = node
        free[node] -= taken
        placed += taken
