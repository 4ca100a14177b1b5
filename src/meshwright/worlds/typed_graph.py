"""A world as networks read it: the names of its features, its typed graphs, and decisions as arrays.

Legend of shapes: ``E`` episodes, ``n`` nodes of a type, ``m`` edges of a type, ``a`` actions, ``s`` nodes of an action,
``f`` features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import files
from ..errors import GraphError
from ..numba_records import by_reference

Triple = tuple[str, str, str]
"""Type of an edge: type of its source, name, type of its target."""


@dataclass(frozen=True)
class WorldSpec:
    """Names of all that a policy reads; a policy plays worlds whose `digest` is that of its training.

    Attributes:
        name: of the world.
        nodes: features of each type of node.
        edges: features of each type of edge.
        whole: features of an instance.
        member: type of the nodes that join groups.
        group: type of the nodes that are joined; not that of members.
        slots: type of each node of an action, ``s``; the first is a member, the second the group that it would join.
        action: features of an action.
        state: features of an episode that change with each decision.
        prior: weights of action features in the logits of an untrained policy; the others are 0.
        changes: whether the graph of an episode changes; what has left it is not there, and nodes have other numbers then.
    """

    name: str
    nodes: Mapping[str, tuple[str, ...]]
    edges: Mapping[Triple, tuple[str, ...]]
    whole: tuple[str, ...]
    member: str
    group: str
    slots: tuple[str, ...]
    action: tuple[str, ...]
    state: tuple[str, ...] = ()
    prior: Mapping[str, float] = field(default_factory=dict)
    changes: bool = False

    def __post_init__(self) -> None:
        ends = {end for source, _, target in self.edges for end in (source, target)}
        for name in (*ends, *self.slots, self.member, self.group):
            if name not in self.nodes:
                raise GraphError("is no type of node", field=f"{self.name}.spec", value=name, choices=tuple(self.nodes))
        if self.slots[:2] != (self.member, self.group) or self.member == self.group:
            raise GraphError("must begin with a member and its group", field=f"{self.name}.spec.slots", value=self.slots)
        for name in self.prior:
            if name not in self.action:
                raise GraphError("is no feature of an action", field=f"{self.name}.spec.prior", value=name, choices=self.action)

    @property
    def digest(self) -> str:
        """Return a digest of everything but the prior."""
        data = asdict(self) | {"edges": [[*triple, *names] for triple, names in self.edges.items()], "prior": None}
        if not data.pop("changes"):  # digests of files that were written before any graph changed
            return files.digest(data)
        return files.digest(data, "changes")


@dataclass(frozen=True, eq=False)
class InstanceGraph:
    """The typed graph of one instance, or of one decision where it changes, as a `WorldSpec` describes it.

    Attributes:
        nodes: features of each type, ``(n, f)``.
        ends: source and target of each edge, ``(2, m)``.
        edges: their features, ``(m, f)``.
        whole: features of the instance, ``(f,)``.
    """

    nodes: Mapping[str, NDArray[np.float32]]
    ends: Mapping[Triple, NDArray[np.int64]]
    edges: Mapping[Triple, NDArray[np.float32]]
    whole: NDArray[np.float32]

    def check(self, spec: WorldSpec) -> None:
        """Refuse a graph that is not as its world says.

        Raises:
            GraphError: with the field: a type without its features, an edge to no node, a feature that is not finite.
        """
        for name, names in spec.nodes.items():
            self._check_features(spec, f"nodes.{name}", self.nodes.get(name), len(names))
        for triple, names in spec.edges.items():
            text, ends = ".".join(triple), self.ends.get(triple)
            self._check_features(spec, f"edges.{text}", self.edges.get(triple), len(names))
            if ends is None or ends.shape != (2, len(self.edges[triple])):
                raise GraphError("needs a source and a target for each edge", field=f"{spec.name}.ends.{text}")
            for row, end in zip(ends, (triple[0], triple[2]), strict=True):
                if len(row) and not 0 <= row.min() <= row.max() < len(self.nodes[end]):
                    problem = f"leads to no node: there are {len(self.nodes[end])} of type {end}"
                    raise GraphError(problem, field=f"{spec.name}.ends.{text}", value=int(row.max()))
        self._check_features(spec, "whole", self.whole[None], len(spec.whole))

    @staticmethod
    def _check_features(spec: WorldSpec, name: str, features: NDArray[np.float32] | None, count: int) -> None:
        if features is None or features.ndim != 2 or features.shape[1] != count:
            shape = None if features is None else features.shape
            raise GraphError(f"must have {count} features a row", field=f"{spec.name}.{name}", value=shape)
        if not np.isfinite(features).all():
            raise GraphError("holds a feature that is not finite", field=f"{spec.name}.{name}")


@by_reference
class DecisionArrays(NamedTuple):
    """The next decision of each episode; a `WorldBatch` changes it in place.

    Attributes:
        member: group that each member has joined, -1 before, ``(E, n)``.
        state: features of the episode, ``(E, f)``.
        nodes: of each action, -1 where a slot is empty, ``(E, a, s)``.
        features: of each action, ``(E, a, f)``.
        mask: whether each action is possible, ``(E, a)``.
    """

    member: NDArray[np.int32]
    state: NDArray[np.float32]
    nodes: NDArray[np.int32]
    features: NDArray[np.float32]
    mask: NDArray[np.bool_]

    @classmethod
    def empty(cls, spec: WorldSpec, sizes: Sizes, num_episodes: int) -> DecisionArrays:
        """Return arrays for a number of episodes, without any possible action."""
        e, a = num_episodes, sizes.actions
        return cls(
            np.full((e, sizes.nodes[spec.member]), -1, np.int32),
            np.zeros((e, len(spec.state)), np.float32),
            np.full((e, a, len(spec.slots)), -1, np.int32),
            np.zeros((e, a, len(spec.action)), np.float32),
            np.zeros((e, a), np.bool_),
        )

    def check(self, spec: WorldSpec, e: int, graph: InstanceGraph) -> None:
        """Refuse a decision of an episode that is not as its world says.

        Raises:
            GraphError: with the field. No action is possible, a possible action has a missing node, a member has a missing
                group, or a feature is not finite.
        """
        mask, counts = self.mask[e], {name: len(features) for name, features in graph.nodes.items()}
        if not mask.any():
            raise GraphError("no action is possible, and the episode is not over", field=f"{spec.name}.decisions.mask")
        for slot, kind in enumerate(spec.slots):
            nodes, least = self.nodes[e, mask, slot], 0 if slot < 2 else -1
            self._check_nodes(spec, f"nodes.{kind}", nodes, least, kind, counts[kind])
        self._check_nodes(spec, "member", self.member[e, : counts[spec.member]], -1, spec.group, counts[spec.group])
        for name, values in (("state", self.state[e]), ("features", self.features[e, mask])):
            if not np.isfinite(values).all():
                raise GraphError("holds a feature that is not finite", field=f"{spec.name}.decisions.{name}")

    @staticmethod
    def _check_nodes(spec: WorldSpec, name: str, nodes: NDArray[np.int32], least: int, kind: str, count: int) -> None:
        wrong = nodes[(nodes < least) | (nodes >= count)]
        if len(wrong):
            problem = f"is of no node: there are {count} of type {kind}"
            raise GraphError(problem, field=f"{spec.name}.decisions.{name}", value=int(wrong[0]))


class Sizes(NamedTuple):
    """The most that an instance has.

    Attributes:
        nodes: of each type.
        edges: of each type.
        actions: of a decision.
    """

    nodes: Mapping[str, int]
    edges: Mapping[Triple, int]
    actions: int
