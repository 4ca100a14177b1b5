"""Steps on four hosts with one fast link between a pair: the slow links count, whichever pair is fast.

One stage of two replicas sums its gradients over the fast link, the other one over a slow link, 7.3 s at 0.1 GB/s.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ....clusters.cluster import Cluster
from ....planning.estimate import estimate
from ..published_figures import PublishedFigure

LAYOUT = "dp=2,pp=2,micro_batch=4,global_batch=32"
STEP_S = {(0, 1): "7.66", (2, 3): "7.66"}
"""By the hosts that the fast link joins. The stage that gains more is placed on them (7.76 s for the other one)."""

TOLERANCE = 0.01


def figures() -> Iterator[PublishedFigure]:
    """Yield the step of each of the two numberings of the hosts."""
    for (first, second), step_s in STEP_S.items():
        bandwidth = np.full((4, 4), 0.1)
        bandwidth[[first, second], [second, first]] = 100.0
        result = estimate("zoo:bert-large", matrix_cluster(bandwidth, 1, "v100"), LAYOUT)
        yield PublishedFigure("one fast pair of four", f"hosts {first} and {second}, s", result.step.step_s, step_s, TOLERANCE)


def matrix_cluster(gbytes_per_s: NDArray[np.float64], devices_per_host: int, device: str = "a100") -> Cluster:
    """Return a cluster with a link of its own between every pair of devices, without latency.

    Args:
        gbytes_per_s: bandwidth of each pair, 1e9 bytes a second, ``(n, n)``.
        devices_per_host: of the n devices.
        device: their type.
    """
    links = {"bandwidth_gbytes_per_s": gbytes_per_s.tolist(), "latency_us": np.zeros_like(gbytes_per_s).tolist()}
    topology = {"kind": "matrix", "devices_per_host": devices_per_host, **links}
    return Cluster.from_data({"name": "pairs", "device": device, "topology": topology})
