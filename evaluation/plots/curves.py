"""Curves: completion times of several policies, blocking against load, learning over several training seeds.

As all figures, they are SVG text, and the same data gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cluster.cluster_figures import PERCENTILES
from .charts import by_blocking_rate
from .style import BLUE, GREEN, GREY, INK, LEARNED, ORANGE, PINK, SKY, VERMILION
from .svg import WIDTH, Canvas, canvas, printable, shortened, spread, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
Look = tuple[str, str]

# Above this many, curves cannot be told apart.
MOST_CURVES = 8
LONGEST_NAME = 44
_LEFT, _TOP, _HEIGHT, _AXIS = 66.0, 18.0, 310.0, 44.0
_LOOKS: tuple[Look, ...] = tuple((colour, dash) for dash in ("-", "--") for colour in (ORANGE, VERMILION, SKY, PINK, GREY, INK))


def completion_svg(rows: Sequence[Row]) -> str:
    """Share of placed jobs that took no longer than each time, for the best policies by blocking rate."""
    rows = [row for row in by_blocking_rate(rows) if row["completion_percentiles_s"]][:MOST_CURVES]
    looks = looks_of([(str(row["policy"]), str(row["kind"])) for row in rows])
    hours = [np.array(row["completion_percentiles_s"]) / 3600 for row in rows]
    labels = [f"{_name(row['policy'])}: half within {h[len(h) // 2]:.2f} h" for row, h in zip(rows, hours, strict=True)]
    width = WIDTH - _LEFT - _margin(labels)
    with canvas(WIDTH, _TOP + _HEIGHT + _AXIS) as sheet:
        axes = sheet.axes(_LEFT, _TOP, width, _HEIGHT)
        axes.grid()
        axes.set(xlabel="completion time (h)", ylabel="% of accepted jobs", ylim=(0, 100))
        axes.set_xlim(0, max((float(h[-1]) for h in hours), default=1.0) or 1.0)
        for h, (colour, dash) in zip(hours, looks, strict=True):
            axes.plot(h, PERCENTILES, color=colour, linestyle=dash, linewidth=1.8)
        _list_labels(sheet, _LEFT + width, labels, looks)
        return sheet.svg("completion", f"Completion times under {len(rows)} policies")


def load_svg(curves: Mapping[str, Sequence[tuple[float, Row]]], kinds: Mapping[str, str], name: str = "load") -> str:
    """Blocking rate against the rate at which jobs arrive.

    Args:
        curves: by policy, mean inter-arrival time in seconds and blocking rate (mean, low, high) of each load.
        kinds: of each policy: learned, baseline or reference.
        name: of the drawing, where several stand in one page.
    """
    looks = looks_of([(policy, kinds[policy]) for policy in curves])
    points = [sorted((3600.0 / gap_s, rate) for gap_s, rate in curve) for curve in curves.values()]
    labels = [f"{_name(policy)}: {100 * p[-1][1]['mean']:.1f}" for policy, p in zip(curves, points, strict=True)]
    width = WIDTH - _LEFT - _margin(labels)
    with canvas(WIDTH, _TOP + _HEIGHT + _AXIS) as sheet:
        axes = sheet.axes(_LEFT, _TOP, width, _HEIGHT)
        axes.grid()
        axes.set(xlabel="arrivals per hour", ylabel="blocking rate (% of jobs)")
        top = max((100 * (rate["high"] or rate["mean"]) for p in points for _, rate in p), default=1.0)
        axes.set_ylim(0, 1.04 * max(1.0, top))
        for p, (colour, dash) in zip(points, looks, strict=True):
            loads, rates = [x for x, _ in p], [rate for _, rate in p]
            axes.plot(loads, [100 * r["mean"] for r in rates], color=colour, linestyle=dash, marker="o", markersize=4)
            if all(r["low"] is not None for r in rates):
                low, high = ([100 * r[end] for r in rates] for end in ("low", "high"))
                axes.fill_between(loads, low, high, color=colour, alpha=0.15, linewidth=0)
        _join_labels(sheet, axes, _LEFT + width, labels, looks, [100 * p[-1][1]["mean"] for p in points])
        return sheet.svg(name, f"Blocking rate of {len(curves)} policies against load")


class LearningMeasure(NamedTuple):
    """What a method of training validates by, and how often.

    Attributes:
        step_key: of a row of ``learning_curve.json``.
        step_name: what that counts, with its unit.
        step_scale: to that unit.
        key: of the validation.
        name: what that is, with its unit.
        scale: to that unit.
        digits: of a figure, after the point.
        is_less_better: whether less of it is better.
    """

    step_key: str = "steps"
    step_name: str = "decisions (thousands)"
    step_scale: float = 1e-3
    key: str = "validation_blocking_rate"
    name: str = "blocking rate (% of jobs)"
    scale: float = 100.0
    digits: int = 1
    is_less_better: bool = True

    def points(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        """Steps and validations, ``(n, 2)``, without rows that have none."""
        found = [(self.step_scale * row[self.step_key], row[self.key]) for row in rows]
        return np.array([(step, self.scale * value) for step, value in found if value is not None], np.float64).reshape(-1, 2)

    def best(self, points: NDArray[np.float64]) -> float:
        """The best validation of some points."""
        values = points[:, 1]
        return float(values.min() if self.is_less_better else values.max())


BLOCKING = LearningMeasure()


def learning_svg(runs: Mapping[str, Sequence[Row]], name: str = "seeds", measure: LearningMeasure = BLOCKING) -> str:
    """What several training runs of one config reach on validation episodes, and their mean.

    Args:
        runs: rows of ``learning_curve.json`` by the name of the run; rows without a validation are left out.
        name: of the drawing, where several stand in one page.
        measure: by which they validate.
    """
    found = {run: measure.points(rows) for run, rows in runs.items()}
    curves = {run: points for run, points in found.items() if len(points)}
    digits = measure.digits
    labels = [f"{_name(run)}: best {measure.best(curve):.{digits}f}" for run, curve in curves.items()]
    if len(curves) > 1:
        best = [measure.best(curve) for curve in curves.values()]
        spread_of = f"{np.mean(best):.{digits}f} ± {np.std(best, ddof=1):.{digits}f}"
        labels.append(f"mean of {len(curves)} runs: best of each {spread_of}")
    looks = [*(_LOOKS[i % len(_LOOKS)] for i in range(len(curves))), (LEARNED, "-")][: len(labels)]
    width = WIDTH - _LEFT - _margin(labels)
    with canvas(WIDTH, _TOP + _HEIGHT + _AXIS) as sheet:
        axes = sheet.axes(_LEFT, _TOP, width, _HEIGHT)
        axes.grid(axis="y")
        axes.set(xlabel=measure.step_name, ylabel=measure.name)
        for curve, (colour, dash) in zip(curves.values(), looks, strict=False):
            axes.plot(curve[:, 0], curve[:, 1], color=colour, linestyle=dash, linewidth=1.0)
        if len(curves) > 1:
            # Where every run has a figure, linear in between.
            first, last = max(c[0, 0] for c in curves.values()), min(c[-1, 0] for c in curves.values())
            steps = np.unique(np.concatenate([c[:, 0] for c in curves.values()]))
            steps = steps[(steps >= first) & (steps <= last)]
            mean = np.mean([np.interp(steps, c[:, 0], c[:, 1]) for c in curves.values()], axis=0)
            axes.plot(steps, mean, color=LEARNED, linewidth=2.4)
        _list_labels(sheet, _LEFT + width, labels, looks)
        about = "Blocking rate" if measure is BLOCKING else measure.name[:1].upper() + measure.name[1:]
        return sheet.svg(name, f"{about} on validation episodes in {len(curves)} training runs")


def looks_of(policies: Sequence[tuple[str, str]]) -> list[Look]:
    """Learned policies in their colour, references in theirs, dashed; the others as they come."""
    rest = iter(_LOOKS * (1 + len(policies) // len(_LOOKS)))
    learned = iter([(LEARNED, "-"), (BLUE, "--"), (BLUE, ":"), *([(BLUE, "-.")] * len(policies))])
    references = iter([(GREEN, "--"), *([(GREEN, ":")] * len(policies))])
    kinds = {"learned": learned, "own": learned, "reference": references}
    return [next(kinds.get(kind, rest)) for _, kind in policies]


def _name(policy: str) -> str:
    return printable(shortened(str(policy), LONGEST_NAME))


def _margin(labels: Sequence[str]) -> float:
    return max((text_width(text) for text in labels), default=0.0) + 50


def _list_labels(sheet: Canvas, x: float, labels: Sequence[str], looks: Sequence[Look]) -> None:
    """A legend beside the axes."""
    for i, (text, (colour, dash)) in enumerate(zip(labels, looks, strict=True)):
        y = _TOP + 12 + 20 * i
        sheet.paper.plot([x + 8, x + 34], [y, y], color=colour, linestyle=dash, linewidth=1.8)
        sheet.write(x + 40, y, text)


def _join_labels(
    sheet: Canvas, axes: Axes, x: float, labels: Sequence[str], looks: Sequence[Look], values: Sequence[float]
) -> None:
    """Labels at the ends of their curves."""
    low, high = axes.get_ylim()
    wanted = [_TOP + _HEIGHT * (high - value) / (high - low) for value in values]
    for text, (colour, dash), at, y in zip(labels, looks, wanted, spread(wanted, 18, _TOP, _TOP + _HEIGHT), strict=True):
        sheet.paper.plot([x + 4, x + 22, x + 34], [at, y, y], color=colour, linestyle=dash, linewidth=1.2)
        sheet.write(x + 40, y, text)
