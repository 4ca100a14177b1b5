"""Encoders of the parts of an observation.

Legend: ``b`` samples, ``g`` graphs, ``n`` devices (or nodes of graphs), ``m`` edges, ``d`` degrees, ``f`` features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..envs.static_features import OP_FEATURES, StaticFeatures


class MeanRound(nn.Module):
    """A round of messages: each node adds the mean of its senders and its own state, through a linear map each.

    Numbers, names of weights and initial weights are those of PyTorch Geometric's ``SAGEConv``, with which shipped policies were
    trained. To import that package takes a third of a command's start.

    Args:
        features: of a node before.
        width: of a node behind.

    Source:
        Hamilton, Ying and Leskovec, "Inductive representation learning on large graphs", 2017.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.lin_l = nn.Linear(features, width)
        self.lin_r = nn.Linear(features, width, bias=False)
        self.lin_l.reset_parameters()  # SAGEConv draws twice, and a seed means the same weights as before
        self.lin_r.reset_parameters()

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Return ``(n, width)`` of nodes ``(n, f)`` along edges ``(2, m)``, from the first row to the second."""
        heard: Tensor = self.lin_l(mean_of(nodes.index_select(0, edges[0]), edges[1], len(nodes)))
        own: Tensor = self.lin_r(nodes)
        return heard + own


def mean_of(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Return the means ``(g, f)`` of the rows of each group; zeros of one without any.

    Args:
        values: ``(n, f)``.
        group: of each row, ``(n,)``.
        num_groups: ``g``.
    """
    counts = values.new_zeros(num_groups).scatter_add_(0, group, values.new_ones(len(values))).clamp(min=1)
    sums = values.new_zeros(num_groups, values.shape[1]).scatter_add_(0, group.unsqueeze(1).expand_as(values), values)
    return sums / counts.unsqueeze(1)


def largest_of(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Return the largest ``(g, f)`` of the rows of each group; zeros of one without any; arguments as of `mean_of`."""
    empty, where = values.new_zeros(num_groups, values.shape[1]), group.unsqueeze(1).expand_as(values)
    return torch.scatter_reduce(empty, 0, where, values, "amax", include_self=False)


class GraphEncoder(nn.Module):
    """Embeds each distinct job graph by rounds of message passing along its edges and against them.

    All graphs are encoded in one pass as one block-diagonal graph. A round adds to each op the messages of its predecessors and
    of its successors (their mean through a linear map). Mean and maximum over a graph's ops make the graph's embedding.

    Args:
        hidden: width of an op's state.
        embedding: width of a graph's embedding.
        rounds: rounds of message passing.

    Source:
        The round is GraphSAGE's, once per direction: Hamilton, Ying and Leskovec, "Inductive representation
        learning on large graphs", 2017.
    """

    def __init__(self, hidden: int, embedding: int, rounds: int) -> None:
        super().__init__()
        self.lift = nn.Linear(len(OP_FEATURES), hidden)
        self.along = nn.ModuleList(MeanRound(hidden, hidden) for _ in range(rounds))
        self.against = nn.ModuleList(MeanRound(hidden, hidden) for _ in range(rounds))
        self.read = nn.Linear(2 * hidden, embedding)

    def forward(self, ops: Tensor, edges: Tensor, graph_of_op: Tensor, num_graphs: int) -> Tensor:
        """Return the embeddings ``(g, embedding)`` of ops ``(n, f)`` with edges ``(2, m)``."""
        state = torch.relu(self.lift(ops))
        reversed_edges = edges.flip(0)
        for along, against in zip(self.along, self.against, strict=True):
            state = state + torch.relu(along(state, edges) + against(state, reversed_edges))
        pooled = torch.cat([mean_of(state, graph_of_op, num_graphs), largest_of(state, graph_of_op, num_graphs)], dim=1)
        return torch.tanh(self.read(pooled))


class GraphTotals(nn.Module):
    """Embeds each distinct job graph by the means of its ops' features alone, as if no edge joined them.

    Args:
        embedding: width of a graph's embedding.
    """

    def __init__(self, embedding: int) -> None:
        super().__init__()
        self.read = nn.Linear(len(OP_FEATURES), embedding)

    def forward(self, ops: Tensor, edges: Tensor, graph_of_op: Tensor, num_graphs: int) -> Tensor:
        """Embed graphs as `GraphEncoder` does, without reading edges."""
        return torch.tanh(self.read(mean_of(ops, graph_of_op, num_graphs)))


class NoGraph(nn.Module):
    """Embeds every job graph as zeros, to see what a trained network makes of the embedding.

    Args:
        embedding: width of a graph's embedding.
    """

    def __init__(self, embedding: int) -> None:
        super().__init__()
        self.embedding = embedding

    def forward(self, ops: Tensor, edges: Tensor, graph_of_op: Tensor, num_graphs: int) -> Tensor:
        """Embed graphs as zeros, in the form of `GraphEncoder`."""
        return ops.new_zeros(num_graphs, self.embedding)


class SetEncoder(nn.Module):
    """Embeds a set of equal things (devices, degrees) of any size: a shared layer, then mean and maximum.

    Source:
        Zaheer et al., "Deep sets", 2017.
    """

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.lift = nn.Linear(features, hidden)
        self.size = 2 * hidden

    def forward(self, members: Tensor) -> Tensor:
        """Map ``(members, b, f)`` to ``(b, 2 hidden)``."""
        # Reductions over the first axis run along contiguous memory, which is what makes them fast.
        lifted = torch.relu(self.lift(members))
        return torch.cat([lifted.mean(dim=0), lifted.amax(dim=0)], dim=1)


class StaticTensors(nn.Module):
    """A scenario's static features as buffers; they move with the network but are not saved with it."""

    ops: Tensor
    edges: Tensor
    graph_of_op: Tensor
    degrees: Tensor

    def __init__(self, static: StaticFeatures) -> None:
        super().__init__()
        self.num_graphs = static.num_graphs
        self.register_buffer("ops", torch.as_tensor(static.ops), persistent=False)
        self.register_buffer("edges", torch.as_tensor(static.edges.T.copy()), persistent=False)
        self.register_buffer("graph_of_op", torch.as_tensor(static.graph_of_op), persistent=False)
        self.register_buffer("degrees", torch.as_tensor(static.degrees), persistent=False)
