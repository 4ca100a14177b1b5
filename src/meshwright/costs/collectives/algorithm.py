"""The general form of an algorithm: for each operation a time and its flows.

A formula knows one link, that of the slowest hop or pair. Several flows of one collective may cross the same link: ranks share
a network card, an uplink is oversubscribed. The formula then gets the bandwidth that is left, see `phases.slowdown`: nothing
takes less time than its fullest links need. Without shared links the formula applies unchanged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ..flows import transfer
from ..network import RankNetwork
from ..phases import Flow, Phase, Phases, slowdown
from .prices import Operation

Ranks = NDArray[np.int64]
Pricer = Callable[[float], float]
"""Seconds of a payload in bytes."""


class Algorithm(ABC):
    """How ranks do collectives together.

    Attributes:
        name: as YAML spells it.
        co_design: the co-design under which ``estimate --explain`` compares it with a ring; empty where it does not.
    """

    name: str
    co_design: str = ""

    def runs_on(self, network: RankNetwork) -> bool:
        """Return whether the topology offers what the algorithm needs; mostly it does."""
        return True

    def offers(self, operation: Operation) -> bool:
        """Return whether it does an operation in a way of its own; a ring or pairwise exchange does the others."""
        return True

    def foreign_figures(self, cluster: Cluster) -> tuple[str, ...]:
        """Return the figures of other devices that it uses for those of a cluster, in words; a formula of links has none."""
        return ()

    def allotted(self, demand_bytes: Mapping[bytes, float]) -> Algorithm:
        """Return the algorithm for groups that work at the same time, where they share something scarce; by default itself.

        Args:
            demand_bytes: what each group (its ranks as bytes) moves in a step.
        """
        return self

    @abstractmethod
    def pricer(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return seconds of a positive payload, for two ranks or more: what does not depend on the payload is worked out once.

        Raises:
            ConfigError: the cluster does not offer what the algorithm needs.
        """

    @abstractmethod
    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation = "all_reduce") -> Phases:
        """Return the flows of the same collective; none where its time does not depend on what else is sent."""

    def transfer(self, network: RankNetwork, source: int, target: int, payload_bytes: float) -> Phases:
        """Return the flows of one message from rank to rank; see `flows.transfer`."""
        return transfer(network, source, target, payload_bytes)

    def time_s(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation = "all_reduce") -> float:
        """Return the seconds of one collective over ``ranks`` in their order; see `prices` for what the payload is."""
        if len(ranks) <= 1 or payload_bytes <= 0:
            return 0.0
        return self.pricer(network, ranks, operation)(payload_bytes)

    def shared(
        self,
        network: RankNetwork,
        ranks: Ranks,
        operation: Operation,
        carried_bytes: float,
        bandwidth_bytes_per_s: float,
        part: slice = slice(None),
    ) -> float:
        """Return `phases.slowdown` of the phases of one byte, or of a part of them; computed once for every payload.

        Concurrent groups of the network add their flows to each phase.
        """
        key = f"{self.name} {operation} {part.start}", ranks.tobytes()
        if key not in network.slowdowns:
            groups = [self.phases(network, group, 1.0, operation)[part] for group in (ranks, *network.concurrent_groups)]
            together = tuple(
                Phase(side[0].latency_s, tuple(flow for phase in side for flow in phase.flows))
                for side in zip(*groups, strict=True)
            )
            network.slowdowns[key] = slowdown(network, together, carried_bytes, bandwidth_bytes_per_s)
        return network.slowdowns[key]


def step(network: RankNetwork, ranks: Ranks, pairs: list[tuple[int, int]], payload_bytes: float) -> Phase:
    """Return one step in which each pair of places ``(from, to)`` sends the same bytes, with the latency of these pairs."""
    flows = tuple(Flow(int(ranks[a]), int(ranks[b]), payload_bytes) for a, b in pairs)
    return Phase(max((float(network.latency_s[a, b]) for a, b, _ in flows), default=0.0), flows)
