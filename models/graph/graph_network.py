"""`GraphNetwork`: a graph network and an action head that score the actions of decisions on graphs of one world.

A graph is read once for all decisions on it, until it changes: observations hold its number in a `GraphBank`, not its arrays.

Legend of shapes: ``B`` decisions, ``n`` members, ``a`` actions, ``s`` nodes of an action, ``g`` groups, ``h`` width.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.data import HeteroData

from ...errors import PolicyError
from ...planners.own_policy import called, own_callable
from ...worlds.typed_graph import DecisionArrays, InstanceGraph, Sizes, WorldSpec
from ...worlds.world import WorldBatch
from ..network import NOT_OFFERED
from .action_head import ActionHead, Pools, PossibleActions
from .hetero_gnn import GraphNetworkSettings, HeteroGNN, hetero_data

Kept = TypeVar("Kept")
GRAPH = "graph"
"""Key of an observation: number of its graph in the bank."""


class OwnEncoder(nn.Module):
    """Reads typed graphs by a user's ``torch.nn.Module``.

    It is made as ``NAME(spec, hidden)`` and maps `HeteroData`, as `hetero_gnn.hetero_data` makes it, to a dict that has an
    embedding ``(N, hidden)`` of each type of node.

    Args:
        spec: of the world.
        widths: of the network; with ``encoder``.

    Raises:
        PolicyError: the object cannot be imported or made, or is no module.
    """

    def __init__(self, spec: WorldSpec, widths: GraphNetworkSettings) -> None:
        super().__init__()
        assert widths.encoder is not None, "the caller looks"
        make, self._file = own_callable(widths.encoder, "network")
        self._spelled, self._types, self._hidden = widths.encoder, tuple(spec.nodes), widths.hidden
        self.own = called(widths.encoder, self._file, make, spec, widths.hidden)
        if not isinstance(self.own, nn.Module):
            raise PolicyError("must make a torch.nn.Module", field="network.encoder", value=widths.encoder)
        if any(is_lazy(each) for each in self.own.parameters()) or next(self.own.buffers(), None) is not None:
            problem = "must have its weights from the start, and no buffers, as those of BatchNorm (LayerNorm has none)"
            raise PolicyError(problem, field="network.encoder", value=widths.encoder)

    def forward(self, graphs: HeteroData) -> dict[str, Tensor]:
        """Return embeddings of each type, ``(N, h)``.

        Raises:
            PolicyError: the user's code raises, or returns anything else.
        """
        result = called(self._spelled, self._file, self.own, graphs)
        for name in self._types:
            target, each = (graphs[name].num_nodes, self._hidden), result.get(name) if isinstance(result, dict) else None
            if not isinstance(each, Tensor) or tuple(each.shape) != target or each.dtype != torch.float32:
                shape = f"{tuple(each.shape)} of {each.dtype}" if isinstance(each, Tensor) else type(each).__name__
                problem = f"{self._spelled} must return a tensor {target} of float32 for nodes of type {name}"
                raise PolicyError(problem, field="network.encoder", value=shape)
            if not bool(each.isfinite().all()):
                raise PolicyError(f"{self._spelled} returns numbers that are not finite", field="network.encoder", value=name)
        return dict(result)


def compact_space(spec: WorldSpec, sizes: Sizes) -> spaces.Dict:
    """Return the space of observations that name their graph."""
    n, g, a, most = sizes.nodes[spec.member], sizes.nodes[spec.group], sizes.actions, max(sizes.nodes.values())
    return spaces.Dict(
        {
            GRAPH: spaces.Box(0, 2**31 - 1, (1,), np.int64),
            "member": spaces.Box(-1, g - 1, (n,), np.int32),
            "state": spaces.Box(-np.inf, np.inf, (len(spec.state),), np.float32),
            "nodes": spaces.Box(-1, most - 1, (a, len(spec.slots)), np.int32),
            "features": spaces.Box(-np.inf, np.inf, (a, len(spec.action)), np.float32),
            "action_mask": spaces.Box(0, 1, (a,), np.int8),
        }
    )


def compact(decisions: DecisionArrays, graphs: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return decisions as observations of `compact_space`, one a row; ``graphs`` are numbers of the bank, ``(B,)``."""
    member, state, nodes, features, mask = (each.copy() for each in decisions)
    seen = {"member": member, "state": state, "nodes": nodes, "features": features, "action_mask": mask.view(np.int8)}
    return {GRAPH: graphs.reshape(-1, 1), **seen}


