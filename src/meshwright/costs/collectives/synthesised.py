"""Collectives made for one network: trees that fill the links of devices joined pair by pair, as NVLink cube meshes are.

In a spanning tree, payload goes up one way while results come down the other. The tree does an all-reduce at the rate of its
narrowest link. Trees side by side, each with a part of the payload, add their rates. The best mix is a linear program. Its
optimum equals the least over all partitions of the devices of ``capacity between the parts / (parts - 1)``. So it is never
above a cut and never below the rate of two rings, one each way. Where each pair has its own links nothing else uses them.

Legend: ``k`` ranks of a group, ``e = k (k - 1) / 2`` pairs, ``t`` trees.

Source:
    Trees over NVLink: Wang et al., "Blink: fast and generic collectives for distributed ML", 2020. Their number: Tutte, "On
        the problem of decomposing a graph into n connected factors", 1961. Also Nash-Williams, "Edge-disjoint spanning trees
        of finite graphs", 1961.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...clusters.topologies.matrix import MatrixTopology
from ...errors import ConfigError
from ..network import RankNetwork
from ..phases import Flow, Phase, Phases, lasting
from .algorithm import Algorithm, Pricer, Ranks
from .direct import RING
from .prices import Operation
from .staged import RAIL

MOST_RANKS = 32
"""Larger groups take a ring."""

MOST_TREES = 2_000
"""Trees that are tried; the rate found so far is reached in any case."""

ENOUGH = 1e-7
"""Relative distance of the rate from its bound at which no more trees are looked for."""

Tree = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class TreePacking:
    """Spanning trees side by side.

    Attributes:
        trees: pairs of places in the group, the first one nearer to the tree's centre, in order from there.
        share: part of the payload that each tree has, ``(t,)``.
        rate_bytes_per_s: of all of them together.
        radius: hops from the centre to the farthest rank, at most.
    """

    trees: tuple[Tree, ...]
    share: tuple[float, ...]
    rate_bytes_per_s: float
    radius: int


class Synthesised(Algorithm):
    """Trees that fill the links; an all-to-all goes by hosts in two steps, and large groups take a ring.

    Raises, wherever it is asked for a price:
        ConfigError: pairs of devices share links.
    """

    name = "synthesised"
    co_design = "collectives"

    def runs_on(self, network: RankNetwork) -> bool:
        """Return whether each pair of devices has links of its own."""
        return isinstance(network.cluster.topology, MatrixTopology)

    def offers(self, operation: Operation) -> bool:
        """Return whether the operation is any but a send."""
        return operation != "send_recv"

    def pricer(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return the bytes over the rate of the trees, and twice the way from their centre to the farthest rank."""
        packing = self._packing(network, ranks, operation)
        if packing is None:
            return (RAIL if operation == "all_to_all" else RING).pricer(network, ranks, operation)
        hops = packing.radius * (2 if operation == "all_reduce" else 1 + (operation != "broadcast"))
        latency_s = hops * network.all_pairs(ranks)[1]
        part = (len(ranks) - 1) / len(ranks) if operation in ("all_gather", "reduce_scatter") else 1.0
        return lambda payload_bytes: latency_s + part * payload_bytes / packing.rate_bytes_per_s

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation = "all_reduce") -> Phases:
        """Return all trees as one phase, both ways at once."""
        if len(ranks) <= 1 or payload_bytes <= 0:
            return ()
        packing = self._packing(network, ranks, operation)
        if packing is None:
            return (RAIL if operation == "all_to_all" else RING).phases(network, ranks, payload_bytes, operation)
        part = (len(ranks) - 1) / len(ranks) if operation in ("all_gather", "reduce_scatter") else 1.0
        flows = []
        for tree, share in zip(packing.trees, packing.share, strict=True):
            for near, far in tree:
                flows.append(Flow(int(ranks[near]), int(ranks[far]), part * share * payload_bytes))
                if operation != "broadcast":
                    flows.append(Flow(int(ranks[far]), int(ranks[near]), part * share * payload_bytes))
        return lasting(network, (Phase(0.0, tuple(flows)),), self.time_s(network, ranks, payload_bytes, operation))

    def _packing(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> TreePacking | None:
        if not self.runs_on(network):
            problem = f"wants devices that are joined pair by pair (topology matrix), as {network.cluster.name} does not"
            raise ConfigError(problem, field="collectives", value=self.name)
        if len(ranks) > MOST_RANKS or operation in ("all_to_all", "send_recv"):
            return None
        speed = network.bandwidth_bytes_per_s[np.ix_(ranks, ranks)]
        return tree_packing(np.minimum(speed, speed.T))


def tree_packing(bytes_per_s: NDArray[np.float64]) -> TreePacking:
    """Return the spanning trees that together carry most.

    Columns of the linear program are trees: one is added as long as it is shorter, by the prices of the links, than 1.

    Args:
        bytes_per_s: between each two ranks, the slower direction, symmetric, ``(k, k)``, ``k`` at least 2.
    """
    filled = np.array(bytes_per_s, np.float64)
    np.fill_diagonal(filled, 0.0)
    return _packing(filled.tobytes(), len(filled))


@lru_cache(maxsize=4096)
def _packing(capacities: bytes, k: int) -> TreePacking:
    from scipy.optimize import linprog  # loads slowly; few clusters want it

    speed = np.frombuffer(capacities, np.float64).reshape(k, k)
    rows, columns = np.triu_indices(k, 1)
    most = speed[rows, columns] / speed.max()
    number = np.zeros((k, k), np.int64)
    number[rows, columns] = number[columns, rows] = np.arange(len(rows))
    ring = [number[place, (place + 1) % k] for place in range(k)] if k > 2 else [0]
    held = [np.array(sorted({*ring} - {ring[left]})) if k > 2 else np.array(ring) for left in range(len(ring))]
    while True:
        matrix = np.zeros((len(rows), len(held)))
        for tree, edges in enumerate(held):
            matrix[edges, tree] = 1.0
        solved = linprog(-np.ones(len(held)), A_ub=matrix, b_ub=most, bounds=(0, None), method="highs-ds")
        price = np.maximum(0.0, -np.asarray(solved.ineqlin.marginals))
        shortest = _shortest_tree(price, number)
        if price[shortest].sum() >= 1 - ENOUGH or len(held) >= MOST_TREES:
            break
        held.append(shortest)
    carried = np.asarray(solved.x, np.float64)
    used = np.flatnonzero(carried > 1e-12)
    rate = float(carried[used].sum())
    trees = [_from_centre([(int(rows[e]), int(columns[e])) for e in held[tree]], k) for tree in used.tolist()]
    share = tuple(float(carried[tree]) / rate for tree in used.tolist())
    return TreePacking(tuple(tree for tree, _ in trees), share, rate * float(speed.max()), max(far for _, far in trees))


def _shortest_tree(price: NDArray[np.float64], number: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the edges of a spanning tree of least length (Prim's algorithm), ``(k - 1,)``."""
    k = len(number)
    length, by = price[number[0]], np.zeros(k, np.int64)
    is_in, results = np.zeros(k, np.bool_), []
    is_in[0] = True
    for _ in range(k - 1):
        new = int(np.argmin(np.where(is_in, np.inf, length)))
        is_in[new] = True
        results.append(int(number[by[new], new]))
        closer = price[number[new]] < length
        by, length = np.where(closer, new, by), np.minimum(length, price[number[new]])
    return np.array(sorted(results))


def _from_centre(edges: list[tuple[int, int]], k: int) -> tuple[Tree, int]:
    """Return a tree from the rank that is nearest to all others, and how far that is."""
    neighbours: list[list[int]] = [[] for _ in range(k)]
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)

    def walk(root: int) -> tuple[list[tuple[int, int]], int]:
        depth, order, results = {root: 0}, [root], []
        for rank in order:  # grows while it is read
            for other in neighbours[rank]:
                if other not in depth:
                    depth[other] = depth[rank] + 1
                    order.append(other)
                    results.append((rank, other))
        return results, max(depth.values())

    walked, far = min((walk(root) for root in range(k)), key=lambda one: one[1])
    return tuple(walked), far
