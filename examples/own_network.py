"""A network of your own, trained by the product's own command: `GraphSAGE` in place of its attention.

    meshwright train preset:operators-latency --minutes 10 --set network.encoder=python:own_network:OwnNetwork

Run it in the folder of this file, or with that on ``PYTHONPATH``; ``meshwright evaluate RUN`` needs it there too.
"""

from __future__ import annotations

import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

from meshwright.worlds.typed_graph import WorldSpec


class OwnNetwork(nn.Module):
    """Two rounds of GraphSAGE over every type of edge, with the largest message of each.

    Args:
        spec: names of the features of nodes and edges, by type.
        hidden: width of the embeddings that are wanted.
    """

    def __init__(self, spec: WorldSpec, hidden: int) -> None:
        super().__init__()
        self.enter = nn.ModuleDict({kind: nn.Linear(len(names), hidden) for kind, names in spec.nodes.items()})
        self.rounds = nn.ModuleList(
            HeteroConv({edge: SAGEConv((hidden, hidden), hidden, aggr="max") for edge in spec.edges}) for _ in range(2)
        )

    def forward(self, graphs: HeteroData) -> dict[str, torch.Tensor]:
        """Return embeddings of the nodes of each type, ``(nodes, hidden)``."""
        nodes = {kind: layer(graphs[kind].x).relu() for kind, layer in self.enter.items()}
        for talk in self.rounds:
            heard = talk(nodes, graphs.edge_index_dict)
            nodes = {kind: x + heard[kind].relu() if kind in heard else x for kind, x in nodes.items()}
        return nodes
