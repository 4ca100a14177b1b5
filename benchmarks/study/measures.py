"""What tells how good a policy is on a benchmark, as tables write it, and which way is better.

Of a scenario it is the blocking rate, a share with three decimals; of a fleet its objective, in the unit of the objective; of
operator placement the value over the lower bound of the instance; of elastic workloads the mean completion time in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.envs.benchmark_files import ELASTIC, PLACEMENT
from meshwright.evaluation.elastic.evaluate import OBJECTIVE as ELASTIC_OBJECTIVE
from meshwright.evaluation.fleet.objectives import OBJECTIVES, Objective
from meshwright.evaluation.fleet.tables import difference_cell
from meshwright.evaluation.statistics import Interval
from meshwright.evaluation.tables import escaped, verdict_word, with_ends


class Measure:
    """The blocking rate of a scenario.

    Attributes:
        metric: its name among the figures of single episodes.
        validated: its name in learning curves.
        sign: 1 where less is better, -1 where more is.
    """

    metric = "blocking_rate"
    validated = "validation_blocking_rate"
    sign = 1

    def heading(self, column: str) -> str:
        """Of a column of figures."""
        return f"{escaped(column)}: blocked"

    def columns_heading(self, column: str) -> str:
        """The same where the text about the table says what figures are."""
        return escaped(column)

    def single(self, value: float) -> str:
        """A figure without an interval."""
        return share(value)

    def value(self, value: Interval) -> str:
        """A figure with its interval."""
        return rate(value)

    def difference(self, difference: Interval, reached: float) -> str:
        """A paired difference with its interval, and what that says.

        Args:
            difference: to another policy.
            reached: the figure of that other policy.
        """
        return signed(difference)


class ObjectiveMeasure(Measure):
    """The objective of a fleet.

    Attributes:
        objective: which.
    """

    validated = "validation"

    def __init__(self, objective: Objective) -> None:
        self.objective, self.metric, self.sign = objective, objective.metric, objective.sign

    def heading(self, column: str) -> str:
        """See `Measure.heading`."""
        return f"{escaped(column)}: {self.objective.words}, {self.objective.unit}"

    columns_heading = heading

    def single(self, value: float) -> str:
        """See `Measure.single`."""
        return self.objective.value(value)

    def value(self, value: Interval) -> str:
        """See `Measure.value`."""
        return with_ends(value, self.objective.scale, self.objective.digits)

    def difference(self, difference: Interval, reached: float) -> str:
        """See `Measure.difference`; the difference as a share of what the other policy reaches stands behind it."""
        told = difference_cell(difference, self.objective, has_words=True)
        return told if reached == 0 else f"{told} ({with_ends(difference, 100 / reached, 0, sign='+')} %)"


class BoundMeasure(ObjectiveMeasure):
    """Seconds of a step, or the largest load of a device, over the lower bound of the instance."""

    def __init__(self) -> None:
        super().__init__(Objective("over_bound", "value", "times the lower bound", 1.0, 2))

    def single(self, value: float) -> str:
        """See `Measure.single`; no unit, for learning curves hold values over those of a rule."""
        return f"{value:.2f}"


BLOCKING = Measure()
"""Of every scenario."""

OVER_BOUND = BoundMeasure()
"""Of all operator placement."""

OF_ELASTIC = ObjectiveMeasure(ELASTIC_OBJECTIVE)
"""Of all elastic workloads."""


def measure_of(results: Mapping[str, Any]) -> Measure:
    """What results are about, by keys that those of scenarios have not."""
    if PLACEMENT in results:
        return OVER_BOUND
    if ELASTIC in results:
        return OF_ELASTIC
    return ObjectiveMeasure(OBJECTIVES[results["objective"]]) if "objective" in results else BLOCKING


def rate(value: Interval) -> str:
    """A share with three decimals and its interval, ``.133 [.128, .138]``."""
    ends = "" if value["low"] is None else f" [{share(value['low'])}, {share(value['high'])}]"
    return f"{share(value['mean'])}{ends}"


def signed(difference: Interval) -> str:
    """A difference of shares with its interval and what that says, ``-.014 [-.019, -.009] better``."""
    ends = "" if difference["low"] is None else f" [{share(difference['low'], '+')}, {share(difference['high'], '+')}]"
    return f"{share(difference['mean'], '+')}{ends} {verdict_word(difference)}"


def share(value: float, sign: str = "") -> str:
    """A share with three decimals, without the zero before the point."""
    return f"{value:{sign}.3f}".replace("0.", ".", 1) if abs(value) < 0.9995 else f"{value:{sign}.3f}"
