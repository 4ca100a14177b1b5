"""Who held which device when: Gantt charts of the jobs of an episode, policies one above the other on one axis of time.

All policies meet the same arrivals, so what is in one column of the figure happened to the same jobs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...quantities import counted
from ...simulation.cluster.records import EpisodeRecord
from ...simulation.cluster.scenario import Scenario
from ..cluster.cluster_figures import mean_held_share
from .figure import Figure, Look, Panel, Trace, axis, bars, figure, line, marks, shortened, shown, time_text, time_unit
from .style import INK, LEARNED, MUTED, PAPER, RULE, graph_look, ink_on, reasons

MOST_BARS = 8_000
"""Of one figure, so that a browser draws it in a second; of a longer episode the first part is drawn."""

_MOST_NUMBERED = 800
_STRIP = 18.0  # pixels of the arrivals that were turned away
_LINES: tuple[Look, ...] = ((LEARNED, "solid"), (INK, "dash"), (MUTED, "dot"), (INK, "dashdot"))


class Bar(NamedTuple):
    """Something on neighbouring lanes for some time.

    Attributes:
        begin_s, end_s: from here until there.
        lane: the first of its lanes.
        num_lanes: that it covers.
        kind: its entry of the legend.
        says: its lines under a pointer; the first is its name.
        number: written into it where there is room.
    """

    begin_s: float
    end_s: float
    lane: int
    num_lanes: int
    kind: str
    says: tuple[str, ...]
    number: str = ""


class Lanes(NamedTuple):
    """A panel of bars.

    Attributes:
        title: above it.
        bars: in any order.
        groups: name, first lane and number of lanes of each named group, from above.
        marks: traces above the first lane, at height -1, whose x are in seconds.
    """

    title: str
    bars: Sequence[Bar]
    groups: Sequence[tuple[str, int, int]]
    marks: Sequence[Trace] = ()


def gantt_figure(
    label: str,
    panels: Sequence[Lanes],
    looks: Mapping[str, tuple[str, str]],
    span_s: tuple[float, float],
    *,
    since: str = "the episode began",
    more: Sequence[Panel] = (),
) -> Figure:
    """Draw bars on lanes over time.

    Args:
        label: what the figure shows.
        panels: one above the other.
        looks: colour and hatch of each kind of bar, in the order of the legend.
        span_s: of the axis of time.
        since: what time is counted from.
        more: further panels below over the same seconds.
    """
    begins = sorted(bar.begin_s for panel in panels for bar in panel.bars)
    until_s = begins[MOST_BARS] if len(begins) > MOST_BARS else span_s[1]
    unit_s, unit = time_unit(until_s - span_s[0])
    title = f"time since {since} ({unit})"
    title += f"; drawn to {time_text(until_s)} of {time_text(span_s[1])}" * (until_s < span_s[1])
    x = axis(title, span=(span_s[0] / unit_s, until_s / unit_s))
    made = [_panel(panel, looks, x, unit_s, until_s, len(begins) <= _MOST_NUMBERED) for panel in panels]
    made += [one._replace(x=x, traces=[_over(trace, unit_s) for trace in one.traces]) for one in more]
    return figure(label, made, shares_x=True, uniformtext={"minsize": 9, "mode": "hide"}, bargap=0)


def _panel(
    lanes: Lanes, looks: Mapping[str, tuple[str, str]], x: dict[str, Any], unit_s: float, until_s: float, has_numbers: bool
) -> Panel:
    num_lanes = sum(count for _, _, count in lanes.groups)
    lane = min(14.0, max(480.0 / num_lanes, 1.5))
    edge = {"width": 0.4 if len(lanes.bars) < 100 * num_lanes else 0.0, "color": PAPER}
    traces = []
    for kind, (colour, hatch) in looks.items():
        of = [bar for bar in lanes.bars if bar.kind == kind and bar.begin_s < until_s]
        if not of:
            continue
        rows, lengths = zip(
            *((bar.lane + (bar.num_lanes - 1) / 2, (bar.end_s - bar.begin_s) / unit_s) for bar in of), strict=True
        )
        look: dict[str, Any] = {"base": [bar.begin_s / unit_s for bar in of], "width": [0.94 * bar.num_lanes for bar in of]}
        look |= {"hovertext": [_summary(bar) for bar in of], "hovertemplate": "%{hovertext}<extra>%{fullData.name}</extra>"}
        look |= {"marker": {"line": edge, "pattern": {"shape": hatch, "fgcolor": PAPER, "fillmode": "overlay"}}}
        if has_numbers:
            look |= {"text": [shown(bar.number) for bar in of], "textposition": "inside", "textangle": 0}
            look |= {"insidetextanchor": "middle", "insidetextfont": {"color": ink_on(colour)}}
        traces.append(bars(kind, colour, rows, lengths, **look))
    every = max(1, math.ceil(13 * len(lanes.groups) / (lane * num_lanes)))
    ticks = [(first + (count - 1) / 2, shown(name, 24)) for name, first, count in lanes.groups[::every]]
    strip = _STRIP / lane if lanes.marks else 0.0
    y = axis("", span=(num_lanes - 0.5, -0.5 - strip), showgrid=False)
    y |= {"tickvals": [at for at, _ in ticks], "ticktext": [name for _, name in ticks], "fixedrange": num_lanes <= 32}
    if lane * num_lanes / len(lanes.groups) >= 5:
        y["minor"] = {"tickvals": [first - 0.5 for _, first, _ in lanes.groups[1:]], "showgrid": True, "gridcolor": RULE}
    above = [_over(trace | {"y": [-0.5 - strip / 2] * len(trace["y"])}, unit_s) for trace in lanes.marks]
    return Panel([*traces, *above], x, y, lanes.title, lane * num_lanes + _STRIP * bool(lanes.marks))


def _summary(bar: Bar) -> str:
    name, *rest = (shown(text) for text in bar.says)
    times = f"{time_text(bar.begin_s)} to {time_text(bar.end_s)}: {time_text(bar.end_s - bar.begin_s)}"
    return "<br>".join((name, *rest, times))


def _over(trace: Trace, unit_s: float) -> Trace:
    return trace | {"x": [x / unit_s for x in trace["x"]]}


def episode_figure(scenario: Scenario, episodes: Sequence[tuple[str, EpisodeRecord]]) -> Figure:
    """Return a whole episode under each policy: jobs on devices, arrivals that were turned away, and the share of devices held.

    Args:
        scenario: where the episodes ran.
        episodes: name of a policy and what happened under it, at least one; the same arrivals for all.
    """
    graphs = scenario.workload.graphs
    looks = {graph.name: graph_look(number) for number, graph in enumerate(graphs)}
    panels, held = [], []
    begin_s = min(float(record.arrival_s[0]) for _, record in episodes)
    end_s = max(float(np.nanmax([*record.finish_s, record.arrival_s[-1]])) for _, record in episodes)
    for number, (name, record) in enumerate(episodes):
        results = [bar for job in np.flatnonzero(record.is_accepted).tolist() for bar in _job(scenario, record, job)]
        away = []
        for reason in reasons(scenario.settings.queue_capacity > 0):
            jobs = np.flatnonzero(record.outcome == int(reason.outcome)).tolist()
            if jobs:
                said = [f"<b>job {job}</b>, {shown(graphs[int(record.graph_id[job])].name)}<br>{reason.word}" for job in jobs]
                marker = {"symbol": reason.symbol, "size": 9}
                words = {"hovertext": said, "marker": marker}
                away.append(
                    marks(f"turned away: {reason.word}", record.arrival_s[jobs], [-1.0] * len(jobs), reason.colour, **words)
                )
        share = mean_held_share(scenario, record, begin_s, float(record.arrival_s[-1]))
        placed = f"{len(np.flatnonzero(record.is_accepted))} of {len(record.arrival_s)} jobs placed"
        title = f"{shortened(name)}: {placed}, {100 * share:.0f} % of device-time held until the last arrival"
        panels.append(Lanes(title, results, host_lanes(scenario.cluster), away))
        moments, shares = held_share(scenario, record)
        shape = {"line": {"shape": "hv", "width": 1.6}}
        held.append(line(f"held by {name}", moments, 100 * shares, _LINES[number % len(_LINES)], **shape))
    below = Panel(held, {}, axis("% of devices", span=(0, 104), tickvals=[0, 50, 100]), "Devices held", 110.0)
    label = f"Jobs on the devices of {scenario.cluster.name}"
    return gantt_figure(label, panels, looks, (begin_s, max(end_s, begin_s + 1e-6)), more=[below])


def _job(scenario: Scenario, record: EpisodeRecord, job: int) -> list[Bar]:
    """Return a bar for each run of devices of a job."""
    kind = scenario.workload.graphs[int(record.graph_id[job])].name
    says = [f"job {job}", f"{counted(int(record.degree[job]), 'rank')}, {counted(int(record.num_steps[job]), 'training step')}"]
    for word, seconds in (("waited", record.wait_s[job]), ("delayed by interruptions", record.delay_s[job])):
        says += [f"{word}: {time_text(float(seconds))}"] * bool(seconds > 0)
    span_s = float(record.start_s[job]), float(record.finish_s[job])
    runs = consecutive(record.devices_of(job, scenario))
    return [Bar(*span_s, lane, count, kind, tuple(says), str(job)) for lane, count in runs]


def host_lanes(cluster: Cluster) -> list[tuple[str, int, int]]:
    """Return the devices of each host as a group of lanes."""
    first = np.flatnonzero(np.diff(cluster.device_host, prepend=-1)).tolist()
    after = [*first[1:], cluster.num_devices]
    return [
        (cluster.host_names[int(cluster.device_host[begin])], begin, end - begin) for begin, end in zip(first, after, strict=True)
    ]


def held_share(scenario: Scenario, record: EpisodeRecord) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the moments at which the share of held devices changes, in seconds, and the share from then on."""
    accepted = record.is_accepted
    sizes = record.num_held[accepted]
    times = np.concatenate([[0.0], record.start_s[accepted], record.finish_s[accepted]])
    change = np.concatenate([[0], sizes, -sizes])
    moments, which = np.unique(times, return_inverse=True)
    return moments, np.cumsum(np.bincount(which, change)) / scenario.cluster.num_devices


def consecutive(devices: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the first device and length of each run of consecutive device numbers."""
    devices = np.sort(devices)
    return [(int(run[0]), len(run)) for run in np.split(devices, np.flatnonzero(np.diff(devices) > 1) + 1)]
