"""Any world of `worlds.registry` as `evaluate` plays it: instances that policies decide whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...budget_clock import budgets_by, clock_s, clock_words
from ...errors import PlanError
from ...models.policy_files import NETWORK, policy_path
from ...planners.policy_names import parsed
from ...worlds.benchmark import MOST_TESTED, WorldBenchmark, over_reference
from ...worlds.benchmark_files import TASKLETS
from ...worlds.registry import load_world
from ...worlds.tasklets.world import TaskletBenchmark, TaskletWorld
from ...worlds.world import World
from ..metrics import METRICS, Metric, figures
from ..operators.dumped import write_each
from ..progress import Progress, reported
from ..world_policies import PlacingPolicy, world_policy
from .evaluated_world import BASELINE, LEARNED, TIME, EvaluatedWorld, Options, PlayedCases, Row, ValidationEpisodes

OVER_REFERENCE = "value over the reference"
"""Measure of trainings."""
_SAME = 1 + 1e-9
"""Values within this ratio are equal."""


@dataclass(frozen=True)
class PlacementFigures:
    """A placement as `evaluation.metrics` reads it; ratios of values, None of a policy that has a value on no instance.

    Attributes:
        over_best_known: to the best known value of the instance.
        over_best_rule: to the best baseline of the instance; None where none has a value.
        over_bound: to a lower bound; None where there is none.
        won: 1 where nobody is better.
        without_value: 1 where it has none and counts as the worst of the others.
    """

    over_best_known: float | None
    over_best_rule: float | None
    over_bound: float | None
    won: float
    without_value: float


class EvaluatedGraphWorld(EvaluatedWorld):
    """See `EvaluatedWorld`."""

    name, words = "world", "a world of graphs"
    takes = frozenset({"dump"})
    question = "who decides best?"
    is_parallel = False
    trade_offs = ((TIME, "over_best_known"),)

    def __init__(self, world: World[Any], options: Options = Options()) -> None:  # noqa: B008 - it cannot change
        super().__init__(world.benchmark, options)
        self.world, self.case = world, world.case
        self._made: dict[str, PlacingPolicy[Any, Any]] = {}
        self._placed: dict[str, Any] = {}
        self._reasons: dict[str, str] = {}

    @classmethod
    def load(cls, spec: str, changes: Sequence[str], options: Options) -> list[EvaluatedWorld]:
        """See `EvaluatedWorld`."""
        return [cls(load_world(spec, list(changes)), options)]

    @property
    def objective(self) -> Metric:
        """See `EvaluatedWorld`."""
        return METRICS["over_best_known"]

    def made(self, spec: str) -> PlacingPolicy[Any, Any]:
        """Return a policy; the same object at each call.

        Raises:
            MeshwrightError: it does not exist.
        """
        if spec not in self._made:
            self._made[spec] = world_policy(spec, self.world)
        return self._made[spec]

    def check(self, spec: str) -> None:
        """See `EvaluatedWorld`."""
        self.made(spec)

    def display_name(self, spec: str) -> str:
        """See `EvaluatedWorld`."""
        return spec

    def trained_file(self, spec: str) -> Path | None:
        """See `EvaluatedWorld`."""
        return policy_path(parsed(spec).whole, f".{self.world.kind}.pt", self.words) if self.kind(spec) == LEARNED else None

    def kind(self, spec: str) -> str:
        """See `EvaluatedWorld`."""
        return self.made(spec).kind

    def validation_rules(self) -> Sequence[str]:
        """Return rules of the world that a training is compared with in addition to the reference of validations."""
        return ()

    def validation(self, config: Mapping[str, Any], others: Sequence[Any]) -> ValidationEpisodes:
        """See `EvaluatedWorld`: values over those of the world's reference."""
        reference = f"{self.world.reference_name} of one round"

        @cache
        def case(number: int) -> tuple[Any, float]:
            instance = self.world.instance("validation", number)
            return instance, self.world.reference(instance)

        def play(spec: str, numbers: Sequence[int]) -> list[float]:
            if spec == reference:
                return [1.0 for _ in numbers]
            policy, values = world_policy(spec, self.world), []
            for number in numbers:
                (instance, over), value = case(number), np.inf
                with suppress(PlanError):
                    value = policy.place(instance, 0).value_s
                values.append(float(over_reference(value, over)))
            return values

        rules = self.validation_rules() or [reference]
        spelled = {reference: self.world.reference_name}
        return ValidationEpisodes(rules, self.benchmark.num_validation_seeds, play, measure=OVER_REFERENCE, spelled=spelled)

    def about(self, num_cases: int) -> dict[str, Any]:
        """See `EvaluatedWorld`: the benchmark's own keys."""
        data: dict[str, Any] = self.benchmark.model_dump(mode="json", exclude=set(WorldBenchmark.model_fields))
        return next(iter(data.values())) if len(data) == 1 else data

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
        """Return a test instance."""
        return self.world.instance("test", case)

    def valued(self, instance: Any, outcome: Any) -> float:
        """Return the value of an outcome in the world's unit.

        Raises:
            PlanError: it has none.
        """
        return float(outcome.value_s)

    def place(self, policy: PlacingPolicy[Any, Any], instance: Any, case: int) -> float:
        """Return the value of a policy's outcome; nan where there is none."""
        try:
            self._placed[policy.name] = outcome = policy.place(instance, case)
            return self.valued(instance, outcome)
        except PlanError as error:
            self._reasons[policy.name] = error.problem
            return float("nan")

    def done(self, case: int, instance: Any, placed: Mapping[str, Any]) -> float:
        """Note the outcomes of an instance, by policy; returns the best value of what else was tried, or infinity.

        They are written where a folder is given for them.
        """
        if self.options.dump is not None:
            data = {name: self.world.exported(instance, outcome) for name, outcome in placed.items()}
            write_each(self.options.dump / f"instance-{case}", data)
        return float("inf")

    def play(self, specs: Sequence[str], cases: Sequence[int], progress: Progress | None, phase: str) -> dict[str, PlayedCases]:
        """See `EvaluatedWorld`.

        Raises:
            PlanError: no policy has a value on some instance.
        """
        policies = [self.made(spec) for spec in specs]
        values = np.full((len(policies), len(cases)), np.nan)
        seconds, known = np.zeros_like(values), np.zeros(len(cases))
        bounds: list[float | None] = []
        with budgets_by(self.benchmark.clock):
            for policy in policies:  # compiled before anything is timed
                self.place(policy, self.instance(cases[0]), cases[0])
            for place, case in enumerate(reported(cases, f"{self.case}s", progress)):
                instance = self.instance(case)
                bounds.append(self.world.bound(instance))
                self._placed, self._reasons = {}, {}
                for row, policy in enumerate(policies):
                    began_s = clock_s()
                    values[row, place] = self.place(policy, instance, case)
                    seconds[row, place] = clock_s() - began_s
                if np.isnan(values[:, place]).all():
                    name, why = next(iter(self._reasons.items()))
                    problem = f"no policy that is compared places this instance; {name}: {why}"
                    raise PlanError(problem, field="policies", value=getattr(instance, "name", case))
                others = [self.done(case, instance, dict(self._placed))]
                with suppress(PlanError):  # of the benchmark's long search, which may find nothing
                    others.append(self.valued(instance, self.world.best_known(instance, case)))
                known[place] = np.nanmin([*others, *values[:, place]])
        self.known_s, self.bounds_s = known, bounds
        rules = np.array([policy.kind == BASELINE for policy in policies])
        return {
            policy.name: PlayedCases(
                self._figures(row, values, rules),
                decision_s={"median": float(np.median(seconds[row])), "p99": float(np.quantile(seconds[row], 0.99))},
            )
            for row, policy in enumerate(policies)
        }

    def _figures(self, row: int, values: NDArray[np.float64], rules: NDArray[np.bool_]) -> list[dict[str, float | None]]:
        """Return the figures of one policy on each instance.

        Args:
            row: of the policy.
            values: in seconds, nan where there is none, ``(policies, instances)``.
            rules: whether each policy is a baseline.
        """
        lacks = np.isnan(values[row])
        worst, best = np.nanmax(values, axis=0), np.nanmin(values, axis=0)
        own = np.where(lacks, worst, values[row])
        ruled = values[rules]
        has_rule = len(ruled) > 0 and not np.isnan(ruled).all(axis=0).any()
        best_rule = np.nanmin(ruled, axis=0) if has_rule else None
        result = []
        for place, bound in enumerate(self.bounds_s):
            view = PlacementFigures(
                over_best_known=None if lacks.all() else float(own[place] / self.known_s[place]),
                over_best_rule=None if best_rule is None or lacks.all() else float(own[place] / best_rule[place]),
                over_bound=None if bound is None or lacks.all() else float(own[place] / bound),
                won=float(not lacks[place] and own[place] <= best[place] * _SAME),
                without_value=float(lacks[place]),
            )
            result.append(figures(self.name, view))
        return result

    def more(self, rows: Sequence[Row]) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        return {
            "best_known_s": self.benchmark.best_known_s,
            "clock": self.benchmark.clock,
            "known_s": self.known_s.tolist(),
            "bounds_s": self.bounds_s,
            "trained": {
                row["policy"]: self.made(row["policy"].removeprefix(NETWORK)).trained for row in rows if row["kind"] == LEARNED
            },
        }

    def remarks(self, specs: Mapping[str, str], rows: Sequence[Row]) -> list[str]:
        """See `EvaluatedWorld`: the clock, and policies without a value on some instance."""
        shares = {row["policy"]: row["metrics"].get("without_value") for row in rows}
        return [
            *clock_words(self.benchmark.clock),
            *(
                f"{name} has no value on {100 * share['mean']:.3g} % of the {self.case}s, and counts as the worst there."
                for name, share in shares.items()
                if share is not None and share["mean"] > 0
            ),
        ]


class EvaluatedTasklets(EvaluatedGraphWorld):
    """See `EvaluatedWorld`."""

    name, words = "tasklets", "tasklets"
    key, made_from = TASKLETS, TaskletBenchmark
    question = "who groups distant devices best?"

    @classmethod
    def from_settings(cls, benchmark: TaskletBenchmark) -> EvaluatedWorld:
        """See `EvaluatedWorld`."""
        return cls(TaskletWorld(benchmark))
