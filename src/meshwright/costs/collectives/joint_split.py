"""One message between hosts over both networks: part of it by the ranks' own cards, part of it by cards that idle.

A rank that alone leaves its host has one card, while the links inside the host lead to all the others. The second part crosses
those links, another device's card, the card of that device's counterpart on the other host, and the links there.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from ...clusters.topologies.clos import ClosTopology
from ...clusters.topologies.host_table import TraceTopology
from ..network import RankNetwork
from ..phases import Flow, Phase, Phases, fullest_s, lasting
from .algorithm import Algorithm, Pricer, Ranks
from .direct import RING
from .joint import Joint
from .prices import Operation
from .staged import BETWEEN, CHUNKS, RAIL, STAGES

FAR_BYTES = 2.0**40
"""At so many bytes the slope of a line is read."""


class WayLine(NamedTuple):
    """Seconds as a line over the bytes and the share ``x`` of them on the own cards.

    Attributes:
        latency_s: whatever is sent.
        own_s: for each byte on the own cards.
        idle_s: for each byte on the idle ones.
    """

    latency_s: float
    own_s: float
    idle_s: float


class TwoWays(NamedTuple):
    """A group's two ways between hosts.

    Attributes:
        lines: what takes at least so long: the own cards, the idle ones, and links that both ways cross.
        inside_s: for each byte on the idle cards, of the links inside the hosts.
    """

    lines: tuple[WayLine, ...]
    inside_s: float

    def share(self, payload_bytes: float) -> float:
        """Return the share of the payload on the own cards for which the slowest line takes least."""
        places = {0.0, 1.0}
        for number, one in enumerate(self.lines):
            for other in self.lines[number + 1 :]:
                steepness = (one.own_s - one.idle_s - other.own_s + other.idle_s) * payload_bytes
                if steepness != 0:
                    higher = other.latency_s - one.latency_s + (other.idle_s - one.idle_s) * payload_bytes
                    places.add(min(1.0, max(0.0, higher / steepness)))
        return min(sorted(places, reverse=True), key=lambda x: self.seconds(payload_bytes, x))

    def seconds(self, payload_bytes: float, share: float) -> float:
        """Return the seconds between the hosts; a way that nothing takes costs nothing."""
        used = [self.lines[0]] if share == 1 else [self.lines[1]] if share == 0 else self.lines
        return max(line.latency_s + payload_bytes * (share * line.own_s + (1 - share) * line.idle_s) for line in used)


class JointSplit(Algorithm):
    """`Joint`, and between hosts a split: ``min over x of max(a1 + x S b1, a2 + (1 - x) S b2)``.

    ``a1 + S b1`` is the time of the own cards, ``a2 + S b2`` that of the idle ones. The latter have two more hops inside the
    hosts for each hop between them, and the narrowest of links inside, cards and uplinks. Where both cross the same uplinks,
    these need their time for both parts. A card is busy if the group or a concurrent group of the same call uses it; other
    groups and jobs are unknown here.

    Source:
        The balance of two networks: Wang et al., "Blink: fast and generic collectives for distributed ML", 2020, section 4.4.
            Other devices' cards: NVIDIA, "Doubling all2all performance with NVIDIA Collective Communication Library 2.12",
            2022 (PXN).
    """

    name = "joint-split"
    co_design = "intra-inter"

    def runs_on(self, network: RankNetwork) -> bool:
        """Return whether hosts of several devices have network cards."""
        return JOINT.runs_on(network)

    def offers(self, operation: Operation) -> bool:
        """Return whether the operation is any but a broadcast."""
        return operation in STAGES or operation == "send_recv"

    def pricer(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return the seconds at the best share, never more than all on the own cards."""
        alone, split = JOINT.pricer(network, ranks, operation), self.split(network, ranks, operation)
        if split is None:
            return alone
        table = RAIL.table(network, ranks) if operation in STAGES else None
        if table is None:
            return lambda payload_bytes: split.seconds(payload_bytes, split.share(payload_bytes))
        inside, _ = RAIL.tiers(network, ranks, table, operation)

        def seconds(payload_bytes: float) -> float:
            results = [alone(payload_bytes)]
            for chunks in CHUNKS:
                size = payload_bytes / chunks
                share = split.share(size)
                both = inside(size) + (1 - share) * size * split.inside_s, split.seconds(size, share)
                results.append(sum(both) + (chunks - 1) * max(both))
            return min(results)

        return seconds

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation = "all_reduce") -> Phases:
        """Return the flows of `Joint`, reduced to the share of the own cards.

        Traffic over idle cards starts at devices that need not be the job's and is left out.
        """
        result = JOINT.phases(network, ranks, payload_bytes, operation)
        split = self.split(network, ranks, operation) if result else None
        if split is None or (operation in STAGES and RAIL.table(network, ranks) is not None):
            return result
        return self._own_part(network, result[0].flows, split, payload_bytes)

    def transfer(self, network: RankNetwork, source: int, target: int, payload_bytes: float) -> Phases:
        """Return the flows of one message from rank to rank, reduced to the share of its own card."""
        result = super().transfer(network, source, target, payload_bytes)
        split = self.split(network, np.array([source, target]), "send_recv") if result else None
        return result if split is None else self._own_part(network, result[0].flows, split, payload_bytes)

    def split(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> TwoWays | None:
        """Return the two ways of a group; None if it stays within a host, has unequal parts of hosts, or leaves no card idle."""
        if not (self.runs_on(network) and self.offers(operation)) or len(set(network.host[ranks].tolist())) == 1:
            return None
        table = RAIL.table(network, ranks) if operation in STAGES else None
        if table is None and len(set(network.host[ranks].tolist())) < len(ranks):
            return None
        idle = _idle_devices(network, ranks)
        if idle is None:
            return None
        groups = [self._between(network, group, operation) for group in (ranks, *network.concurrent_groups)]
        if any(group is None for group in groups):
            return None
        own = [flow for group in groups if group is not None for flow in group]
        wide, relayed = _by_idle(network, own, idle)
        between = (
            RING.pricer(network, ranks, operation) if table is None else RAIL.tiers(network, ranks, table, operation)[BETWEEN]
        )
        own_s = (between(2 * FAR_BYTES) - between(FAR_BYTES)) / FAR_BYTES
        latency_s = between(1.0) - own_s
        hop_s, more_s = _hops_s(network, wide, own, relayed)
        idle_s = fullest_s(wide, Phase(0.0, relayed))
        lines = [WayLine(latency_s, own_s, 0.0), WayLine(latency_s * (1 + more_s / hop_s) if hop_s else 0.0, 0.0, idle_s)]
        inside = tuple(flow for flow in relayed if wide.host[flow.sender] == wide.host[flow.receiver])
        lines += _shared(wide, own, relayed)
        return TwoWays(tuple(lines), fullest_s(wide, Phase(0.0, inside)))

    def _between(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> tuple[Flow, ...] | None:
        """Return the flows of one byte between hosts."""
        table = RAIL.table(network, ranks) if operation in STAGES else None
        if table is None:
            flows = RING.phases(network, ranks, 1.0, operation)[0].flows
            # What is priced is the way there; the ring's hop back belongs to another message.
            return flows[: len(ranks) - 1] if operation == "send_recv" else flows
        place = [stage.where for stage in STAGES[operation]].index(BETWEEN)
        return RAIL.phases(network, ranks, 1.0, operation)[place].flows

    def _own_part(self, network: RankNetwork, flows: tuple[Flow, ...], split: TwoWays, payload_bytes: float) -> Phases:
        share = split.share(payload_bytes)
        own_flows = tuple(flow._replace(payload_bytes=share * flow.payload_bytes) for flow in flows) if share > 0 else ()
        return lasting(network, (Phase(0.0, own_flows),), split.seconds(payload_bytes, share))


JOINT = Joint()


def _idle_devices(network: RankNetwork, ranks: Ranks) -> dict[int, list[int]] | None:
    """Return, of each host, the first devices of cards that no rank here uses; None where some host has none."""
    topology = network.cluster.topology
    assert isinstance(topology, ClosTopology | TraceTopology)
    hosts, members = topology.hosts, np.concatenate([ranks, *network.concurrent_groups])
    sharers = hosts.devices_per_host // hosts.nics_per_host
    busy = set((network.devices[members] // sharers).tolist())
    result = {}
    for host in set(network.host[members].tolist()):
        cards = range(host * hosts.nics_per_host, (host + 1) * hosts.nics_per_host)
        result[host] = [card * sharers for card in cards if card not in busy]
        if not result[host]:
            return None
    return result


def _by_idle(network: RankNetwork, flows: list[Flow], idle: dict[int, list[int]]) -> tuple[RankNetwork, tuple[Flow, ...]]:
    """Return the same network with the idle devices behind its ranks, and the flows by them: in, across, out."""
    first = {
        device: len(network.devices) + place
        for place, device in enumerate(device for devices in idle.values() for device in devices)
    }
    wide = RankNetwork(network.cluster, np.concatenate([network.devices, np.array([*first], np.int64)]), (), network.routing)
    results: list[Flow] = []
    for sender, receiver, size in flows:
        near, far = int(network.host[sender]), int(network.host[receiver])
        pairs = list(zip(idle[near], idle[far], strict=False))
        for a, b in pairs:
            way = sender, first[a], first[b], receiver
            results += [Flow(way[hop], way[hop + 1], size / len(pairs)) for hop in range(3)]
    return wide, tuple(results)


def _hops_s(network: RankNetwork, wide: RankNetwork, own: list[Flow], relayed: tuple[Flow, ...]) -> tuple[float, float]:
    """Return the longest latency of a hop by the own cards, and how much longer the longest by idle ones is."""
    hop_s = max(float(network.latency_s[a, b]) for a, b, _ in own)
    by_idle_s = max(sum(float(wide.latency_s[a, b]) for a, b, _ in relayed[at : at + 3]) for at in range(0, len(relayed), 3))
    return hop_s, by_idle_s - hop_s


def _shared(wide: RankNetwork, own: list[Flow], relayed: tuple[Flow, ...]) -> list[WayLine]:
    """Return a line for each link that both ways cross; equal ones once."""
    speed = wide.cluster.links.bandwidth_bytes_per_s
    loads: list[dict[int, float]] = []
    for flows in (own, relayed):
        load: dict[int, float] = defaultdict(float)
        for sender, receiver, size in flows:
            for link, part in wide.carried(sender, receiver):
                load[link] += part * size / float(speed[link])
        loads.append(load)
    return [WayLine(0.0, *pair) for pair in sorted({(loads[0][link], loads[1][link]) for link in loads[0] if link in loads[1]})]
