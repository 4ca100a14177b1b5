"""Networks of distant devices as `evaluate` plays them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...envs.tasklets.benchmark import MOST_TESTED, load_tasklet_benchmark
from ...planners.arrangement.arrange import CHAIN, ArrangementRequest, arrange
from ...simulation.tasklets.instance import TaskletInstance
from ..operators.policies import PlacingPolicy
from ..tasklets.policies import TaskletPolicySpec, tasklet_policy
from .evaluated_world import EvaluatedWorld, Options, ValidationEpisodes
from .placed_instances import OVER_REFERENCE, PlacedInstances

_OWN_SEED = 1_000_003
"""Seeds of the search for the best known begin here, so that it repeats no search that is compared."""


class EvaluatedTasklets(PlacedInstances):
    """See `EvaluatedWorld`."""

    name, words, case = "tasklets", "tasklets", "network"
    question = "who groups distant devices best?"
    policy_ending = ".tasklets.pt"

    @classmethod
    def load(cls, spec: str, changes: Sequence[str], options: Options) -> list[EvaluatedWorld]:
        """See `EvaluatedWorld`."""
        return [cls(load_tasklet_benchmark(spec, changes=list(changes)), options)]

    def make(self, spec: str) -> TaskletPolicySpec:
        """See `PlacedInstances`."""
        return tasklet_policy(spec)

    def validation(self, config: Mapping[str, Any], others: Sequence[EvaluatedWorld]) -> ValidationEpisodes:
        """See `EvaluatedWorld`: values over those of a short search."""
        instances = [self.benchmark.instance("validation", seed) for seed in range(self.benchmark.num_validation_seeds)]
        over = [arrange(each, ArrangementRequest(num_rounds=1)).value_s for each in instances]
        rule = f"{CHAIN} of one round"

        def play(spec: str, numbers: Sequence[int]) -> list[float]:
            if spec == rule:
                return [1.0 for _ in numbers]
            policy = self.make(spec)
            return [policy.place(instances[number], 0).value_s / over[number] for number in numbers]

        return ValidationEpisodes([rule], len(instances), play, measure=OVER_REFERENCE)

    def about(self, num_cases: int) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        chosen: dict[str, Any] = self.benchmark.tasklets.model_dump(mode="json")
        return chosen

    def facts(self) -> list[str]:
        """See `EvaluatedWorld`."""
        return []

    def limits(self) -> tuple[int, int]:
        """See `EvaluatedWorld`."""
        return 2, MOST_TESTED

    def classes(self, cases: Sequence[int]) -> list[dict[str, Any]]:
        """See `EvaluatedWorld`: kinds of networks."""
        kinds = self.benchmark.tasklets.kinds
        of = {kind: [place for place, case in enumerate(cases) if kinds[case % len(kinds)] == kind] for kind in kinds}
        found = [{"dimension": "kind", "class": kind, "cases": places} for kind, places in of.items() if places]
        return found if len(found) > 1 else []

    def instance(self, case: int) -> TaskletInstance:
        """See `PlacedInstances`."""
        found: TaskletInstance = self.benchmark.instance("test", case)
        return found

    def place(self, policy: PlacingPolicy[Any, Any], instance: Any, case: int) -> float:
        """See `PlacedInstances`."""
        return float(policy.place(instance, case).value_s)

    def search_longer(self, instance: Any, case: int) -> float:
        """See `PlacedInstances`: by `arrange`."""
        return arrange(instance, ArrangementRequest(self.benchmark.best_known_s, _OWN_SEED + case)).value_s
