"""NVLink and network cards at the same time: the other half of the intra-inter co-design.

Stages wait for each other: while a host reduces inside, its cards idle. Here the payload goes in chunks, so that one chunk's
stage inside overlaps with another's between the hosts. Within one host, which needs no card, a part of the payload goes over
the cards.
"""

from __future__ import annotations

from ...clusters.topologies.clos import ClosTopology
from ...clusters.topologies.host_table import TraceTopology
from ..network import RankNetwork
from ..phases import Phase, Phases, lasting
from .algorithm import Algorithm, Pricer, Ranks
from .direct import RING
from .prices import Operation
from .staged import RAIL, STAGES, pipelined


class Joint(Algorithm):
    """The stages of `staged` in chunks, or two rings of one host, over its switch and over its cards.

    Source:
        Pipelined stages: Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network
        hierarchy", 2019. Both networks of a host at once: Wang et al., "Blink: fast and generic collectives for
        distributed ML", 2020.
    """

    name = "joint"
    co_design = "intra-inter"

    def runs_on(self, network: RankNetwork) -> bool:
        """Return whether hosts of several devices have network cards."""
        is_host = isinstance(network.cluster.topology, ClosTopology | TraceTopology)
        return is_host and network.cluster.num_devices > network.cluster.num_hosts

    def offers(self, operation: Operation) -> bool:
        """Return whether the operation is any but a broadcast or a send."""
        return operation in STAGES

    def pricer(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return the seconds with the best number of chunks, or the best share of the payload on the cards."""
        table = RAIL.table(network, ranks) if self.offers(operation) else None
        if table is None:
            alone, cards = RING.pricer(network, ranks, operation), self._cards(network, ranks, operation)
            share = self._share_on_cards(network, ranks, operation)

            def seconds(payload_bytes: float) -> float:
                part = share(payload_bytes)
                return alone((1 - part) * payload_bytes) if part < 1 else cards(payload_bytes)

            return seconds
        return pipelined(*RAIL.tiers(network, ranks, table, operation))

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation = "all_reduce") -> Phases:
        """Return all stages as one phase, since their chunks are under way together.

        Traffic over the cards of a single host has no path in the cluster and is left out. It reduces the load of the host's
        switch.
        """
        if len(ranks) <= 1 or payload_bytes <= 0:
            return ()
        table = RAIL.table(network, ranks) if self.offers(operation) else None
        if table is None:
            on_switch = 1 - self._share_on_cards(network, ranks, operation)(payload_bytes)
            return RING.phases(network, ranks, on_switch * payload_bytes, operation)
        stages = RAIL.phases(network, ranks, payload_bytes, operation)
        together = Phase(0.0, tuple(flow for stage in stages for flow in stage.flows))
        return lasting(network, (together,), self.time_s(network, ranks, payload_bytes, operation))

    def _share_on_cards(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return the share of the payload, so that both rings end together.

        None where the cards' latency is longer than all of it takes, all where the switch's is longer than that takes over the
        cards.
        """
        topology = network.cluster.topology
        is_inside = len(set(network.host[ranks].tolist())) == 1
        if not (is_inside and self.offers(operation) and isinstance(topology, ClosTopology | TraceTopology)):
            return lambda _: 0.0
        way, n = RING.own[operation], len(ranks)
        latency = network.ring(ranks)[1] if way.is_along_ring else network.all_pairs(ranks)[1]
        # Both are lines over the size: equal where a + b (1 - x) S = c + d x S.
        a, c = way.formula(1.0, n, float("inf"), latency), way.formula(1.0, n, float("inf"), 2 * topology.hosts.nic_latency_s)
        b = RING.pricer(network, ranks, operation)(1.0) - a
        d = self._cards(network, ranks, operation)(1.0) - c
        return lambda payload_bytes: min(1.0, max(0.0, (a - c + b * payload_bytes) / ((b + d) * payload_bytes)))

    def _cards(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return the seconds of a ring of one host over its cards alone."""
        topology = network.cluster.topology
        if not isinstance(topology, ClosTopology | TraceTopology):
            return lambda _: float("inf")
        hosts = topology.hosts
        sharers = hosts.devices_per_host // hosts.nics_per_host
        by_card: dict[int, int] = {}
        for device in network.devices[ranks].tolist():
            by_card[device // sharers] = by_card.get(device // sharers, 0) + 1
        formula, bandwidth = RING.own[operation].formula, hosts.nic_bandwidth_bytes_per_s / max(by_card.values())
        return lambda payload_bytes: formula(payload_bytes, len(ranks), bandwidth, 2 * hosts.nic_latency_s)
