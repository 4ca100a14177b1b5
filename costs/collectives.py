"""The collective layer: which algorithm reduces over which ranks, and how long it takes.

Each algorithm is a small class with one method; `ALGORITHMS` names them, `chosen` picks by name or, for ``auto``,
the fastest one that the topology can run for the size and group at hand.

A formula knows one link, that of the slowest pair. Where several flows of the same all-reduce cross a link (ranks that
share a network card, an oversubscribed uplink), the formula gets what is left of the bandwidth, see `phases.slowdown`:
no all-reduce takes less time than its fullest links need, and without shared links the formula stands as it is.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..clusters.ramp import RampTopology
from ..errors import ConfigError
from . import formulas
from .network import RankNetwork
from .phases import Flow, Phase, Phases, ring, slowdown

Ranks = NDArray[np.int64]


class CollectiveModel(Protocol):
    """An all-reduce algorithm priced on a network."""

    name: str

    def runs_on(self, network: RankNetwork) -> bool:
        """Whether the topology offers what the algorithm needs."""
        ...

    def all_reduce_s(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> float:
        """Seconds of one all-reduce of ``payload_bytes`` per rank over ``ranks`` in their order."""
        ...

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> Phases:
        """The flows of the same all-reduce; none where it takes its time whatever else is sent."""
        ...


class Ring:
    """A ring in rank order; its slowest hop decides, so rank order matters."""

    name = "ring"

    def runs_on(self, network: RankNetwork) -> bool:
        """Always."""
        return True

    def all_reduce_s(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> float:
        """See `formulas.ring_all_reduce_s`; slower where hops share a link."""
        if len(ranks) <= 1 or payload_bytes <= 0:
            return 0.0
        bandwidth, latency = network.ring(ranks)
        shared = _slowdown(self, network, ranks, formulas.ring_all_reduce_s(1.0, len(ranks), 1.0, 0.0), bandwidth)
        return formulas.ring_all_reduce_s(payload_bytes, len(ranks), bandwidth / shared, latency)

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> Phases:
        """One phase: each hop carries ``2 (n - 1) / n`` of the payload; ``2 (n - 1)`` latencies of the slowest hop."""
        if len(ranks) <= 1 or payload_bytes <= 0:
            return ()
        steps = 2.0 * (len(ranks) - 1)
        return (Phase(steps * network.ring(ranks)[1], ring(ranks.tolist(), steps / len(ranks) * payload_bytes)),)


class Tree:
    """Two complementary binary trees, as NCCL builds between nodes."""

    name = "tree"

    def runs_on(self, network: RankNetwork) -> bool:
        """Always."""
        return True

    def all_reduce_s(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> float:
        """See `formulas.tree_all_reduce_s`; priced at the slowest pair, slower where edges share a link."""
        if len(ranks) <= 1 or payload_bytes <= 0:
            return 0.0
        bandwidth, latency = network.all_pairs(ranks)
        shared = _slowdown(self, network, ranks, formulas.tree_all_reduce_s(1.0, len(ranks), 1.0, 0.0), bandwidth)
        return formulas.tree_all_reduce_s(payload_bytes, len(ranks), bandwidth / shared, latency)

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> Phases:
        """One phase: each tree carries half of the payload up and down every edge; ``2 log2(n)`` latencies.

        A rank stands inside one tree and is a leaf of the other, so that it sends and receives at most twice the
        payload. The formula has all of that cross one link; where a pair of ranks has links of its own, as in a
        matrix cluster, the flows take less.
        """
        n = len(ranks)
        if n <= 1 or payload_bytes <= 0:
            return ()
        half = payload_bytes / 2
        flows = []
        for shift in (0, 1):
            for place in range(1, n + 1):
                above = _place_above(place, n)
                if above:
                    child, parent = int(ranks[(place - 1 + shift) % n]), int(ranks[(above - 1 + shift) % n])
                    flows += [Flow(child, parent, half), Flow(parent, child, half)]
        return (Phase(2.0 * math.ceil(math.log2(n)) * network.all_pairs(ranks)[1], tuple(flows)),)


class HalvingDoubling:
    """Recursive halving and doubling: few steps, but partners far apart."""

    name = "halving-doubling"

    def runs_on(self, network: RankNetwork) -> bool:
        """Always."""
        return True

    def all_reduce_s(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> float:
        """See `formulas.halving_doubling_all_reduce_s`; priced at the slowest pair, slower where pairs share a link."""
        if len(ranks) <= 1 or payload_bytes <= 0:
            return 0.0
        bandwidth, latency = network.all_pairs(ranks)
        shared = _slowdown(self, network, ranks, formulas.halving_doubling_all_reduce_s(1.0, len(ranks), 1.0, 0.0), bandwidth)
        return formulas.halving_doubling_all_reduce_s(payload_bytes, len(ranks), bandwidth / shared, latency)

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> Phases:
        """One phase for each step, with the latency of that step's own pairs.

        The formula takes every step at the slowest pair of all; the steps between near partners are faster.
        """
        n = len(ranks)
        if n <= 1 or payload_bytes <= 0:
            return ()
        doublings = math.floor(math.log2(n))
        power = 1 << doublings
        beyond = [(power + i, i) for i in range(n - power)]
        halving = []
        for k in range(1, doublings + 1):
            halving.append(([(i, i ^ (power >> k)) for i in range(power)], payload_bytes / 2**k))
        steps = [*halving, *halving[::-1]]
        if beyond:
            steps = [(beyond, payload_bytes), *steps, ([(i, j) for j, i in beyond], payload_bytes)]
        return tuple(_step(network, ranks, pairs, size) for pairs, size in steps)


class Hierarchical:
    """Reduce-scatter inside each host, all-reduce of each shard between hosts, all-gather inside.

    Source:
        ``RS_g(S; intra) + AR_N(S / g; inter) + AG_g(S; intra)``; Mikami et al., "Massively distributed SGD:
        ImageNet/ResNet-50 training in a flash", 2018.
    """

    name = "hierarchical"

    def runs_on(self, network: RankNetwork) -> bool:
        """Where some host has more than one device."""
        return network.cluster.num_devices > network.cluster.num_hosts

    def all_reduce_s(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> float:
        """The slowest of the rings in each step; one plain ring where there is one host, or unequal shares of the ranks."""
        members = self._members(network, ranks)
        if members is None:
            return Ring().all_reduce_s(network, ranks, payload_bytes)
        if payload_bytes <= 0:
            return 0.0
        intra_s = self._rings_s(network, ranks, members, payload_bytes, 1, slice(0, None, 2))
        inter_s = self._rings_s(network, ranks, members.T, payload_bytes, members.shape[1], slice(1, None, 2))
        return intra_s + inter_s

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> Phases:
        """Three phases: a ring in each host, a ring of each shard across the hosts, the rings in the hosts again.

        The rings of a phase run side by side; where shards leave a host by one card, they share it.
        """
        members = self._members(network, ranks)
        if members is None:
            return Ring().phases(network, ranks, payload_bytes)
        if payload_bytes <= 0:
            return ()
        num_hosts, per_host = members.shape
        inside, across = per_host - 1.0, 2.0 * (num_hosts - 1)
        intra = Phase(
            inside * max(network.ring(row)[1] for row in members),
            tuple(flow for row in members for flow in ring(row.tolist(), inside / per_host * payload_bytes)),
        )
        inter = Phase(
            across * max(network.ring(column)[1] for column in members.T),
            tuple(
                flow for column in members.T for flow in ring(column.tolist(), across / num_hosts * (payload_bytes / per_host))
            ),
        )
        return intra, inter, intra

    def _rings_s(
        self, network: RankNetwork, ranks: Ranks, rings: Ranks, payload_bytes: float, num_shards: int, part: slice
    ) -> float:
        """Rings side by side, a row for each, over one shard of the payload; their flows are that part of the phases."""
        hops = [network.ring(row) for row in rings]
        bandwidth, latency = min(b for b, _ in hops), max(a for _, a in hops)
        num_ranks = rings.shape[1]
        carried_bytes = formulas.ring_all_reduce_s(1.0 / num_shards, num_ranks, 1.0, 0.0)
        shared = _slowdown(self, network, ranks, carried_bytes, bandwidth, part)
        return formulas.ring_all_reduce_s(payload_bytes / num_shards, num_ranks, bandwidth / shared, latency)

    @staticmethod
    def _members(network: RankNetwork, ranks: Ranks) -> Ranks | None:
        """Ranks by host and place within it; None where there are not two steps to take."""
        hosts, first, counts = np.unique(network.host[ranks], return_index=True, return_counts=True)
        if len(ranks) <= 1 or len(hosts) in (1, len(ranks)) or counts.min() != counts.max():
            return None
        hosts = hosts[np.argsort(first)]  # in rank order, so that no number of a host decides
        return np.stack([ranks[network.host[ranks] == host] for host in hosts])


class RampAllReduce:
    """The RAMP network's own all-reduce: one exchange per dimension, each between all nodes of a subgroup at once.

    The payload is reduce-scattered over the communication groups, then the racks, then the servers that the ranks
    span, and gathered the same way back, so twice the sum of the steps.

    Source:
        Ottino, Benjamin and Zervas, 2023 (see `formulas.ramp_transceivers`).
    """

    name = "ramp"

    def runs_on(self, network: RankNetwork) -> bool:
        """On RAMP clusters."""
        return isinstance(network.cluster.topology, RampTopology)

    def all_reduce_s(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> float:
        """Seconds; the ranks' spread over groups, racks and servers decides, not their order."""
        topology = network.cluster.topology
        if not isinstance(topology, RampTopology):
            raise ConfigError("the RAMP all-reduce needs a RAMP cluster", field="collectives", value=self.name)
        if len(ranks) <= 1 or payload_bytes <= 0:
            return 0.0
        latency_s = topology.propagation_s + 2 * topology.io_s
        one_way_s = 0.0
        message_bytes = payload_bytes
        for size in _subgroup_sizes(network.cluster.coordinates[network.devices[ranks]]):
            message_bytes = math.ceil(message_bytes / size)
            one_way_s += formulas.ramp_step_s(
                message_bytes, size, topology.num_groups, topology.node_bandwidth_bytes_per_s, latency_s
            )
        return 2 * one_way_s

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> Phases:
        """None: its circuits are switched for it and nobody else sends over them, so it takes its own time."""
        return ()


