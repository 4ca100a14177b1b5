"""Trade-offs: policies by two of their figures, and layouts by time and memory, with the Pareto front of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...planners.layouts.results import RankedLayout
from ...planning.search_table import RankedLayouts
from ...quantities import counted
from ..metrics import Metric
from .figure import Figure, Panel, axis, figure, line, marks, shown, whiskers
from .style import BLUE, GREEN, INK, KINDS, MUTED, ORANGE, PALE, PINK, SKY, VERMILION, kind_of

Row = Mapping[str, Any]
Point = tuple[float, float]

FRONT = "Down and to the left is better; the line joins the Pareto front: no other policy is as good in both and better in one."
"""The caption of the line of `policies_figure`."""

MOST_LAYOUTS = 4_000
"""That are drawn off the front; of more, those at equal distances in the order of their step times."""

_COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PINK, SKY)
_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
_WIDTH, _HEIGHT = 900.0, 400.0  # pixels, for which names find room
_PLACES = {"middle right": (8, 0), "middle left": (-8, 0), "top center": (0, 11), "bottom center": (0, -11)}


def policies_figure(
    label: str, rows: Sequence[Row], x: Metric, y: Metric, *, is_log: tuple[bool, bool] = (False, False)
) -> Figure | None:
    """Return the policies by two figures, a colour for each kind, and a line through those of the Pareto front alone.

    The learned policies are drawn last: where points coincide, theirs is the one that is seen.

    Args:
        label: what the figure shows.
        rows: of an evaluation.
        x, y: the figures.
        is_log: whether their axes are logarithmic; all values are positive then.

    Returns:
        None where fewer than two policies have both.
    """
    known = [(row, a, b) for row in rows if (a := x.value(row)) is not None and (b := y.value(row)) is not None]
    if len(known) < 2:
        return None
    points = [(a, b) for _, a, b in known]
    front = undominated(points, (x.sign < 0, y.sign < 0))
    traces = []
    if min(x.sign, y.sign) > 0 and len(front) > 1:
        ends = sorted({points[number] for number in front})
        traces.append(
            line(
                "Pareto front", [a for a, _ in ends], [b for _, b in ends], (INK, "solid"), line={"width": 1.2}, hoverinfo="skip"
            )
        )
    kinds = dict.fromkeys(kind_of(row) for row, _, _ in known)
    order = sorted(range(len(known)), key=lambda number: (number not in front, known[number][1]))
    places = _places([points[number] for number in order], [str(known[number][0]["policy"]) for number in order], is_log)
    place_of = dict(zip(order, places, strict=True))
    for kind in sorted(kinds, key=lambda kind: kind == KINDS["learned"]):
        of = [number for number, (row, _, _) in enumerate(known) if kind_of(row) == kind]
        names = [shown(known[number][0]["policy"]) for number in of]
        low, high = ([y.value(known[number][0], end) for number in of] for end in ("low", "high"))
        means = [points[number][1] for number in of]
        traces.append(whiskers("y", [points[number][0] for number in of], list(zip(low, high, strict=True)), MUTED))
        written = [name if place_of[number] else "" for name, number in zip(names, of, strict=True)]
        text = {"text": written, "textposition": [place_of[number] or "middle right" for number in of]}
        says = [
            f"<b>{name}</b><br>{shown(x.axis, 120)}: {points[number][0]:.4g}<br>{shown(y.axis, 120)}: {mean:.4g}"
            + (f" [{a:.4g}, {b:.4g}]" if a is not None and b is not None else "")
            for name, number, mean, a, b in zip(names, of, means, low, high, strict=True)
        ]
        look = {"mode": "markers+text", "hovertext": says, "cliponaxis": False}
        traces.append(marks(kind.word, [points[number][0] for number in of], means, kind.colour, **look, **text))
    across, up = (axis(one.axis, is_log=log) for one, log in zip((x, y), is_log, strict=True))
    return figure(label, [Panel(traces, across, up, height=_HEIGHT)])


def undominated(points: Sequence[Point], is_more_better: tuple[bool, bool] = (False, False)) -> list[int]:
    """Return the points that no other one is as good as in both figures and better than in one, by number.

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


