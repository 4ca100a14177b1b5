"""Curves: completion times of several policies, blocking against load, learning in one run and over several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cluster.cluster_figures import PERCENTILES
from .figure import Figure, Look, Panel, axis, band, figure, line, marks
from .policies import by_blocking_rate
from .style import BLUE, GREEN, GREY, INK, LEARNED, MUTED, ORANGE, PINK, SKY, VERMILION

Row = Mapping[str, Any]

MOST_CURVES = 8
"""Above this many, curves cannot be distinguished."""

_LOOKS: tuple[Look, ...] = tuple(
    (colour, dash) for dash in ("solid", "dash") for colour in (ORANGE, VERMILION, SKY, PINK, GREY, INK)
)


def completion_figure(rows: Sequence[Row]) -> Figure:
    """Return the share of placed jobs that took no longer than each time, for the best policies by blocking rate."""
    rows = [row for row in by_blocking_rate(rows) if row["completion_percentiles_s"]][:MOST_CURVES]
    looks = looks_of([(str(row["policy"]), str(row["kind"])) for row in rows])
    traces = []
    for row, look in zip(rows, looks, strict=True):
        hours = np.array(row["completion_percentiles_s"]) / 3600
        traces.append(line(f"{row['policy']}: half within {hours[len(hours) // 2]:.2f} h", hours, PERCENTILES, look))
    x, y = axis("completion time (h)", rangemode="tozero"), axis("% of accepted jobs", span=(0, 100))
    return figure(f"Completion times under {len(rows)} policies", [Panel(traces, x, y)])


def load_figure(curves: Mapping[str, Sequence[tuple[float, Row]]], kinds: Mapping[str, str]) -> Figure:
    """Return the blocking rate against the rate at which jobs arrive.

    Args:
        curves: by policy, mean inter-arrival time in seconds and blocking rate (mean, low, high) of each load.
        kinds: of each policy: learned, baseline or reference.
    """
    traces = []
    for (policy, curve), look in zip(curves.items(), looks_of([(policy, kinds[policy]) for policy in curves]), strict=True):
        loads, rates = zip(*sorted(((3600.0 / gap_s, rate) for gap_s, rate in curve), key=lambda one: one[0]), strict=True)
        mean, low, high = ([100.0 * rate[end] for rate in rates if rate[end] is not None] for end in ("mean", "low", "high"))
        if len(low) == len(mean):
            traces.append(band(loads, low, high, look[0]))
        traces.append(line(f"{policy}: {mean[-1]:.1f}", loads, mean, look, **_marked(look[0])))
    x, y = axis("arrivals per hour"), axis("blocking rate (% of jobs)", rangemode="tozero")
    return figure(f"Blocking rate of {len(curves)} policies against load", [Panel(traces, x, y)])


class LearningMeasure(NamedTuple):
    """The measure and steps of a method's validation.

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
        """Return the steps and validations, ``(n, 2)``, without rows that have none."""
        results = [(self.step_scale * row[self.step_key], row[self.key]) for row in rows]
        return np.array([(step, self.scale * value) for step, value in results if value is not None], np.float64).reshape(-1, 2)

    def best(self, points: NDArray[np.float64]) -> float:
        """Return the best validation of some points."""
        values = points[:, 1]
        return float(values.min() if self.is_less_better else values.max())


BLOCKING = LearningMeasure()


