"""`HeteroGNN`: embeddings of the nodes of typed graphs, by PyG's attention over each type of edge.

Legend of shapes: ``N`` nodes of a type in all graphs of a batch, ``b`` graphs, ``f`` features, ``h`` width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, TransformerConv

from ... import settings
from ...worlds.typed_graph import InstanceGraph, Triple, WorldSpec


class GraphNetworkSettings(settings.Settings):
    """Widths of a graph network and of its head.

    Attributes:
        hidden: width ``h``; a multiple of ``heads``.
        heads: of attention.
        rounds: of messages.
        messages: false: each node knows its own features and those of the whole instance alone; the ablation of every world.
        encoder: ``python:MODULE:NAME``, a class of the user's own in place of `HeteroGNN`; see `own_encoder.OwnEncoder`.
    """

    hidden: int = Field(default=48, ge=8, le=512, multiple_of=8)
    heads: int = Field(default=4, ge=1, le=8)
    rounds: int = Field(default=3, ge=1, le=16)
    messages: bool = True
    encoder: str | None = Field(default=None, pattern="^python:", exclude_if=lambda encoder: encoder is None)

    @model_validator(mode="after")
    def _is_one_network(self) -> Self:
        if self.encoder is not None and not self.messages:
            raise ValueError("messages: false leaves out those of the network that encoder replaces; give another class instead")
        return self


class HeteroGNN(nn.Module):
    """Reads typed graphs; its layers follow from the names of a world's spec.

    Args:
        spec: of the world.
        widths: widths.

    Source:
        Shi et al., "Masked label prediction: unified message passing model for semi-supervised classification", 2021, for
        attention with features of edges (PyG's ``TransformerConv``).
    """

    def __init__(self, spec: WorldSpec, widths: GraphNetworkSettings) -> None:
        super().__init__()
        h = widths.hidden
        self.enter = nn.ModuleDict({name: nn.Linear(len(names), h) for name, names in spec.nodes.items()})
        self.whole = nn.ModuleDict({name: nn.Linear(len(spec.whole), h, bias=False) for name in spec.nodes})
        self.rounds = nn.ModuleList(_Round(spec, widths) for _ in range(widths.rounds))

    def forward(self, graphs: HeteroData) -> dict[str, Tensor]:
        """Return embeddings of each type, ``(N, h)``."""
        nodes = {
            name: self.enter[name](x) + self.whole[name](graphs.whole)[graphs[name].batch] for name, x in graphs.x_dict.items()
        }
        for each in self.rounds:
            nodes = each(nodes, graphs)
        return nodes


class _Round(nn.Module):
    """Attention over the edges of each type, then two layers for each node; both are added to what was there."""

    def __init__(self, spec: WorldSpec, widths: GraphNetworkSettings) -> None:
        super().__init__()
        h = widths.hidden

        def conv(triple: Triple) -> TransformerConv:
            return TransformerConv(
                h, h // widths.heads, widths.heads, edge_dim=len(spec.edges[triple]) or None, root_weight=False
            )

        self.convs = HeteroConv({triple: conv(triple) for triple in spec.edges}, aggr="sum") if widths.messages else None
        self.norm = nn.ModuleDict({name: nn.LayerNorm(h) for name in spec.nodes})
        self.own = nn.ModuleDict({name: _own(h) for name in spec.nodes})

    def forward(self, nodes: dict[str, Tensor], graphs: HeteroData) -> dict[str, Tensor]:
        if self.convs is not None:
            normed = {name: self.norm[name](x) for name, x in nodes.items()}
            sent = self.convs(normed, graphs.edge_index_dict, graphs.edge_attr_dict)
            nodes = {name: x + sent[name] if name in sent else x for name, x in nodes.items()}
        return {name: x + self.own[name](x) for name, x in nodes.items()}


def _own(h: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(h), nn.Linear(h, 2 * h), nn.ReLU(), nn.Linear(2 * h, h))


def hetero_data(graphs: Sequence[InstanceGraph]) -> HeteroData:
    """Return graphs as one; nodes of each type follow each other, and ``batch`` says whose they are.

    Args:
        graphs: of one world, ``b`` of them.
    """
    data, first = HeteroData(), dict[str, list[int]]()
    for name in graphs[0].nodes:
        counts = torch.tensor([len(each.nodes[name]) for each in graphs])
        first[name] = [0, *counts.cumsum(0).tolist()]
        data[name].x = torch.cat([torch.as_tensor(each.nodes[name]) for each in graphs])
        data[name].batch = torch.repeat_interleave(torch.arange(len(graphs)), counts)
        data[name].ptr = torch.tensor(first[name])
    for triple in graphs[0].ends:
        source, _, target = triple
        moved = [torch.tensor([[first[source][row]], [first[target][row]]]) for row in range(len(graphs))]
        ends = [torch.as_tensor(each.ends[triple]) + by for each, by in zip(graphs, moved, strict=True)]
        data[triple].edge_index = torch.cat(ends, dim=1)
        data[triple].edge_attr = torch.cat([torch.as_tensor(each.edges[triple]) for each in graphs])
    data.whole = torch.stack([torch.as_tensor(each.whole) for each in graphs])
    return data
