"""Value against time: policies that use all the time that they are given, on the same instances with one budget after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...budget_clock import clock_s
from ...planners.operators.place import PLACEMENT_PLANNERS
from ...planners.policy_names import parsed
from ...simulation.operators.instance import OperatorInstance
from ...worlds.operators.rules import CONSTANTS
from ..statistics import interval
from ..world_policies import PlacingPolicy


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
        """Curves of every search and of every learned policy among those that are compared.

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
