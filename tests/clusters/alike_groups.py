"""Groups of devices sorted by likeness."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meshwright.clusters.cluster import Cluster
from meshwright.clusters.symmetry import signatures


def classes(cluster: Cluster, devices: NDArray[np.int64]) -> NDArray[np.int64]:
    """The class of each group, ``(B,)``: equal groups share a number, in order of first appearance."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(signature, len(numbers)) for signature in signatures(cluster, devices)], np.int64)
