"""Sections of a fleet in a report: one episode of some policies (queue, devices, hosts, links, slowdowns by others), times of
all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...envs.fleet.fleet import Fleet
from ...envs.fleet.record import FleetRecord
from ...quantities import counted
from ..cluster.cluster_figures import PERCENTILES
from ..evaluate import Evaluation
from ..fleet.episodes import WatchedEpisode, watch_episode
from ..fleet.policies import fleet_player
from ..plots.curves import looks_of
from ..plots.figure import Figure, Panel, axis, figure, line, shown, time_unit
from ..plots.fleet import hosts_figure
from ..plots.policies import heatmap
from ..plots.style import MUTED
from ..statistics import NO_POLICY
from .pages import Cell, Drawn, PageTable, Part, Sections
from .shared_figures import drawn_rows, shown_policies

MOST_SHOWN, MOST_CURVES = 4, 12
MOST_TRUNKS, MOST_OTHERS = 8, 4
_PARTS = 240
_SHORTEST_MIN = 0.1
"""Shorter times are drawn as this, for the axis is logarithmic."""

_RULE = (
    "A job that shares links with others takes longer for a step than alone. The model of shared links itself divides this loss "
    "among the others: each is charged what it adds on the link that slows the job most, and on its other links. A job that "
    "shares no link with it is charged nothing, and the charges sum to the loss."
)


def fleet_sections(result: Evaluation) -> Sections:
    """Return the sections of an evaluation; the first test episode of the policies that are shown is played again for it."""
    fleet, seed = result.world.built, result.results["cases"][0]
    names = [name for name in shown_policies(result.results, MOST_SHOWN) if result.played[name].records]
    return sections_of(result, [watch_episode(name, fleet_player(result.specs[name], fleet), fleet, seed) for name in names])


def sections_of(result: Evaluation, episodes: Sequence[WatchedEpisode]) -> Sections:
    """Return the sections of an evaluation.

    Args:
        result: the evaluation.
        episodes: the same episode of each policy that is shown, at least one.
    """
    fleet, about = result.world.built, result.results["about"]
    no_links = "Jobs share no links here (sharing: none)."
    parts = [slowed(episode, fleet) for episode in episodes] if fleet.settings.sharing != "none" else []
    return Sections(
        f"; {about['num_jobs']} jobs each: {', '.join(about['jobs'])}",
        _figures(result, episodes),
        [("Who slowed whom", _RULE if parts else no_links, parts)],
        ["Blocked jobs were turned away, expired in the queue or ended late; late ones are a part of them."],
    )


def _figures(result: Evaluation, episodes: Sequence[WatchedEpisode]) -> list[Drawn]:
    fleet = result.world.built
    drawn = [
        Drawn(
            _over_time(result, episodes),
            "Jobs in the queue, jobs that run, and devices that they hold, over one episode that is the same for all policies; "
            "devices that are not held are free. Each point is a mean over "
            f"1/{_PARTS} of the longest of these episodes.",
        ),
        Drawn(
            hosts_figure(fleet, episodes),
            "Devices of each host, by job. A bar is a job, in the colour of its type and with its number where there is "
            "room; devices without a bar are free. Dark: a job that was stopped is restarting and makes no steps."
            + " Light grey: the host has failed and is out of order."
            * fleet.settings.has_failures,
        ),
    ]
    if fleet.settings.sharing != "none" and fleet.network.has_shared_links:
        drawn.append(
            Drawn(
                _links(fleet, episodes),
                "Load of the busiest links, each in its busier direction: first trunks (all links above a leaf switch or a site "
                "together), then hosts (all their network cards) and other links. The number is the mean over the episode.",
            )
        )
    left_out = [row["policy"] for row in _played_rows(result)][MOST_CURVES:]
    also = f" Left out, as curves could not be distinguished: {', '.join(left_out)}." if left_out else ""
    drawn.append(
        Drawn(
            _times(result),
            f"Times of the counted jobs of {counted(len(result.results['cases']), 'episode')}: how many of them had ended, and "
            f"how many had started, by how long after their arrival (times below {_SHORTEST_MIN:g} minutes are drawn there). A "
            "curve that ends below 100 % leaves out jobs that were turned away." + also,
        )
    )
    return drawn


def _over_time(result: Evaluation, episodes: Sequence[WatchedEpisode]) -> Figure:
    kinds = {row["policy"]: str(row["kind"]) for row in result.results["rows"]}
    looks = looks_of([(episode.policy, kinds[episode.policy]) for episode in episodes])
    end_s = max(episode.record.end_s for episode in episodes)
    bounds_s = np.linspace(0.0, end_s or 1.0, _PARTS + 1)
    unit_s, unit = time_unit(end_s or 1.0)
    middle = (bounds_s[1:] + bounds_s[:-1]) / 2 / unit_s
    devices = result.world.built.cluster.num_devices
    x, panels = axis(f"time since the episode began ({unit})"), []
    for name, title, scale in (
        ("num_waiting", "Jobs waiting", 1.0),
        ("num_running", "Jobs running", 1.0),
        ("num_held", "Devices held, % (the rest is free)", 100.0 / devices),
    ):
        curves = [
            line(
                one.policy, middle, scale * one.timeline.mean_in(getattr(one.timeline, name), bounds_s), look, line={"width": 1.6}
            )
            for one, look in zip(episodes, looks, strict=True)
        ]
        if name == "num_held":
            curves.append(line(f"all {devices} devices", middle[[0, -1]], np.full(2, 100.0), (MUTED, "dot"), hoverinfo="skip"))
        y = axis(title.partition(" (")[0].lower(), rangemode="tozero")
        panels.append(Panel(curves, x, y, title, 170.0))
    return figure("Queue, running jobs and held devices over one episode", panels, shares_x=True)


def _links(fleet: Fleet, episodes: Sequence[WatchedEpisode]) -> Figure:
    """Load of links over time under each policy, darker for more.

    They are the same for all episodes: trunks, then others, that carry most in the mean under any of the policies.
    """
    end_s = max(episode.record.end_s for episode in episodes)
    bounds_s = np.linspace(0.0, end_s or 1.0, _PARTS + 1)
    names, first = _link_pairs(fleet)
    load = [episode.timeline.mean_in(np.maximum.reduceat(episode.timeline.load, first, axis=1), bounds_s) for episode in episodes]
    own_s = [episode.record.end_s or 1.0 for episode in episodes]
    means = np.array([of.mean(axis=0) * (end_s or 1.0) / own for of, own in zip(load, own_s, strict=True)])
    order = np.argsort(-means.max(axis=0), kind="stable")
    order = order[means.max(axis=0)[order] > 0] if means.any() else order[:1]
    is_trunk = (first[order] >= 2 * fleet.cluster.num_hosts) & (fleet.problem.network.num_trunks > 0)
    most_others = MOST_OTHERS if is_trunk.any() else MOST_TRUNKS + MOST_OTHERS
    choice = np.concatenate([order[is_trunk][:MOST_TRUNKS], order[~is_trunk][:most_others]])
    unit_s, unit = time_unit(end_s or 1.0)
    x, panels = axis(f"time since the episode began ({unit})", showgrid=False), []
    middle = [float(f"{at:.6g}") for at in (np.arange(_PARTS) + 0.5) * (end_s or 1.0) / unit_s / _PARTS]
    for episode, busy, mean in zip(episodes, load, means, strict=True):
        cells = heatmap([[float(f"{100 * share:.3g}") for share in row] for row in busy[:, choice].T]) | {"x": middle, "xgap": 0}
        cells |= {"hovertemplate": f"%{{y}}<br>%{{x:.4~g}} {unit}: %{{z:.3~g}} % busy<extra></extra>"}
        ticks = [f"{shown(names[link], 24)}, mean {100 * mean[link]:.1f} %" for link in choice]
        rows: dict[str, Any] = {"tickvals": list(range(len(ticks))), "ticktext": ticks, "showgrid": False}
        panels.append(Panel([cells], x, axis("", span=(len(ticks) - 0.5, -0.5), **rows), episode.policy, 17.0 * len(ticks)))
    return figure("Load of links under each policy, % of the time busy", panels, shares_x=True)


def _link_pairs(fleet: Fleet) -> tuple[list[str], NDArray[np.int64]]:
    """Return the hosts and trunks by name and the first of their two links, which follow each other; other links one by one."""
    num_hosts, network = fleet.cluster.num_hosts, fleet.network
    hosts = [f"host {name}" if name.isdigit() else name for name in fleet.cluster.host_names]
    if network.arrays.num_trunks > 0:
        return [*hosts, *network.trunk_names], np.arange(0, len(network.link_names), 2)
    others = range(2 * num_hosts, len(network.link_names))
    names = [*hosts, *(network.link_names[link] for link in others)]
    return names, np.concatenate([np.arange(0, 2 * num_hosts, 2), np.array(others, np.int64)])


def _times(result: Evaluation) -> Figure:
    rows = _played_rows(result)[:MOST_CURVES]
    looks = looks_of([(str(row["policy"]), str(row["kind"])) for row in rows])
    panels = []
    for title, until in (("Time from arrival to end", "finish_s"), ("Wait for the first start", "start_s")):
        curves = [
            line(row["policy"], *_reached(result.played[row["first"]].records, until, result.world.built.settings.counted), look)
            for row, look in zip(rows, looks, strict=True)
        ]
        panels.append(Panel(curves, axis("minutes", is_log=True), axis("% of counted jobs", rangemode="tozero"), title, 240.0))
    return figure("Times of jobs from their arrival", panels)


def _played_rows(result: Evaluation) -> list[dict[str, Any]]:
    """Return one row for all policies with the same results."""
    return [row for row in drawn_rows(result.results) if row["kind"] not in NO_POLICY]


def _reached(records: Sequence[FleetRecord], until: str, counted: slice) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the minutes from arrival to something, and the share of all counted jobs that had it by then, in percent."""
    took_s = np.concatenate([(getattr(record, until) - record.arrival_s)[counted] for record in records])
    known = took_s[np.isfinite(took_s)]
    if len(known) == 0:
        return np.zeros(0), np.zeros(0)
    percent = np.array(PERCENTILES, np.float64)
    return np.maximum(np.percentile(known, percent) / 60, _SHORTEST_MIN), percent * len(known) / len(took_s)