def learning_curve_figure(curve: Sequence[Row], references: Mapping[str, float] | None = None) -> Figure:
    """Return the blocking rate on the validation episodes and in training against the number of decisions.

    Args:
        curve: rows with ``steps``, ``validation_blocking_rate`` and ``training_blocking_rate`` (None where there is
            no figure).
        references: blocking rates to compare with, by name, as shares; drawn as horizontal lines.
    """
    most = max((int(row["steps"]) for row in curve), default=0)
    scale, word = (1e-6, "millions") if most >= 2_000_000 else (1e-3, "thousands") if most >= 2_000 else (1.0, "number")
    measure = BLOCKING._replace(step_scale=scale, step_name=f"decisions ({word})")
    trained, validated = measure._replace(key="training_blocking_rate").points(curve), measure.points(curve)
    traces = []
    if len(trained):
        traces.append(
            line(
                f"in training: {trained[-1, 1]:.1f} at the end",
                trained[:, 0],
                trained[:, 1],
                (ORANGE, "solid"),
                line={"width": 1.4},
            )
        )
    if len(validated):
        name = f"validation episodes: {validated[-1, 1]:.1f} at the end, best {measure.best(validated):.1f} (ring)"
        traces.append(line(name, validated[:, 0], validated[:, 1], (LEARNED, "solid"), **_marked(LEARNED)))
        best = validated[np.lexsort((validated[:, 0], validated[:, 1]))[:1]]
        ring = {"symbol": "circle-open", "size": 15, "line": {"width": 2}}
        traces.append(marks("", best[:, 0], best[:, 1], INK, marker=ring, showlegend=False, hoverinfo="skip"))
    for number, (name, rate) in enumerate((references or {}).items()):
        look = MUTED, ("dash", "dot")[number % 2]
        traces.append(line(f"{name}: {100 * rate:.1f}", [0, measure.step_scale * most or 1], [100 * rate] * 2, look))
    title = "" if len(validated) else "no validation yet"
    x, y = axis(measure.step_name), axis("blocking rate (% of jobs after warm-up)")
    return figure("Blocking rate against decisions in training", [Panel(traces, x, y, title)])


def learning_figure(runs: Mapping[str, Sequence[Row]], measure: LearningMeasure = BLOCKING) -> Figure:
    """Draw the validation of several training runs of one config, and their mean.

    Args:
        runs: rows of ``learning_curve.json`` by the name of the run; rows without a validation are left out.
        measure: by which they validate.
    """
    result = {run: measure.points(rows) for run, rows in runs.items()}
    curves = {run: points for run, points in result.items() if len(points)}
    digits = measure.digits
    traces = [
        line(
            f"{run}: best {measure.best(curve):.{digits}f}",
            curve[:, 0],
            curve[:, 1],
            _LOOKS[i % len(_LOOKS)],
            line={"width": 1.3},
        )
        for i, (run, curve) in enumerate(curves.items())
    ]
    if len(curves) > 1:
        best = [measure.best(curve) for curve in curves.values()]
        name = f"mean of {len(curves)} runs: best of each {np.mean(best):.{digits}f} ± {np.std(best, ddof=1):.{digits}f}"
        # Where every run has a figure, linear in between.
        first, last = max(c[0, 0] for c in curves.values()), min(c[-1, 0] for c in curves.values())
        steps = np.unique(np.concatenate([c[:, 0] for c in curves.values()]))
        steps = steps[(steps >= first) & (steps <= last)]
        mean = np.mean([np.interp(steps, c[:, 0], c[:, 1]) for c in curves.values()], axis=0)
        traces.append(line(name, steps, mean, (LEARNED, "solid"), line={"width": 3.2}))
    about = measure.name[:1].upper() + measure.name[1:]
    label = f"{about} on validation episodes in {len(curves)} training runs"
    return figure(label, [Panel(traces, axis(measure.step_name), axis(measure.name))])


def looks_of(policies: Sequence[tuple[str, str]]) -> list[Look]:
    """Return learned policies in their colour, references in theirs, dashed; the others as they come."""
    rest = iter(_LOOKS * (1 + len(policies) // len(_LOOKS)))
    learned = iter([(LEARNED, "solid"), (BLUE, "dash"), (BLUE, "dot"), *([(BLUE, "dashdot")] * len(policies))])
    references = iter([(GREEN, "dash"), *([(GREEN, "dot")] * len(policies))])
    kinds = {"learned": learned, "own": learned, "reference": references}
    return [next(kinds.get(kind, rest)) for _, kind in policies]


def _marked(colour: str) -> dict[str, Any]:
    return {"mode": "lines+markers", "marker": {"color": colour, "size": 6, "symbol": "circle"}}
