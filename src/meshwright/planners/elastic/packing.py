"""The places of a job's ranks, given their number."""

from ...compiled import njit


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
    """The node with the least free devices of those that hold so many ranks; where none does, the one with the most."""
    node = free.argmax()
    for other in range(len(free)):
        if num_ranks <= free[other] < free[node]:
            node = other
    return node
