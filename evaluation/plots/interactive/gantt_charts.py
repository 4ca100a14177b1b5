"""Gantt charts as data of a chart that can be moved and asked: episodes of a cluster or a fleet, one step of a job.

A chart is plain data that `report/templates/gantt.js` draws. Times are in seconds. Each panel has lanes from above to below in
named groups, bars by column (``begin``, ``end``, first lane, number of lanes, type, item), the items that bars belong to, and
marks above the lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ....clusters.cluster import Cluster
from ....envs.fleet.fleet import Fleet
from ....jobs.graph import JobGraph
from ....quantities import counted
from ....simulation.cluster.records import EpisodeRecord
from ....simulation.cluster.scenario import Scenario
from ....simulation.step.timeline import Timeline
from ...fleet.episodes import WatchedEpisode
from ..gantt import consecutive
from ..step_chart import KEYS, Bar, lanes
from ..style import INK, RULE, graph_look, ink_on, reasons

MOST_BARS = 60_000
"""Of one chart: a page stays below a few megabytes; shorter neighbours are joined where a step has more."""

Chart = dict[str, Any]


class _Bars:
    """Bars and their items, column by column."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.bars: dict[str, list[Any]] = {key: [] for key in ("begin", "end", "first", "count", "type", "item")}
        self.items: dict[str, Any] = {"columns": list(columns), "rows": []}

    def item(self, *row: Any) -> int:
        self.items["rows"].append(list(row))
        return len(self.items["rows"]) - 1

    def add(self, begin_s: float, end_s: float, first: int, count: int, kind: int, item: int) -> None:
        values = (rounded(begin_s), rounded(end_s), first, count, kind, item)
        for key, value in zip(self.bars, values, strict=True):
            self.bars[key].append(value)


def rounded(value: float) -> float | None:
    """A figure to seven digits, as a page holds it; None where it is none."""
    return float(f"{value:.7g}") if np.isfinite(value) else None


def episode_chart(scenario: Scenario, episodes: Sequence[tuple[str, EpisodeRecord]]) -> Chart:
    """A whole episode under each policy: jobs on devices, and arrivals that were turned away.

    Args:
        scenario: where the episodes ran.
        episodes: name of a policy and what happened under it, at least one; the same arrivals for all.
    """
    graphs = scenario.workload.graphs
    away = reasons(scenario.settings.queue_capacity > 0)
    types = [_type(graph.name, graph_look(number)[0]) for number, graph in enumerate(graphs)]
    types += [_type(f"turned away: {reason.word}", reason.colour) for reason in away]
    panels = []
    for name, record in episodes:
        made = _Bars(("job", "ranks", "training steps", "waited, s", "delayed by interruptions, s"))
        marks: dict[str, list[Any]] = {"at": [], "type": [], "text": []}
        for job in range(len(record.arrival_s)):
            if record.is_accepted[job]:
                waited_s, delay_s = float(record.wait_s[job]), float(record.delay_s[job])
                item = made.item(
                    f"job {job}",
                    int(record.degree[job]),
                    int(record.num_steps[job]),
                    rounded(waited_s) if waited_s > 0 else None,
                    rounded(delay_s) if delay_s > 0 else None,
                )
                for first, count in consecutive(record.devices_of(job, scenario)):
                    span_s = float(record.start_s[job]), float(record.finish_s[job])
                    made.add(*span_s, first, count, int(record.graph_id[job]), item)
            for number, reason in enumerate(away):
                if record.outcome[job] == int(reason.outcome):
                    marks["at"].append(rounded(float(record.arrival_s[job])))
                    marks["type"].append(len(graphs) + number)
                    marks["text"].append(f"job {job}, {graphs[int(record.graph_id[job])].name}, was turned away: {reason.word}")
        placed = int(record.is_accepted.sum())
        note = f"{placed} of {len(record.arrival_s)} jobs placed"
        panels.append(_panel(name, note, scenario.cluster, made, marks))
    used = {kind for panel in panels for kind in (*panel["bars"]["type"], *panel["marks"]["type"])}
    _keep_types(types, panels, used)
    begin_s = min(float(record.arrival_s[0]) for _, record in episodes)
    end_s = max(float(np.nanmax([*record.finish_s, record.arrival_s[-1]])) for _, record in episodes)
    return _chart(
        f"Jobs on the devices of {scenario.cluster.name}", "time since the episode began", begin_s, end_s, types, panels
    )


