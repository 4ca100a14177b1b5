"""Gantt charts of the jobs on each device in one window of an episode, policies one above the other.

All policies meet the same arrivals, so what stands in one column of the figure happened to the same jobs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...simulation.cluster.records import EpisodeRecord
from ...simulation.cluster.scenario import Scenario
from .style import INK, LEARNED, MUTED, RULE, graph_look, ink_on, reasons
from .svg import SMALL, WIDTH, Canvas, LegendEntry, canvas, legend_height, printable, shortened, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EDGE, _TITLE, _STRIP, _GAP, _SHARE, _AXIS = 2.0, 30.0, 24.0, 14.0, 120.0, 46.0
_RIGHT = 12.0
_CELL = 13.0  # height of a device where there is room
_NUM_JOBS = 40  # arrivals that are drawn
_LINES: tuple[tuple[str, str], ...] = ((LEARNED, "-"), (INK, "--"), (MUTED, ":"))
# Shortest window for which a unit is used, its length in seconds, its name.
_UNITS = ((20 * 86_400.0, 86_400.0, "days"), (5_400.0, 3_600.0, "h"), (120.0, 60.0, "min"), (0.0, 1.0, "s"))


@dataclass(frozen=True)
class Window:
    """Part of an episode.

    Attributes:
        first: first arrival.
        num_jobs: arrivals.
        begin_s: the first arrival's time.
        end_s: the time of the arrival after the last one.
    """

    first: int
    num_jobs: int
    begin_s: float
    end_s: float

    @classmethod
    def of(cls, arrival_s: NDArray[np.float64], first: int, num_jobs: int) -> Window:
        """The window of ``num_jobs`` arrivals from ``first`` on, or of as many as there are."""
        first = max(0, min(first, len(arrival_s) - 1))
        after = min(first + max(1, num_jobs), len(arrival_s))
        begin_s, last_s = float(arrival_s[first]), float(arrival_s[after - 1])
        gap_s = (last_s - begin_s) / max(1, after - first - 1)
        end_s = float(arrival_s[after]) if after < len(arrival_s) else last_s + gap_s
        return cls(first, after - first, begin_s, end_s if end_s > begin_s else begin_s + 1.0)

    @property
    def jobs(self) -> slice:
        """The arrivals of the window, as a slice."""
        return slice(self.first, self.first + self.num_jobs)

    @property
    def length_s(self) -> float:
        """Seconds from begin to end."""
        return self.end_s - self.begin_s

    @property
    def unit(self) -> tuple[float, str]:
        """Seconds of the unit that suits its length, and the unit's name."""
        return next((seconds, name) for least, seconds, name in _UNITS if self.length_s >= least)


def occupancy_svg(scenario: Scenario, episodes: Sequence[tuple[str, EpisodeRecord]]) -> str:
    """Occupancy of the cluster over time under each policy, arrivals that were turned away, and the share of devices held.

    It begins with the first arrival after the warm-up.

    Args:
        scenario: where the episodes ran.
        episodes: name of a policy and what happened under it, at least one; the same arrivals for all.
    """
    window = Window.of(episodes[0][1].arrival_s, scenario.settings.num_warmup_jobs, _NUM_JOBS)
    n = scenario.cluster.num_devices
    keys = [LegendEntry(shortened(graph.name, 40), *graph_look(i)) for i, graph in enumerate(scenario.workload.graphs)]
    keys += [
        LegendEntry(f"turned away: {reason.word}", INK, marker=reason.marker)
        for reason in reasons(scenario.settings.queue_capacity > 0)
    ]
    top = 6 + legend_height(keys, WIDTH - 2 * _EDGE) + 6
    height = min(max(_CELL * n, 150.0), max(_CELL * 32, 2.0 * n))
    left = _EDGE + 66.0
    if scenario.cluster.num_hosts > 1:
        left = min(max(left, 24 + max(text_width(name, SMALL) for name in scenario.cluster.host_names)), 220.0)
    panel = _TITLE + _STRIP + height + _GAP
    with canvas(WIDTH, top + len(episodes) * panel + _TITLE + _SHARE + _AXIS) as sheet:
        sheet.legend(keys, _EDGE, 6, WIDTH - 2 * _EDGE)
        for i, (name, record) in enumerate(episodes):
            _Panel(sheet, scenario, record, window, left, top + i * panel, height).draw(name)
        _shares(sheet, scenario, episodes, window, left, top + len(episodes) * panel)
        names = " and ".join(name for name, _ in episodes)
        return sheet.svg("occupancy", f"Occupancy of {scenario.cluster.name} under {names}")


