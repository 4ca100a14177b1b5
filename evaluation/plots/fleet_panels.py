"""Panels of a fleet's report, each `svg.PANEL` wide: curves over time, hosts and their jobs, links and their load.

Panels stand side by side, a policy each, or below each other on a narrow screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...simulation.fleet.timeline import Outage, Stay
from .gantt import JobBar, Window, consecutive, draw_jobs, name_hosts
from .style import INK, MUTED, RULE, graph_look, shade
from .svg import PANEL, SMALL, Canvas, LegendEntry, canvas, legend_height, printable, shortened, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST_NAME = 44
LEVELS = (0.02, 0.1, 0.25, 0.5, 0.75)
"""Loads of links from which on a darker shade is drawn."""

_EDGE, _TITLE, _LEFT, _RIGHT, _AXIS, _GAP = 4.0, 24.0, 50.0, 12.0, 42.0, 8.0
_CURVES, _ROW = 190.0, 17.0
_SHORTEST_RESTART = 2.0  # pixels
_NICE = (1.0, 2.0, 5.0)


class PanelLine(NamedTuple):
    """A line of a panel.

    Attributes:
        name: for the legend.
        look: colour and line style.
        x, y: its points.
    """

    name: str
    look: tuple[str, str]
    x: NDArray[np.float64]
    y: NDArray[np.float64]


def curves_svg(name: str, title: str, curves: Sequence[PanelLine], axes_names: tuple[str, str], *, is_log: bool = False) -> str:
    """Curves in one frame, their legend above it.

    Args:
        name: of the drawing.
        title: what the curves show.
        curves: at least one.
        axes_names: what x and y are, with their units.
        is_log: whether x, which is positive then, is logarithmic; otherwise it begins at 0.
    """
    keys = [LegendEntry(printable(shortened(one.name, LONGEST_NAME)), one.look[0], dash=one.look[1]) for one in curves]
    top = _TITLE + legend_height(keys, PANEL - 2 * _EDGE) + _GAP
    with canvas(PANEL, top + _CURVES + _AXIS) as sheet:
        sheet.write(_EDGE, _TITLE / 2, title, bold=True)
        sheet.legend(keys, _EDGE, _TITLE, PANEL - 2 * _EDGE)
        axes = sheet.axes(_LEFT, top, PANEL - _LEFT - _RIGHT, _CURVES)
        axes.grid()
        axes.set(xlabel=axes_names[0], ylabel=axes_names[1])
        x = np.concatenate([one.x for one in curves])
        low, high = (float(x.min()) if is_log else 0.0, float(x.max())) if len(x) > 0 else (1.0, 2.0)
        high = high if high > low else low + 1.0
        if is_log:
            axes.set_xscale("log")
            _nice_ticks(axes, low, high)
        axes.set_xlim(low, high)
        for one in curves:
            axes.plot(one.x, one.y, color=one.look[0], linestyle=one.look[1], linewidth=1.6)
        axes.set_ylim(bottom=0)
        return sheet.svg(name, title)


def hosts_svg(
    name: str,
    title: str,
    cluster: Cluster,
    types: Sequence[str],
    stays: Sequence[tuple[Stay, int]],
    end_s: float,
    outages: Sequence[Outage] = (),
) -> str:
    """Draw the jobs on the devices of each host over time by type; restarts are dark, failed hosts grey.

    Args:
        name: of the drawing.
        title: the policy.
        cluster: its hosts are the rows, a device after the other.
        types: names of the job types.
        stays: of jobs on devices, with the number of their type.
        end_s: of the episode.
        outages: of hosts.
    """
    n, window = cluster.num_devices, Window(0, 1, 0.0, end_s or 1.0)
    unit_s, unit = window.unit
    keys = [LegendEntry(printable(shortened(one, LONGEST_NAME)), *graph_look(number)) for number, one in enumerate(types)]
    keys += [LegendEntry("restart", INK)] * any(stay.is_restart for stay, _ in stays)
    keys += [LegendEntry("out of order", RULE)] * bool(outages)
    names = [shortened(one, 14) for one in cluster.host_names]
    left = max(_LEFT, 14 + max(text_width(one, SMALL) for one in names))
    top, height = _TITLE + legend_height(keys, PANEL - 2 * _EDGE) + _GAP, min(max(8.0 * n, 130.0), 430.0)
    width = PANEL - left - _RIGHT
    with canvas(PANEL, top + height + _AXIS) as sheet:
        sheet.write(_EDGE, _TITLE / 2, shortened(title, LONGEST_NAME), bold=True)
        sheet.legend(keys, _EDGE, _TITLE, PANEL - 2 * _EDGE)
        axes = sheet.axes(left, top, width, height)
        axes.set(xlim=(0, window.end_s / unit_s), ylim=(n - 0.5, -0.5), xlabel=_since(unit))
        name_hosts(axes, cluster, height, length=14)
        for number in range(len(types)):
            bars = [JobBar(stay.job, stay.devices, stay.begin_s, stay.end_s) for stay, of in stays if of == number]
            draw_jobs(sheet, axes, bars, graph_look(number), window, (left, top, width, height), n)
        restarts = [stay for stay, _ in stays if stay.is_restart]
        _restarts(sheet, axes, restarts, _SHORTEST_RESTART * window.length_s / width, unit_s)
        _outages(sheet, axes, cluster, outages, unit_s)
        return sheet.svg(name, f"Hosts of {cluster.name} and their jobs under {title}")


def links_svg(
    name: str, title: str, link_names: Sequence[str], load: NDArray[np.float64], means: NDArray[np.float64], end_s: float
) -> str:
    """Load of some links over time, a strip each, darker for more; the mean is written at its end.

    Args:
        name: of the drawing.
        title: the policy.
        link_names: ``(l,)``.
        load: share of each link that is busy in each of equal parts of the episode, ``(b, l)``.
        means: over the episode, ``(l,)``.
        end_s: of the episode.
    """
    unit_s, unit = Window(0, 1, 0.0, end_s or 1.0).unit
    bounds = (*(f"{100 * level:.0f}" for level in LEVELS), "")
    keys = [
        LegendEntry(f"{low} to {high} %" if high else f"{low} % and more", shade((number + 1) / len(LEVELS)))
        for number, (low, high) in enumerate(pairwise(bounds))
    ]
    names = [shortened(one, 24) for one in link_names]
    left = max(_LEFT, 14 + max(text_width(one, SMALL) for one in names))
    top, height, right = _TITLE + legend_height(keys, PANEL - 2 * _EDGE) + _GAP + 12, _ROW * len(names), 44.0
    level = np.searchsorted(np.array(LEVELS), load, side="right")
    edges = np.linspace(0.0, (end_s or 1.0) / unit_s, len(load) + 1)
    with canvas(PANEL, top + height + _AXIS) as sheet:
        sheet.write(_EDGE, _TITLE / 2, shortened(title, LONGEST_NAME), bold=True)
        sheet.legend(keys, _EDGE, _TITLE, PANEL - 2 * _EDGE)
        sheet.write(PANEL - _EDGE, top - 9, "mean", size=SMALL, colour=MUTED, align="right")
        axes = sheet.axes(left, top, PANEL - left - right, height)
        axes.set(xlim=(0, edges[-1]), ylim=(len(names) - 0.5, -0.5), xlabel=_since(unit))
        axes.set_yticks(range(len(names)), [printable(one) for one in names])
        axes.hlines(np.arange(1, len(names)) - 0.5, *axes.get_xlim(), color=RULE, linewidth=0.5, zorder=0)
        for number in range(1, len(LEVELS) + 1):
            boxes = [
                (edges[first], row - 0.42, edges[last] - edges[first], 0.84)
                for row in range(len(names))
                for first, last in _runs(level[:, row] == number)
            ]
            sheet.boxes(axes, boxes, shade(number / len(LEVELS)))
        for row, mean in enumerate(means):
            sheet.write(PANEL - _EDGE, top + (row + 0.5) * _ROW, f"{100 * mean:.1f} %", size=SMALL, align="right")
        return sheet.svg(name, f"Load of links under {title}")


def _since(unit: str) -> str:
    return f"time since the episode began ({unit})"


def _restarts(sheet: Canvas, axes: Axes, stays: Sequence[Stay], shortest_s: float, unit_s: float) -> None:
    """A dark bar from the start of each stay until its job makes steps, so long at least that it is seen."""
    boxes = []
    for stay in stays:
        until_s = min(stay.end_s, max(stay.steps_from_s, stay.begin_s + shortest_s))
        x, wide = stay.begin_s / unit_s, (until_s - stay.begin_s) / unit_s
        boxes += [(x, device - 0.5, wide, float(count)) for device, count in consecutive(stay.devices)]
    sheet.boxes(axes, boxes, INK)


def _outages(sheet: Canvas, axes: Axes, cluster: Cluster, outages: Sequence[Outage], unit_s: float) -> None:
    """A grey bar over all devices of a host while it is out."""
    boxes = []
    for one in outages:
        devices = consecutive(np.flatnonzero(cluster.device_host == one.host))
        x, wide = one.begin_s / unit_s, (one.end_s - one.begin_s) / unit_s
        boxes += [(x, device - 0.5, wide, float(count)) for device, count in devices]
    sheet.boxes(axes, boxes, RULE)


def _runs(is_set: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Begin and end of each run of True."""
    change = np.flatnonzero(np.diff(np.concatenate([[False], is_set, [False]]).astype(np.int8)))
    return list(zip(change[::2].tolist(), change[1::2].tolist(), strict=True))


def _nice_ticks(axes: Axes, low: float, high: float) -> None:
    """Ticks at 1, 2 and 5 of each power of ten, or at powers alone over more than three of them, written out."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [first * 10.0**power for power in powers for first in (_NICE if high < 2e3 * low else _NICE[:1])]
    ticks = [tick for tick in ticks if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
