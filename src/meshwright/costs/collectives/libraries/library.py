"""A collective library's own choice of algorithm and protocol: by its tuner's constants, or by measured tables."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ....clusters.cluster import Cluster
from ....devices import is_variant
from ... import nccl
from ...network import RankNetwork
from ...phases import Phases, lasting
from ..algorithm import Algorithm, Pricer, Ranks
from ..prices import Operation, Price
from ..staged import RAIL
from . import tables
from .system import UNCERTAINTY, GroupCurves, System


class Library(Algorithm):
    """NCCL as its tuner expects it, see `costs.nccl`: the least of ring, tree and in-switch reduction by three protocols."""

    name = "nccl"

    def pricer(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return the tuner's best line at each size."""
        known = self.lines(network, ranks, operation)
        return lambda payload_bytes: nccl.best(known, payload_bytes).time_s(payload_bytes)

    def foreign_figures(self, cluster: Cluster) -> tuple[str, ...]:
        """Return Ampere's constants, which serve what NCCL's tuner has none of."""
        return nccl.foreign_constants(kind.name for kind in cluster.device_types)

    def price(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation) -> Price:
        """Return the tuner's best line at the size."""
        if len(ranks) <= 1 or payload_bytes <= 0:
            return Price(0.0, "estimated", 0.0, self.name)
        line = nccl.best(self.lines(network, ranks, operation), payload_bytes)
        return Price(line.time_s(payload_bytes), "estimated", UNCERTAINTY["estimated"], line.algorithm, line.protocol)

    def lines(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> tuple[nccl.Line, ...]:
        """Return the tuner's line of each algorithm and protocol over these ranks; kept for every payload."""
        key = operation, ranks.tobytes()
        if key not in network.lines:
            network.lines[key] = nccl.lines(operation, wires(network, ranks, operation))
        return network.lines[key]

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation = "all_reduce") -> Phases:
        """Return the flows of rings inside the hosts and on the rails between them.

        What the library needs beyond the wires' own time passes as latency, so that alone it takes what its price says.
        """
        if len(ranks) <= 1 or payload_bytes <= 0:
            return ()
        result = RAIL.phases(network, ranks, payload_bytes, operation)
        return lasting(network, result, self.time_s(network, ranks, payload_bytes, operation))


class Measured(Library):
    """A system's measured tables where they say something, and the tuner elsewhere.

    Attributes:
        table: a system's name or file; None: that of the cluster's device type, where there is one.
    """

    name = "measured"

    def __init__(self, table: str | None = None) -> None:
        self.table = table

    def system(self, cluster: Cluster) -> System | None:
        """Return the tables for a cluster."""
        if self.table is not None:
            return tables.load(self.table)
        names = {kind.name for kind in cluster.device_types}
        return tables.load(names.pop()) if len(names) == 1 and names <= set(tables.SYSTEMS.names()) else None

    def foreign_figures(self, cluster: Cluster) -> tuple[str, ...]:
        """Return the tables of another device that were named, or that there are none of the cluster's."""
        system, names = self.system(cluster), [kind.name for kind in cluster.device_types]
        if system is None:
            known = f"of {names[0]}" if len(names) == 1 else f"for {' and '.join(names)} together"
            note = f"collectives: there are no tables {known}; what NCCL's tuner expects is taken"
            return note, *super().foreign_figures(cluster)
        others = ", ".join(name for name in names if not is_variant(name, system.device))
        return (f"collectives: tables measured on {system.device} are taken for {others} as they are",) if others else ()

    def pricer(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return the tables' seconds if they know such groups, and the tuner's if not."""
        way = self.way(network, ranks, operation)
        return super().pricer(network, ranks, operation) if way is None else way.seconds

    def price(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation) -> Price:
        """Return the tables' price if they know such groups, and the tuner's if not."""
        way = self.way(network, ranks, operation) if len(ranks) > 1 and payload_bytes > 0 else None
        return super().price(network, ranks, payload_bytes, operation) if way is None else way.price(payload_bytes)

    def way(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> GroupCurves | None:
        """Return the tables' curves for evenly divided groups on as many hosts; None where there are none."""
        system = self.system(network.cluster)
        counts = np.unique(network.host[ranks], return_counts=True)[1]
        if system is None or counts.min() < counts.max():
            return None
        return system.way(operation, len(ranks), num_hosts=len(counts))


def wires(network: RankNetwork, ranks: Ranks, operation: Operation) -> nccl.GroupLinks:
    """Return the links of a group: the slowest of its hosts inside, and the rate of a host's ranks together to the next host.

    Concurrent groups of the network take their part of the links that they share.
    """
    kind = network.cluster.device_types[network.cluster.device_type[network.devices[ranks[0]]]]
    tables = [_by_host(network, group) for group in (ranks, *network.concurrent_groups)]
    inside: list[list[_Flow]] = [[] for _ in tables]
    between: list[list[_Flow]] = [[] for _ in tables]
    for number, hosts in enumerate(tables):
        for row in hosts:
            inside[number] += [(a, b, 1.0) for a, b in zip(row, row[1:] + row[:1], strict=True) if a != b]
        n = len(hosts)
        reach = range(1, n) if operation == "all_to_all" else range(1, min(n, 2))
        for place, row in enumerate(hosts):
            for distance in reach:
                other = hosts[(place + distance) % n]
                most = max(len(row), len(other))
                share = 1.0 / (most * len(reach))
                between[number] += [(row[i % len(row)], other[i % len(other)], share) for i in range(most)]
    outward = _rate(network, between)
    inward = _rate(network, inside) if any(inside[0]) else outward
    return nccl.GroupLinks(len(ranks), len(tables[0]), inward, outward, nccl.generation(kind.name))


_Flow = tuple[int, int, float]


def _by_host(network: RankNetwork, ranks: Ranks) -> list[list[int]]:
    hosts: dict[int, list[int]] = {}
    for rank in ranks.tolist():
        hosts.setdefault(int(network.host[rank]), []).append(rank)
    return [sorted(row, key=lambda rank: int(network.devices[rank])) for row in hosts.values()]


def _rate(network: RankNetwork, flows: list[list[_Flow]]) -> float:
    """Return how fast the first group sends one byte a flow's share, while the others do the same."""
    load: dict[int, float] = defaultdict(float)
    mine: set[int] = set()
    for number, group in enumerate(flows):
        for sender, receiver, share in group:
            for link, part in network.carried(sender, receiver):
                load[link] += part * share
                if number == 0:
                    mine.add(link)
    speed = network.cluster.links.bandwidth_bytes_per_s
    return min((float(speed[link]) / load[link] for link in mine), default=float("inf"))
