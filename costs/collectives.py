"""The collective layer: which algorithm reduces over which ranks, and how long it takes.

Each algorithm is a small class with one method; `ALGORITHMS` names them, `chosen` picks by name or, for ``auto``,
the fastest one that the topology can run for the size and group at hand.
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


class Ring:
    """A ring in rank order; its slowest hop decides, so rank order matters."""

    name = "ring"

    def runs_on(self, network: RankNetwork) -> bool:
        """Always."""
        return True

    def all_reduce_s(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> float:
        """See `formulas.ring_all_reduce_s`."""
        if len(ranks) <= 1:
            return 0.0
        bandwidth, latency = network.ring(ranks)
        return formulas.ring_all_reduce_s(payload_bytes, len(ranks), bandwidth, latency)


class Tree:
    """Two complementary binary trees, as NCCL builds between nodes."""

    name = "tree"

    def runs_on(self, network: RankNetwork) -> bool:
        """Always."""
        return True

    def all_reduce_s(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> float:
        """See `formulas.tree_all_reduce_s`; priced at the slowest pair."""
        if len(ranks) <= 1:
            return 0.0
        bandwidth, latency = network.all_pairs(ranks)
        return formulas.tree_all_reduce_s(payload_bytes, len(ranks), bandwidth, latency)


class HalvingDoubling:
    """Recursive halving and doubling: few steps, but partners far apart."""

    name = "halving-doubling"

    def runs_on(self, network: RankNetwork) -> bool:
        """Always."""
        return True

    def all_reduce_s(self, network: RankNetwork, ranks: Ranks, payload_bytes: float) -> float:
        """See `formulas.halving_doubling_all_reduce_s`; priced at the slowest pair."""
        if len(ranks) <= 1:
            return 0.0
        bandwidth, latency = network.all_pairs(ranks)
        return formulas.halving_doubling_all_reduce_s(payload_bytes, len(ranks), bandwidth, latency)


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
        hosts, first, counts = np.unique(network.host[ranks], return_index=True, return_counts=True)
        if len(ranks) <= 1 or len(hosts) in (1, len(ranks)) or counts.min() != counts.max():
            return Ring().all_reduce_s(network, ranks, payload_bytes)
        hosts = hosts[np.argsort(first)]  # in rank order, so that no number of a host decides
        members = np.stack([ranks[network.host[ranks] == host] for host in hosts])
        inside = [network.ring(row) for row in members]
        across = [network.ring(column) for column in members.T]
        per_host = members.shape[1]
        intra_s = formulas.ring_all_reduce_s(payload_bytes, per_host, min(b for b, _ in inside), max(a for _, a in inside))
        inter_s = formulas.ring_all_reduce_s(
            payload_bytes / per_host, len(hosts), min(b for b, _ in across), max(a for _, a in across)
        )
        return intra_s + inter_s


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
