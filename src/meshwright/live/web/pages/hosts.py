"""The hosts of a cluster as a grid, by group: for each host a row of its devices, as runs of the same holder.

Each job has a mark of a letter and a number and one of a few colours. Both are drawn from its id, so they stay while other jobs
come and go. Colour never carries a meaning alone.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

import numpy as np

from ....clusters.cluster import Cluster
from ...changes import runs
from ...state import ClusterState, HeldJob, num_held, occupancy
from ..views import HostView, host_views

NUM_COLOURS = 7
"""Of jobs; as many as the style has."""

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
"""Of marks: those that are not taken for digits."""

MOST_OPEN_HOSTS = 512
"""Of a cluster whose groups are shown unfolded."""

Kind = Literal["free", "held", "reserved", "chosen", "drained", "down"]
"""State of a device: free, held by a running job, reserved for a planned one, chosen for this page's, or on a closed host."""


class JobMark(NamedTuple):
    """How a job is marked: a letter and a number, and one of `NUM_COLOURS` colours."""

    text: str
    colour: int


SHOWN_PLACES = 4


def marks(jobs: Collection[HeldJob]) -> dict[str, JobMark]:
    """Return the mark of each job, by its id."""
    highest = 9
    while len(LETTERS) * highest < 1.25 * len(jobs):
        highest = highest * 10 + 9
    slots = len(LETTERS) * highest
    taken: dict[int, str] = {}
    for job in jobs:
        slot = int.from_bytes(hashlib.sha256(job.id.encode()).digest()[:8], "big") % slots
        while slot in taken:
            slot = (slot + 1) % slots
        taken[slot] = job.id
    return {
        name: JobMark(f"{LETTERS[slot % len(LETTERS)]}{slot // len(LETTERS) + 1}", slot % len(LETTERS) % NUM_COLOURS)
        for slot, name in taken.items()
    }


def host_groups(
    cluster: Cluster, state: ClusterState, marked: Mapping[str, JobMark], choice: str | None = None
) -> list[dict[str, Any]]:
    """Return the hosts of a cluster, near ones together; the title of a group is empty where the cluster has one.

    Args:
        cluster: its hosts.
        state: who holds what.
        marked: the mark of each job.
        choice: id of the job that the page is about.

    Raises:
        StateError: the state is not of the cluster.
    """
    jobs = {job.id: job for job in state.jobs}
    cards = [_card(view, jobs, marked, choice) for view in host_views(cluster, state, occupancy(state, cluster))]
    grouped = itertools.groupby(zip(_titles(cluster), cards, strict=True), key=lambda one: one[0])
    return [{"title": title, "hosts": [card for _, card in group]} for title, group in grouped]


def job_rows(state: ClusterState, marked: Mapping[str, JobMark], now: datetime) -> list[dict[str, Any]]:
    """Return the jobs of a state.

    ``left_s`` are the seconds until the limit of a job, below 0 where that has passed; None where nobody says.
    """
    return [
        {
            "job": job,
            "mark": marked[job.id],
            "places": [(host, runs(local)) for host, local in itertools.islice(job.devices.items(), SHOWN_PLACES)],
            "num_more": max(0, len(job.devices) - SHOWN_PLACES),
            "num_devices": num_held(job, state),
            "left_s": None if job.ends_at is None else (job.ends_at - now).total_seconds(),
        }
        for job in state.jobs
    ]


def _card(view: HostView, jobs: Mapping[str, HeldJob], marked: Mapping[str, JobMark], choice: str | None) -> dict[str, Any]:
    """Return a host: its devices as runs of one holder, in order, and the devices of each holder in words."""
    results, held, first = list[dict[str, Any]](), dict[str, list[int]](), 0
    for name, group in itertools.groupby(view.held_by):
        number = len(list(group))
        job, mark = (None, None) if name is None else (jobs[name], marked[name])
        results.append({"first": first, "number": number, "kind": _kind(view, job, choice), "job": job, "mark": mark})
        if name is not None:
            held.setdefault(name, []).extend(range(first, first + number))
        first += number
    return {
        "name": view.name,
        "condition": view.condition,
        "reason": view.reason,
        "runs": results,
        "held": [{"devices": runs(local), "job": jobs[name], "mark": marked[name]} for name, local in held.items()],
        "num_devices": first,
        "num_free": sum(run["number"] for run in results if run["kind"] == "free"),
    }


def _kind(view: HostView, job: HeldJob | None, choice: str | None) -> Kind:
    if job is None:
        return "free" if view.condition == "up" else view.condition
    if job.id == choice:
        return "chosen"
    return "reserved" if job.source == "plan" else "held"


def _titles(cluster: Cluster) -> list[str]:
    """Return the place of each host: the coordinates of its first device above the host, as ``pod 0, leaf 1``."""
    names = cluster.topology.coordinate_names
    shown = names[: names.index("host")] if "host" in names else names[:1] if len(names) > 1 else ()
    _, firsts = np.unique(cluster.device_host, return_index=True)
    where = cluster.topology.coordinates[firsts, : len(shown)]
    if not shown or (where == where[0]).all():
        return [""] * cluster.num_hosts
    return [", ".join(f"{name} {number}" for name, number in zip(shown, host, strict=True)) for host in where.tolist()]
