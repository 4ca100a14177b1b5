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
        """The rows of the flows of an entry on a number of devices of each host, a power of two."""
        place = entry * self.step_s.shape[2] + devices_per_host.bit_length() - 1
        return slice(int(self.flow_first[place]), int(self.flow_first[place + 1]))
