"""The menu as the dynamics of a fleet read it: step time of each layout on each class of placements, and its messages.

An *entry* is one layout of one type of job on a fixed number of devices, its *degree*. A job takes ``g`` devices on each of
``degree / g`` hosts, ``g`` a power of two. Hosts are in *groups*: those below one leaf switch, or all of the cluster. The *class*
of a placement is its device type, ``log2 g``, and the binary logarithm of its hosts in each group, rounded down. Where there are
several sites (pods), the classes of hosts in a group appear twice: for jobs of one site, then of several. Ranks are placed host
by host in the entry's rank order: host slot ``i`` holds the ranks at places ``i g`` to ``(i + 1) g - 1``.

Legend: ``T`` types of jobs, ``E`` entries, ``D`` device types, ``F`` flows, ``G`` classes of devices on a host. ``H`` are the
classes of hosts in a group.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...numba_records import by_reference

SERVERS: Final = -1
"""In place of a host slot: the parameter servers outside the cluster, above all of its switches."""


@by_reference
class MenuTable(NamedTuple):
    """Figures of all entries.

    Attributes:
        first_entry: where the entries of each type begin, ``(T + 1,)``; those of a type rise by degree, then by step time.
        degree: devices of each entry, ``(E,)``.
        memory_bytes: of the fullest rank, ``(E,)``.
        step_s: seconds of a step alone on the representative placement of each class, ``(E, D, G, H)``. Infinite where the entry
            has no such placement or does not fit the device type's memory.
        hidden_s: of them, seconds of the busiest link between hosts that lie behind computation, ``(E, D, G, H)``.
        flow_first: where the flows of each entry and ``g`` begin, entry after entry, ``(E G + 1,)``.
        flow_from, flow_to: host slots, or `SERVERS`, ``(F,)``.
        flow_bytes: of a step from one slot to the other, ``(F,)``.
        flow_streams: simultaneous messages from one to the other, ``(F,)``.
        state_bytes: parameters and optimizer of each type, which a restart writes and reads, ``(T,)``.
        work_device_s: device-seconds of a step in the entry and class that waste least, ``(T,)``.
    """

    first_entry: NDArray[np.int64]
    degree: NDArray[np.int64]
    memory_bytes: NDArray[np.float64]
    step_s: NDArray[np.float64]
    hidden_s: NDArray[np.float64]
    flow_first: NDArray[np.int64]
    flow_from: NDArray[np.int64]
    flow_to: NDArray[np.int64]
    flow_bytes: NDArray[np.float64]
    flow_streams: NDArray[np.int64]
    state_bytes: NDArray[np.float64]
    work_device_s: NDArray[np.float64]

    def flows(self, entry: int, devices_per_host: int) -> slice:
        """Return the rows of the flows of an entry on a number of devices of each host, a power of two."""
        place = entry * self.step_s.shape[2] + devices_per_host.bit_length() - 1
        return slice(int(self.flow_first[place]), int(self.flow_first[place + 1]))


@by_reference
class FleetBlocks(NamedTuple):
    """The aligned blocks of a cluster, in the order in which they are looked at; none without a placement `PlacementRule.BLOCKS`.

    A job on a block has all devices of its hosts, in the block's rank order, as the first world places jobs.

    Attributes:
        degree: devices of each, ``(b,)``.
        first_host, hosts: hosts of block ``i`` in rank order are ``hosts[first_host[i]:first_host[i + 1]]``.
        place_class: of each, its place in the last axis of `MenuTable.step_s`, ``(b,)``.
        are_classes: whether the menu was priced by classes of blocks, so that jobs run on blocks only.
    """

    degree: NDArray[np.int64]
    first_host: NDArray[np.int64]
    hosts: NDArray[np.int64]
    place_class: NDArray[np.int64]
    are_classes: bool


NO_BLOCKS = FleetBlocks(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), False)


@njit
def is_free(problem, free, block, wanted_type):  # type: ignore[no-untyped-def]
    """Return whether all devices of a block are free, and of one type."""
    blocks, network = problem.blocks, problem.network
    for i in range(blocks.first_host[block], blocks.first_host[block + 1]):
        host = blocks.hosts[i]
        if free[host] < network.devices_per_host or network.host_type[host] != wanted_type:
            return False
    return True


@njit
def class_of(blocks, hosts, count):  # type: ignore[no-untyped-def]
    """Return the class of the block that some hosts are, in their order."""
    for block in range(len(blocks.degree)):
        first = blocks.first_host[block]
        if blocks.first_host[block + 1] - first != count:
            continue
        same = 0
        for i in range(count):
            same += blocks.hosts[first + i] == hosts[i]
        if same == count:
            return blocks.place_class[block]
    return -1  # no hosts that a job has