class GraphBank:
    """Graphs of the instances that are played, by numbers that their player chooses."""

    def __init__(self) -> None:
        self._graphs: dict[int, InstanceGraph] = {}

    def put(self, number: int, graph: InstanceGraph) -> None:
        """Keep a graph under a number that has none yet."""
        self._graphs[number] = graph

    def keep(self, numbers: Collection[int]) -> None:
        """Forget all other graphs."""
        self._graphs = {number: graph for number, graph in self._graphs.items() if number in numbers}

    def some(self, numbers: Sequence[int]) -> list[InstanceGraph]:
        """Return graphs by their numbers."""
        return [self._graphs[number] for number in numbers]


class ChangingGraphs:
    """Graphs of episodes of a world whose graphs change, each new one under the next number of a bank.

    Args:
        bank: where graphs are kept.
        num_episodes: ``E``.

    Attributes:
        numbers: of the graph of each episode, ``(E,)``.
    """

    def __init__(self, bank: GraphBank, num_episodes: int) -> None:
        self._bank, self._next = bank, 0
        self._graphs: list[InstanceGraph | None] = [None] * num_episodes
        self.numbers = np.zeros(num_episodes, np.int64)

    def note(self, batch: WorldBatch[Any], alter: Callable[[InstanceGraph], InstanceGraph] | None = None) -> None:
        """Put the graphs of live episodes that have changed into the bank, altered by a function if there is one.

        Raises:
            GraphError: a graph or decision is not as the world says.
        """
        for e in np.flatnonzero(batch.is_live).tolist():
            graph = batch.checked_graph(e, self._graphs[e])
            if graph is not self._graphs[e]:
                self._graphs[e], self.numbers[e] = graph, self._next
                self._bank.put(self._next, graph if alter is None else alter(graph))
                self._next += 1

    def state(self) -> dict[str, Any]:
        """Return plain data from which `restore` continues."""
        return {"numbers": self.numbers.tolist(), "next": self._next}

    def restore(self, state: dict[str, Any], batch: WorldBatch[Any]) -> None:
        """Continue from a state, with the episodes as they were then."""
        self.numbers[:], self._next = state["numbers"], state["next"]
        for e, number in enumerate(state["numbers"]):
            self._graphs[e] = graph = batch.graph(e)
            self._bank.put(number, graph)


class EncodedGraphs(NamedTuple):
    """Tensors that are constant over decisions.

    Attributes:
        members: embeddings of members, ``(N, h)``.
        query: of members, a row of zeros at the end, ``(N + 1, h)``.
        slots: of each slot, addends of its nodes to the head's first layer, a row of zeros at the end, ``(N + 1, h)``.
        first: row of each graph's first node, of each type, ``(b + 1,)``.
        whole: features of instances, ``(b, f)``.
    """

    members: Tensor
    query: Tensor
    slots: list[Tensor]
    first: Mapping[str, Tensor]
    whole: Tensor


