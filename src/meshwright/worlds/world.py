"""The contract of a world: what a decision problem says of itself so that all environments, networks and trainers can play it.

An instance is a typed graph. An episode decides, one action after another, which group each of its *members* joins: a device
joins a stage of a pipeline, an op a device. An action is a tuple of nodes of the graph with a row of features, so one head
scores the actions of every world. The graph of an instance never changes; membership, features and mask do.

Legend of shapes: ``E`` episodes, ``n`` nodes of a type, ``m`` edges of a type, ``a`` actions, ``s`` nodes of an action,
``f`` features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import files
from ..errors import GraphError, PlanError
from ..numba_records import by_reference

Triple = tuple[str, str, str]
"""Type of an edge: type of its source, name, type of its target."""

Instance = TypeVar("Instance")


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
        return files.digest(data)


@dataclass(frozen=True, eq=False)
class InstanceGraph:
    """The typed graph of one instance, as a `WorldSpec` describes it.

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


class WorldBatch(ABC, Generic[Instance]):
    """Episodes side by side, stepped by compiled functions.

    Attributes:
        instances: in numbered places; None in a place that is empty.
        decisions: the next one of each episode.
        is_live: whether an episode has a decision to make, ``(E,)``.
    """

    instances: list[Any]
    decisions: DecisionArrays
    is_live: NDArray[np.bool_]

    @property
    def num_episodes(self) -> int:
        """Number of episodes, ``E``."""
        return len(self.is_live)

    @abstractmethod
    def put(self, at: int, instance: Instance) -> None:
        """Fill a place with an instance that no episode in progress has there."""

    @abstractmethod
    def begin(self, e: int, at: int) -> None:
        """Start one episode on the instance of a place; the others continue."""

    @abstractmethod
    def step(self, actions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Carry out an action ``(E,)`` in each live episode and return the rewards, ``(E,)``.

        Raises:
            PolicyError: an action is not possible.
        """

    @abstractmethod
    def value(self, e: int) -> float:
        """Return the value of an episode in the world's unit; less is better. Infinity where it ended without a result."""

    @abstractmethod
    def outcome(self, e: int, name: str) -> Any:
        """Return the placement of an episode that is over, made by the policy of this name.

        Raises:
            PlanError: it ended without one.
        """

    def restart(self, instances: Sequence[Instance]) -> None:
        """Put an instance in the place of each of the first episodes and start them; the others rest."""
        self.is_live[:] = False
        for e, instance in enumerate(instances):
            self.put(e, instance)
            self.begin(e, e)

    def restart_first(self, num_episodes: int) -> None:
        """Start the first episodes on the instance in place 0; the others rest."""
        self.is_live[:] = False
        for e in range(num_episodes):
            self.begin(e, 0)

    def figures(self, e: int) -> dict[str, NDArray[Any]]:
        """Return what own rules read of the next actions in addition to their features, by name, ``(a,)`` each."""
        return {}

    def info(self, e: int) -> dict[str, Any]:
        """Return what environments show of an episode in addition to its observation."""
        return {}

    def lines(self, e: int) -> list[str]:
        """Return an episode as text, for ``render``."""
        return [f"{key}: {value}" for key, value in self.info(e).items()]


class KnownPart(Generic[Instance]):
    """The part of an instance that a policy plays: by default all of it.

    Attributes:
        instance: that is played.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def of_whole(self, outcome: Any, or_rule: bool = True) -> Any:
        """Return an outcome of the part as one of the whole instance, or with ``or_rule`` that of a rule if it is better."""
        return outcome


class World(ABC, Generic[Instance]):
    """A benchmark of a decision problem.

    Attributes:
        spec: what policies read.
        case: word for an instance, as "network".
        reference_name: the quick search that validations are compared with.
        rules: names of the world's rules and searches.
        planners: those of them that search or prove, which are no baselines.
        sample_temperature: draws follow the policy's probabilities to the power of one over this.
        benchmark: of the instances; None for instances of the caller's own.
    """

    spec: WorldSpec
    case: ClassVar[str] = "instance"
    reference_name: ClassVar[str]
    rules: ClassVar[tuple[str, ...]]
    planners: ClassVar[tuple[str, ...]] = ()
    sample_temperature: ClassVar[float] = 1.0
    benchmark: Any

    @property
    def name(self) -> str:
        """Name of the benchmark."""
        return str(self.benchmark.name)

    @property
    def kind(self) -> str:
        """Ending of the files of shipped policies: ``NAME.KIND.pt``."""
        return self.spec.name

    @property
    @abstractmethod
    def sizes(self) -> Sizes:
        """The most that an instance of the benchmark has."""

    @abstractmethod
    def sizes_of(self, instance: Instance) -> Sizes:
        """Return the sizes of one instance, also of one that the benchmark never draws."""

    @abstractmethod
    def instance(self, split: str, seed: int) -> Instance:
        """Return the instance of a seed of ``test``, ``validation`` or ``training``.

        Raises:
            ConfigError: there is no such split.
        """

    @abstractmethod
    def graph(self, instance: Instance) -> InstanceGraph:
        """Return what a network reads of an instance."""

    def checked_graph(self, instance: Instance) -> InstanceGraph:
        """Return `graph`, or refuse one that is not as `spec` says.

        Raises:
            GraphError: as `InstanceGraph.check`.
        """
        graph = self.graph(instance)
        graph.check(self.spec)
        return graph

    @abstractmethod
    def batch(self, num_places: int, num_episodes: int, sizes: Sizes | None = None) -> WorldBatch[Instance]:
        """Return episodes whose places are empty, with room for instances of these sizes, or of those of the benchmark."""

    @abstractmethod
    def reference(self, instance: Instance) -> float:
        """Return the value of the quick search that validations are compared with.

        Raises:
            PlanError: it finds nothing.
        """

    @abstractmethod
    def solve(self, instance: Instance, rounds: int, seed: int) -> NDArray[np.int64]:
        """Return the group of each member in a solution of a longer search, for imitation, ``(n,)``.

        Raises:
            PlanError: it finds none.
        """

    @abstractmethod
    def improve(self, instance: Instance, outcomes: Sequence[Any], budget_s: float, seed: int) -> Any:
        """Return the best outcome that a search finds from these, the best one first; never worse than they are."""

    @abstractmethod
    def tiny(self) -> Instance:
        """Return a small instance, on which compiled code is loaded before a clock begins."""

    @abstractmethod
    def solver(self, spec: str) -> Callable[[Instance, int], Any]:
        """Return a rule or search by its spelling, of the name in `rules`: a function from instance and seed to an outcome.

        Raises:
            PolicyError: the spelling is wrong.
        """

    @abstractmethod
    def best_known(self, instance: Instance, seed: int) -> Any:
        """Return the outcome that the benchmark's long search finds.

        Raises:
            PlanError: it finds none.
        """

    @property
    def learned_on(self) -> dict[str, Any]:
        """Return what a policy file keeps of the instances that it was trained on, for `known_part`.

        Raises:
            ConfigError: nothing may be learned on this benchmark.
        """
        return {}

    def known_part(self, instance: Instance, trained: Mapping[str, Any]) -> KnownPart[Instance]:
        """Return the part of an instance that is like what a policy was trained on.

        Args:
            instance: of the world.
            trained: of the policy's file, with what `learned_on` was.
        """
        return KnownPart(instance)

    def fallback(self, instance: Instance, name: str) -> Any:
        """Return the outcome of a rule, for where no episode of the policy of this name ends with a result.

        Raises:
            PlanError: there is none.
        """
        raise PlanError("no episode of the policy ended with a result", field=name)

    def bound(self, instance: Instance) -> float | None:
        """Return a lower bound on the value; None where none is known."""
        return None

    def classes(self, cases: Sequence[int]) -> list[dict[str, Any]]:
        """Return classes of test cases: ``dimension``, ``class`` and the ``cases`` of it, as places among all."""
        return []

    def exported(self, instance: Instance, outcome: Any) -> dict[str, Any]:
        """Return an outcome as plain data for JSON: by default the fields of its dataclass."""
        data = {each.name: getattr(outcome, each.name) for each in fields(outcome)}
        return {name: each.tolist() if isinstance(each, np.ndarray) else each for name, each in data.items()}

    def equivalent(self, instance: Instance, solution: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return a solution of equal value, ``(n,)``; where the problem has symmetries, a random one of them."""
        return solution
