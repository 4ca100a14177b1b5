"""A cluster every pair of whose devices has a link of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....clusters.cluster import Cluster


def matrix_cluster(gbytes_per_s: NDArray[np.float64], devices_per_host: int, device: str = "a100") -> Cluster:
    """Links without latency.

    Args:
        gbytes_per_s: bandwidth of each pair, 1e9 bytes a second, ``(n, n)``.
        devices_per_host: of the n devices.
        device: their type.
    """
    links = {"bandwidth_gbytes_per_s": gbytes_per_s.tolist(), "latency_us": np.zeros_like(gbytes_per_s).tolist()}
    topology = {"kind": "matrix", "devices_per_host": devices_per_host, **links}
    return Cluster.from_data({"name": "pairs", "device": device, "topology": topology})
