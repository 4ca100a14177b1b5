"""A round of message passing over a graph, and the pooling of its nodes.

Each takes three operations of PyTorch. Numbers, names of weights and initial weights are those of PyTorch Geometric's
``SAGEConv`` and pools, with which shipped policies were trained. To import that package takes a third of a command's start.

Legend: ``n`` nodes, ``m`` edges, ``g`` graphs, ``f`` features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MeanRound(nn.Module):
    """A round of messages: each node adds the mean of its senders and its own state, through a linear map each.

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
        """``(n, width)`` of nodes ``(n, f)`` along edges ``(2, m)``, from the first row to the second."""
        heard: Tensor = self.lin_l(mean_of(nodes.index_select(0, edges[0]), edges[1], len(nodes)))
        own: Tensor = self.lin_r(nodes)
        return heard + own


def mean_of(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Means ``(g, f)`` of the rows of each group; zeros of one without any.

    Args:
        values: ``(n, f)``.
        group: of each row, ``(n,)``.
        num_groups: ``g``.
    """
    counts = values.new_zeros(num_groups).scatter_add_(0, group, values.new_ones(len(values))).clamp(min=1)
    sums = values.new_zeros(num_groups, values.shape[1]).scatter_add_(0, group.unsqueeze(1).expand_as(values), values)
    return sums / counts.unsqueeze(1)


def largest_of(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """The largest ``(g, f)`` of the rows of each group; zeros of one without any; arguments as of `mean_of`."""
    empty, where = values.new_zeros(num_groups, values.shape[1]), group.unsqueeze(1).expand_as(values)
    return torch.scatter_reduce(empty, 0, where, values, "amax", include_self=False)