def held_share(scenario: Scenario, record: EpisodeRecord) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Moments at which the share of held devices changes, in seconds, and the share from then on."""
    accepted = record.is_accepted
    sizes = record.num_held[accepted]
    times = np.concatenate([[0.0], record.start_s[accepted], record.finish_s[accepted]])
    change = np.concatenate([[0], sizes, -sizes])
    moments, which = np.unique(times, return_inverse=True)
    return moments, np.cumsum(np.bincount(which, change)) / scenario.cluster.num_devices


def mean_held_share(scenario: Scenario, record: EpisodeRecord, window: Window) -> float:
    """Share of the window's device-time that jobs held."""
    accepted = record.is_accepted
    sizes = record.num_held[accepted]
    begin_s = np.maximum(record.start_s[accepted], window.begin_s)
    end_s = np.minimum(record.finish_s[accepted], window.end_s)
    held_s = float((sizes * np.maximum(0.0, end_s - begin_s)).sum())
    return held_s / (scenario.cluster.num_devices * window.length_s)


def consecutive(devices: NDArray[np.int64]) -> list[tuple[int, int]]:
    """First device and length of each run of consecutive device numbers."""
    devices = np.sort(devices)
    return [(int(run[0]), len(run)) for run in np.split(devices, np.flatnonzero(np.diff(devices) > 1) + 1)]


class JobBar(NamedTuple):
    """A job on devices for some time.

    Attributes:
        job: its number.
        devices: by number.
        begin_s: from here.
        end_s: until here.
    """

    job: int
    devices: NDArray[np.int64]
    begin_s: float
    end_s: float


def draw_jobs(
    sheet: Canvas,
    axes: Axes,
    jobs: Sequence[JobBar],
    look: tuple[str, str],
    window: Window,
    frame: tuple[float, float, float, float],
    num_devices: int,
) -> None:
    """Draw a bar for each run of devices of each job, with the job's number where it fits.

    Args:
        sheet, axes: where; the axes have devices from above to below.
        jobs: within the window, or partly so.
        look: colour and hatch.
        window: what the axes show.
        frame: left, top, width and height of the axes, in pixels.
        num_devices: of the cluster.
    """
    left, top, width, height = frame
    colour, hatch = look
    cell, pixels, unit_s = height / num_devices, width / window.length_s, window.unit[0]
    bars = []
    for job in jobs:
        begin_s, end_s = max(job.begin_s, window.begin_s), min(job.end_s, window.end_s)
        x, end = begin_s / unit_s, end_s / unit_s
        runs = consecutive(job.devices)
        bars += [(x, device - 0.5, end - x, float(count)) for device, count in runs]
        device, count = max(runs, key=lambda run: run[1])
        if count * cell < _CELL:
            continue
        number = text_width(str(job.job), SMALL)
        if (end_s - begin_s) * pixels >= number + 4:
            middle = left + ((begin_s + end_s) / 2 - window.begin_s) * pixels
            y = top + (device + count / 2) * cell
            if hatch:
                sheet.boxes(sheet.paper, [(middle - number / 2 - 2, y - 6, number + 4, 12.0)], colour)
            sheet.write(middle, y, str(job.job), size=SMALL, colour=ink_on(colour), align="center")
    sheet.boxes(axes, bars, colour, hatch=hatch, edge=0.6 if cell >= 4 else 0.25)


def name_hosts(axes: Axes, cluster: Cluster, height: float, *, length: int = 32) -> None:
    """Write the names of hosts next to their devices, as many as fit, and draw lines between hosts."""
    hosts = cluster.device_host
    first = np.flatnonzero(np.diff(hosts, prepend=-1))
    middle = (first + np.append(first[1:], len(hosts)) - 1) / 2
    every = max(1, math.ceil(13 * len(first) / height))
    names = [shortened(cluster.host_names[int(hosts[i])], length) for i in first[::every]]
    axes.set_yticks(middle[::every], [printable(name) for name in names])
    if height / len(first) >= 5:
        axes.hlines(first[1:] - 0.5, *axes.get_xlim(), color=RULE, linewidth=0.5, zorder=0)


