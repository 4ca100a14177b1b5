"""Algorithms in stages: inside each host, between the hosts, inside again.

Ranks form a table, a row for each host. Its rows work side by side over the host's links, then its columns over the network,
each with its shard of the payload. This is the intra-inter co-design: ``1 / g`` of the payload crosses the network for each of
the ``g`` ranks of a host.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..network import RankNetwork
from ..phases import Phase, Phases
from .algorithm import Algorithm, Pricer, Ranks
from .direct import RING
from .prices import Operation

INSIDE, BETWEEN = 0, 1

CHUNKS = (1, 2, 4, 8, 16, 32)
"""Numbers of chunks from which the best one is taken; more hardly shorten the first and the last."""


class CollectiveStage(NamedTuple):
    """Collectives that run side by side.

    Attributes:
        where: `INSIDE` the hosts (rows of the table) or `BETWEEN` them (columns).
        operation: of each row or column.
        is_sharded: whether it is on one column's shard of the payload only.
    """

    where: int
    operation: Operation
    is_sharded: bool = False


STAGES: dict[Operation, tuple[CollectiveStage, ...]] = {
    "all_reduce": (
        CollectiveStage(INSIDE, "reduce_scatter"),
        CollectiveStage(BETWEEN, "all_reduce", is_sharded=True),
        CollectiveStage(INSIDE, "all_gather"),
    ),
    "reduce_scatter": (CollectiveStage(INSIDE, "reduce_scatter"), CollectiveStage(BETWEEN, "reduce_scatter", is_sharded=True)),
    "all_gather": (CollectiveStage(BETWEEN, "all_gather", is_sharded=True), CollectiveStage(INSIDE, "all_gather")),
    "all_to_all": (CollectiveStage(INSIDE, "all_to_all"), CollectiveStage(BETWEEN, "all_to_all")),
}


class Staged(Algorithm):
    """Rings inside the hosts and rings between them, one stage after another.

    Attributes:
        name: as YAML spells it.
        is_by_rail: whether the columns of the table are the places of devices within their hosts. Each ring between hosts then
            stays on its rail whatever the rank order. Otherwise the ranks of each host are in rank order.

    Source:
        ``RS_g(S; intra) + AR_N(S / g; inter) + AG_g(S; intra)``; Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50
        training in a flash", 2018. Rail order and the two steps of an all-to-all: NVIDIA, "Doubling all2all performance with
        NVIDIA Collective Communication Library 2.12", 2022.
    """

    co_design = "intra-inter"

    def __init__(self, name: str, *, is_by_rail: bool) -> None:
        self.name = name
        self.is_by_rail = is_by_rail

    def runs_on(self, network: RankNetwork) -> bool:
        """Return whether some host has more than one device."""
        return network.cluster.num_devices > network.cluster.num_hosts

    def offers(self, operation: Operation) -> bool:
        """Return whether the operation is any but a broadcast or a send."""
        return operation in STAGES

    def pricer(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return the slowest of the rings in each stage; one plain ring for one host, or for unequal shares of the ranks."""
        table = self.table(network, ranks)
        if table is None or operation not in STAGES:
            return RING.pricer(network, ranks, operation)
        inside, between = self.tiers(network, ranks, table, operation)
        return lambda payload_bytes: inside(payload_bytes) + between(payload_bytes)

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation = "all_reduce") -> Phases:
        """Return a phase for each stage.

        The rings of a phase run side by side; where shards leave a host by one card, they share it.
        """
        table = self.table(network, ranks)
        if table is None or operation not in STAGES:
            return RING.phases(network, ranks, payload_bytes, operation)
        if payload_bytes <= 0:
            return ()
        return tuple(self._phase(network, table, payload_bytes, stage) for stage in STAGES[operation])

    def tiers(self, network: RankNetwork, ranks: Ranks, table: Ranks, operation: Operation) -> tuple[Pricer, Pricer]:
        """Return the seconds of all stages inside the hosts, and of those between them.

        An all-reduce's two stages inside a host are one ring all-reduce there, and are priced as one.
        """
        return self._rings(network, ranks, table, operation, INSIDE), self._rings(network, ranks, table.T, operation, BETWEEN)

    def table(self, network: RankNetwork, ranks: Ranks) -> Ranks | None:
        """Return the ranks by host and place within it; None where there are not two steps to take."""
        hosts, first, counts = np.unique(network.host[ranks], return_index=True, return_counts=True)
        if len(ranks) <= 1 or len(hosts) in (1, len(ranks)) or counts.min() != counts.max():
            return None
        hosts = hosts[np.argsort(first)]  # in rank order, so that no number of a host decides
        rows = [ranks[network.host[ranks] == host] for host in hosts]
        if self.is_by_rail:
            rows = [row[np.argsort(network.devices[row])] for row in rows]
        return np.stack(rows)

    def _phase(self, network: RankNetwork, table: Ranks, payload_bytes: float, stage: CollectiveStage) -> Phase:
        rings = table if stage.where == INSIDE else table.T
        size = payload_bytes / table.shape[1] if stage.is_sharded else payload_bytes
        parts = [RING.phases(network, ring, size, stage.operation)[0] for ring in rings]
        return Phase(max(part.latency_s for part in parts), tuple(flow for part in parts for flow in part.flows))

    def _rings(self, network: RankNetwork, ranks: Ranks, rings: Ranks, operation: Operation, where: int) -> Pricer:
        """Return the rings side by side, a row for each, over one shard of the payload; their flows are a part of the phases."""
        stages = STAGES[operation]
        mine = [number for number, stage in enumerate(stages) if stage.where == where]
        merged: Operation = "all_reduce" if len(mine) == 2 else stages[mine[0]].operation
        num_shards = len(rings) if stages[mine[0]].is_sharded else 1
        part = slice(mine[0], None, 2) if len(stages) == 3 else slice(mine[0], mine[0] + 1)
        way, n = RING.own[merged], rings.shape[1]
        hops = [network.ring(row) if way.is_along_ring else network.all_pairs(row) for row in rings]
        bandwidth, latency = min(b for b, _ in hops), max(a for _, a in hops)
        carried_bytes = way.formula(1.0 / num_shards, n, 1.0, 0.0)
        left = bandwidth / self.shared(network, ranks, operation, carried_bytes, bandwidth, part)
        return lambda payload_bytes: way.formula(payload_bytes / num_shards, n, left, latency)


def pipelined(inside: Pricer, between: Pricer) -> Pricer:
    """Price both tiers in chunks, one inside while another is between hosts, with the best number of chunks."""

    def seconds(payload_bytes: float) -> float:
        stages = ((k, inside(payload_bytes / k), between(payload_bytes / k)) for k in CHUNKS)
        return min(a + b + (k - 1) * max(a, b) for k, a, b in stages)

    return seconds


HIERARCHICAL = Staged("hierarchical", is_by_rail=False)
RAIL = Staged("rail", is_by_rail=True)
