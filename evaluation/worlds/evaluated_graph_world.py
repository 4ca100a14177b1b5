"""Any world of `worlds.registry` as `evaluate` plays it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...worlds.benchmark import MOST_TESTED
from ...worlds.registry import load_world
from ...worlds.world import World
from ..operators.dumped import write_each
from ..world_policies import PlacingPolicy, world_policy
from .evaluated_world import EvaluatedWorld, Options, ValidationEpisodes
from .placed_instances import OVER_REFERENCE, PlacedInstances


class EvaluatedGraphWorld(PlacedInstances):
    """See `EvaluatedWorld`."""

    name, words = "world", "a world of graphs"
    takes = frozenset({"dump"})
    question = "who decides best?"

    def __init__(self, benchmark: World[Any], options: Options = Options()) -> None:  # noqa: B008 - it cannot change
        super().__init__(benchmark.benchmark, options)
        self.world, self.case = benchmark, benchmark.case
        self.policy_ending = f".{benchmark.kind}.pt"
        self._exported: dict[str, dict[str, Any]] = {}

    @classmethod
    def load(cls, spec: str, changes: Sequence[str], options: Options) -> list[EvaluatedWorld]:
        """See `EvaluatedWorld`."""
        return [cls(load_world(spec, list(changes)), options)]

    def make(self, spec: str) -> PlacingPolicy[Any, Any]:
        """See `PlacedInstances`."""
        return world_policy(spec, self.world)

    def validation(self, config: Mapping[str, Any], others: Sequence[Any]) -> ValidationEpisodes:
        """See `EvaluatedWorld`: values over those of a short search."""
        instances = [self.world.instance("validation", seed) for seed in range(self.benchmark.num_validation_seeds)]
        over = [self.world.reference(each) for each in instances]
        rule = f"{self.world.reference_name} of one round"

        def play(spec: str, numbers: Sequence[int]) -> list[float]:
            if spec == rule:
                return [1.0 for _ in numbers]
            policy = self.make(spec)
            return [policy.place(instances[number], 0).value_s / over[number] for number in numbers]

        return ValidationEpisodes([rule], len(instances), play, measure=OVER_REFERENCE)

    def about(self, num_cases: int) -> dict[str, Any]:
        """See `EvaluatedWorld`: the benchmark's own keys."""
        common = {"name", "policies", "best_known_s", "clock", "num_seeds", "num_validation_seeds"}
        found: dict[str, Any] = self.benchmark.model_dump(mode="json", exclude=common)
        return next(iter(found.values())) if len(found) == 1 else found

    def facts(self) -> list[str]:
        """See `EvaluatedWorld`."""
        return []

    def limits(self) -> tuple[int, int]:
        """See `EvaluatedWorld`."""
        return 2, MOST_TESTED

    def classes(self, cases: Sequence[int]) -> list[dict[str, Any]]:
        """See `EvaluatedWorld`."""
        return self.world.classes(cases)

    def instance(self, case: int) -> Any:
        """See `PlacedInstances`."""
        return self.world.instance("test", case)

    def place(self, policy: PlacingPolicy[Any, Any], instance: Any, case: int) -> float:
        """See `PlacedInstances`."""
        made = policy.place(instance, case)
        self._exported[policy.name] = self.world.exported(instance, made)
        return float(made.value_s)

    def done(self, case: int, instance: Any, values: Mapping[str, float]) -> float:
        """See `PlacedInstances`; writes what policies decided where a folder is given for it."""
        if self.options.dump is not None:
            write_each(self.options.dump / f"instance-{case}", {name: self._exported[name] for name in values})
        return float("inf")

    def bound(self, instance: Any) -> float | None:
        """See `PlacedInstances`."""
        return self.world.bound(instance)

    def search_longer(self, instance: Any, case: int) -> float:
        """See `PlacedInstances`."""
        return self.world.best_known(instance, case)


class EvaluatedTasklets(EvaluatedGraphWorld):
    """See `EvaluatedWorld`."""

    name, words = "tasklets", "tasklets"
    question = "who groups distant devices best?"
