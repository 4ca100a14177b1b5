"""The contract of a world: how a decision problem describes itself to environments, networks and trainers.

An instance is a typed graph. An episode decides, action by action, which group each of its *members* joins: a device joins a
stage of a pipeline, an op a device. An action is a tuple of nodes of the graph with a row of features, so one head scores the
actions of every world. Membership, features and mask change from decision to decision. The graph of most worlds is constant, and
encoded once. Where it changes, the spec says so, and each graph numbers its present nodes from 0.

Legend of shapes: ``E`` episodes, ``n`` members, ``a`` actions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import PlanError
from .typed_graph import DecisionArrays, InstanceGraph, Sizes, WorldSpec

Instance = TypeVar("Instance")


class WorldBatch(ABC, Generic[Instance]):
    """Episodes side by side, stepped by compiled functions.

    Attributes:
        spec: of the world.
        instances: in numbered places; None in a place that is empty.
        decisions: the next one of each episode.
        is_live: whether an episode has a decision to make, ``(E,)``.
        is_cut: whether one that is over was ended before its end, ``(E,)``; None where that never happens.
    """

    spec: WorldSpec
    instances: list[Any]
    decisions: DecisionArrays
    is_live: NDArray[np.bool_]
    is_cut: NDArray[np.bool_] | None = None

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
    def graph(self, e: int) -> InstanceGraph:
        """Return what a network reads of an episode; of one whose graph changes, at its next decision.

        The same object says that it has not changed.
        """

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

    def checked_graph(self, e: int, known: InstanceGraph | None = None) -> InstanceGraph:
        """Return `graph`; unless it is a known one, refuse it and the next decision where they are not as `spec` says.

        Raises:
            GraphError: as `InstanceGraph.check` and `DecisionArrays.check`.
        """
        graph = self.graph(e)
        if graph is not known:
            graph.check(self.spec)
            if self.is_live[e]:
                self.decisions.check(self.spec, e, graph)
        return graph

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

    def played(self, e: int) -> Any:
        """Return the world that users' policies get of an episode on the place of its number: by default the instance."""
        return self.instances[e]

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

    def graph(self, instance: Instance) -> InstanceGraph:
        """Return what a network reads of an instance, of a world whose graphs change at the first decision.

        Raises:
            GraphError: as `WorldBatch.checked_graph`.
        """
        batch = self.batch(1, 1, self.sizes_of(instance))
        batch.restart([instance])
        return batch.checked_graph(0)

    @abstractmethod
    def batch(self, num_places: int, num_episodes: int, sizes: Sizes | None = None) -> WorldBatch[Instance]:
        """Return episodes whose places are empty, with room for instances of these sizes, or of those of the benchmark."""

    def reference(self, instance: Instance) -> float:
        """Return the value of the quick search that validations are compared with: by default of the rule of its name.

        Raises:
            PlanError: it finds nothing.
        """
        return float(self.solver(self.reference_name)(instance, 0).value_s)

    @abstractmethod
    def solve(self, instance: Instance, rounds: int, seed: int) -> NDArray[np.int64]:
        """Return the group of each member in a solution of a longer search, for imitation, ``(n,)``.

        Of a world whose graphs change it is the action of each decision instead.

        Raises:
            PlanError: it finds none.
        """

    def improve(self, instance: Instance, outcomes: Sequence[Any], budget_s: float, seed: int) -> Any:
        """Return the best outcome that a search finds from these, the best one first; without a search the first."""
        return outcomes[0]

    @abstractmethod
    def tiny(self) -> Instance:
        """Return a small instance, on which compiled code is loaded before a clock begins."""

    @abstractmethod
    def solver(self, spec: str) -> Callable[[Instance, int], Any]:
        """Return a rule or search by its spelling, of the name in `rules`: a function from instance and seed to an outcome.

        Raises:
            PolicyError: the spelling is wrong.
        """

    def best_known(self, instance: Instance, seed: int) -> Any:
        """Return the outcome that the benchmark's long search finds: by default that of the reference.

        Raises:
            PlanError: it finds none.
        """
        return self.solver(self.reference_name)(instance, seed)

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
