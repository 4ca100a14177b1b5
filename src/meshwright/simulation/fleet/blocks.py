"""Aligned blocks of hosts, as the first world places jobs.

A job on a block has all devices of its hosts, in the block's rank order. Legend: ``b`` blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...numba_records import by_reference


@by_reference
class FleetBlocks(NamedTuple):
    """The blocks of a cluster, in the order in which they are looked at; none where no placement is `PlacementRule.BLOCKS`.

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
    """Whether all devices of a block are free, and of one type."""
    blocks, network = problem.blocks, problem.network
    for i in range(blocks.first_host[block], blocks.first_host[block + 1]):
        host = blocks.hosts[i]
        if free[host] < network.devices_per_host or network.host_type[host] != wanted_type:
            return False
    return True


@njit
def class_of(blocks, hosts, count):  # type: ignore[no-untyped-def]
    """The class of the block that some hosts are, in their order."""
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
