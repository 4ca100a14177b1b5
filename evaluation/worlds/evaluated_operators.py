"""Operator placement as `evaluate` plays it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...budget_clock import clock_s
from ...errors import ConfigError
from ...planners.operators.place import PLACEMENT_PLANNERS, place
from ...planners.operators.request import PlacementRequest
from ...planners.policy_names import parsed
from ...simulation.operators.forms import form_value_s
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorPlacement
from ...simulation.operators.schedules import mean_times_s, mean_transfer_s, upward_order
from ...worlds.benchmark_files import PLACEMENT
from ...worlds.operators.benchmark import PlacementBenchmark, load_placement_benchmark
from ...worlds.operators.rules import CONSTANTS
from ...worlds.operators.world import OperatorWorld
from ..operators.differences import shown_instance
from ..operators.dumped import dump
from ..progress import Progress
from ..statistics import interval
from ..world_policies import PlacingPolicy
from .evaluated_graph_world import EvaluatedGraphWorld
from .evaluated_world import LEARNED, EvaluatedWorld, Options, PlayedCases, Row

DIMENSIONS = ("ops", "devices", "communication to computation", "memory slack")
MOST_VALUES = 6
"""A dimension with more values is divided into three classes of equally many instances."""


class EvaluatedOperators(EvaluatedGraphWorld):
    """See `EvaluatedWorld`."""

    name, words = "operators", "operator placement"
    key, made_from = PLACEMENT, PlacementBenchmark
    takes = frozenset({"show", "dump"})
    question = "who places ops best?"

    @classmethod
    def load(cls, spec: str, changes: Sequence[str], options: Options) -> list[EvaluatedWorld]:
        """See `EvaluatedWorld`."""
        benchmark = load_placement_benchmark(spec, changes=list(changes))
        for option, what in ((options.show, "schedules are shown"), (options.dump, "placements are dumped")):
            if option:
                benchmark.placement.check_default_form(what)
        return [cls(OperatorWorld(benchmark.placement.objective, benchmark), options)]

    @classmethod
    def from_settings(cls, benchmark: PlacementBenchmark) -> EvaluatedWorld:
        """See `EvaluatedWorld`."""
        return cls(OperatorWorld(benchmark.placement.objective, benchmark))

    def __init__(self, world: OperatorWorld, options: Options = Options()) -> None:  # noqa: B008 - it cannot change
        super().__init__(world, options)
        self._objective = world.objective
        self._noted: Counter[tuple[str, str]] = Counter()
        self._shown: list[dict[str, Any]] = []

    def validation_rules(self) -> list[str]:
        """See `EvaluatedGraphWorld`: the planners that neither search nor prove, the reference first, and the constants."""
        able = {name: one for name, one in PLACEMENT_PLANNERS.items() if self._objective in one.objectives}
        return [*(name for name, one in able.items() if not (one.is_search or one.is_exact or one.is_published)), *CONSTANTS]

    def about(self, num_cases: int) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        data: dict[str, Any] = self.benchmark.placement.model_dump(mode="json")
        return data | {"form": self.benchmark.placement.valued_form}

    def facts(self) -> list[str]:
        """See `EvaluatedWorld`."""
        placement = self.benchmark.placement
        return [f"{placement.objective}, valued by {placement.valued_form}" if placement.has_other_form else placement.objective]

    def limits(self) -> tuple[int, int]:
        """See `EvaluatedWorld`."""
        files = getattr(self.benchmark.placement.instances, "files", None)
        most = 1000 if files is None else min(1000, len(files))
        return min(2, most), most

    def classes(self, cases: Sequence[int]) -> list[dict[str, Any]]:
        """See `EvaluatedWorld`: by ops as drawn, beyond which the last block may go, devices, communication and memory."""
        sizes = getattr(self.benchmark.placement.instances, "num_ops", ())
        results = [facts(self.instance(case)) for case in cases]
        of = classes([each | {"ops": max((n for n in sizes if n <= each["ops"]), default=each["ops"])} for each in results])
        return [{"dimension": one, "class": name, "cases": places} for one, by in of.items() for name, places in by.items()]

    @lru_cache(maxsize=2000)  # noqa: B019 - as many as there are instances, as long as the world lives
    def instance(self, case: int) -> OperatorInstance:
        """See `EvaluatedGraphWorld`."""
        instance: OperatorInstance = self.world.instance("test", case)
        upward_order(instance)  # what every policy asks of an instance is worked out before anything is timed
        return instance

    def play(self, specs: Sequence[str], cases: Sequence[int], progress: Progress | None, phase: str) -> dict[str, PlayedCases]:
        """See `EvaluatedWorld`.

        Raises:
            ConfigError: an instance is to be shown that is not among the cases.
        """
        for number in self.options.show:
            if number not in cases:
                raise ConfigError(f"no such instance; from 0 to {len(cases) - 1}", field="--show", value=number)
        self._curves = BudgetCurves.from_budgets(self.benchmark.budgets_s, specs, self.made, len(cases))
        return super().play(specs, cases, progress, phase)

    def valued(self, instance: OperatorInstance, outcome: OperatorPlacement) -> float:
        """See `EvaluatedGraphWorld`: by the form of the benchmark."""
        return form_value_s(instance, outcome, self.benchmark.placement.valued_form)

    def done(self, case: int, instance: OperatorInstance, placed: Mapping[str, OperatorPlacement]) -> float:
        """See `EvaluatedGraphWorld`; the best value that searches of several budgets find."""
        for name, made in placed.items():
            if self.made(name).kind == LEARNED and made.note:
                self._noted[name, made.note] += 1
        if self.options.dump is not None:
            dump(self.options.dump, case, instance, placed)
        if case in self.options.show and placed:
            name, made = next(iter(placed.items()))
            heft = placed.get("heft") or place(instance, "heft", PlacementRequest(objective=self._objective))
            self._shown.append(shown_instance(instance, case, name, made, heft))
        return self._curves.place(case, instance, self.place)

    def more(self, rows: Sequence[Row]) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        return {**super().more(rows), "budgets": self._curves.as_data(self.known_s), "shown": self._shown}

    def remarks(self, specs: Mapping[str, str], rows: Sequence[Row]) -> list[str]:
        """See `EvaluatedWorld`: notes of policies, too."""
        num_cases = len(self.known_s)
        notes = (f"{name} on {100 * n / num_cases:.3g} % of the instances: {note}." for (name, note), n in self._noted.items())
        return [*super().remarks(specs, rows), *notes]


def facts(instance: OperatorInstance) -> dict[str, Any]:
    """Return ops, devices, mean transfer over mean op, and memory of all devices over what all ops hold; None if unlimited."""
    transfer_s = mean_transfer_s(instance)
    held, memory = float(instance.resident_bytes.sum()), float(instance.memory_bytes.sum())
    return {
        "name": instance.name,
        "ops": instance.num_ops,
        "devices": instance.num_devices,
        "communication to computation": float(transfer_s.mean() / mean_times_s(instance).mean()) if len(transfer_s) else 0.0,
        "memory slack": memory / held if np.isfinite(memory) and held > 0 else None,
    }


def classes(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[int]]]:
    """Return the numbers of the instances by dimension and class; dimensions with a single class are left out."""
    result = {}
    for dimension in DIMENSIONS:
        values = [each[dimension] for each in rows]
        known = np.array([value for value in values if value is not None], np.float64)
        distinct = sorted({_rounded(value) for value in known})
        if len(distinct) <= MOST_VALUES:
            of = {
                _text(value): [at for at, each in enumerate(values) if each is not None and _rounded(each) == value]
                for value in distinct
            }
        else:
            of = _thirds(values, known)
        unlimited = [at for at, value in enumerate(values) if value is None]
        if unlimited:
            of["unlimited"] = unlimited
        if len(of) > 1:
            result[dimension] = of
    return result


def _thirds(values: Sequence[Any], known: NDArray[np.float64]) -> dict[str, list[int]]:
    low, high = np.quantile(known, [1 / 3, 2 / 3])
    ends = [
        (-np.inf, low, f"up to {_text(low)}"),
        (low, high, f"{_text(low)} to {_text(high)}"),
        (high, np.inf, f"above {_text(high)}"),
    ]
    result = {
        text: [at for at, value in enumerate(values) if value is not None and begin < value <= end] for begin, end, text in ends
    }
    return {text: rows for text, rows in result.items() if rows}


def _rounded(value: float) -> float:
    """Round to two digits after the point: a slack comes back from sums of bytes."""
    return round(float(value), 2)


def _text(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


@dataclass(eq=False)
class BudgetCurves:
    """Searches, each with all budgets.

    Attributes:
        budgets_s: rising.
        searches: name, and the policy with each budget.
        values_s: ``(searches, budgets, instances)``; NaN where nothing was found.
        seconds: what it took, as ``values_s``.
    """

    budgets_s: tuple[float, ...]
    searches: dict[str, list[PlacingPolicy[Any, Any]]]
    values_s: NDArray[np.float64] = field(init=False)
    seconds: NDArray[np.float64] = field(init=False)

    @classmethod
    def from_budgets(
        cls,
        budgets_s: Sequence[float],
        policies: Sequence[str],
        make: Callable[[str], PlacingPolicy[Any, Any]],
        num_instances: int,
    ) -> BudgetCurves:
        """Return the curves of every search and of every learned policy among those that are compared.

        A learned policy searches from its own placement (``@search-SECONDS``).
        """
        searches: dict[str, list[PlacingPolicy[Any, Any]]] = {}
        for name in dict.fromkeys(parsed(policy).whole for policy in policies) if budgets_s else ():
            planner = PLACEMENT_PLANNERS.get(name)
            if planner is not None and not planner.is_search:
                continue
            first = make(name)
            if first.name in CONSTANTS or first.kind == "own":
                continue
            how = "" if planner is not None else "search-"
            shown = name if planner is not None else f"{name}@search"
            searches[shown] = [make(f"{name}@{how}{seconds:g}") for seconds in budgets_s]
        made = cls(tuple(budgets_s), searches)
        made.values_s = np.full((len(searches), len(budgets_s), num_instances), np.nan)
        made.seconds = np.zeros_like(made.values_s)
        return made

    def place(
        self, number: int, instance: OperatorInstance, value_s: Callable[[PlacingPolicy[Any, Any], OperatorInstance, int], float]
    ) -> float:
        """Place an instance with every budget; returns the best value, infinite where there is none."""
        for row, specs in enumerate(self.searches.values()):
            for column, spec in enumerate(specs):
                began_s = clock_s()
                self.values_s[row, column, number] = value_s(spec, instance, number)
                self.seconds[row, column, number] = clock_s() - began_s
        result = self.values_s[:, :, number]
        return float(np.nanmin(result)) if np.isfinite(result).any() else np.inf

    def as_data(self, known: NDArray[np.float64]) -> dict[str, Any]:
        """Return the value over the best known of searches that found anything.

        Args:
            known: the best known value of each instance, ``(instances,)``; where a search found nothing, it counts as the worst
                of the curves.
        """
        worst = np.fmax.reduce(self.values_s, axis=(0, 1)) if self.values_s.size else known
        values = np.where(np.isnan(self.values_s), worst, self.values_s) / known
        return {
            "seconds": list(self.budgets_s),
            "rows": [
                {
                    "policy": name,
                    "kind": specs[0].kind,
                    "over_best_known": [interval(each.tolist()) for each in values[row]],
                    "median_seconds": np.median(self.seconds[row], axis=1).tolist(),
                }
                for row, (name, specs) in enumerate(self.searches.items())
                if np.isfinite(self.values_s[row]).any()
            ],
        }
