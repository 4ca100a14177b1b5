"""Who slowed whom: what jobs lost to others on shared links, as tables of HTML."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...envs.fleet.fleet import Fleet
from ..fleet.episodes import WatchedEpisode
from .html import escaped_text, folded, table

MOST_PAIRS, MOST_JOBS, MOST_OTHERS = 8, 40, 4


def interference_html(episode: WatchedEpisode, fleet: Fleet) -> list[str]:
    """What jobs of an episode lost: the worst pairs, a matrix of types, and, folded away, each job."""
    lost_s = episode.timeline.lost_s
    total_s, num_slowed = sum(lost_s.values()), len({job for job, _ in lost_s})
    name = escaped_text(episode.policy)
    if not lost_s:
        return [f"<h3>{name}</h3>", "<p>No job was slowed by another one: no two jobs sent on one link at a time.</p>"]
    said = f"{num_slowed} of {len(episode.record.arrival_s)} jobs were slowed and lost {_time(total_s)} in all."
    return [
        f"<h3>{name}</h3>",
        f"<p>{said}</p>",
        _pairs(episode, fleet),
        "<p>Minutes that jobs of a type (row) lost to jobs of each type (column):</p>",
        _types(episode, fleet),
        _each_job(episode, fleet),
    ]


def lost_by_type(episode: WatchedEpisode, fleet: Fleet) -> NDArray[np.float64]:
    """Seconds that jobs of each type lost to jobs of each type, ``(t, t)``."""
    found = np.zeros((fleet.num_types, fleet.num_types))
    for (job, other), seconds in episode.timeline.lost_s.items():
        found[episode.record.job_type[job], episode.record.job_type[other]] += seconds
    return found


def _pairs(episode: WatchedEpisode, fleet: Fleet) -> str:
    record = episode.record
    worst = sorted(episode.timeline.lost_s.items(), key=lambda item: (-item[1], item[0]))[:MOST_PAIRS]
    rows = []
    for (job, other), seconds in worst:
        ran_s = float(record.finish_s[job] - record.start_s[job])
        share = f"{100 * seconds / ran_s:.1f}" if np.isfinite(ran_s) and ran_s > 0 else "-"
        rows.append(("", [_job(job, episode, fleet), _job(other, episode, fleet), _time(seconds), share]))
    head = ["slowed", "by", "lost", "of its time <small>% from start to end</small>"]
    return table(head, rows)


def _types(episode: WatchedEpisode, fleet: Fleet) -> str:
    lost_s = lost_by_type(episode, fleet)
    used = [kind for kind in range(fleet.num_types) if lost_s[kind].any() or lost_s[:, kind].any()]
    names = [escaped_text(fleet.menu.job_types[kind].name) for kind in used]
    rows = [
        ("", [name, *(f"{lost_s[kind, other] / 60:.1f}" for other in used), f"{lost_s[kind].sum() / 60:.1f}"])
        for name, kind in zip(names, used, strict=True)
    ]
    return table(["slowed", *names, "all"], rows, kind="wide")


def _each_job(episode: WatchedEpisode, fleet: Fleet) -> str:
    by_job: dict[int, list[tuple[float, int]]] = {}
    for (job, other), seconds in episode.timeline.lost_s.items():
        by_job.setdefault(job, []).append((seconds, other))
    order = sorted(by_job, key=lambda job: (-sum(seconds for seconds, _ in by_job[job]), job))
    rows = []
    for job in order[:MOST_JOBS]:
        others = sorted(by_job[job], key=lambda part: (-part[0], part[1]))
        told = [f"job {other}: {_time(seconds)}" for seconds, other in others[:MOST_OTHERS]]
        told += _rest([seconds for seconds, _ in others[MOST_OTHERS:]], "other")
        rows.append(("", [_job(job, episode, fleet), _time(sum(seconds for seconds, _ in others)), ", ".join(told)]))
    rest = _rest([sum(seconds for seconds, _ in by_job[job]) for job in order[MOST_JOBS:]], "more job")
    after = f"<p>{rest[0]}.</p>" if rest else ""
    summary = f"Each slowed job under {episode.policy}"
    return folded(summary, table(["slowed", "lost", "to which others"], rows, kind="texts") + after)


def _rest(seconds: Sequence[float], word: str) -> list[str]:
    return [f"{len(seconds)} {word}{'s' * (len(seconds) > 1)}: {_time(sum(seconds))}"] if seconds else []


def _job(job: int, episode: WatchedEpisode, fleet: Fleet) -> str:
    kind = fleet.menu.job_types[int(episode.record.job_type[job])].name
    entry = int(episode.record.entry[job])
    return f"job {job} <small>{escaped_text(kind)}, {int(fleet.problem.menu.degree[entry])} devices</small>"


def _time(seconds: float) -> str:
    """In seconds below two minutes, in minutes below two hours, else in hours; not to be broken."""
    for most_s, unit_s, unit in ((120.0, 1.0, "s"), (7200.0, 60.0, "min")):
        if seconds < most_s:
            return f"{seconds / unit_s:.1f}&nbsp;{unit}"
    return f"{seconds / 3600:.1f}&nbsp;h"
