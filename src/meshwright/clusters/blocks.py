"""Blocks: the sets of devices that one job may own, in the order in which first fit tries them.

Every block is listed once, under the first shape that yields it; its devices are in rank order. Rules:

- RAMP: the published shapes (see `ramp_shapes`), each scanned over all origins ``g, r, s``, without wrap-around.
- torus: axis-parallel boxes without wrap-around, compact shapes first.
- hosts below switches (Clos, trace), up to a host's size: contiguous devices of a host, aligned where the size divides the
  host's.
- hosts below switches, above a host's size: runs of whole neighbouring hosts; other sizes have no block. Runs within a leaf come
  first, then those that cross leaves, then those that cross pods. Among the latter two, runs that begin with a leaf or pod lead.
- single host, matrix: as within one host.

There are at most ``n`` blocks of a size, but for RAMP and torus: there, at most ``n`` of each shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import ClusterError
from .cluster import Cluster
from .topologies.clos import ClosTopology
from .topologies.host_table import TraceTopology
from .topologies.matrix import MatrixTopology
from .topologies.optical import OpticalTopology
from .topologies.ramp import RampTopology
from .topologies.single_host import SingleHostTopology
from .topologies.topology import Topology, frozen
from .topologies.torus import TorusTopology

Scan = list[tuple[str, NDArray[np.int64]]]
"""Blocks by shape: its name and the devices, ``(number, num_devices)``."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """All blocks of one size.

    Attributes:
        devices: devices of each block in rank order, ``(num_blocks, num_devices)``.
        shape: index into ``shape_names`` of each block, ``(num_blocks,)``.
        shape_names: for example ``2x2x1`` or ``one-leaf``.
    """

    devices: NDArray[np.int64]
    shape: NDArray[np.int64]
    shape_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.devices)


def blocks(cluster: Cluster, num_devices: int) -> Blocks:
    """Return every block of a size, in first-fit order; none where the topology has no such shape.

    Args:
        cluster: where.
        num_devices: ranks of the job, one device each.

    Raises:
        ClusterError: a block of no device is asked for.
    """
    if num_devices < 1:
        raise ClusterError("a block has at least one device", field="num_devices", value=num_devices)
    if num_devices > cluster.num_devices:
        scan: Scan = []
    else:
        scan = [
            (name, results) for name, results in _SCANS[type(cluster.topology)](cluster.topology, num_devices) if len(results)
        ]
    devices = np.concatenate([result for _, result in scan] or [np.zeros((0, num_devices), np.int64)])
    names = tuple(dict.fromkeys(name for name, _ in scan))
    shape = np.repeat([names.index(name) for name, _ in scan], [len(result) for _, result in scan]).astype(np.int64)
    # A block's devices ascend within each shape, so equal sets are equal rows.
    first = np.sort(np.unique(devices, axis=0, return_index=True)[1]) if len(devices) else np.zeros(0, np.int64)
    used = [name for i, name in enumerate(names) if (shape[first] == i).any()]
    index = np.array([used.index(name) if name in used else -1 for name in names], np.int64)
    return Blocks(frozen(devices[first], np.int64), frozen(index[shape[first]], np.int64), tuple(used))


def ramp_shapes(shape: tuple[int, int, int], num_devices: int) -> list[tuple[int, int, int]]:
    """Return the shapes of blocks that RAMP's collectives allow, in the published order, repeats included.

    Each factor pair ``(a, i)`` of the size, ``i`` ascending, yields ``sqrt(a) x sqrt(a) x i``, ``a x 1 x i`` and ``a x i x 1``.
    The diagonal, written ``(n, n, -1)``, and the line ``n x 1 x 1`` come last.

    Source:
        The placer of Parsonson et al., "Partitioning distributed compute jobs with reinforcement learning and graph
        neural networks", 2023.
    """
    groups, racks, servers = shape
    results = []
    for i in range(1, num_devices + 1):
        a, rest = divmod(num_devices, i)
        if rest or i > servers:
            continue
        root = math.isqrt(a)
        if root * root == a and root <= min(groups, racks):
            results.append((root, root, i))
        if a <= min(groups, racks):
            results += [(a, 1, i), (a, i, 1)]
    return [*results, (num_devices, num_devices, -1), (num_devices, 1, 1)]


def torus_shapes(shape: tuple[int, ...], num_devices: int) -> list[tuple[int, ...]]:
    """Return boxes of a size that fit a torus, those of the smallest sum of sides first, then lexicographically."""
    return sorted(_factorisations(shape, num_devices), key=lambda box: (sum(box), box))


def _ramp(topology: Topology, num_devices: int) -> Scan:
    assert isinstance(topology, RampTopology)
    scan = []
    for box in ramp_shapes(topology.shape, num_devices):
        if box[2] < 0:
            steps = np.arange(num_devices)
            offsets, extent = np.stack([steps, steps, 0 * steps]), (num_devices, num_devices, 1)
            scan.append((f"diagonal-{num_devices}", _everywhere(topology.shape, extent, offsets)))
        else:
            scan.append((_times(box), _everywhere(topology.shape, box, _inside(box))))
    return scan


def _torus(topology: Topology, num_devices: int) -> Scan:
    assert isinstance(topology, TorusTopology)
    shapes = torus_shapes(topology.shape, num_devices)
    return [(_times(box), _everywhere(topology.shape, box, _inside(box))) for box in shapes]


def _clos(topology: Topology, num_devices: int) -> Scan:
    assert isinstance(topology, ClosTopology)
    return _hosts(topology.hosts.devices_per_host, [topology.host_group], num_devices)


def _trace(topology: Topology, num_devices: int) -> Scan:
    assert isinstance(topology, TraceTopology)
    return _hosts(topology.hosts.devices_per_host, [topology.host_leaf, topology.leaf_pod[topology.host_leaf]], num_devices)


def _optical(topology: Topology, num_devices: int) -> Scan:
    assert isinstance(topology, OpticalTopology)
    return _hosts(topology.hosts.devices_per_host, [np.zeros(topology.hosts.num_hosts, np.int64)], num_devices)


def _line(topology: Topology, num_devices: int) -> Scan:
    total = len(topology.device_host)
    return [("contiguous", _starts(total, num_devices)[:, None] + np.arange(num_devices))]


def _hosts(size: int, tiers: list[NDArray[np.int64]], num_devices: int) -> Scan:
    """Return the blocks of equal hosts.

    Args:
        size: devices of a host.
        tiers: from the leaves up, the switch of each host; nondecreasing.
        num_devices: of a block.
    """
    num_hosts = len(tiers[0])
    if num_devices <= size:
        starts = (np.arange(num_hosts)[:, None] * size + _starts(size, num_devices)).reshape(-1)
        return [("one-host", starts[:, None] + np.arange(num_devices))]
    if num_devices % size:
        return []
    run = num_devices // size
    first = np.arange(num_hosts - run + 1)
    crossed = np.sum([tier[first] != tier[first + run - 1] for tier in tiers], axis=0)
    scan = [("one-leaf", first[crossed == 0])]
    for level, (tier, name) in enumerate(zip(tiers, ["leaves", "pods"], strict=False), start=1):
        begins = np.r_[True, tier[1:] != tier[:-1]][first]
        scan.append((f"{name}-aligned", first[(crossed == level) & begins]))
        scan.append((name, first[(crossed == level) & ~begins]))
    return [(name, hosts[:, None] * size + np.arange(num_devices)) for name, hosts in scan]


def _starts(size: int, num_devices: int) -> NDArray[np.int64]:
    """Return the first devices of the blocks in a row of ``size``: aligned where the blocks tile it, else everywhere."""
    step = num_devices if size % num_devices == 0 else 1
    return np.arange(0, size - num_devices + 1, step)


def _everywhere(shape: tuple[int, ...], extent: tuple[int, ...], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the device ids of a form at each origin where it fits, origins in lexicographic order.

    Args:
        shape: of the whole network.
        extent: of the form along each axis.
        offsets: of the form's devices from its origin, ``(k, num_devices)``.
    """
    room = [whole - part + 1 for whole, part in zip(shape, extent, strict=True)]
    if min(room) < 1:
        return np.zeros((0, offsets.shape[1]), np.int64)
    at = _inside(tuple(room))[:, :, None] + offsets[:, None, :]
    return np.asarray(np.ravel_multi_index(tuple(at), shape), np.int64)


def _inside(box: tuple[int, ...]) -> NDArray[np.int64]:
    """Return all places of a box in lexicographic order, ``(k, size)``."""
    return np.indices(box).reshape(len(box), -1)


def _factorisations(shape: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    if len(shape) == 1:
        if size <= shape[0]:
            yield (size,)
        return
    for side in range(1, min(shape[0], size) + 1):
        if size % side == 0:
            for rest in _factorisations(shape[1:], size // side):
                yield (side, *rest)


def _times(box: tuple[int, ...]) -> str:
    return "x".join(map(str, box))


_SCANS: dict[type[Topology], Callable[[Topology, int], Scan]] = {
    RampTopology: _ramp,
    TorusTopology: _torus,
    ClosTopology: _clos,
    TraceTopology: _trace,
    OpticalTopology: _optical,
    SingleHostTopology: _line,
    MatrixTopology: _line,
}