MOST_PAIRS, MOST_JOBS, MOST_OTHERS = 8, 40, 4


def slowed(episode: WatchedEpisode, fleet: Fleet) -> Part:
    """Return the time that jobs of an episode lost to others: in all, the worst pairs, a matrix of types, and each job."""
    lost_s = episode.timeline.lost_s
    if not lost_s:
        return episode.policy, "No job was slowed by another one: no two jobs sent on one link at a time.", []
    num_slowed = len({job for job, _ in lost_s})
    summary = f"{num_slowed} of {len(episode.record.arrival_s)} jobs were slowed and lost {_time(sum(lost_s.values()))} in all."
    jobs, rest = _each_job(episode, fleet)
    tables = [
        ("", _pairs(episode, fleet)),
        ("Minutes that jobs of a type (row) lost to jobs of each type (column)", _types(episode, fleet)),
        (f"Each slowed job under {episode.policy}" + (f"; {rest}" if rest else ""), jobs),
    ]
    return episode.policy, summary, tables


def lost_by_type(episode: WatchedEpisode, fleet: Fleet) -> NDArray[np.float64]:
    """Return the seconds that jobs of each type lost to jobs of each type, ``(t, t)``."""
    result = np.zeros((fleet.num_types, fleet.num_types))
    for (job, other), seconds in episode.timeline.lost_s.items():
        result[episode.record.job_type[job], episode.record.job_type[other]] += seconds
    return result


