"""The layouts that a search priced: step time over memory of a rank, with the Pareto front of each number of devices."""

from __future__ import annotations

from collections.abc import Sequence

from ...planners.layouts.results import RankedLayout
from ...planning.search_table import RankedLayouts
from .style import BLUE, GREEN, INK, ORANGE, PALE, PINK, SKY, VERMILION
from .svg import SMALL, WIDTH, LegendEntry, canvas, legend_height, printable, shortened

COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PINK, SKY)
_MARKS = ("o", "s", "^", "D", "v", "P", "X")
_LEFT, _RIGHT, _TITLE, _HEIGHT, _BELOW = 76.0, 16.0, 28.0, 420.0, 52.0


def layouts_svg(found: RankedLayouts) -> str:
    """A scatter plot of all priced layouts; fronts are joined, the fastest layout is named."""
    from matplotlib.ticker import FuncFormatter

    searched, best = found.searched, found.best
    numbers = sorted({one.devices for one in searched.front})
    keys = [
        LegendEntry(f"on the front, {n} devices", COLOURS[i % len(COLOURS)], marker=_MARKS[i % len(_MARKS)])
        for i, n in enumerate(numbers)
    ]
    keys.append(LegendEntry("priced", PALE, marker="o"))
    width = WIDTH - _LEFT - _RIGHT
    top = _TITLE + legend_height(keys, width) + 12
    title = f"{shortened(found.name, 40)} on {shortened(found.cluster.name, 40)}: {len(searched.examined):,} layouts priced"
    with canvas(WIDTH, top + _HEIGHT + _BELOW) as sheet:
        sheet.write(_LEFT, _TITLE / 2, title, bold=True)
        sheet.legend(keys, _LEFT, _TITLE, width)
        axes = sheet.axes(_LEFT, top, width, _HEIGHT)
        axes.grid(visible=True)
        axes.plot(*_points(searched.examined), "o", color=PALE, markersize=3.5, markeredgewidth=0)
        for key, number in zip(keys, numbers, strict=False):
            front = sorted((one for one in searched.front if one.devices == number), key=lambda one: one.memory_bytes)
            axes.plot(*_points(front), color=key.colour, linewidth=1.0)
            axes.plot(*_points(front), key.marker, color=key.colour, markersize=6, markeredgewidth=0)
        axes.set_yscale("log")
        axes.set_ylim(bottom=best.step_s * 0.75)  # room for its name
        axes.set_xlim(0, found.capacity_bytes / 1e9)
        axes.set_ylabel("seconds of a step")
        axes.set_xlabel("GB of the fullest rank; the axis ends where a device is full")
        axes.yaxis.set_major_formatter(FuncFormatter(_seconds))
        axes.yaxis.set_minor_formatter(FuncFormatter(_seconds if _spread(searched.examined) < 20 else lambda *_: ""))
        axes.annotate(
            printable(f"fastest: {best.text}"),
            (best.memory_bytes / 1e9, best.step_s),
            xytext=(-8, -14),
            textcoords="offset points",
            ha="right",
            fontsize=SMALL * 0.75,
            color=INK,
        )
        return sheet.svg("layouts", title)


def _points(layouts: Sequence[RankedLayout]) -> tuple[list[float], list[float]]:
    return [one.memory_bytes / 1e9 for one in layouts], [one.step_s for one in layouts]


def _spread(layouts: Sequence[RankedLayout]) -> float:
    times = [one.step_s for one in layouts]
    return max(times) / min(times)


def _seconds(value: float, _: object = None) -> str:
    return f"{value:g}"
