"""Algorithms that take the group as it is: ring, double binary tree, halving and doubling.

Each operation has a formula, the link that the formula knows (a ring's slowest hop, or the slowest of all pairs), and its
flows. Operations that an algorithm does not have use the ring, or pairwise exchange.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from .. import formulas
from ..network import RankNetwork
from ..phases import Flow, Phase, Phases, ring
from .algorithm import Algorithm, Pricer, Ranks, step
from .prices import Operation

Formula = Callable[[float, int, float, float], float]
"""Seconds from payload, ranks, bandwidth and latency."""


class DirectOperation(NamedTuple):
    """How one operation is done.

    Attributes:
        formula: its time.
        is_along_ring: whether only neighbours in rank order exchange anything; else any pair may.
        flows: the phases of a payload.
    """

    formula: Formula
    is_along_ring: bool
    flows: Callable[[RankNetwork, Ranks, float], Phases]


class Direct(Algorithm):
    """One formula for each operation.

    Attributes:
        name: as YAML spells it.
        own: the operations that it does in a way of its own.
    """

    def __init__(self, name: str, own: dict[Operation, DirectOperation]) -> None:
        self.name = name
        self.own = own

    def offers(self, operation: Operation) -> bool:
        """Return whether the operation is one of ``own``."""
        return operation in self.own

    def pricer(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return the formula at the slowest hop or pair; slower where flows share a link."""
        way, n = self._way(operation), len(ranks)
        bandwidth, latency = network.ring(ranks) if way.is_along_ring else network.all_pairs(ranks)
        left = bandwidth / self.shared(network, ranks, operation, way.formula(1.0, n, 1.0, 0.0), bandwidth)
        return lambda payload_bytes: way.formula(payload_bytes, n, left, latency)

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation = "all_reduce") -> Phases:
        """Return the flows of the operation; none within one rank or for no bytes."""
        if len(ranks) <= 1 or payload_bytes <= 0:
            return ()
        return self._way(operation).flows(network, ranks, payload_bytes)

    def _way(self, operation: Operation) -> DirectOperation:
        return self.own[operation] if operation in self.own else RING.own[operation]


Flows = Callable[[RankNetwork, Ranks, float], Phases]


def _along_ring(latencies: Callable[[int], float], share: Callable[[int], float]) -> Flows:
    """Return one phase: each hop carries that share of the payload; so many latencies of the slowest hop."""

    def flows(network: RankNetwork, ranks: Ranks, payload_bytes: float) -> Phases:
        n = len(ranks)
        return (Phase(latencies(n) * network.ring(ranks)[1], ring(ranks.tolist(), share(n) * payload_bytes)),)

    return flows


def _along_chain(network: RankNetwork, ranks: Ranks, payload_bytes: float) -> Phases:
    """Return one phase: every hop but the one back to the first rank carries the payload.

    The latency is what the best number of chunks adds to sending the payload once over the slowest hop.
    """
    n = len(ranks)
    bandwidth, latency = network.ring(ranks)
    filling_s = formulas.chain_broadcast_s(payload_bytes, n, bandwidth, latency) - payload_bytes / bandwidth
    return (Phase(max(0.0, filling_s), ring(ranks.tolist(), payload_bytes)[:-1]),)


def _every_pair(network: RankNetwork, ranks: Ranks, payload_bytes: float) -> Phases:
    """Return one phase: every rank sends every other one its share; ``n - 1`` latencies of the slowest pair."""
    n, members = len(ranks), ranks.tolist()
    flows = tuple(Flow(a, b, payload_bytes / n) for a in members for b in members if a != b)
    return (Phase((n - 1.0) * network.all_pairs(ranks)[1], flows),)


def _two_trees(passes: int) -> Flows:
    """Return flows of one phase: each tree carries half of the payload down (and, in two passes, up) every edge.

    A rank is an inner node of one tree and a leaf of the other. So it sends and receives at most ``passes`` times the payload.
    The formula puts all of that on one link. Where a pair of ranks has its own links, as in a matrix cluster, the flows take
    less.
    """

    def flows(network: RankNetwork, ranks: Ranks, payload_bytes: float) -> Phases:
        n, half = len(ranks), payload_bytes / 2
        results = []
        for shift in (0, 1):
            for place in range(1, n + 1):
                above = _place_above(place, n)
                if above:
                    child, parent = int(ranks[(place - 1 + shift) % n]), int(ranks[(above - 1 + shift) % n])
                    results += [Flow(child, parent, half), Flow(parent, child, half)][2 - passes :]
        return (Phase(float(passes) * math.ceil(math.log2(n)) * network.all_pairs(ranks)[1], tuple(results)),)

    return flows


