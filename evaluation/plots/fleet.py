"""One episode of a fleet: the devices of each host that jobs held."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...envs.fleet.fleet import Fleet
from ...quantities import counted
from ..fleet.episodes import WatchedEpisode
from .figure import Figure, time_text
from .gantt import Bar, Lanes, consecutive, gantt_figure, host_lanes
from .style import INK, RULE, graph_look

RESTART, OUTAGE = "restart", "host out of order"


def hosts_figure(fleet: Fleet, episodes: Sequence[WatchedEpisode]) -> Figure:
    """Return a whole episode of a fleet under each policy: jobs on devices, restarts and hosts out of order."""
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
