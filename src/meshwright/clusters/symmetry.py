"""Signatures of device groups: groups with equal signatures have equal step times, so one simulation serves all.

A signature describes each device of an ordered group and the connection of each pair: bandwidths, latencies, shared hosts and
links. It compares groups of one cluster; a key that outlives the cluster also needs `Cluster.digest`. Traffic of other jobs is
not part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .cluster import Cluster


def signatures(cluster: Cluster, devices: NDArray[np.int64]) -> list[bytes]:
    """Return the signature of each group, 16 bytes.

    Args:
        cluster: where the devices are.
        devices: ``(B, d)``, each row in rank order.
    """
    rows = np.ascontiguousarray(np.hstack([cluster.device_type[devices], cluster.topology.pattern(devices)]))
    width = b"%d;" % devices.shape[1]
    return [hashlib.blake2b(width + row.tobytes(), digest_size=16).digest() for row in rows]


def pair_signature(cluster: Cluster, devices: Sequence[int] | NDArray[np.int64]) -> bytes:
    """Return the signature of one ordered group of devices; see `signatures` for many."""
    return signatures(cluster, np.asarray(devices, np.int64)[None])[0]
