"""The decision space of a cluster: every block that one job may own, and which blocks exclude each other.

Legend: ``b`` blocks of all degrees, ``n`` devices, ``c`` placement classes. Blocks of one class have the same step
time for every job graph, because every pair of their ranks sees the same bandwidth and latency.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...clusters.blocks import blocks
from ...clusters.cluster import Cluster
from ...clusters.symmetry import signatures
from ...costs.routing import SHORTEST_PATH, Routing
from ...errors import ConfigError
from ..ragged import row_starts

# Pairs of blocks that are looked at in one go, at most, so that memory does not grow with the square of the blocks.
CHUNK_PAIRS = 4_000_000


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The blocks that share a device.

    Attributes:
        start: the neighbours of block ``i`` are ``blocks[start[i]:start[i + 1]]``, ``(b + 1,)``.
        blocks: blocks that share a device with each, itself among them, ascending.
    """

    start: NDArray[np.int64]
    blocks: NDArray[np.int64]

    def of(self, block: int) -> NDArray[np.int64]:
        """Return the neighbours of a block."""
        return self.blocks[self.start[block] : self.start[block + 1]]


@dataclass(frozen=True, eq=False)
class DecisionSpace:
    """All blocks of the allowed degrees, in first-fit scan order within a degree.

    Attributes:
        cluster: where.
        degrees: numbers of ranks that a job may be cut into, ascending.
        degree: index into ``degrees`` of each block, ascending, ``(b,)``.
        start: devices of block ``i`` are ``devices[start[i]:start[i + 1]]`` in rank order, ``(b + 1,)``.
        devices: device numbers.
        shape_names: name of each block's shape, length ``b``.
        shape: number of each block's degree and shape, ascending, ``(b,)``.
        placement_class: class of each block, ``(b,)``.
        representative: one block of each class, ``(c,)``.
    """

    cluster: Cluster
    degrees: tuple[int, ...]
    degree: NDArray[np.int64]
    start: NDArray[np.int64]
    devices: NDArray[np.int64]
    shape_names: tuple[str, ...]
    shape: NDArray[np.int64]
    placement_class: NDArray[np.int64]
    representative: NDArray[np.int64]

    @property
    def num_blocks(self) -> int:
        """Number of blocks, ``b``."""
        return len(self.degree)

    def block(self, index: int) -> NDArray[np.int64]:
        """Return the devices of a block in rank order."""
        return self.devices[self.start[index] : self.start[index + 1]]

    @cached_property
    def neighbours(self) -> Neighbours:
        """The blocks that share a device with each block, found when they are first asked for."""
        return _neighbours(self.start, self.devices, self.cluster.num_devices)

    @property
    def digest(self) -> str:
        """A hash of the cluster and of one block of each class."""
        return files.digest(self.cluster.digest, [self.block(int(i)) for i in self.representative])


def decision_space(cluster: Cluster, max_degree: int, routing: Routing = SHORTEST_PATH) -> DecisionSpace:
    """Return every block of every degree that the cluster has, up to ``max_degree`` ranks.

    Degrees are 1 and the even numbers, as SiP-ML's rule splits ops (see `plans.splitting.op_splits.sip_ml_splits`). Blocks whose
    messages a hash puts on other paths are of different classes.

    Raises:
        ConfigError: ``max_degree`` is below 1 or the cluster has no block at all.
    """
    if max_degree < 1:
        raise ConfigError("must be at least 1", field="max_degree", value=max_degree)
    result = {d: blocks(cluster, d) for d in (1, *range(2, min(max_degree, cluster.num_devices) + 1, 2))}
    result = {d: bs for d, bs in result.items() if len(bs.devices)}
    if not result:
        raise ConfigError("the cluster has no block of any degree", field="max_degree", value=max_degree)
    degrees = tuple(result)
    rows = [row for bs in result.values() for row in bs.devices]
    classes: dict[bytes, int] = {}
    seen = [
        signature + routing.signature(cluster, row)
        for bs in result.values()
        for row, signature in zip(bs.devices, signatures(cluster, bs.devices), strict=True)
    ]
    placement_class = np.array([classes.setdefault(signature, len(classes)) for signature in seen], np.int64)
    representative = np.unique(placement_class, return_index=True)[1]
    return DecisionSpace(
        cluster=cluster,
        degrees=degrees,
        degree=np.repeat(np.arange(len(degrees)), [len(bs.devices) for bs in result.values()]),
        start=row_starts([len(row) for row in rows]),
        devices=np.concatenate(rows).astype(np.int64),
        shape_names=tuple(bs.shape_names[s] for bs in result.values() for s in bs.shape.tolist()),
        shape=_shapes([(d, int(shape)) for d, bs in result.items() for shape in bs.shape]),
        placement_class=placement_class,
        representative=representative.astype(np.int64),
    )


def _shapes(of_block: list[tuple[int, int]]) -> NDArray[np.int64]:
    """Count (degree, shape) pairs by first appearance; equal pairs are consecutive."""
    numbers: dict[tuple[int, int], int] = {}
    return np.array([numbers.setdefault(pair, len(numbers)) for pair in of_block], np.int64)


def _neighbours(start: NDArray[np.int64], devices: NDArray[np.int64], num_devices: int) -> Neighbours:
    from scipy.sparse import csr_array

    num = len(start) - 1
    owns = csr_array((np.ones(len(devices), np.int32), devices, start), shape=(num, num_devices))
    owned_by = owns.T.tocsr()
    # At most as many as blocks of its devices, counted once each.
    most = row_starts(owns @ np.diff(owned_by.indptr))
    results, counts, first = [], [], 0
    while first < num:
        end = max(first + 1, int(np.searchsorted(most, most[first] + CHUNK_PAIRS, side="right")) - 1)
        shared = owns[first:end] @ owned_by
        shared.sort_indices()
        results.append(shared.indices.astype(np.int64))
        counts.append(np.diff(shared.indptr))
        first = end
    return Neighbours(row_starts(np.concatenate(counts)), np.concatenate(results))
