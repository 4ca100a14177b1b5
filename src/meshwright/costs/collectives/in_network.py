"""Reduction inside the switches (SHARP; NVLS inside a host): the host-net co-design.

Every rank sends its buffer once towards the root of a tree of switches, which add up what arrives, and receives the result
once. A switch holds the state of a limited number of trees; groups beyond that take rings on the rails.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...clusters.topologies.clos import ClosTopology
from ...clusters.topologies.host_table import TraceTopology
from ...clusters.topologies.single_host import SingleHostTopology
from ...errors import ConfigError
from ..network import RankNetwork
from ..phases import Phase, Phases, fullest_s, lasting, ring
from .algorithm import Algorithm, Pricer, Ranks
from .prices import Operation
from .staged import INSIDE, RAIL, pipelined

DEFAULT_TREES = 2
"""Trees that a cluster's switches hold at a time by default. An assumption: the number depends on a switch's generation, its
firmware and its subnet manager's settings.
"""

EFFICIENCY = 0.95
"""Share of a link's rate at which switches reduce (Graham et al., "Scalable hierarchical aggregation and reduction protocol:
streaming-aggregation hardware design and evaluation", 2020)."""


SLOT_BYTES = 256.0
"""Size of a packet whose sum a switch holds in one slot: 64 numbers of 4 bytes, an assumption. Slots are those of Sapio et
al., "Scaling distributed machine learning with in-network aggregation", 2021.
"""


class InNetwork(Algorithm):
    """All-reduce in ``latency of the way up and down + S beta``, and broadcast along the same tree.

    Inside one host its switch reduces. Across hosts, each host reduce-scatters, each rank's shard is reduced by the
    network's switches, and each host gathers, chunk by chunk. Other operations gain nothing: what a rank has to send or
    receive is already no more than the payload.

    Attributes:
        num_trees: groups that may have a tree at the same time.
        without_tree: groups (their ranks as bytes) that take a ring, see `allotted`.
        num_slots: packets of `SLOT_BYTES` that a switch keeps of a tree; None: as many as the link wants.

    Source:
        Graham et al., "Scalable hierarchical aggregation protocol (SHARP)", 2016; Klenk et al., "An in-network architecture
        for accelerating shared-memory multiprocessor collectives", 2020.
    """

    name = "in-network"
    co_design = "host-net"

    def __init__(
        self, num_trees: int = DEFAULT_TREES, without_tree: frozenset[bytes] = frozenset(), *, num_slots: int | None = None
    ) -> None:
        self.num_trees = num_trees
        self.without_tree = without_tree
        self.num_slots = num_slots

    def runs_on(self, network: RankNetwork) -> bool:
        """Return whether switches join the devices."""
        topology = network.cluster.topology
        if isinstance(topology, SingleHostTopology):
            return not topology.is_bus
        return isinstance(topology, ClosTopology | TraceTopology)

    def offers(self, operation: Operation) -> bool:
        """Return whether the operation is an all-reduce or a broadcast."""
        return operation in ("all_reduce", "broadcast")

    def allotted(self, demand_bytes: Mapping[bytes, float]) -> InNetwork:
        """Return the algorithm in which the groups that move most have the trees (ties by their order) and the others none.

        Args:
            demand_bytes: what each group (its ranks as bytes) reduces in a step.
        """
        by_demand = sorted(demand_bytes, key=lambda group: -demand_bytes[group])
        return InNetwork(self.num_trees, frozenset(by_demand[self.num_trees :]), num_slots=self.num_slots)

    def pricer(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return the seconds; those of rings on the rails where the group has no tree.

        Raises:
            ConfigError: the cluster has no switches.
        """
        if not self.runs_on(network):
            raise ConfigError("in-network reduction needs a cluster with switches", field="collectives", value=self.name)
        if not self.has_tree(network, ranks, operation):
            return RAIL.pricer(network, ranks, operation)
        table = RAIL.table(network, ranks) if operation == "all_reduce" else None
        latency_s = self._between(network, ranks, 1.0, operation).latency_s
        groups = [self._between(network, group, 1.0, operation) for group in (ranks, *network.concurrent_groups)]
        s_per_byte = fullest_s(network, Phase(0.0, tuple(flow for group in groups for flow in group.flows))) / EFFICIENCY
        if self.num_slots is not None:  # a slot is free again when its packet's sum has come down
            s_per_byte = max(s_per_byte, latency_s / (self.num_slots * SLOT_BYTES))

        def between(payload_bytes: float) -> float:
            return latency_s + payload_bytes * s_per_byte

        return between if table is None else pipelined(RAIL.tiers(network, ranks, table, operation)[INSIDE], between)

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation = "all_reduce") -> Phases:
        """Return each rank's share once out of its card and once into it, with the stages inside the hosts as one phase."""
        if len(ranks) <= 1 or payload_bytes <= 0:
            return ()
        if not self.has_tree(network, ranks, operation):
            return RAIL.phases(network, ranks, payload_bytes, operation)
        flows = self._between(network, ranks, payload_bytes, operation).flows
        if RAIL.table(network, ranks) is not None and operation == "all_reduce":
            before, _, after = RAIL.phases(network, ranks, payload_bytes, "all_reduce")
            flows = before.flows + flows + after.flows
        return lasting(network, (Phase(0.0, flows),), self.time_s(network, ranks, payload_bytes, operation))

    def has_tree(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> bool:
        """Return whether switches reduce for this group."""
        groups_at_once = 1 + len(network.concurrent_groups)
        return self.offers(operation) and groups_at_once <= self.num_trees and ranks.tobytes() not in self.without_tree

    def _between(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation) -> Phase:
        """Let each rank send its shard up and receive it: as much on every card, up and down, as from neighbour to neighbour."""
        table = RAIL.table(network, ranks)
        if table is None or operation != "all_reduce":
            rings, size = [ranks.tolist()], payload_bytes
        else:
            rings, size = table.T.tolist(), payload_bytes / table.shape[1]
        flows = tuple(flow for row in rings for flow in ring(row, size))
        latency_s = float(np.max([network.latency_s[a, b] for a, b, _ in flows]))
        # Up the tree and down again is the way between its two farthest leaves.
        return Phase(latency_s, flows)