def _halving_doubling(network: RankNetwork, ranks: Ranks, payload_bytes: float) -> Phases:
    """Return one phase for each step, with the latency of that step's own pairs.

    The formula takes every step at the slowest pair of all; the steps between near partners are faster.
    """
    n = len(ranks)
    power = 1 << math.floor(math.log2(n))
    beyond = [(power + i, i) for i in range(n - power)]
    halving = _halvings(power, payload_bytes)
    steps = [*halving, *halving[::-1]]
    if beyond:
        steps = [(beyond, payload_bytes), *steps, ([(i, j) for j, i in beyond], payload_bytes)]
    return tuple(step(network, ranks, pairs, size) for pairs, size in steps)


def _halving(network: RankNetwork, ranks: Ranks, payload_bytes: float) -> Phases:
    """Return the first half of `_halving_doubling`: the reduce-scatter, whose mirror image is the all-gather."""
    n = len(ranks)
    power = 1 << math.floor(math.log2(n))
    beyond = [([(power + i, i) for i in range(n - power)], payload_bytes)] if power < n else []
    return tuple(step(network, ranks, pairs, size) for pairs, size in [*beyond, *_halvings(power, payload_bytes)])


def _halvings(power: int, payload_bytes: float) -> list[tuple[list[tuple[int, int]], float]]:
    doublings = power.bit_length() - 1
    return [([(i, i ^ (power >> k)) for i in range(power)], payload_bytes / 2**k) for k in range(1, doublings + 1)]


def _place_above(place: int, num_places: int) -> int:
    """Return the parent of a place ``1..n`` in a balanced binary tree numbered in order (odd places are leaves); 0 for a root."""
    if place == 1 << (num_places.bit_length() - 1):
        return 0
    above = place
    while above == place or above > num_places:
        lowest = above & -above
        above = (above & ~lowest) | lowest << 1
    return above


def _both_ways(n: int) -> float:
    return 2.0 * (n - 1)


def _one_way(n: int) -> float:
    return n - 1.0


def _half(all_reduce: Formula) -> Formula:
    """Return the time of the operation that is one half of an all-reduce: a reduce-scatter, its mirror image, or a broadcast."""
    return lambda payload_bytes, num_ranks, rate, latency_s: 0.5 * all_reduce(payload_bytes, num_ranks, rate, latency_s)


_RING_SCATTER = DirectOperation(_half(formulas.ring_all_reduce_s), True, _along_ring(_one_way, lambda n: _one_way(n) / n))
_HALVING = DirectOperation(_half(formulas.halving_doubling_all_reduce_s), False, _halving)

RING = Direct(
    "ring",
    {
        "all_reduce": DirectOperation(formulas.ring_all_reduce_s, True, _along_ring(_both_ways, lambda n: _both_ways(n) / n)),
        "all_gather": _RING_SCATTER,
        "reduce_scatter": _RING_SCATTER,
        "all_to_all": DirectOperation(formulas.pairwise_all_to_all_s, False, _every_pair),
        "broadcast": DirectOperation(formulas.chain_broadcast_s, True, _along_chain),
        "send_recv": DirectOperation(formulas.message_s, True, _along_ring(lambda n: 1.0, lambda n: 1.0)),
    },
)
"""A ring in rank order; its slowest hop decides, so rank order matters."""

TREE = Direct(
    "tree",
    {
        "all_reduce": DirectOperation(formulas.tree_all_reduce_s, False, _two_trees(2)),
        "broadcast": DirectOperation(_half(formulas.tree_all_reduce_s), False, _two_trees(1)),
    },
)
"""Two complementary binary trees, as NCCL builds between nodes."""

HALVING_DOUBLING = Direct(
    "halving-doubling",
    {
        "all_reduce": DirectOperation(formulas.halving_doubling_all_reduce_s, False, _halving_doubling),
        "all_gather": _HALVING,
        "reduce_scatter": _HALVING,
    },
)
"""Recursive halving and doubling: few steps, but partners far apart."""