ALGORITHMS: dict[str, CollectiveModel] = {
    model.name: model for model in (Ring(), Tree(), HalvingDoubling(), Hierarchical(), RampAllReduce())
}


class Fastest:
    """The fastest algorithm for each size and group, as a collective library's tuner chooses.

    On a RAMP cluster the network's own algorithm is always taken: its circuits are set up for it.
    """

    name = "auto"

    def runs_on(self, network: RankNetwork) -> bool:
        """Always."""
        return True

    def all_reduce_s(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> float:
        """The least of all algorithms that run on the network."""
        own = ALGORITHMS["ramp"]
        if own.runs_on(network):
            return own.all_reduce_s(network, ranks, payload_bytes)
        return min(m.all_reduce_s(network, ranks, payload_bytes) for m in ALGORITHMS.values() if m.runs_on(network))

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> Phases:
        """Those of the algorithm whose formula says the least, ties by the order of `ALGORITHMS`."""
        own = ALGORITHMS["ramp"]
        if own.runs_on(network):
            return own.phases(network, ranks, payload_bytes)
        running = [m for m in ALGORITHMS.values() if m.runs_on(network)]
        best = min(running, key=lambda m: m.all_reduce_s(network, ranks, payload_bytes))
        return best.phases(network, ranks, payload_bytes)


def chosen(name: str) -> CollectiveModel:
    """The algorithm of a name.

    Raises:
        ConfigError: the name is unknown.
    """
    if name == "auto":
        return Fastest()
    if name not in ALGORITHMS:
        raise ConfigError("unknown collective algorithm", field="collectives", value=name, choices=["auto", *ALGORITHMS])
    return ALGORITHMS[name]


def _subgroup_sizes(coordinates: NDArray[np.int64]) -> tuple[int, int, int]:
    """Distinct groups, most racks within a group, most servers within a rack."""
    groups = np.unique(coordinates[:, 0])
    racks = np.unique(coordinates[:, :2], axis=0)
    per_group = np.unique(racks[:, 0], return_counts=True)[1]
    per_rack = np.unique(coordinates[:, :2], axis=0, return_counts=True)[1]
    return len(groups), int(per_group.max()), int(per_rack.max())


def _place_above(place: int, num_places: int) -> int:
    """The parent of a place ``1..n`` in a balanced binary tree numbered in order (odd places are leaves); 0 for the root."""
    if place == 1 << (num_places.bit_length() - 1):
        return 0
    above = place
    while above == place or above > num_places:
        lowest = above & -above
        above = (above & ~lowest) | lowest << 1
    return above


def _slowdown(
    model: CollectiveModel,
    network: RankNetwork,
    ranks: Ranks,
    carried_bytes: float,
    bandwidth_bytes_per_s: float,
    part: slice = slice(None),
) -> float:
    """`phases.slowdown` of the phases of one byte, or of a part of them; worked out once for every payload."""
    key = f"{model.name} {part.start}", ranks.tobytes()
    if key not in network.slowdowns:
        phases = model.phases(network, ranks, 1.0)[part]
        network.slowdowns[key] = slowdown(network, phases, carried_bytes, bandwidth_bytes_per_s)
    return network.slowdowns[key]


def _step(network: RankNetwork, ranks: Ranks, pairs: list[tuple[int, int]], payload_bytes: float) -> Phase:
    flows = tuple(Flow(int(ranks[a]), int(ranks[b]), payload_bytes) for a, b in pairs)
    return Phase(max(float(network.latency_s[a, b]) for a, b, _ in flows), flows)
