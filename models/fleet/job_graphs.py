"""Job graphs in a fleet's policy: each type's graph of ops is encoded once for a whole batch, by messages along its edges.

Features of ops and edges are relative to their own graph and to the fastest link of the cluster, and pools are means and maxima,
so that nothing grows with the number of ops and graphs that were never seen are described in the same terms.

Legend: ``t`` types of jobs, ``n`` ops of all their graphs together, ``m`` edges of all together, ``w`` width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...jobs.graph import JobGraph

OP = (
    "time against the mean op's",
    "backward share of its time",
    "parameters against the mean op's",
    "output against the mean op's",
    "parameters' time on the fastest link against its own",
    "output's time on the fastest link against its own",
    "parameters against its output",
    "ops before it",
    "ops after it",
)
"""Features of an op; the first, third and fourth as logarithms of ratios, others as ``x / (1 + x)``."""
EDGE = ("bytes against the mean edge's", "time on the fastest link against the mean op's")
"""Features of an edge, spelled likewise."""


class JobGraphTensors(nn.Module):
    """The graphs of all types side by side; no parameters.

    Args:
        graphs: of each type.
        bandwidth_bytes_per_s: of the fastest link on which jobs of the cluster can meet.

    Attributes:
        ops: features, ``(n, len(OP))``.
        ends: numbers of the ops at the ends of each forward edge, ``(2, m)``.
        edges: features, ``(m, len(EDGE))``.
        graph_of_op: ``(n,)``.
        num_graphs: ``t``.
    """

    ops: Tensor
    ends: Tensor
    edges: Tensor
    graph_of_op: Tensor

    def __init__(self, graphs: Sequence[JobGraph], bandwidth_bytes_per_s: float) -> None:
        super().__init__()
        offsets = np.cumsum([0, *(graph.num_ops for graph in graphs)])
        ends = np.concatenate([graph.edges + offset for graph, offset in zip(graphs, offsets[:-1], strict=True)])
        ops = np.concatenate([_ops(graph, bandwidth_bytes_per_s) for graph in graphs])
        edges = np.concatenate([_edges(graph, bandwidth_bytes_per_s) for graph in graphs])
        of_op = np.repeat(np.arange(len(graphs)), np.diff(offsets))
        self.num_graphs = len(graphs)
        self.register_buffer("ops", torch.as_tensor(ops, dtype=torch.float32), persistent=False)
        self.register_buffer("ends", torch.as_tensor(np.ascontiguousarray(ends.T)), persistent=False)
        self.register_buffer("edges", torch.as_tensor(edges, dtype=torch.float32), persistent=False)
        self.register_buffer("graph_of_op", torch.as_tensor(of_op), persistent=False)


class JobGraphEncoder(nn.Module):
    """Embeds the graph of each type by rounds of messages along its edges and against them, then mean and maximum.

    Where no gradient is wanted the embeddings are kept until weights change, as the graphs are the same in every decision.

    Args:
        width: of ops and embeddings.
        rounds: of messages.
        hears: whether ops hear each other; without, each keeps to its own features, at the same width and depth.

    Source:
        The round is GINE, once per direction, with the mean of messages in place of their sum: Hu et al., "Strategies for
        pre-training graph neural networks", 2020.
    """

    def __init__(self, width: int, rounds: int, *, hears: bool = True) -> None:
        from torch_geometric.nn import GINEConv  # takes as long to load as PyTorch itself

        super().__init__()
        self.hears = hears
        self.lift = nn.Linear(len(OP), width)
        self.along, self.against = (
            nn.ModuleList(GINEConv(nn.Linear(width, width), edge_dim=len(EDGE), aggr="mean") for _ in range(rounds))
            for _ in range(2)
        )
        self.read = nn.Linear(2 * width, width)
        self._kept: tuple[object, Tensor] | None = None

    def forward(self, graphs: JobGraphTensors) -> Tensor:
        """Embeddings of the types, ``(t, w)``."""
        if torch.is_grad_enabled():
            self._kept = None  # a step of an optimizer follows
            return self._encoded(graphs)
        key = graphs, tuple((weight.data_ptr(), weight._version) for weight in self.parameters())
        if self._kept is None or self._kept[0] != key:
            self._kept = key, self._encoded(graphs)
        return self._kept[1]

    def _encoded(self, graphs: JobGraphTensors) -> Tensor:
        from torch_geometric.nn import global_max_pool, global_mean_pool

        ends, edges = graphs.ends, graphs.edges
        if not self.hears:
            ends, edges = ends[:, :0], edges[:0]
        state = torch.relu(self.lift(graphs.ops))
        for along, against in zip(self.along, self.against, strict=True):
            state = state + torch.relu(along(state, ends, edges) + against(state, ends.flip(0), edges))
        pools = (pool(state, graphs.graph_of_op, graphs.num_graphs) for pool in (global_mean_pool, global_max_pool))
        found: Tensor = self.read(torch.cat([*pools], dim=1))
        return found


def _ops(graph: JobGraph, bandwidth_bytes_per_s: float) -> NDArray[np.float64]:
    time_s = graph.forward_s + graph.backward_s
    parameters, output = graph.parameter_bytes, graph.activation_bytes
    before, after = (np.bincount(graph.edges[:, end], minlength=graph.num_ops) for end in (1, 0))
    return np.stack(
        [
            _log_ratio(time_s),
            _share(graph.backward_s, graph.forward_s),
            _log_ratio(parameters),
            _log_ratio(output),
            _share(parameters / bandwidth_bytes_per_s, time_s),
            _share(output / bandwidth_bytes_per_s, time_s),
            _share(parameters, output),
            _share(before, np.full(graph.num_ops, 2.0)),
            _share(after, np.full(graph.num_ops, 2.0)),
        ],
        axis=1,
    )


def _edges(graph: JobGraph, bandwidth_bytes_per_s: float) -> NDArray[np.float64]:
    sent = graph.activation_bytes[graph.edges[:, 0]]
    mean_s = np.full(graph.num_edges, graph.step_s / graph.num_ops)
    return np.stack([_log_ratio(sent), _share(sent / bandwidth_bytes_per_s, mean_s)], axis=1)


def _share(part: NDArray[np.number], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """The part in both together, 0 where there is neither."""
    both = part + other
    found: NDArray[np.float64] = np.divide(part, both, out=np.zeros(len(both)), where=both > 0)
    return found


def _log_ratio(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half the logarithm of each over the mean of all, at least of a thousandth; zeros where all are 0."""
    mean = float(values.mean()) if values.size else 0.0
    return np.zeros(len(values)) if mean <= 0 else np.log(np.maximum(values / mean, 1e-3)) / 2.0
