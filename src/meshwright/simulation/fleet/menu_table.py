"""The menu of a fleet as flat arrays: for each job type its entries, how long they take and what they send.

Legend: ``t`` job types, ``E`` entries, ``D`` device types, ``G`` sizes of the part of a host (1, 2, 4, ... devices), ``H``
sizes of the part of a group of hosts (1, 2, 4, ... hosts), ``F`` flows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...numba_records import by_reference


@by_reference
class MenuTable(NamedTuple):
    """What each entry takes and sends; an entry is one layout of one job type on a fixed number of devices.

    A job on ``n`` devices takes ``g`` on each of ``n / g`` hosts, ``g`` a power of two. The placement class of an entry is
    its device type, ``log2 g`` and ``log2`` of its hosts per group, rounded down.

    Attributes:
        first_entry: entries of a job type, by degree and then step time, are ``first_entry[t]`` to ``first_entry[t + 1]``,
            ``(t + 1,)``.
        degree: devices, ``(E,)``.
        memory_bytes: of the fullest rank, ``(E,)``.
        step_s: of a step alone, by placement class, infinite where impossible, ``(E, D, G, H)``.
        hidden_s: seconds of network time of a step that lie behind computation, ``(E, D, G, H)``.
        flow_first: flows of an entry with ``g`` devices a host begin at ``flow_first[e * G + log2 g]``, ``(E * G + 1,)``.
        flow_from, flow_to: host slots, ``(F,)``.
        flow_bytes: a step, from the one host to the other, ``(F,)``.
        flow_streams: messages between the two at once, ``(F,)``.
        state_bytes: parameters and optimizer state of a job type, ``(t,)``.
        work_device_s: device-seconds of a step in the entry that wastes least, ``(t,)``.
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
    flow_streams: NDArray[np.float64]
    state_bytes: NDArray[np.float64]
    work_device_s: NDArray[np.float64]
