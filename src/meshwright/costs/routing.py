"""The flow layer's routes: which of the paths of equal cost a message from device to device takes.

``shortest-path`` is the topology's own path, one for each pair (D-mod-k in a Clos, axis by axis in a torus). ``ecmp`` is one
of all paths of that cost by a hash, ``spread`` all of them with equal parts. Another choice is how flows that meet on a link
slow each other (`CostSettings.contention`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..clusters.cluster import Cluster
from ..clusters.routes import Carried
from ..errors import ConfigError
from .settings import CostSettings

Kind = Literal["shortest-path", "ecmp", "spread"]

MAX_PARTS = 1024
"""Into how many parts the event path cuts a message at most; more paths of equal cost are refused."""

_WORD = 2**64 - 1


@dataclass(frozen=True)
class Routing:
    """How messages find their way.

    Attributes:
        kind: which paths are taken.
        seed: of the hash of ``ecmp``; another one puts flows on other paths.

    Source:
        Hopps, "Analysis of an equal-cost multi-path algorithm", RFC 2992, 2000 (the hash keeps a flow on one path).
    """

    kind: Kind = "shortest-path"
    seed: int = 0

    @classmethod
    def from_settings(cls, costs: CostSettings) -> Routing:
        """Return the routing that settings choose."""
        return cls(costs.routing, costs.routing_seed)

    def paths(self, cluster: Cluster, source: int, target: int) -> tuple[tuple[int, ...], ...]:
        """Return the paths of a message from device to device; each path takes an equal part.

        Raises:
            ConfigError: more than `MAX_PARTS`.
        """
        if self.kind == "shortest-path":
            return (cluster.path(source, target),)
        if self.kind == "ecmp":
            return (cluster.equal_path(source, target, self.number(cluster, source, target)),)
        count = cluster.num_paths(source, target)
        if count > MAX_PARTS:
            problem = f"{count:,} paths of equal cost join two devices of {cluster.name}, {MAX_PARTS:,} parts are the most"
            raise ConfigError(problem, field="costs.routing", value=self.kind)
        return tuple(cluster.equal_path(source, target, number) for number in range(count))

    def carried(self, cluster: Cluster, source: int, target: int) -> Carried:
        """Return each link that a message crosses, with the part of it that crosses the link."""
        if self.kind == "spread":
            return cluster.spread(source, target)
        return tuple((link, 1.0) for link in self.paths(cluster, source, target)[0])

    def bandwidth_bytes_per_s(
        self, cluster: Cluster, source: NDArray[np.int64], target: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the bytes in a second of a message that has its links for itself, elementwise."""
        if self.kind == "spread":
            return cluster.spread_bandwidth_bytes_per_s(source, target)
        return cluster.bandwidth_bytes_per_s(source, target)

    def number(self, cluster: Cluster, source: int, target: int) -> int:
        """Return the path that a hash gives the flows of two devices; every message between them takes it."""
        count = cluster.num_paths(source, target)
        return _mixed(_mixed(_mixed(self.seed) ^ int(source)) ^ int(target)) % count if count > 1 else 0

    def signature(self, cluster: Cluster, devices: NDArray[np.int64]) -> bytes:
        """Return bytes that distinguish ordered groups of equal form: the hashed paths between their places."""
        if self.kind != "ecmp" or not cluster.topology.has_equal_paths:
            return b""
        members = devices.tolist()
        return np.array([self.number(cluster, a, b) for a in members for b in members], np.int64).tobytes()


SHORTEST_PATH = Routing()


def _mixed(word: int) -> int:
    """Mix a word into 64 bits that all depend on every bit of the word.

    Source:
        Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014 (the finaliser of SplitMix64).
    """
    word = (word + 0x9E3779B97F4A7C15) & _WORD
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _WORD
    return word ^ (word >> 31)
