"""Features known before the first job arrives: the workload's job graphs and the degrees.

Legend: ``g`` graphs, ``n`` ops of all graphs together, ``m`` edges of all graphs together, ``d`` degrees. These features never
change within a scenario, so they are no part of the observation, which refers to a graph by number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..jobs.graph import JobGraph
from ..simulation.cluster.scenario import Scenario

OP_FEATURES = (
    "forward time",
    "backward time",
    "activation",
    "parameters",
    "workspace",
    "depth",
    "is source",
    "is sink",
    "share of forward time",
    "share of parameters",
)
DEGREE_FEATURES = ("share of devices", "doublings")


@dataclass(frozen=True, eq=False)
class StaticFeatures:
    """Features of the scenario, every one in [0, 1].

    Attributes:
        ops: features of all ops, graph after graph, ``(n, len(OP_FEATURES))``.
        edges: source and target op (numbers into ``ops``) of each forward edge, ``(m, 2)``.
        graph_of_op: graph of each op, ``(n,)``.
        num_graphs: ``g``.
        degrees: features of each degree, ``(d, len(DEGREE_FEATURES))``.
    """

    ops: NDArray[np.float32]
    edges: NDArray[np.int64]
    graph_of_op: NDArray[np.int64]
    num_graphs: int
    degrees: NDArray[np.float32]


def static_features(scenario: Scenario) -> StaticFeatures:
    """Return the features of a scenario's graphs and degrees."""
    graphs = scenario.workload.graphs
    offsets = np.cumsum([0, *(graph.num_ops for graph in graphs)])
    num_devices = scenario.cluster.num_devices
    degrees = _sizes(np.array(scenario.space.degrees, np.float64), num_devices)
    return StaticFeatures(
        ops=np.concatenate([_ops(graph) for graph in graphs]),
        edges=np.concatenate([graph.edges + offset for graph, offset in zip(graphs, offsets[:-1], strict=True)]).reshape(-1, 2),
        graph_of_op=np.repeat(np.arange(len(graphs)), [graph.num_ops for graph in graphs]),
        num_graphs=len(graphs),
        degrees=degrees.astype(np.float32),
    )


def _sizes(ranks: NDArray[np.float64], num_devices: int) -> NDArray[np.float64]:
    return np.stack([ranks / num_devices, np.log2(ranks) / max(1.0, np.log2(num_devices))], axis=1)


def _ops(graph: JobGraph) -> NDArray[np.float32]:
    depth = np.zeros(graph.num_ops)
    successors: dict[int, list[int]] = {}
    for source, target in graph.edges.tolist():
        successors.setdefault(source, []).append(target)
    for op in graph.order.tolist():
        for target in successors.get(op, []):
            depth[target] = max(depth[target], depth[op] + 1)
    is_source, is_sink = np.ones(graph.num_ops), np.ones(graph.num_ops)
    is_source[graph.edges[:, 1]] = 0
    is_sink[graph.edges[:, 0]] = 0
    columns = (
        _squash(graph.forward_s, 1e-3),
        _squash(graph.backward_s, 1e-3),
        _squash(graph.activation_bytes, 1e8),
        _squash(graph.parameter_bytes, 1e7),
        _squash(graph.workspace_bytes, 1e8),
        depth / max(1.0, depth.max()),
        is_source,
        is_sink,
        _share(graph.forward_s),
        _share(graph.parameter_bytes),
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _squash(x: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    return x / (x + scale)


def _share(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x / x.sum() if x.sum() > 0 else np.zeros_like(x)
