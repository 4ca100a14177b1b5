"""Draws how cost grows: log-log plots of the points that `growth` measured, as one SVG for the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.ticker import EngFormatter, FuncFormatter, NullFormatter

from meshwright.evaluation.plots.style import BLUE, GREEN, MUTED, ORANGE, SKY, VERMILION
from meshwright.evaluation.plots.svg import WIDTH, LegendEntry, canvas, legend_height, text_width

from .growth import Point

PLOTS = {
    "tasks": ("tasks of a graph on 16 devices", "seconds of one step"),
    "devices": ("devices, ResNet-18", "seconds of one step"),
    "flows": ("flows under way, 1,024 hosts", "seconds of an event"),
    "episodes": ("episodes side by side", "decisions/s with observations"),
}
COLOURS = (BLUE, SKY, VERMILION, ORANGE, GREEN)
MARKS = ("o", "s", "^", "D", "v")

_LEFT, _GAP, _HEIGHT, _BELOW = 76.0, 80.0, 250.0, 48.0


def growth_svg(points: Sequence[Point]) -> str:
    """A log-log plot for each kind of growth, two beside each other."""
    drawn = [name for name in PLOTS if any(point.plot == name for point in points)]
    width = (WIDTH - 2 * _LEFT - 16) / 2
    keys = {name: _keys(points, name) for name in drawn}
    above = 28.0 + max((legend_height(keys[name], width) for name in drawn), default=0.0)
    rows = -(-len(drawn) // 2)
    with canvas(WIDTH, rows * (above + _HEIGHT + _BELOW)) as sheet:
        for place, name in enumerate(drawn):
            left = _LEFT + (place % 2) * (width + _GAP)
            top = place // 2 * (above + _HEIGHT + _BELOW) + above
            axes = sheet.axes(left, top, width, _HEIGHT)
            axes.grid(visible=True)
            for key in keys[name]:
                mine = sorted((p.x, p.value) for p in points if p.plot == name and p.series == key.text)
                line = ":" if "plain" in key.text else "-"
                axes.plot(*zip(*mine, strict=True), line, color=key.colour, marker=key.marker, markersize=5, linewidth=1.3)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(_counted))
            axes.yaxis.set_major_formatter(EngFormatter("s") if PLOTS[name][1].startswith("seconds") else FuncFormatter(_counted))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel(PLOTS[name][0])
            sheet.legend(keys[name], left, top - above + 4, width)
            unit = PLOTS[name][1]
            sheet.write(left + width - text_width(unit, 10.5), top - 12, unit, size=10.5, colour=MUTED)
        return sheet.svg("growth", "How cost grows with tasks, devices, flows and episodes, on logarithmic axes")


def _counted(value: float, _: object = None) -> str:
    return f"{value:,.0f}"


def _keys(points: Sequence[Point], plot: str) -> list[LegendEntry]:
    series = dict.fromkeys(point.series for point in points if point.plot == plot)
    return [LegendEntry(name, COLOURS[i % len(COLOURS)], marker=MARKS[i % len(MARKS)]) for i, name in enumerate(series)]
