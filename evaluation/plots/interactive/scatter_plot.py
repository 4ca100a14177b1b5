"""A trade-off as a drawing: what `scatter_charts.policies_chart` holds, for paper and for readers whose browser runs no "
"script."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..style import INK, MUTED
from ..svg import SMALL, WIDTH, LegendEntry, canvas, legend_height, printable, shortened, text_width
from .gantt_charts import Chart

_LEFT, _RIGHT, _HEIGHT, _AXIS = 76.0, 40.0, 380.0, 46.0
_LONGEST = 48
_ABOVE = 9.0
_PLACES = (
    (_ABOVE, 0.0, "left"),
    (-_ABOVE, 0.0, "right"),
    (0.0, _ABOVE, "center"),
    (0.0, -_ABOVE, "center"),
    (_ABOVE / 2, _ABOVE, "left"),
)
"""Where a name may stand: away from its point, and which side of it is there; the last is clear of a line that falls."""


def scatter_svg(chart: Chart, name: str) -> str:
    """A point with its interval for each policy, named where there is room, and a line through those that nothing beats.

    Args:
        chart: the chart.
        name: of the drawing.
    """
    series = chart["series"]
    keys = [
        LegendEntry(one["name"], one["colour"], marker="" if one["is_front"] else "o", dash="-" * one["is_front"])
        for one in series
    ]
    width = WIDTH - _LEFT - _RIGHT
    top = 8 + legend_height(keys, width) + 10
    with canvas(WIDTH, top + _HEIGHT + _AXIS) as sheet:
        sheet.legend(keys, _LEFT, 6, width)
        axes = sheet.axes(_LEFT, top, width, _HEIGHT)
        axes.grid(visible=True)
        for one in series:
            order = sorted(range(len(one["x"])), key=lambda k, one=one: (one["x"][k], -one["y"][k]))  # type: ignore[misc]
            points = [one["x"][k] for k in order], [one["y"][k] for k in order]
            if one["is_front"]:
                axes.plot(*points, color=one["colour"], linewidth=1.2, zorder=1)  # no steps: they run through beaten points
                continue
            for k, low in enumerate(one["low"]):
                if low is not None:
                    axes.plot([one["x"][k]] * 2, [low, one["high"][k]], color=MUTED, linewidth=1.0, zorder=2)
            axes.plot(*points, "o", color=one["colour"], markersize=7, markeredgecolor="white", zorder=3)
        for key, scale, label in (("x", axes.set_xscale, axes.set_xlabel), ("y", axes.set_yscale, axes.set_ylabel)):
            if chart[key]["log"]:
                scale("log")
            label(printable(chart[key]["name"]))
        axes.margins(x=0.08, y=0.1)
        if chart["has_names"]:
            _names(axes, chart)
        return sheet.svg(name, chart["label"])


def _names(axes: Any, chart: Chart) -> None:
    """Names beside their points, where the edge, other names and, if possible, the front leave room; else a name is left out."""
    axes.get_xlim(), axes.get_ylim()  # scales the axes, so that places of points are known
    taken: list[tuple[float, float, float, float]] = []
    edge = axes.transAxes.transform((1, 1))[0]
    front = _along_front(axes, chart)
    for one in reversed(chart["series"]):  # of coincident points the one that is seen, which is drawn last, is named
        if one["is_front"]:
            continue
        for x, y, item in zip(one["x"], one["y"], one["item"], strict=True):
            text = printable(shortened(str(chart["items"]["rows"][item][0]), _LONGEST))
            px, py = axes.transData.transform((x, y))
            wide = 0.75 * text_width(text, SMALL)
            boxes = {}
            for dx, dy, align in _PLACES:
                begin = px + dx - {"left": 0.0, "right": wide, "center": wide / 2}[align]
                boxes[dx, dy, align] = (begin, py + dy - 5, begin + wide, py + dy + 5)
            for (dx, dy, align), box in sorted(boxes.items(), key=lambda one: _holds_any(one[1], front)):
                if box[2] > edge or box[0] < axes.transAxes.transform((0, 0))[0] or any(_cross(box, other) for other in taken):
                    continue
                taken.append(box)
                place: dict[str, Any] = {
                    "xytext": (dx, dy),
                    "textcoords": "offset points",
                    "ha": align,
                    "va": "center",
                    "zorder": 2.5,
                }
                place["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # over the line
                axes.annotate(text, (x, y), fontsize=SMALL * 0.75, color=INK, **place)
                break


def _along_front(axes: Any, chart: Chart) -> NDArray[np.float64]:
    """Points along the line of the front, close to each other, as the names are placed, ``(n, 2)``."""
    ends = [sorted(zip(one["x"], one["y"], strict=True)) for one in chart["series"] if one["is_front"]]
    lines = [axes.transData.transform(line) for line in ends]
    share = np.linspace(0.0, 1.0, 200)[:, None]
    return np.concatenate([np.zeros((0, 2)), *(a + share * (b - a) for line in lines for a, b in itertools.pairwise(line))])


def _holds_any(box: tuple[float, float, float, float], points: NDArray[np.float64]) -> bool:
    return bool(((points >= box[:2]) & (points <= box[2:])).all(axis=1).any())


def _cross(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
