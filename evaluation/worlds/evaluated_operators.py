"""Operator placement as `evaluate` plays it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...errors import ConfigError, PlanError
from ...planners.operators.place import PLACEMENT_PLANNERS, place
from ...planners.operators.request import PlacementRequest
from ...simulation.operators.forms import FORMS, form_value_s
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorPlacement, lower_bound
from ...simulation.operators.schedules import upward_order
from ...worlds.operators.benchmark import load_placement_benchmark
from ...worlds.operators.rules import CONSTANTS
from ...worlds.operators.world import operator_world
from ..operators.budgets import BudgetCurves
from ..operators.classes import classes, facts
from ..operators.differences import shown_instance
from ..operators.dumped import dump
from ..world_policies import PlacingPolicy, world_policy
from .evaluated_world import LEARNED, EvaluatedWorld, Options, PlayedCases, Progress, Row, ValidationEpisodes
from .placed_instances import OVER_REFERENCE, PlacedInstances

MOST_OVER = 1e3
"""Value over the reference of an instance of which no placement is found, where a training is validated."""


class EvaluatedOperators(PlacedInstances):
    """See `EvaluatedWorld`."""

    name, words, case = "operators", "operator placement", "instance"
    takes = frozenset({"show", "dump"})
    question = "who places ops best?"
    policy_ending = ".operators.pt"

    @classmethod
    def load(cls, spec: str, changes: Sequence[str], options: Options) -> list[EvaluatedWorld]:
        """See `EvaluatedWorld`."""
        world = cls(load_placement_benchmark(spec, changes=list(changes)), options)
        for option, what in ((options.show, "schedules are shown"), (options.dump, "placements are dumped")):
            if option:
                world.benchmark.placement.check_default_form(what)
        return [world]

    def __init__(self, benchmark: Any, options: Options = Options(), built: Any = None) -> None:  # noqa: B008 - it cannot change
        super().__init__(benchmark, options, built)
        self._placed: dict[str, OperatorPlacement] = {}
        self._reasons: dict[str, str] = {}
        self._noted: Counter[tuple[str, str]] = Counter()
        self._shown: list[dict[str, Any]] = []

    def make(self, spec: str) -> PlacingPolicy[Any, Any]:
        """See `PlacedInstances`."""
        return world_policy(spec, operator_world(self.benchmark.placement.objective, self.benchmark))

    def validation(self, config: Mapping[str, Any], others: Sequence[EvaluatedWorld]) -> ValidationEpisodes:
        """See `EvaluatedWorld`: values over those of the first rule."""
        chosen, objective = self.benchmark.placement, self.benchmark.placement.objective
        instances = [chosen.instance("validation", seed) for seed in range(self.benchmark.num_validation_seeds)]
        able = {name: one for name, one in PLACEMENT_PLANNERS.items() if objective in one.objectives and not one.is_published}
        rules = [name for name, one in able.items() if not one.is_search and not one.is_exact]
        over = [self.make(rules[0]).place(each, 0).value_s for each in instances]

        def play(spec: str, numbers: Sequence[int]) -> list[float]:
            policy, values = self.make(spec), []
            for number in numbers:
                try:
                    values.append(float(policy.place(instances[number], 0).value_s) / over[number])
                except PlanError:
                    values.append(MOST_OVER)
            return values

        return ValidationEpisodes([*rules, *CONSTANTS], len(instances), play, measure=OVER_REFERENCE)

    def about(self, num_cases: int) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        chosen: dict[str, Any] = self.benchmark.placement.model_dump(mode="json")
        return chosen | {"form": self.benchmark.placement.valued_form}

    def facts(self) -> list[str]:
        """See `EvaluatedWorld`."""
        chosen = self.benchmark.placement
        is_default = chosen.valued_form == FORMS[chosen.objective][0]
        return [chosen.objective if is_default else f"{chosen.objective}, valued by {chosen.valued_form}"]

    def limits(self) -> tuple[int, int]:
        """See `EvaluatedWorld`."""
        return 2, min(1000, self.benchmark.placement.most_instances)

    def classes(self, cases: Sequence[int]) -> list[dict[str, Any]]:
        """See `EvaluatedWorld`: by ops, devices, communication and memory."""
        of = classes([facts(self.instance(case)) for case in cases])
        return [{"dimension": one, "class": name, "cases": places} for one, by in of.items() for name, places in by.items()]

    @lru_cache(maxsize=2000)  # noqa: B019 - as many as there are instances, as long as the world lives
    def instance(self, case: int) -> OperatorInstance:
        """See `PlacedInstances`."""
        found: OperatorInstance = self.benchmark.placement.instance("test", case)
        upward_order(found)  # what every policy asks of an instance is worked out before anything is timed
        return found

    def play(self, specs: Sequence[str], cases: Sequence[int], progress: Progress | None, phase: str) -> dict[str, PlayedCases]:
        """See `EvaluatedWorld`.

        Raises:
            ConfigError: an instance is to be shown that is not among the cases.
        """
        for number in self.options.show:
            if number not in cases:
                raise ConfigError(f"no such instance; from 0 to {len(cases) - 1}", field="--show", value=number)
        self._curves = BudgetCurves.of(self.benchmark.budgets_s, specs, self.make, len(cases))
        return super().play(specs, cases, progress, phase)

    def bound(self, instance: Any) -> float:
        """See `PlacedInstances`."""
        return max(lower_bound(instance, self.benchmark.placement.objective), 1e-30)

    def place(self, policy: PlacingPolicy[Any, Any], instance: Any, case: int) -> float:
        """See `PlacedInstances`; by the form of the benchmark."""
        try:
            made: OperatorPlacement = policy.place(instance, case)
            self._placed[policy.name] = made
            return form_value_s(instance, made, self.benchmark.placement.valued_form)
        except PlanError as error:
            self._reasons[policy.name] = error.problem
            return float("nan")

    def done(self, case: int, instance: Any, values: Mapping[str, float]) -> float:
        """See `PlacedInstances`; the best value that searches of several budgets find."""
        placed, self._placed = self._placed, {}
        reasons, self._reasons = self._reasons, {}
        if np.isnan(list(values.values())).all():
            name, why = next(iter(reasons.items()))
            raise PlanError(
                f"no policy that is compared places this instance; {name}: {why}", field="policies", value=instance.name
            )
        placed = {name: placed[name] for name in values if name in placed}
        for name, made in placed.items():
            if self.made(name).kind == LEARNED and made.note:
                self._noted[name, made.note] += 1
        if self.options.dump is not None:
            dump(self.options.dump, case, instance, placed)
        if case in self.options.show and placed:
            name, made = next(iter(placed.items()))
            request = PlacementRequest(objective=self.benchmark.placement.objective)
            heft = placed.get("heft") or place(instance, "heft", request)
            self._shown.append(shown_instance(instance, case, name, made, heft))
        found = self._curves.place(case, instance, self.place)
        self._placed, self._reasons = {}, {}
        return found

    def search_longer(self, instance: Any, case: int) -> float:
        """See `PlacedInstances`: by annealing."""
        chosen = self.benchmark.placement
        request = PlacementRequest(objective=chosen.objective, budget_s=self.benchmark.best_known_s, seed=case)
        try:
            return form_value_s(instance, place(instance, "annealing", request), chosen.valued_form)
        except PlanError:
            return float("nan")

    def more(self, rows: Sequence[Row]) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        return {**super().more(rows), "budgets": self._curves.as_data(self.known_s), "shown": self._shown}

    def remarks(self, specs: Mapping[str, str], rows: Sequence[Row]) -> list[str]:
        """See `EvaluatedWorld`: notes of policies, too."""
        num_cases = len(self.known_s)
        notes = (f"{name} on {100 * n / num_cases:.3g} % of the instances: {note}." for (name, note), n in self._noted.items())
        return [*super().remarks(specs, rows), *notes]
