"""First-fit placement of a cut job on RAMP's servers.

Legend: ``w`` servers, ``n`` forward ops, ``p`` sub-ops. A server holds sub-ops of one job only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.blocks import blocks
from ...clusters.cluster import Cluster
from ...compiled import njit
from .splitting import SplitJob


class ServerBlocks:
    """The blocks of a cluster in first-fit order, by size; a size is scanned once."""

    def __init__(self, cluster: Cluster) -> None:
        self.memory_bytes = cluster.memory_bytes
        self._cluster = cluster
        self._of_size: dict[int, NDArray[np.int64]] = {}

    def of_size(self, num_servers: int) -> NDArray[np.int64]:
        """Servers of each block, ``(b, num_servers)``; none where no shape has that size."""
        if num_servers not in self._of_size:
            self._of_size[num_servers] = blocks(self._cluster, num_servers).devices
        return self._of_size[num_servers]


class PlacementProblem(NamedTuple):
    """The input of first fit as flat arrays; the same at every occupancy.

    Attributes:
        order: forward ops as they are placed, ``(n,)``.
        pieces: of each forward op, ``(n,)``.
        memory_bytes: of each forward op, ``(n,)``.
        parent_start, parents: parents of op ``i`` are ``parents[parent_start[i]:parent_start[i + 1]]``.
        block_start: where the blocks of ``s`` servers begin in ``block_servers``; entry ``s + 1`` is their end.
        block_servers: servers of all blocks, by size, block after block.
    """

    order: NDArray[np.int64]
    pieces: NDArray[np.int64]
    memory_bytes: NDArray[np.float64]
    parent_start: NDArray[np.int64]
    parents: NDArray[np.int64]
    block_start: NDArray[np.int64]
    block_servers: NDArray[np.int64]


def placement_problem(job: SplitJob, server_blocks: ServerBlocks) -> PlacementProblem:
    """The arrays of a cut job on a cluster."""
    mirrored = job.job
    pieces = job.splits[: mirrored.num_forward]
    used = set(pieces.tolist())
    by_size = [server_blocks.of_size(s).reshape(-1) if s in used else np.zeros(0, np.int64) for s in range(int(pieces.max()) + 1)]
    return PlacementProblem(
        order=mirrored.forward_order,
        pieces=pieces,
        memory_bytes=mirrored.memory_bytes[: mirrored.num_forward],
        parent_start=np.cumsum([0, *map(len, mirrored.parents)]),
        parents=np.array([parent for parents in mirrored.parents for parent in parents], np.int64),
        block_start=np.cumsum([0, *map(len, by_size)]),
        block_servers=np.concatenate(by_size),
    )


def first_fit(
    job: SplitJob, inputs: PlacementProblem, is_free: NDArray[np.bool_], memory_bytes: NDArray[np.float64]
) -> NDArray[np.int64] | None:
    """Return the server of each sub-op, ``(p,)``; None where some op finds no block.

    Ops are placed in the order of `MirroredJob.forward_order`. An op takes the servers of its first parent with the same cut if
    they have the memory. Else it takes the first block of its size that no other job holds. A backward sub-op sits with its
    forward one.

    Args:
        job: to be placed.
        inputs: its arrays.
        is_free: whether no other job holds the server, ``(w,)``.
        memory_bytes: of each server, ``(w,)``.
    """
    choice = _first_fit(*inputs, is_free, memory_bytes)
    if choice[0, 0] < 0:
        return None
    piece = np.arange(job.num_sub_ops) - job.first[job.op]
    return np.asarray(choice[np.minimum(job.op, job.job.num_ops - 1 - job.op), piece], np.int64)


@njit
def _first_fit(  # type: ignore[no-untyped-def]
    order, pieces, memory_bytes, parent_start, parents, block_start, block_servers, is_free, capacity_bytes
):
    """Servers of each forward op, ``(n, most pieces)``; -1 in the first place where some op finds no block."""
    left = np.where(is_free, capacity_bytes, 0.0)
    choice = np.full((len(order), pieces.max()), -1, np.int64)
    for op in order:
        s = pieces[op]
        needed = memory_bytes[op]
        is_placed = False
        for parent in parents[parent_start[op] : parent_start[op + 1]]:
            if pieces[parent] == s:
                room = 0.0
                for server in choice[parent, :s]:
                    room += left[server]
                if room >= needed:
                    choice[op, :s] = choice[parent, :s]
                    is_placed = True
                    break
        if not is_placed:
            for begin in range(block_start[s], block_start[s + 1], s):
                fits = True
                for server in block_servers[begin : begin + s]:
                    if not is_free[server] or left[server] < needed / s:
                        fits = False
                        break
                if fits:
                    choice[op, :s] = block_servers[begin : begin + s]
                    is_placed = True
                    break
        if not is_placed:
            choice[0, 0] = -1
            return choice
        for server in choice[op, :s]:  # the forward and the backward sub-op
            left[server] -= needed / s
            left[server] -= needed / s
    return choice
