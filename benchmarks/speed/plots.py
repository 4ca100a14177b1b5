"""Draws how cost grows: log-log plots of the points that `growth` measured, for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from meshwright import files
from meshwright.evaluation.plots.figure import Figure, Panel, axis, figure, line
from meshwright.evaluation.plots.static import svg
from meshwright.evaluation.plots.style import BLUE, GREEN, ORANGE, SKY, VERMILION

from .growth import Point, exponents, points
from .measure import BenchmarkFigure

PLOTS = {
    "tasks": ("tasks of a graph on 16 devices", "seconds of one step"),
    "devices": ("devices, ResNet-18", "seconds of one step"),
    "flows": ("flows under way, 1,024 hosts", "seconds of an event"),
    "episodes": ("episodes side by side", "decisions/s with observations"),
}
COLOURS = (BLUE, SKY, VERMILION, ORANGE, GREEN)
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down")


def growth_figure(points: Sequence[Point]) -> Figure:
    """A log-log plot for each kind of growth, two side by side."""
    panels = []
    for plot in (name for name in PLOTS if any(point.plot == name for point in points)):
        series: dict[str, list[tuple[float, float]]] = {}
        for point in points:
            if point.plot == plot:
                series.setdefault(point.series, []).append((point.x, point.value))
        traces = []
        for number, (name, of) in enumerate(series.items()):
            colour, symbol = COLOURS[number % len(COLOURS)], SYMBOLS[number % len(SYMBOLS)]
            look = {"mode": "lines+markers", "marker": {"color": colour, "symbol": symbol, "size": 7}}
            traces.append(line(name, *zip(*sorted(of), strict=True), (colour, "dot" if "plain" in name else "solid"), **look))
        panels.append(Panel(traces, *(axis(title, is_log=True) for title in PLOTS[plot]), height=250.0))
    return figure("How cost grows with tasks, devices, flows and episodes, on logarithmic axes", panels, columns=2)


def growth_figures(out: Path) -> list[BenchmarkFigure]:
    """Measure all curves, draw them and keep their points in a folder; their exponents."""
    measured = list(points())
    files.write_text(out / "growth.svg", svg(growth_figure(measured)))
    files.write_json(out / "growth.json", [asdict(point) for point in measured])
    return exponents(measured)
