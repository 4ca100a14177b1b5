"""Collectives over optical circuits: a ring or a mesh that is set up once for a job, or a matching of hosts for each phase.

Legend: ``h`` hosts of ``r`` ranks, ``P`` ports of a host, ``B`` bytes/s of all its ports. ``R`` are seconds of a
reconfiguration, ``a`` the latency of a circuit, ``S`` the payload, ``D`` the bytes that a host sends to one other.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...clusters.topologies.optical import OpticalTopology
from ...errors import ConfigError
from ..network import RankNetwork
from ..phases import Phases
from .algorithm import Algorithm, Pricer, Ranks
from .direct import RING
from .prices import Operation
from .staged import HIERARCHICAL

Circuiting = Literal["auto", "once", "per-phase"]


class Circuits(Algorithm):
    """Collectives of hosts whose ports have one partner each.

    Set up once: neighbours on a ring of hosts have all ports for each other. Rings and hierarchies of them take the times of
    their formulas, and no step waits for a circuit. An all-to-all passes from host to host along the ring, ``h (h - 1) / 2 D /
    B``. With a port for each other host it goes directly, ``D P / B + a``.

    Per phase: hosts meet in pairs that change. An all-reduce halves and doubles over them, ``2 sum_k (S / 2^k / B + a + R)``;
    an all-to-all takes ``h - 1`` shifts, ``(h - 1) (D / B + a + R)``. Or half of the ports carry a phase while the others turn
    to the partners of the next one, ``R + sum (max(2 D / B, R) + a)``. The duration of a phase then hides the reconfiguration.

    Attributes:
        circuiting: ``once``, ``per-phase``, or the faster for each size and group.

    Source:
        Set up once: Wang et al., "TopoOpt", 2023, section 3; the matchings are those of halving and doubling and of pairwise
            exchange.
    """

    name = "circuits"

    def __init__(self, circuiting: Circuiting = "auto") -> None:
        self.circuiting = circuiting

    def runs_on(self, network: RankNetwork) -> bool:
        """Return whether the cluster is an optical one."""
        return isinstance(network.cluster.topology, OpticalTopology)

    def pricer(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return the seconds; inside one host those of a ring.

        Raises:
            ConfigError: the cluster has no circuits.
        """
        if not isinstance(network.cluster.topology, OpticalTopology):
            raise ConfigError("circuits need a cluster of kind optical", field="collectives", value=self.name)
        if len(set(network.host[ranks].tolist())) == 1:
            return RING.pricer(network, ranks, operation)
        once, per_phase = self._once(network, ranks, operation), self._per_phase(network, ranks, operation)
        if self.circuiting == "once" or per_phase is None:
            return once
        if self.circuiting == "per-phase":
            return per_phase
        return lambda payload_bytes: min(once(payload_bytes), per_phase(payload_bytes))

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation = "all_reduce") -> Phases:
        """Return the flows of a ring; none of an all-to-all, or where circuits change and nobody else sends over them."""
        if len(set(network.host[ranks].tolist())) == 1 or operation == "send_recv":
            return RING.phases(network, ranks, payload_bytes, operation)
        once, per_phase = self._once(network, ranks, operation), self._per_phase(network, ranks, operation)
        changes = per_phase is not None and (
            self.circuiting == "per-phase" or (self.circuiting == "auto" and per_phase(payload_bytes) < once(payload_bytes))
        )
        return () if changes or operation == "all_to_all" else RING.phases(network, ranks, payload_bytes, operation)

    def _once(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        topology = network.cluster.topology
        assert isinstance(topology, OpticalTopology)
        if operation != "all_to_all":
            models = [model for model in (RING, HIERARCHICAL) if model.offers(operation)]
            pricers = [model.pricer(network, ranks, operation) for model in models or [RING]]
            return lambda payload_bytes: min(pricer(payload_bytes) for pricer in pricers)
        hosts, most, groups_at_once = _on_hosts(network, ranks)
        rate, latency_s = topology.hosts.nic_bandwidth_bytes_per_s / groups_at_once, 2 * topology.hosts.nic_latency_s
        inside = _inside(network, ranks, operation)

        def seconds(payload_bytes: float) -> float:
            pair_bytes = most * most * payload_bytes / len(ranks)
            results = [hosts * (hosts - 1) / 2 * pair_bytes / rate + (hosts - 1) * latency_s]
            if topology.ports_per_host >= hosts - 1:
                results.append(pair_bytes * topology.ports_per_host / rate + latency_s)
            return max(min(results), inside(payload_bytes))

        return seconds

    def _per_phase(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer | None:
        """Return the price; None where an operation is not done in matchings, or hosts have unequal parts of the group."""
        topology = network.cluster.topology
        assert isinstance(topology, OpticalTopology)
        hosts, most, groups_at_once = _on_hosts(network, ranks)
        is_power = hosts & (hosts - 1) == 0
        halves = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
        if hosts * most != len(ranks) or not (operation == "all_to_all" or (operation in halves and is_power)):
            return None
        rate, latency_s = topology.hosts.nic_bandwidth_bytes_per_s / groups_at_once, 2 * topology.hosts.nic_latency_s
        turn_s, inside, has_half = topology.reconfiguration_s, _inside(network, ranks, operation), topology.ports_per_host > 1

        def seconds(payload_bytes: float) -> float:
            if operation == "all_to_all":
                sent = [most * most * payload_bytes / len(ranks)] * (hosts - 1)
            else:
                sent = [payload_bytes / 2**k for k in range(1, hosts.bit_length())] * halves[operation]
            result = sum(size / rate + latency_s + turn_s for size in sent)
            if has_half:
                result = min(result, turn_s + sum(max(2 * size / rate, turn_s) + latency_s for size in sent))
            return max(result, inside(payload_bytes)) if operation == "all_to_all" else result + inside(payload_bytes)

        return seconds


def _on_hosts(network: RankNetwork, ranks: Ranks) -> tuple[int, int, int]:
    """Return the hosts of a group, most of its ranks on one, and how many such groups use the ports of a host at once."""
    counts = np.unique(network.host[ranks], return_counts=True)[1]
    own = set(network.host[ranks].tolist())
    return (
        len(counts),
        int(counts.max()),
        1 + sum(bool(own & set(network.host[group].tolist())) for group in network.concurrent_groups),
    )


def _inside(network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
    """Price the part of an operation among the ranks of one host; zero where there is one rank."""
    first = ranks[network.host[ranks] == network.host[ranks[0]]]
    if len(first) == 1:
        return lambda payload_bytes: 0.0
    alone = RankNetwork(network.cluster, network.devices, (), network.routing)
    pricer = RING.pricer(alone, first, operation)
    share = len(first) / len(ranks) if operation == "all_to_all" else 1.0
    return lambda payload_bytes: pricer(share * payload_bytes)
