"""Instances that policies place whole: the common part of operator placement and tasklets as `evaluate` plays them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...budget_clock import budgets_by, clock_s, clock_words
from ...models.policy_files import policy_path
from ...planners.policy_names import parsed
from ..metrics import METRICS, Metric, figures
from ..world_policies import PlacingPolicy
from .evaluated_world import BASELINE, LEARNED, TIME, EvaluatedWorld, Options, PlayedCases, Progress, Row

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


class PlacedInstances(EvaluatedWorld):
    """A benchmark of instances that policies place whole; see `EvaluatedWorld`."""

    is_parallel = False
    policy_ending: str
    """Of the files of shipped policies."""
    trade_offs = ((TIME, "over_best_known"),)

    def __init__(self, benchmark: Any, options: Options = Options(), built: Any = None) -> None:  # noqa: B008 - it cannot change
        super().__init__(benchmark, options, built)
        self._made: dict[str, PlacingPolicy[Any, Any]] = {}

    @property
    def objective(self) -> Metric:
        """See `EvaluatedWorld`."""
        return METRICS["over_best_known"]

    @abstractmethod
    def instance(self, case: int) -> Any:
        """Return a test instance."""

    @abstractmethod
    def make(self, spec: str) -> PlacingPolicy[Any, Any]:
        """Return a policy.

        Raises:
            MeshwrightError: it does not exist.
        """

    def made(self, spec: str) -> PlacingPolicy[Any, Any]:
        """Return a policy; the same object at each call."""
        if spec not in self._made:
            self._made[spec] = self.make(spec)
        return self._made[spec]

    @abstractmethod
    def place(self, policy: PlacingPolicy[Any, Any], instance: Any, case: int) -> float:
        """Return the value of a policy's placement in seconds; nan where there is none."""

    @abstractmethod
    def search_longer(self, instance: Any, case: int) -> float:
        """Return the value that a search for the best known finds; nan where it finds none."""

    def bound(self, instance: Any) -> float | None:
        """Return a lower bound on the value; None where none is known."""
        return None

    def done(self, case: int, instance: Any, values: Mapping[str, float]) -> float:
        """Note an instance that all policies placed, each to a value; returns the best of what else was tried, or infinity.

        Raises:
            PlanError: none has a value.
        """
        return float("inf")

    def check(self, spec: str) -> None:
        """See `EvaluatedWorld`."""
        self.made(spec)

    def display_name(self, spec: str) -> str:
        """See `EvaluatedWorld`."""
        return spec

    def trained_file(self, spec: str) -> Path | None:
        """See `EvaluatedWorld`."""
        return policy_path(parsed(spec).whole, self.policy_ending, self.words) if self.kind(spec) == LEARNED else None

    def kind(self, spec: str) -> str:
        """See `EvaluatedWorld`."""
        return self.made(spec).kind

    def play(self, specs: Sequence[str], cases: Sequence[int], progress: Progress | None, phase: str) -> dict[str, PlayedCases]:
        """See `EvaluatedWorld`."""
        with budgets_by(self.benchmark.clock):
            return self._play({spec: self.made(spec) for spec in specs}, cases, progress)

    def _play(
        self, policies: Mapping[str, PlacingPolicy[Any, Any]], cases: Sequence[int], progress: Progress | None
    ) -> dict[str, PlayedCases]:
        values = np.full((len(policies), len(cases)), np.nan)
        seconds, known = np.zeros_like(values), np.zeros(len(cases))
        bounds: list[float | None] = []
        for policy in policies.values():  # compiled before anything is timed
            self.place(policy, self.instance(cases[0]), cases[0])
        for place, case in enumerate(cases):
            instance = self.instance(case)
            bounds.append(self.bound(instance))
            for row, policy in enumerate(policies.values()):
                began_s = clock_s()
                values[row, place] = self.place(policy, instance, case)
                seconds[row, place] = clock_s() - began_s
            found = {policy.name: values[row, place] for row, policy in enumerate(policies.values())}
            known[place] = np.nanmin([self.done(case, instance, found), self.search_longer(instance, case), *found.values()])
            if progress is not None:
                progress(f"{self.case}s", place + 1, len(cases))
        self.known_s, self.bounds_s = known, bounds
        rules = np.array([policy.kind == BASELINE for policy in policies.values()])
        return {
            spec: PlayedCases(
                self._figures(row, values, rules),
                decision_s={"median": float(np.median(seconds[row])), "p99": float(np.quantile(seconds[row], 0.99))},
            )
            for row, spec in enumerate(policies)
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
        found = []
        for place, bound in enumerate(self.bounds_s):
            view = PlacementFigures(
                over_best_known=None if lacks.all() else float(own[place] / self.known_s[place]),
                over_best_rule=None if best_rule is None or lacks.all() else float(own[place] / best_rule[place]),
                over_bound=None if bound is None or lacks.all() else float(own[place] / bound),
                won=float(not lacks[place] and own[place] <= best[place] * _SAME),
                without_value=float(lacks[place]),
            )
            found.append(figures(self.name, view))
        return found

    def more(self, rows: Sequence[Row]) -> dict[str, Any]:
        """See `EvaluatedWorld`."""
        return {
            "best_known_s": self.benchmark.best_known_s,
            "clock": self.benchmark.clock,
            "known_s": self.known_s.tolist(),
            "bounds_s": self.bounds_s,
            "trained": {row["policy"]: self.made(row["policy"]).trained for row in rows if row["kind"] == LEARNED},
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
