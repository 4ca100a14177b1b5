"""Interference of jobs: what each lost to others on shared links, as tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...envs.fleet.fleet import Fleet
from ..fleet.episodes import WatchedEpisode
from .pages import Cell, PageTable, Row, cells
from .report_parts import ChapterPart, PartTable

MOST_PAIRS, MOST_JOBS, MOST_OTHERS = 8, 40, 4


def slowed(episode: WatchedEpisode, fleet: Fleet) -> ChapterPart:
    """Return the time that jobs of an episode lost to others: in all, the worst pairs, a matrix of types, and each job."""
    lost_s = episode.timeline.lost_s
    if not lost_s:
        return ChapterPart(episode.policy, "No job was slowed by another one: no two jobs sent on one link at a time.")
    num_slowed = len({job for job, _ in lost_s})
    summary = f"{num_slowed} of {len(episode.record.arrival_s)} jobs were slowed and lost {_time(sum(lost_s.values()))} in all."
    jobs, rest = _each_job(episode, fleet)
    tables = (
        PartTable(_pairs(episode, fleet)),
        PartTable(_types(episode, fleet), "Minutes that jobs of a type (row) lost to jobs of each type (column)"),
        PartTable(jobs, f"Each slowed job under {episode.policy}" + (f"; {rest}" if rest else "")),
    )
    return ChapterPart(episode.policy, summary, tables)


def lost_by_type(episode: WatchedEpisode, fleet: Fleet) -> NDArray[np.float64]:
    """Seconds that jobs of each type lost to jobs of each type, ``(t, t)``."""
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
        rows.append(Row([_job(job, episode, fleet), _job(other, episode, fleet), Cell(_time(seconds)), Cell(share)]))
    return PageTable((*cells(("slowed", "by", "lost")), Cell("of its time", "% from start to end")), rows)


def _types(episode: WatchedEpisode, fleet: Fleet) -> PageTable:
    lost_s = lost_by_type(episode, fleet)
    used = [kind for kind in range(fleet.num_types) if lost_s[kind].any() or lost_s[:, kind].any()]
    names = [fleet.menu.job_types[kind].name for kind in used]
    rows = [
        Row(cells((name, *(f"{lost_s[kind, other] / 60:.1f}" for other in used), f"{lost_s[kind].sum() / 60:.1f}")))
        for name, kind in zip(names, used, strict=True)
    ]
    return PageTable(cells(("slowed", *names, "all")), rows, "wide")


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
        rows.append(Row([_job(job, episode, fleet), *cells((_time(sum(seconds for seconds, _ in others)), ", ".join(lines)))]))
    rest = _rest([sum(seconds for seconds, _ in by_job[job]) for job in order[MOST_JOBS:]], "more job")
    return PageTable(cells(("slowed", "lost", "to which others")), rows, "texts"), "".join(rest)


def _rest(seconds: Sequence[float], word: str) -> list[str]:
    return [f"{len(seconds)} {word}{'s' * (len(seconds) > 1)}: {_time(sum(seconds))}"] if seconds else []


def _job(job: int, episode: WatchedEpisode, fleet: Fleet) -> Cell:
    kind = fleet.menu.job_types[int(episode.record.job_type[job])].name
    entry = int(episode.record.entry[job])
    return Cell(f"job {job}", f"{kind}, {int(fleet.problem.menu.degree[entry])} devices")


def _time(seconds: float) -> str:
    """In seconds below two minutes, in minutes below two hours, else in hours; not to be broken."""
    for most_s, unit_s, unit in ((120.0, 1.0, "s"), (7200.0, 60.0, "min")):
        if seconds < most_s:
            return f"{seconds / unit_s:.1f}\u00a0{unit}"
    return f"{seconds / 3600:.1f}\u00a0h"
