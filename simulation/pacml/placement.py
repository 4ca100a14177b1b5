"""First-fit placement of a cut job on RAMP's servers.

Legend: ``w`` servers, ``p`` sub-ops. A server holds sub-ops of one job only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...clusters.blocks import blocks
from ...clusters.cluster import Cluster
from .splitting import SplitJob


class Blocks:
    """The blocks of a cluster in first-fit order, by size; a size is scanned once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._of_size: dict[int, NDArray[np.int64]] = {}

    def of_size(self, num_servers: int) -> NDArray[np.int64]:
        """Servers of each block, ``(b, num_servers)``; none where no shape has that size."""
        if num_servers not in self._of_size:
            self._of_size[num_servers] = blocks(self._cluster, num_servers).devices
        return self._of_size[num_servers]


def first_fit(
    job: SplitJob, found: Blocks, is_free: NDArray[np.bool_], memory_bytes: NDArray[np.float64]
) -> NDArray[np.int64] | None:
    """The server of each sub-op, ``(p,)``; None where some op finds no block.

    Ops are placed in the order of `MirroredJob.forward_order`. An op takes the servers of its first parent that is
    cut alike if they have the memory, else the first block of its size of servers that no other job holds. A
    backward sub-op sits with its forward one.

    Args:
        job: what to place.
        found: blocks of the cluster.
        is_free: whether no other job holds the server, ``(w,)``.
        memory_bytes: of each server, ``(w,)``.
    """
    mirrored = job.job
    left = np.where(is_free, memory_bytes, 0.0)
    server = np.empty(job.num_sub_ops, np.int64)
    chosen: list[NDArray[np.int64] | None] = [None] * mirrored.num_forward
    for op in mirrored.forward_order.tolist():
        pieces, needed = int(job.splits[op]), float(mirrored.memory_bytes[op])
        taken = None
        for parent in mirrored.parents[op]:
            servers = chosen[parent]
            if servers is not None and len(servers) == pieces and left[servers].sum() >= needed:
                taken = servers
                break
        if taken is None:
            taken = _first_block(found.of_size(pieces), is_free, left, needed / pieces)
        if taken is None:
            return None
        chosen[op] = taken
        for each in (op, mirrored.num_ops - 1 - op):
            server[job.first[each] : job.first[each + 1]] = taken
            left[taken] -= needed / pieces
    return server


def _first_block(
    servers: NDArray[np.int64], is_free: NDArray[np.bool_], left: NDArray[np.float64], needed: float
) -> NDArray[np.int64] | None:
    fits = (is_free & (left >= needed))[servers].all(axis=1)
    return servers[int(fits.argmax())] if fits.any() else None
