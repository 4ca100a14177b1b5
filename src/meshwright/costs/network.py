"""The network layer: what the links between the ranks of one job can do.

Legend: ``r`` ranks. A `RankNetwork` is the cluster seen from one placement, so that collectives and transfers are
priced by rank and not by device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..clusters.cluster import Cluster
from ..clusters.routes import Carried
from .nccl import Line
from .routing import SHORTEST_PATH, Routing


@dataclass(frozen=True, eq=False)
class RankNetwork:
    """Bandwidth and latency between the ranks of one placement.

    Attributes:
        cluster: where the ranks run.
        devices: device of each rank, ``(r,)``.
        concurrent_groups: groups of ranks that run the same collective at the same time as the priced group, and share its links.
        routing: which paths messages take.
        slowdowns: results of `phases.slowdown` by algorithm and ranks; kept here, since they are the same for every payload.
        lines: results of `nccl.lines` by operation and ranks, for every payload.
    """

    cluster: Cluster
    devices: NDArray[np.int64]
    concurrent_groups: tuple[NDArray[np.int64], ...] = ()
    routing: Routing = SHORTEST_PATH
    slowdowns: dict[tuple[str, bytes], float] = field(default_factory=dict, init=False, repr=False)
    lines: dict[tuple[str, bytes], tuple[Line, ...]] = field(default_factory=dict, init=False, repr=False)
    _carried: dict[tuple[int, int], Carried] = field(default_factory=dict, repr=False)

    @cached_property
    def bandwidth_bytes_per_s(self) -> NDArray[np.float64]:
        """Narrowest link from rank to rank (of all paths together, if spread), one way, infinite on the diagonal, ``(r, r)``."""
        return self.routing.bandwidth_bytes_per_s(self.cluster, self.devices[:, None], self.devices[None, :])

    @cached_property
    def latency_s(self) -> NDArray[np.float64]:
        """Latency of the path from rank to rank, zero on the diagonal, ``(r, r)``."""
        return self.cluster.latency_s(self.devices[:, None], self.devices[None, :])

    @cached_property
    def host(self) -> NDArray[np.int64]:
        """Host of each rank, ``(r,)``."""
        return self.cluster.device_host[self.devices]

    def carried(self, sender: int, receiver: int) -> Carried:
        """Return the links that a message from rank to rank crosses, as indices into the cluster's, with the part on each."""
        pair = sender, receiver
        if pair not in self._carried:
            self._carried[pair] = self.routing.carried(self.cluster, int(self.devices[sender]), int(self.devices[receiver]))
        return self._carried[pair]

    def ring(self, ranks: NDArray[np.int64]) -> tuple[float, float]:
        """Return the bandwidth and latency of the slowest hop of the ring that visits ``ranks`` in their order."""
        following = np.roll(ranks, -1)
        return float(self.bandwidth_bytes_per_s[ranks, following].min()), float(self.latency_s[ranks, following].max())

    def all_pairs(self, ranks: NDArray[np.int64]) -> tuple[float, float]:
        """Return the bandwidth and latency of the slowest pair among ``ranks``."""
        square = np.ix_(ranks, ranks)
        return float(self.bandwidth_bytes_per_s[square].min()), float(self.latency_s[square].max())