def fleet_chart(fleet: Fleet, episodes: Sequence[WatchedEpisode]) -> Chart:
    """A whole episode of a fleet under each policy: jobs on devices, restarts and hosts out of order."""
    names = [one.name for one in fleet.menu.job_types]
    types = [_type(name, graph_look(number)[0]) for number, name in enumerate(names)]
    types += [_type("restart", INK, "#ffffff"), _type("host out of order", RULE)]
    panels = []
    for episode in episodes:
        record = episode.record
        made = _Bars(("job", "devices", "waited, s", "restarts", "lost to sharing, s"))
        items: dict[int, int] = {}
        for stay in episode.timeline.stays:
            job = stay.job
            if job not in items:
                waited_s = float(record.start_s[job] - record.arrival_s[job])
                shared_s = float(record.shared_s[job])
                items[job] = made.item(
                    f"job {job}",
                    len(stay.devices),
                    rounded(waited_s),
                    int(record.num_restarts[job]) or None,
                    rounded(shared_s) if shared_s > 0 else None,
                )
            for first, count in consecutive(stay.devices):
                made.add(stay.begin_s, stay.end_s, first, count, int(record.job_type[job]), items[job])
                if stay.is_restart and stay.steps_from_s > stay.begin_s:
                    until_s = min(stay.end_s, stay.steps_from_s)
                    made.add(stay.begin_s, until_s, first, count, len(names), items[job])
        for outage in episode.timeline.outages:
            item = made.item(fleet.cluster.host_names[outage.host], None, None, None, None)
            for first, count in consecutive(np.flatnonzero(fleet.cluster.device_host == outage.host)):
                made.add(outage.begin_s, outage.end_s, first, count, len(names) + 1, item)
        ended = int(np.isfinite(record.finish_s).sum())
        note = f"{ended} of {len(record.arrival_s)} jobs ended"
        panels.append(_panel(episode.policy, note, fleet.cluster, made))
    _keep_types(types, panels, {kind for panel in panels for kind in panel["bars"]["type"]})
    end_s = max(episode.record.end_s for episode in episodes)
    return _chart(f"Jobs on the devices of {fleet.cluster.name}", "time since the episode began", 0.0, end_s, types, panels)


def step_chart(timeline: Timeline, graph: JobGraph, device_names: Sequence[str] = ()) -> Chart:
    """One step of one job: for each rank a lane of compute above a lane of communication.

    Args:
        timeline: the simulated step.
        graph: the job.
        device_names: of each rank; none if not given.
    """
    types = [_type(key.text, key.colour) for key in KEYS]
    colours = {key.colour: number for number, key in enumerate(KEYS)}
    found, shortest_s = lanes(timeline), timeline.step_s / 1e5
    while sum(map(len, found)) > MOST_BARS:
        found, shortest_s = lanes(timeline, shortest_s=shortest_s), 4 * shortest_s
    made = _Bars(("op",))
    items: dict[tuple[int, float], int] = {}
    for lane, bars in enumerate(found):
        for bar in bars:
            key = (bar.op, bar.begin_s if bar.op < 0 else colours[bar.colour])
            if key not in items:
                items[key] = made.item(_op(graph, bar))
            made.add(bar.begin_s, bar.end_s, lane, 1, colours[bar.colour], items[key])
    ranks = timeline.execution.num_ranks
    groups = [
        {"name": f"rank {rank}" + (f" {device_names[rank]}" if rank < len(device_names) else ""), "first": 2 * rank, "count": 2}
        for rank in range(ranks)
    ]
    panel = {
        "name": f"{graph.name} on {counted(ranks, 'rank')}",
        "note": f"{timeline.step_s * 1e3:.4g} ms a step, {100 * timeline.communication_share:.0f} % of it communication",
        "num_lanes": 2 * ranks,
        "groups": groups,
        "bars": made.bars,
        "items": made.items,
        "marks": {"at": [], "type": [], "text": []},
    }
    _keep_types(types, [panel], set(made.bars["type"]))
    return _chart(f"One step of {graph.name}", "time since the step began", 0.0, timeline.step_s, types, [panel])


def _op(graph: JobGraph, bar: Bar) -> str:
    return "several" if bar.op < 0 else graph.op_names[bar.op]


def _type(name: str, colour: str, ink: str | None = None) -> dict[str, str]:
    return {"name": name, "colour": colour, "ink": ink or ink_on(colour)}


def _panel(name: str, note: str, cluster: Cluster, made: _Bars, marks: dict[str, list[Any]] | None = None) -> dict[str, Any]:
    hosts = cluster.device_host
    first = np.flatnonzero(np.diff(hosts, prepend=-1)).tolist()
    after = [*first[1:], len(hosts)]
    return {
        "name": name,
        "note": note,
        "num_lanes": cluster.num_devices,
        "groups": [
            {"name": cluster.host_names[int(hosts[begin])], "first": begin, "count": end - begin}
            for begin, end in zip(first, after, strict=True)
        ],
        "bars": made.bars,
        "items": made.items,
        "marks": marks or {"at": [], "type": [], "text": []},
    }


def _keep_types(types: list[dict[str, str]], panels: Iterable[dict[str, Any]], used: set[int]) -> None:
    """Leave out what occurs nowhere, so that the legend says what is there."""
    kept = sorted(used)
    number = {old: new for new, old in enumerate(kept)}
    types[:] = [types[old] for old in kept]
    for panel in panels:
        for part in (panel["bars"], panel["marks"]):
            part["type"] = [number[kind] for kind in part["type"]]


def _chart(label: str, axis: str, begin_s: float, end_s: float, types: Sequence[Any], panels: Sequence[Any]) -> Chart:
    return {
        "kind": "gantt",
        "label": label,
        "axis": axis,
        "begin": rounded(begin_s),
        "end": rounded(end_s),
        "types": list(types),
        "panels": list(panels),
    }