@dataclass(frozen=True)
class _Panel:
    """One policy's part of the figure, from ``top`` on; bars in a frame of ``height``."""

    sheet: Canvas
    scenario: Scenario
    record: EpisodeRecord
    window: Window
    left: float
    top: float
    height: float

    @property
    def width(self) -> float:
        return WIDTH - self.left - _RIGHT

    def draw(self, name: str) -> None:
        away = int((~(self.record.is_accepted | self.record.is_waiting)[self.window.jobs]).sum())
        held = mean_held_share(self.scenario, self.record, self.window)
        title = shortened(name, 64)
        self.sheet.write(_EDGE, self.top + _TITLE / 2, title, bold=True)
        says = f"{away} of {self.window.num_jobs} arrivals turned away, {100 * held:.0f} % of device-time held"
        self.sheet.write(_EDGE + 1.12 * text_width(title) + 18, self.top + _TITLE / 2, says)
        self._arrivals(self.sheet.axes(self.left, self.top + _TITLE, self.width, _STRIP))
        axes = self.sheet.axes(self.left, self.top + _TITLE + _STRIP, self.width, self.height)
        axes.set(xlim=self._x(self.window.begin_s, self.window.end_s), ylim=(self.scenario.cluster.num_devices - 0.5, -0.5))
        axes.tick_params(labelbottom=False)
        name_hosts(axes, self.scenario.cluster, self.height)
        self._jobs(axes)

    def _x(self, *seconds: float) -> tuple[float, ...]:
        return tuple(s / self.window.unit[0] for s in seconds)

    def _arrivals(self, axes: Axes) -> None:
        axes.set(xlim=self._x(self.window.begin_s, self.window.end_s), ylim=(0, 1))
        axes.set_axis_off()
        self.sheet.write(self.left - 8, self.top + _TITLE + _STRIP / 2, "arrivals", size=SMALL, align="right")
        arrivals = self.record.arrival_s[self.window.jobs] / self.window.unit[0]
        axes.vlines(arrivals, 0, 0.26, color=MUTED, linewidth=0.8)
        for reason in reasons(True):
            which = arrivals[self.record.outcome[self.window.jobs] == int(reason.outcome)]
            heights = np.full(len(which), 0.66)
            axes.plot(which, heights, reason.marker, color=INK, markersize=6, markeredgewidth=0, clip_on=False)

    def _jobs(self, axes: Axes) -> None:
        """A bar for each run of devices of each job."""
        record, window = self.record, self.window
        frame = self.left, self.top + _TITLE + _STRIP, self.width, self.height
        seen = record.is_accepted & (record.start_s < window.end_s) & (record.finish_s > window.begin_s)
        for graph in range(len(self.scenario.workload.graphs)):
            jobs = [
                JobBar(job, record.devices_of(job, self.scenario), float(record.start_s[job]), float(record.finish_s[job]))
                for job in np.flatnonzero(seen & (record.graph_id == graph)).tolist()
            ]
            draw_jobs(self.sheet, axes, jobs, graph_look(graph), window, frame, self.scenario.cluster.num_devices)


def _shares(
    sheet: Canvas, scenario: Scenario, episodes: Sequence[tuple[str, EpisodeRecord]], window: Window, left: float, top: float
) -> None:
    """Share of devices held over time, a line for each policy."""
    unit_s, unit = window.unit
    sheet.write(_EDGE, top + _TITLE / 2, "Devices held", bold=True)
    axes = sheet.axes(left, top + _TITLE, WIDTH - left - _RIGHT, _SHARE)
    axes.set(xlim=(window.begin_s / unit_s, window.end_s / unit_s), ylim=(0, 104), yticks=[0, 25, 50, 75, 100])
    axes.set(xlabel=f"time since the episode began ({unit})", ylabel="% of devices")
    axes.grid(axis="y")
    x = _EDGE + 1.12 * text_width("Devices held") + 24
    for i, (name, record) in enumerate(episodes):
        colour, dashes = _LINES[i % len(_LINES)]
        moments, share = held_share(scenario, record)
        within = (moments > window.begin_s) & (moments < window.end_s)
        before = max(0, int(np.searchsorted(moments, window.begin_s, side="right")) - 1)
        times = np.concatenate([[window.begin_s], moments[within], [window.end_s]]) / unit_s
        heights = 100 * np.concatenate(
            [share[before : before + 1], share[within], share[within][-1:] if within.any() else share[before : before + 1]]
        )
        axes.step(times, heights, where="post", color=colour, linestyle=dashes, linewidth=1.6)
        text = shortened(name, 64)
        sheet.paper.plot([x, x + 26], [top + _TITLE / 2] * 2, color=colour, linestyle=dashes, linewidth=1.6)
        sheet.write(x + 32, top + _TITLE / 2, text)
        x += 32 + text_width(text) + 24
