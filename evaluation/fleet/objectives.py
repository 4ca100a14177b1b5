"""What the objectives of a fleet are called, their units, and which of two values is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...envs.fleet.objective import HIGHER_IS_BETTER
from ..tables import with_ends


@dataclass(frozen=True)
class Objective:
    """An objective by which policies of a fleet are compared.

    Attributes:
        metric: its name among `FLEET_METRICS`.
        words: for sentences.
        unit: in which it is told.
        scale: from the metric to that unit.
        digits: after the point.
    """

    metric: str
    words: str
    unit: str
    scale: float
    digits: int

    @property
    def sign(self) -> int:
        """1 where less is better, -1 where more is."""
        return -1 if self.metric in HIGHER_IS_BETTER else 1

    def cost(self, row: dict[str, Any]) -> float:
        """A row's mean, with the sign by which less is better; infinite where it has none."""
        value = row[self.metric]
        return float("inf") if value is None else self.sign * float(value["mean"])

    def value(self, figure: float) -> str:
        """A figure in the unit."""
        return f"{self.scale * figure:.{self.digits}f} {self.unit}"

    def difference(self, interval: dict[str, Any]) -> str:
        """A difference with its interval in the unit; of shares in points."""
        unit = "points" if self.unit == "%" else self.unit
        return f"{with_ends(interval, self.scale, self.digits, sign='+')} {unit}"


OBJECTIVES = {
    one.metric: one
    for one in (
        Objective("blocking_rate", "blocked jobs", "%", 100.0, 1),
        Objective("deadline_met_rate", "jobs that meet their deadline", "%", 100.0, 1),
        Objective("mean_completion_s", "mean completion time", "min", 1 / 60, 1),
        Objective("p95_completion_s", "95th percentile of completion time", "min", 1 / 60, 1),
        Objective("mean_wait_s", "mean wait", "min", 1 / 60, 1),
        Objective("makespan_s", "makespan", "h", 1 / 3600, 2),
        Objective("device_hours", "device-hours", "h", 1.0, 0),
    )
}
