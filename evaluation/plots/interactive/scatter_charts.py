"""Trade-offs as data of a chart that can be moved and asked: layouts by time and memory, policies by two of their figures.

A chart is plain data that `report/templates/scatter.js` draws: series of points by column, each point with the item that it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....planning.search_table import RankedLayouts
from ....quantities import counted
from ..layout_search import COLOURS
from ..style import BASELINE, BLUE, GREEN, INK, PALE
from .gantt_charts import Chart, rounded

Row = Mapping[str, Any]

KINDS = {
    "learned": ("learned policy", BLUE),
    "own": ("policy of your own", BLUE),
    "baseline": ("baseline", "#8a929c"),
    "planner": ("planner", "#8a929c"),
    "published": ("published scheduler", GREEN),
    "reference": ("knows all arrivals beforehand: no policy", GREEN),
}

FRONT = "Down and to the left is better; the line joins the Pareto front: no other policy is as good in both and better in one."
"""What a caption says of the line of `policies_chart`."""


@dataclass(frozen=True)
class PolicyFigure:
    """One figure of policies as an axis.

    Attributes:
        metric: key of a row: an interval.
        name: what it is, with its unit.
        scale: from the metric to that unit.
        is_more_better: whether the front lies at large values.
    """

    metric: str
    name: str
    scale: float
    is_more_better: bool = False

    def of(self, row: Row, end: str = "mean") -> float | None:
        """The row's value in the unit; None where it has none."""
        value = row.get(self.metric)
        return None if value is None or value[end] is None else rounded(self.scale * value[end])


def layouts_chart(found: RankedLayouts) -> Chart:
    """All layouts that a search priced: step time over memory of a rank, the front of each number of devices joined."""
    searched = found.searched
    fronts = {n: [one for one in searched.front if one.devices == n] for n in sorted({one.devices for one in searched.front})}
    known = {(one.text, one.order) for one in searched.front}
    groups = [("priced", PALE, False, [one for one in searched.examined if (one.text, one.order) not in known])]
    groups += [
        (f"on the front, {counted(number, 'device')}", COLOURS[i % len(COLOURS)], True, front)
        for i, (number, front) in enumerate(fronts.items())
    ]
    items: list[list[Any]] = []
    series = []
    for name, colour, is_front, layouts in groups:
        numbers = range(len(items), len(items) + len(layouts))
        items += [[one.text, one.devices, one.order] for one in layouts]
        points = [(rounded(one.memory_bytes / 1e9), rounded(one.step_s)) for one in layouts]
        series.append(_series(name, colour, points, numbers, is_front=is_front, is_small=not is_front))
    return {
        "kind": "scatter",
        "label": f"Layouts of {found.name} on {found.cluster.name}: seconds of a step over memory of the fullest rank",
        "x": {"name": f"GB of the fullest rank, of {found.capacity_bytes / 1e9:.3g}", "log": False, "from_zero": True},
        "y": {"name": "seconds of a step", "log": True, "from_zero": False},
        "has_names": False,
        "series": [one for one in series if one["x"]],
        "items": {"columns": ["layout", "devices", "order of ranks"], "rows": items},
    }


def policies_chart(
    label: str, rows: Sequence[Row], x: PolicyFigure, y: PolicyFigure, *, is_log: tuple[bool, bool] = (False, False)
) -> Chart | None:
    """Policies by two figures, a series for each kind, and a line through those of the Pareto front alone.

    Series are drawn in their order, the learned policies last: where points coincide, theirs is the one that is seen.

    Args:
        label: what the chart shows.
        rows: of an evaluation.
        x, y: the figures.
        is_log: whether their axes are logarithmic; all values are positive then.

    Returns:
        None where fewer than two policies have both.
    """
    known = [row for row in rows if x.of(row) is not None and y.of(row) is not None]
    if len(known) < 2:
        return None
    front = undominated([(x.of(row), y.of(row)) for row in known], (x.is_more_better, y.is_more_better))  # type: ignore[misc]
    series = []
    kinds = dict.fromkeys(KINDS.get(row["kind"], ("policy", BASELINE)) for row in known)
    for name, colour in sorted(kinds, key=lambda kind: kind in (KINDS["learned"], KINDS["own"])):
        numbers = [number for number, row in enumerate(known) if KINDS.get(row["kind"], ("policy", BASELINE)) == (name, colour)]
        of = [known[number] for number in numbers]
        made = _series(name, colour, [(x.of(row), y.of(row)) for row in of], numbers)
        series.append(made | {"low": [y.of(row, "low") for row in of], "high": [y.of(row, "high") for row in of]})
    if not x.is_more_better and not y.is_more_better and len(front) > 1:
        points = [(x.of(known[number]), y.of(known[number])) for number in front]
        series.insert(0, _series("Pareto front", INK, points, front, is_front=True, is_small=True))
    return {
        "kind": "scatter",
        "label": label,
        "x": {"name": x.name, "log": is_log[0], "from_zero": False},
        "y": {"name": y.name, "log": is_log[1], "from_zero": False},
        "has_names": len(known) <= 24,
        "series": series,
        "items": {"columns": ["policy"], "rows": [[str(row["policy"])] for row in known]},
    }


def undominated(points: Sequence[tuple[float, float]], is_more_better: tuple[bool, bool] = (False, False)) -> list[int]:
    """The points that no other one is as good as in both figures and better than in one, by number.

    Args:
        points: two figures of each.
        is_more_better: of each figure.
    """
    signs = [-1.0 if more else 1.0 for more in is_more_better]
    costs = [(signs[0] * x, signs[1] * y) for x, y in points]
    return [
        number
        for number, (x, y) in enumerate(costs)
        if not any(other != (x, y) and other[0] <= x and other[1] <= y for other in costs)
    ]


def _series(
    name: str,
    colour: str,
    points: Sequence[tuple[float | None, float | None]],
    items: Sequence[int],
    *,
    is_front: bool = False,
    is_small: bool = False,
) -> dict[str, Any]:
    return {
        "name": name,
        "colour": colour,
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "low": [],
        "high": [],
        "item": list(items),
        "is_front": is_front,
        "is_small": is_small,
    }