class GraphNetwork(nn.Module):
    """Scores the actions of decisions on graphs of one world.

    Args:
        spec: of the world.
        widths: widths.
        bank: the graphs that observations name.
    """

    def __init__(self, spec: WorldSpec, widths: GraphNetworkSettings, bank: GraphBank | None = None) -> None:
        super().__init__()
        self.spec, self.settings, self.bank = spec, widths, bank or GraphBank()
        self.encoder = HeteroGNN(spec, widths) if widths.encoder is None else OwnEncoder(spec, widths)
        self.head = ActionHead(spec, widths.hidden)
        self._cache: dict[Hashable, Any] = {}

    def encode(self, graphs: Sequence[InstanceGraph]) -> EncodedGraphs:
        """Return what all decisions on these graphs share."""
        data = hetero_data(graphs).to(self.head.out.weight.device)
        nodes, head = self.encoder(data), self.head
        members = nodes[self.spec.member]
        slots = [_padded(layer(nodes[kind])) for kind, layer in zip(self.spec.slots, head.nodes, strict=True)]
        first = {name: data[name].ptr for name in nodes}
        return EncodedGraphs(members, _padded(head.query(members)), slots, first, data.whole)

    def forward(self, seen: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return scores ``(B, a)`` and values ``(B,)`` of observations of `compact_space`."""
        numbers, of = torch.unique(seen[GRAPH][:, 0], return_inverse=True)
        return self.decide(self._encoded(numbers.tolist()), of, seen)

    def values(self, seen: Mapping[str, Tensor]) -> Tensor:
        """Return the values of observations, ``(B,)``."""
        values: Tensor = self(seen)[1]
        return values

    def forget(self) -> None:
        """Drop the embeddings that are kept while weights do not change."""
        self._cache = {}

    def _encoded(self, numbers: list[int]) -> EncodedGraphs:
        if torch.is_grad_enabled():
            return self.encode(self.bank.some(numbers))
        if self.spec.changes and tuple(numbers) not in self._cache:
            self.forget()  # no decision comes back to graphs that have changed
        return self.cached(tuple(numbers), lambda: self.encode(self.bank.some(numbers)))

    def cached(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """Return what a function makes of graphs of the bank; the same object until `forget`."""
        if key not in self._cache:
            self._cache[key] = make()
        cached: Kept = self._cache[key]
        return cached

    def decide(self, encoded: EncodedGraphs, of: Tensor, seen: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return scores ``(B, a)`` and values ``(B,)``.

        Args:
            encoded: the graphs.
            of: number of each decision's graph among them, ``(B,)``.
            seen: the decisions, as observations of `compact_space`.
        """
        spec, mask = self.spec, seen["action_mask"] > 0
        pools, whole = self._pools(encoded, of, seen["member"])
        row, action = mask.nonzero(as_tuple=True)
        local, added, query = seen["nodes"][row, action].long(), list[Tensor](), encoded.query
        for slot, (kind, rows) in enumerate(zip(spec.slots, encoded.slots, strict=True)):
            at = torch.where(local[:, slot] >= 0, local[:, slot] + encoded.first[kind][of[row]], len(rows) - 1)
            added.append(rows.index_select(0, at))
            if slot == 0:
                query = query.index_select(0, at)
        context = torch.cat([whole, encoded.whole[of], seen["state"]], dim=1)
        result = PossibleActions(row, sum(added[1:], start=added[0]), query, local, seen["features"][row, action], len(mask))
        scores, values = self.head(context, pools, result)
        dense = scores.new_full(mask.shape, NOT_OFFERED).index_put((row, action), scores)
        return dense, values

    def _pools(self, encoded: EncodedGraphs, of: Tensor, member: Tensor) -> tuple[Pools, Tensor]:
        """Return the members of each group, and the mean embedding of all members, ``(B, h)``."""
        rows, first, ends = encoded.members, encoded.first[self.spec.member], encoded.first[self.spec.group]
        num_members, num_groups, count = first.diff(), int(ends.diff().max()), len(of)
        is_own = torch.arange(member.shape[1], device=member.device) < num_members[of, None]
        decision, place = (is_own & (member >= 0)).nonzero(as_tuple=True)
        group = decision * num_groups + member[decision, place]
        joined = rows.index_select(0, first[of[decision]] + place)
        sums = rows.new_zeros(count * num_groups, rows.shape[1]).index_add(0, group, joined).view(count, num_groups, -1)
        counts = torch.bincount(group, minlength=count * num_groups).view(count, num_groups)
        of_all = rows.new_zeros(len(num_members), rows.shape[1]).index_add(0, torch.repeat_interleave(num_members), rows)
        of_all, num_members = of_all[of], num_members[of, None]
        num_left = num_members - counts.sum(dim=1, keepdim=True)
        left = torch.where(num_left > 0, (of_all - sums.sum(dim=1)) / num_left.clamp(min=1), 0.0)
        return Pools(sums / counts.clamp(min=1)[..., None], counts / num_members, left), of_all / num_members


def _padded(rows: Tensor) -> Tensor:
    """Return rows with one of zeros at the end."""
    return nn.functional.pad(rows, (0, 0, 0, 1))
