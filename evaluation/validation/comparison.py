"""Figures compared with figures from elsewhere: rows, a line for each group, a summary for each family."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

Value = float | str | None
Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class ComparedFigure:
    """A figure of ours with the one that it is compared with.

    Attributes:
        family: kind of figure, for the summary.
        group: figures of one line, for example one job at one degree.
        figure: which figure of the group.
        predicted: ours.
        reference: theirs.
        tolerance: relative error up to which the two agree.
        alternatives: ours under other outcomes of chance in the reference; empty if chance changes nothing.
    """

    family: str
    group: str
    figure: str
    predicted: Value
    reference: Value
    tolerance: float
    alternatives: tuple[float, ...] = ()

    @property
    def relative_error(self) -> float:
        """Distance over the reference; 0 or 1 where the reference is zero, absent or no number."""
        return self._error(self.predicted)

    @property
    def agrees(self) -> bool:
        """Whether the relative error is within the tolerance."""
        return self.relative_error <= self.tolerance

    @property
    def interval(self) -> tuple[float, float] | None:
        """Least and greatest of ours over all that chance may do; None where it changes nothing."""
        values = (self.predicted, *self.alternatives)
        if not self.alternatives or not all(isinstance(value, int | float) for value in values):
            return None
        return min(values), max(values)  # type: ignore[type-var, return-value]

    @property
    def is_within(self) -> bool:
        """Whether the reference lies in the interval, or ours agrees."""
        if self.interval is None or not isinstance(self.reference, int | float):
            return self.agrees
        slack = self.tolerance * abs(self.reference)
        return self.interval[0] - slack <= self.reference <= self.interval[1] + slack

    @property
    def is_attained(self) -> bool:
        """Whether ours agrees or would if chance fell otherwise."""
        return any(self._error(value) <= self.tolerance for value in (self.predicted, *self.alternatives))

    def to_data(self) -> dict[str, Any]:
        """Return plain data; what chance changes only where it does."""
        chance = {"interval": self.interval, "within_interval": self.is_within, "attained": self.is_attained}
        return {
            "item": f"{self.group}: {self.figure}",
            "family": self.family,
            "predicted": self.predicted,
            "reference": self.reference,
            "relative_error": self.relative_error,
            "tolerance": self.tolerance,
            "agrees": self.agrees,
            **(chance if self.alternatives else {}),
        }

    def _error(self, predicted: Value) -> float:
        if isinstance(predicted, int | float) and isinstance(self.reference, int | float) and self.reference != 0:
            return abs(predicted - self.reference) / abs(self.reference)
        return float(predicted != self.reference)


@dataclass(frozen=True)
class Comparison:
    """All rows of one validation, in order."""

    rows: tuple[ComparedFigure, ...]

    @property
    def agrees(self) -> bool:
        """Whether every row agrees."""
        return all(row.agrees for row in self.rows)

    def groups(self) -> dict[tuple[str, str], list[ComparedFigure]]:
        """Return the rows of each family and group."""
        return gathered(self.rows, lambda row: (row.family, row.group))

    def summary(self) -> dict[str, dict[str, Any]]:
        """Return the number of items, how many disagree, largest and mean relative error, by family."""
        return {
            family: {
                "items": len(rows),
                "disagreeing": sum(not row.agrees for row in rows),
                "max_relative_error": max(row.relative_error for row in rows),
                "mean_relative_error": math.fsum(row.relative_error for row in rows) / len(rows),
            }
            for family, rows in gathered(self.rows, lambda row: row.family).items()
        }

    def to_data(self) -> dict[str, Any]:
        """Return plain data: every row, the summary, and whether all agree."""
        return {"rows": [row.to_data() for row in self.rows], "summary": self.summary(), "agrees": self.agrees}


def gathered(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Return the rows of each key, in their order."""
    result: dict[Key, list[Row]] = {}
    for row in rows:
        result.setdefault(key(row), []).append(row)
    return result
