"""Figures of an evaluation and of a training run as SVG text; the same data gives the same bytes.

``rows`` are those of the results (see `evaluation.evaluate`): one per policy, with ``policy``, ``kind``,
``blocking_rate``, ``outcomes`` and ``degrees``. Rates are drawn in percent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..statistics import CHALLENGERS
from .style import BASELINE, EXPIRED, INK, LEARNED, MUTED, ORANGE, REFERENCE, RULE, RUNNING, ink_on, reasons, shade
from .svg import SMALL, TEXT, WIDTH, Canvas, LegendEntry, canvas, legend_height, printable, shortened, spread, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]

LONGEST_NAME = 64
_ROW, _BAR = 25.0, 0.66
_AXIS = 44.0


def by_blocking_rate(rows: Sequence[Row]) -> list[Row]:
    """Rows from the least to the greatest blocking rate; those without a figure come last."""
    return sorted(rows, key=lambda row: ((_interval(row) or (math.inf,))[0], str(row["policy"])))


class BarRow(NamedTuple):
    """A policy's bar.

    Attributes:
        name: of the policy.
        kind: learned, baseline, planner, published or reference.
        mean: length of the bar; None where there is no figure.
        low, high: the 95 % interval; None where there is none.
    """

    name: str
    kind: str
    mean: float | None
    low: float | None = None
    high: float | None = None


def blocking_svg(rows: Sequence[Row], name: str = "blocking") -> str:
    """Blocking rate of each policy with its 95 % interval, least first, learned policies and references in colour.

    Args:
        rows: of policies.
        name: of the drawing, where several stand in one page.
    """
    bars = [BarRow(_name(row), row["kind"], *(_interval(row) or (None, None, None))) for row in by_blocking_rate(rows)]
    return bars_svg(bars, "blocking rate (% of jobs after warm-up)", name, f"Blocking rate of {len(rows)} policies")


def bars_svg(rows: Sequence[BarRow], axis: str, name: str, label: str, start: float = 0.0, digits: int = 1) -> str:
    """A bar with its 95 % interval for each policy, in the order given, learned policies and references in colour.

    Args:
        rows: the bars.
        axis: what their length is, with its unit.
        name: of the drawing.
        label: what it shows.
        start: where bars begin.
        digits: of figures, after the point.
    """
    top, height = 44.0, _ROW * max(1, len(rows))
    with canvas(WIDTH, top + height + _AXIS) as sheet:
        left = _names(sheet, [{"policy": row.name, "kind": row.kind} for row in rows], top)
        right = WIDTH - 150.0
        axes = _bars(sheet, len(rows), left, top, right - left)
        for y, row in enumerate(rows):
            middle = top + (y + 0.5) * _ROW
            is_learned = row.kind in CHALLENGERS
            if row.mean is None:
                sheet.write(right + 44, middle, "none", colour=MUTED, align="right")
                continue
            if row.kind == "reference":
                axes.barh(y, row.mean - start, _BAR, start, facecolor="white", edgecolor=REFERENCE, hatch="////", linewidth=1.0)
            else:
                axes.barh(y, row.mean - start, _BAR, start, color=LEARNED if is_learned else BASELINE)
            sheet.write(right + 44, middle, f"{row.mean:.{digits}f}", align="right", bold=is_learned)
            if row.low is None or row.high is None:
                sheet.write(right + 52, middle, "one episode", colour=MUTED)
                continue
            axes.plot([max(start, row.low), row.high], [y, y], color=INK, linewidth=1.2, marker="|", markersize=6)
            sheet.write(right + 52, middle, f"[{row.low:.{digits}f}, {row.high:.{digits}f}]", colour=MUTED)
        ends = [end for row in rows for end in (row.mean, row.high) if end is not None]
        axes.set_xlim(start, start + 1.04 * (max([start, *ends]) - start or 1.0) if start else 1.04 * max([1.0, *ends]))
        axes.set_xlabel(axis)
        sheet.write(right + 44, top - 12, "mean", size=SMALL, colour=MUTED, align="right")
        sheet.write(right + 52, top - 12, "[95 % interval]", size=SMALL, colour=MUTED)
        keys = [LegendEntry("learned policy", LEARNED), LegendEntry("baseline", BASELINE)]
        if any(row.kind == "reference" for row in rows):
            keys.append(LegendEntry("knows all arrivals beforehand: no policy", REFERENCE, "////"))
        sheet.legend(keys, left, 6, right - left)
        return sheet.svg(name, label)


def reasons_svg(rows: Sequence[Row]) -> str:
    """Blocking rate of each policy, stacked by the reason for which jobs were turned away."""
    rows = [row for row in by_blocking_rate(rows) if row["outcomes"]]
    drawn = reasons(any(EXPIRED.word in row["outcomes"] for row in rows))
    drawn += (RUNNING,) * any(RUNNING.word in row["outcomes"] for row in rows)
    keys = [LegendEntry(reason.word, reason.colour) for reason in drawn]
    left = _names_width(rows)
    right = WIDTH - 70.0
    top = 12 + legend_height(keys, right - left) + 12
    with canvas(WIDTH, top + _ROW * max(1, len(rows)) + _AXIS) as sheet:
        _names(sheet, rows, top)
        axes = _bars(sheet, len(rows), left, top, right - left)
        stacks = [[_percent(row["outcomes"].get(reason.word)) for reason in drawn] for row in rows]
        widest = max([1.0, *(1.02 * sum(stack) for stack in stacks)])
        for y, stack in enumerate(stacks):
            start = 0.0
            for reason, share in zip(drawn, stack, strict=True):
                sheet.boxes(axes, [(start, y - _BAR / 2, share, _BAR)] * (share > 0), reason.colour, edge=0.6)
                if share / widest * (right - left) > text_width(f"{share:.1f}", SMALL) + 8:
                    x = left + (start + share / 2) / widest * (right - left)
                    middle = top + (y + 0.5) * _ROW
                    sheet.write(x, middle, f"{share:.1f}", size=SMALL, colour=ink_on(reason.colour), align="center")
                start += share
            is_learned = rows[y]["kind"] in CHALLENGERS
            sheet.write(WIDTH - 14, top + (y + 0.5) * _ROW, f"{start:.1f}", align="right", bold=is_learned)
        axes.set_xlim(0, widest)
        axes.set_xlabel("jobs turned away (% of jobs after warm-up)")
        sheet.write(WIDTH - 14, top - 12, "together", size=SMALL, colour=MUTED, align="right")
        sheet.legend(keys, left, 6, right - left)
        return sheet.svg("reasons", f"Reasons for which {len(rows)} policies turned jobs away")


def degrees_svg(rows: Sequence[Row]) -> str:
    """Into how many ranks each policy cuts the jobs that it accepts: a histogram per policy, shares as shades."""
    used = sorted({int(degree) for row in rows for degree, share in row["degrees"].items() if _percent(share) > 0})
    says = "degree (ranks of an accepted job); numbers: % of accepted jobs"
    label = f"Degrees of the jobs that {len(rows)} policies accepted"
    return _histograms(rows, "degrees", [str(degree) for degree in used], says, "degrees", label)


def shapes_svg(rows: Sequence[Row]) -> str:
    """On which shapes of block each policy places the jobs that it accepts; shapes in the order of the decision space."""
    used = _used(rows, "shapes")
    label = f"Shapes of the blocks on which {len(rows)} policies placed jobs"
    return _histograms(rows, "shapes", used, "shape of the block; numbers: % of accepted jobs", "shapes", label)


def rules_svg(rows: Sequence[Row]) -> str:
    """Draw the shares of the placement rules by which each policy places the jobs that it accepts."""
    label = f"Placement rules by which {len(rows)} policies placed jobs"
    return _histograms(rows, "rules", _used(rows, "rules"), "placement rule; numbers: % of accepted jobs", "rules", label)


def _used(rows: Sequence[Row], key: str) -> list[str]:
    """The names that any row has a share of; the row that has most of them tells their order, others come after."""
    ordered = sorted(rows, key=lambda row: -len(row[key]))
    return list(dict.fromkeys(name for row in ordered for name, share in row[key].items() if _percent(share) > 0))


def _histograms(rows: Sequence[Row], key: str, used: Sequence[str], says: str, name: str, label: str) -> str:
    """A row per policy, a column per name, shares as shades; policies of which nothing is known are left out."""
    rows = [row for row in by_blocking_rate(rows) if row[key]]
    width_of_names = max((text_width(text, SMALL) for text in used), default=0.0)
    is_slanted = len(used) > 1 and any(not text.isdigit() for text in used) and width_of_names > 60
    top = 20.0
    with canvas(WIDTH, top + _ROW * max(1, len(rows)) + _AXIS + (0.75 * width_of_names if is_slanted else 0)) as sheet:
        left = _names(sheet, rows, top)
        width = min(WIDTH - left - 20, 110.0 * max(1, len(used)))
        axes = _bars(sheet, len(rows), left, top, width)
        axes.set(xlim=(-0.5, max(1, len(used)) - 0.5), xlabel=says)
        axes.grid(visible=False)
        column = width / max(1, len(used))
        every = math.ceil(26 / column)
        axes.set_xticks(range(0, len(used), every), [printable(text) for text in used[::every]])
        if is_slanted:
            axes.tick_params(axis="x", labelrotation=40)
            for tick in axes.get_xticklabels():
                tick.set_horizontalalignment("right")
        for y, row in enumerate(rows):
            axes.axhline(y + 0.5, color=RULE, linewidth=0.6)
            shares = [_percent(row[key].get(text)) for text in used]
            cells = [(x, share) for x, share in enumerate(shares) if share > 0]
            spans = [(x - 0.48, 0.96) for x, _ in cells]
            axes.broken_barh(spans, (y - 0.44, 0.88), facecolors=[shade(share / 100) for _, share in cells])
            for x, share in cells if column > 24 else ():
                place = left + (x + 0.5) * column, top + (y + 0.5) * _ROW
                text = f"{share:.0f}" if share >= 1 else "<1"
                sheet.write(*place, text, size=SMALL, colour="#ffffff" if share > 80 else INK, align="center")
        if not used:
            sheet.write(left + width / 2, top + _ROW / 2, "no job was accepted", colour=MUTED, align="center")
        return sheet.svg(name, label)


def learning_curve_svg(curve: Sequence[Row], references: Mapping[str, float] | None = None) -> str:
    """Blocking rate on the validation episodes and in training against the number of decisions.

    Args:
        curve: rows with ``steps``, ``validation_blocking_rate`` and ``training_blocking_rate`` (None where there is
            no figure).
        references: blocking rates to compare with, by name, as shares; drawn as horizontal lines.
    """
    references = references or {}
    steps = [int(row["steps"]) for row in curve]
    unit, word = _decisions(max(steps, default=0))
    lines = {
        name: [(s / unit, 100 * row[key]) for s, row in zip(steps, curve, strict=True) if row.get(key) is not None]
        for name, key in (("in training", "training_blocking_rate"), ("validation episodes", "validation_blocking_rate"))
    }
    validated = lines["validation episodes"]
    best = min(validated, key=lambda point: (point[1], point[0]), default=(0.0, 0.0))
    labels = [(points[-1][1], f"{name}: {points[-1][1]:.1f} at the end") for name, points in lines.items() if points]
    if validated:
        labels[-1] = (labels[-1][0], f"{labels[-1][1]}, best {best[1]:.1f} (ring)")
    labels += [(100 * rate, f"{shortened(name, LONGEST_NAME)}: {100 * rate:.1f}") for name, rate in references.items()]
    margin = max((text_width(text) for _, text in labels), default=0.0) + 50
    left, top, height = 66.0, 18.0, 310.0
    width = WIDTH - left - margin
    with canvas(WIDTH, top + height + _AXIS) as sheet:
        axes = sheet.axes(left, top, width, height)
        axes.grid(axis="y")
        axes.set(xlabel=f"decisions ({word})", ylabel="blocking rate (% of jobs after warm-up)")
        for rate in references.values():
            axes.axhline(100 * rate, color=MUTED, linewidth=1.2, linestyle=(0, (5, 3)))
        looks = {"in training": (ORANGE, 1.4, ""), "validation episodes": (LEARNED, 2.0, "o")}
        for name, points in lines.items():
            if points:
                colour, thick, mark = looks[name]
                axes.plot(*zip(*points, strict=True), color=colour, linewidth=thick, marker=mark, markersize=4, clip_on=False)
        low, high = _around([y for points in lines.values() for _, y in points] + [100 * r for r in references.values()])
        axes.set_ylim(low, high)
        axes.set_xlim(0, max(steps, default=0) / unit or 1)
        if validated:
            axes.plot(*best, "o", markersize=10, markerfacecolor="none", markeredgecolor=INK, clip_on=False)
        else:
            sheet.write(left + width / 2, top + height / 2, "no validation yet", colour=MUTED, align="center")
        colours = [looks[name][0] for name, points in lines.items() if points] + [MUTED] * len(references)
        heights = [top + height * (high - y) / (high - low) for y, _ in labels]
        for (_, text), colour, wanted, y in zip(labels, colours, heights, spread(heights, 18, top, top + height), strict=True):
            x = left + width
            sheet.paper.plot([x + 4, x + 22, x + 34], [wanted, y, y], color=colour, linewidth=1.2)
            sheet.write(x + 40, y, text)
        return sheet.svg("learning", "Blocking rate against decisions in training")


def _bars(sheet: Canvas, count: int, left: float, top: float, width: float) -> Axes:
    """Axes with a row for each policy, the first on top."""
    count = max(1, count)
    axes = sheet.axes(left, top, width, _ROW * count)
    axes.set(ylim=(count - 0.5, -0.5), yticks=[])
    axes.grid(axis="x")
    return axes


def _names_width(rows: Sequence[Row]) -> float:
    bold = dict.fromkeys(CHALLENGERS, 1.13)
    return max((bold.get(row["kind"], 1.0) * text_width(_name(row)) for row in rows), default=60.0) + 20


def _names(sheet: Canvas, rows: Sequence[Row], top: float) -> float:
    """Names beside their rows, and where the axes begin."""
    left = _names_width(rows)
    for y, row in enumerate(rows):
        is_learned = row["kind"] in CHALLENGERS
        sheet.write(left - 8, top + (y + 0.5) * _ROW, _name(row), align="right", bold=is_learned, size=TEXT)
    return left


def _name(row: Row) -> str:
    return printable(shortened(str(row["policy"]), LONGEST_NAME))


def _interval(row: Row) -> tuple[float, float | None, float | None] | None:
    """Mean and interval of the blocking rate in percent; None where there is none."""
    value = row["blocking_rate"]
    if value is None:
        return None
    low, high = (None if value[end] is None else 100.0 * value[end] for end in ("low", "high"))
    return 100.0 * value["mean"], low, high


def _percent(share: float | None) -> float:
    return 0.0 if share is None else 100.0 * float(share)


def _decisions(most: int) -> tuple[float, str]:
    if most >= 2_000_000:
        return 1e6, "millions"
    return (1e3, "thousands") if most >= 2_000 else (1.0, "number")


def _around(values: Sequence[float]) -> tuple[float, float]:
    """Limits of an axis of percentages with some room around all values."""
    if not values:
        return 0.0, 100.0
    room = max(0.08 * (max(values) - min(values)), 0.5)
    return max(0.0, min(values) - room), min(100.0, max(values) + room)
