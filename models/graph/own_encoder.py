"""A user's own network in place of `HeteroGNN`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.data import HeteroData

from ...errors import PolicyError
from ...planners.own_policy import called, own_callable
from ...worlds.typed_graph import WorldSpec
from .hetero_gnn import GraphNetworkSettings


class OwnEncoder(nn.Module):
    """Reads typed graphs by a user's ``torch.nn.Module``.

    It is made as ``NAME(spec, hidden)`` and maps `HeteroData`, as `hetero_gnn.hetero_data` makes it, to a dict that has an
    embedding ``(N, hidden)`` of each type of node.

    Args:
        spec: of the world.
        given: of the network; with ``encoder``.

    Raises:
        PolicyError: the object cannot be imported or made, or is no module.
    """

    def __init__(self, spec: WorldSpec, given: GraphNetworkSettings) -> None:
        super().__init__()
        assert given.encoder is not None, "the caller looks"
        make, self._file = own_callable(given.encoder, "network")
        self._spelled, self._types, self._hidden = given.encoder, tuple(spec.nodes), given.hidden
        self.own = called(given.encoder, self._file, make, spec, given.hidden)
        if not isinstance(self.own, nn.Module):
            raise PolicyError("must make a torch.nn.Module", field="network.encoder", value=given.encoder)
        if any(is_lazy(each) for each in self.own.parameters()) or next(self.own.buffers(), None) is not None:
            problem = "must have its weights from the start, and no buffers, as those of BatchNorm (LayerNorm has none)"
            raise PolicyError(problem, field="network.encoder", value=given.encoder)

    def forward(self, graphs: HeteroData) -> dict[str, Tensor]:
        """Return embeddings of each type, ``(N, h)``.

        Raises:
            PolicyError: the user's code raises, or returns anything else.
        """
        found = called(self._spelled, self._file, self.own, graphs)
        for name in self._types:
            wanted, each = (graphs[name].num_nodes, self._hidden), found.get(name) if isinstance(found, dict) else None
            if not isinstance(each, Tensor) or tuple(each.shape) != wanted or each.dtype != torch.float32:
                shape = f"{tuple(each.shape)} of {each.dtype}" if isinstance(each, Tensor) else type(each).__name__
                problem = f"{self._spelled} must return a tensor {wanted} of float32 for nodes of type {name}"
                raise PolicyError(problem, field="network.encoder", value=shape)
            if not bool(each.isfinite().all()):
                raise PolicyError(f"{self._spelled} returns numbers that are not finite", field="network.encoder", value=name)
        return dict(found)
