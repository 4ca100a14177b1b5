"""One episode of a fleet: the devices of each host that jobs held, and how busy the links were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...envs.fleet.fleet import Fleet
from ...quantities import counted
from ..fleet.episodes import WatchedEpisode
from .figure import Figure, Panel, axis, figure, shown, time_text, time_unit
from .gantt import Bar, Lanes, consecutive, gantt_figure, host_lanes
from .policies import heatmap
from .style import INK, RULE, graph_look

RESTART, OUTAGE = "restart", "host out of order"


def hosts_figure(fleet: Fleet, episodes: Sequence[WatchedEpisode]) -> Figure:
    """A whole episode of a fleet under each policy: jobs on devices, restarts and hosts out of order."""
    names = [job_type.name for job_type in fleet.menu.job_types]
    looks = {name: graph_look(number) for number, name in enumerate(names)} | {RESTART: (INK, ""), OUTAGE: (RULE, "")}
    panels = []
    for episode in episodes:
        ended = int(np.isfinite(episode.record.finish_s).sum())
        title = f"{episode.policy}: {ended} of {len(episode.record.arrival_s)} jobs ended"
        panels.append(Lanes(title, _bars(fleet, episode, names), host_lanes(fleet.cluster)))
    end_s = max(episode.record.end_s for episode in episodes)
    return gantt_figure(f"Jobs on the devices of {fleet.cluster.name}", panels, looks, (0.0, end_s or 1.0))


def _bars(fleet: Fleet, episode: WatchedEpisode, names: Sequence[str]) -> list[Bar]:
    record, result = episode.record, []
    for stay in episode.timeline.stays:
        job, kind = stay.job, names[int(record.job_type[stay.job])]
        says = [f"job {job}", counted(len(stay.devices), "device")]
        says.append(f"waited {time_text(float(record.start_s[job] - record.arrival_s[job]))}")
        says += [f"{counted(int(record.num_restarts[job]), 'restart')}"] * bool(record.num_restarts[job])
        says += [f"lost to sharing: {time_text(float(record.shared_s[job]))}"] * bool(record.shared_s[job] > 0)
        for lane, count in consecutive(stay.devices):
            result.append(Bar(stay.begin_s, stay.end_s, lane, count, kind, tuple(says), str(job)))
            if stay.is_restart and stay.steps_from_s > stay.begin_s:
                until_s = min(stay.end_s, stay.steps_from_s)
                result.append(Bar(stay.begin_s, until_s, lane, count, RESTART, (f"job {job}", kind)))
    for outage in episode.timeline.outages:
        says_host = (fleet.cluster.host_names[outage.host],)
        for lane, count in consecutive(np.flatnonzero(fleet.cluster.device_host == outage.host)):
            result.append(Bar(outage.begin_s, outage.end_s, lane, count, OUTAGE, says_host))
    return result


def links_figure(
    policies: Sequence[str],
    link_names: Sequence[str],
    loads: Sequence[NDArray[np.float64]],
    means: NDArray[np.float64],
    end_s: float,
) -> Figure:
    """Load of some links over time under each policy, darker for more.

    Args:
        policies: by name.
        link_names: ``(l,)``.
        loads: of each policy, the share of each link that is busy in each of equal parts of the episode, ``(b, l)``.
        means: over the episode, ``(p, l)``.
        end_s: of the episode.
    """
    unit_s, unit = time_unit(end_s)
    x, panels = axis(f"time since the episode began ({unit})", showgrid=False), []
    for policy, load, mean in zip(policies, loads, means, strict=True):
        middle = (np.arange(len(load)) + 0.5) * end_s / unit_s / len(load)
        percent = [[float(f"{100 * share:.3g}") for share in row] for row in load.T]
        cells = heatmap(percent)
        cells |= {"x": [float(f"{at:.6g}") for at in middle], "xgap": 0}
        cells |= {"hovertemplate": f"%{{y}}<br>%{{x:.4~g}} {unit}: %{{z:.3~g}} % busy<extra></extra>"}
        ticks = [f"{shown(name, 24)}, mean {100 * share:.1f} %" for name, share in zip(link_names, mean, strict=True)]
        rows: dict[str, Any] = {"tickvals": list(range(len(ticks))), "ticktext": ticks, "showgrid": False}
        panels.append(Panel([cells], x, axis("", span=(len(ticks) - 0.5, -0.5), **rows), policy, 17.0 * len(ticks)))
    return figure("Load of links under each policy, % of the time busy", panels, shares_x=True)