def _pairs(episode: WatchedEpisode, fleet: Fleet) -> PageTable:
    record = episode.record
    worst = sorted(episode.timeline.lost_s.items(), key=lambda item: (-item[1], item[0]))[:MOST_PAIRS]
    rows = []
    for (job, other), seconds in worst:
        ran_s = float(record.finish_s[job] - record.start_s[job])
        share = f"{100 * seconds / ran_s:.1f}" if np.isfinite(ran_s) and ran_s > 0 else "-"
        rows.append([_job(job, episode, fleet), _job(other, episode, fleet), _time(seconds), share])
    return PageTable(["slowed", "by", "lost", ("of its time", "% from start to end")], rows)


def _types(episode: WatchedEpisode, fleet: Fleet) -> PageTable:
    lost_s = lost_by_type(episode, fleet)
    used = [kind for kind in range(fleet.num_types) if lost_s[kind].any() or lost_s[:, kind].any()]
    names = [fleet.menu.job_types[kind].name for kind in used]
    rows = [
        [name, *(f"{lost_s[kind, other] / 60:.1f}" for other in used), f"{lost_s[kind].sum() / 60:.1f}"]
        for name, kind in zip(names, used, strict=True)
    ]
    return PageTable(["slowed", *names, "all"], rows, "wide")


def _each_job(episode: WatchedEpisode, fleet: Fleet) -> tuple[PageTable, str]:
    by_job: dict[int, list[tuple[float, int]]] = {}
    for (job, other), seconds in episode.timeline.lost_s.items():
        by_job.setdefault(job, []).append((seconds, other))
    order = sorted(by_job, key=lambda job: (-sum(seconds for seconds, _ in by_job[job]), job))
    rows = []
    for job in order[:MOST_JOBS]:
        others = sorted(by_job[job], key=lambda part: (-part[0], part[1]))
        lines = [f"job {other}: {_time(seconds)}" for seconds, other in others[:MOST_OTHERS]]
        lines += _rest([seconds for seconds, _ in others[MOST_OTHERS:]], "other")
        rows.append([_job(job, episode, fleet), _time(sum(seconds for seconds, _ in others)), ", ".join(lines)])
    rest = _rest([sum(seconds for seconds, _ in by_job[job]) for job in order[MOST_JOBS:]], "more job")
    return PageTable(["slowed", "lost", "to which others"], rows, "texts"), "".join(rest)


def _rest(seconds: Sequence[float], word: str) -> list[str]:
    return [f"{len(seconds)} {word}{'s' * (len(seconds) > 1)}: {_time(sum(seconds))}"] if seconds else []


def _job(job: int, episode: WatchedEpisode, fleet: Fleet) -> Cell:
    kind = fleet.menu.job_types[int(episode.record.job_type[job])].name
    entry = int(episode.record.entry[job])
    return f"job {job}", f"{kind}, {int(fleet.problem.menu.degree[entry])} devices"


def _time(seconds: float) -> str:
    """Return a time in seconds below two minutes, in minutes below two hours, else in hours; not to be broken."""
    for most_s, unit_s, unit in ((120.0, 1.0, "s"), (7200.0, 60.0, "min")):
        if seconds < most_s:
            return f"{seconds / unit_s:.1f}\u00a0{unit}"
    return f"{seconds / 3600:.1f}\u00a0h"