def layouts_figure(ranking: RankedLayouts) -> Figure:
    """Return all layouts that a search priced: step time over memory of a rank, the front of each number of devices joined."""
    searched, best = ranking.searched, ranking.best
    known = {(one.text, one.order) for one in searched.front}
    priced = sorted((one for one in searched.examined if (one.text, one.order) not in known), key=lambda one: one.step_s)
    every = -(-len(priced) // MOST_LAYOUTS) or 1
    groups: list[tuple[str, str, dict[str, Any], list[RankedLayout]]] = [
        ("priced" + f", one of {every}" * (every > 1), PALE, {"size": 5}, priced[::every])
    ]
    for number, devices in enumerate(sorted({one.devices for one in searched.front})):
        front = sorted((one for one in searched.front if one.devices == devices), key=lambda one: one.memory_bytes)
        marker: dict[str, Any] = {"size": 9, "symbol": _SYMBOLS[number % len(_SYMBOLS)]}
        groups.append((f"on the front, {counted(devices, 'device')}", _COLOURS[number % len(_COLOURS)], marker, front))
    traces = []
    for name, colour, marked, layouts in groups:
        says = [
            f"<b>{shown(layout.text, 200)}</b><br>{counted(layout.devices, 'device')}, ranks {shown(layout.order)}<br>"
            f"{layout.step_s:.4g} s a step, {layout.memory_bytes / 1e9:.3g} GB of the fullest rank"
            for layout in layouts
        ]
        look: dict[str, Any] = {"marker": marked, "hovertext": says}
        look |= {"mode": "lines+markers", "line": {"color": colour, "dash": "solid", "width": 1}} if colour != PALE else {}
        traces.append(
            marks(name, [layout.memory_bytes / 1e9 for layout in layouts], [layout.step_s for layout in layouts], colour, **look)
        )
    at = [best.memory_bytes / 1e9], [best.step_s]
    side = "left" if best.memory_bytes > ranking.maker.capacity_bytes / 2 else "right"
    text: dict[str, Any] = {
        "mode": "text",
        "text": [shown(f"fastest: {best.text}", 120)],
        "textposition": f"bottom {side}",
        "hoverinfo": "skip",
    }
    traces.append(marks("", *at, INK, showlegend=False, **text))
    times = [one.step_s for one in [best, *searched.examined]]
    x = axis("GB of the fullest rank; the axis ends where a device is full", span=(0, ranking.maker.capacity_bytes / 1e9))
    y = axis("seconds of a step", is_log=True, span=(0.75 * min(times), 1.1 * max(times)))
    label = f"{ranking.name} on {ranking.cluster.name}: {len(searched.examined):,} layouts priced"
    return figure(label, [Panel(traces, x, y, label, 440.0)])


def _places(points: Sequence[Point], names: Sequence[str], is_log: tuple[bool, bool]) -> list[str]:
    """Return where each name has room, as Plotly says it; empty where it has none. Earlier points come first."""
    shares = [
        [(value - min(of)) / (max(of) - min(of) or 1.0) for value in of]
        for of in ([math.log(point[key]) if is_log[key] else point[key] for point in points] for key in (0, 1))
    ]
    pixels = [(_WIDTH * (0.06 + 0.88 * x), _HEIGHT * (0.06 + 0.88 * y)) for x, y in zip(*shares, strict=True)]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in pixels]
    result = []
    for (x, y), name in zip(pixels, names, strict=True):
        wide = 6.6 * len(name)
        for place, (dx, dy) in _PLACES.items():
            left = x + dx - (wide / 2 if dx == 0 else wide if dx < 0 else 0.0)
            box = left, y + dy - 7, left + wide, y + dy + 7
            crosses = any(box[0] < c and a < box[2] and box[1] < d and b < box[3] for a, b, c, d in taken)
            if box[0] >= 0 and box[2] <= _WIDTH and not crosses:
                taken.append(box)
                result.append(place)
                break
        else:
            result.append("")
    return result
