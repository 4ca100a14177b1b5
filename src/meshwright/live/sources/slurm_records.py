"""Slurm's nodes and jobs as records that do not depend on the form of its answer, and the listing that they make.

Devices are compared with the node's own count (``GresUsed``). Those in use by no job of the listing, as where ``PrivateData``
hides the jobs of others, are held by a job called ``unlisted/HOST``. Jobs are therefore asked for before nodes.

A completing job has given its devices back in Slurm's count, but the node takes no jobs until it has ended there. (Tried on
22.05: GRES empty, GresUsed 0, the next job waits.) So the node is drained meanwhile.

MIG slices are no devices. Slurm counts indices over GPUs and slices together, so on a host that has both only numbers are read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...errors import StateError
from ..state import ClusterState, some
from .listings import MOST_DEVICES, FreeDevices, Listing, assumed, listed, plain, unlisted

_DOWN = {
    "DOWN": "down",
    "ERROR": "in error",
    "FUTURE": "not there yet",
    "REBOOT_ISSUED": "rebooting",
}
_DRAINED = {
    "DRAIN": "drained",
    "DRAINED": "drained",
    "DRAINING": "drained",
    "FAIL": "about to fail",
    "FAILING": "about to fail",
    "INVAL": "registered with less than is configured",
    "INVALID_REG": "registered with less than is configured",
    "NOT_RESPONDING": "not responding",
    "MAINT": "in maintenance",
    "MAINTENANCE": "in maintenance",
    "RESERVED": "reserved",
    "REBOOT": "waits for its reboot",
    "REBOOT_REQUESTED": "waits for its reboot",
    "POWER_DOWN": "to be powered down",
    "POWER_DRAIN": "to be powered down",
    "POWERING_DOWN": "being powered down",
    "PERFCTRS": "its counters are in use",
    "BLOCKED": "blocked by a job on neighbouring nodes",
    "COMPLETING": "a job is completing on it",
    "UNKNOWN": "not heard of yet",
}
_UP = {
    *("IDLE", "ALLOCATED", "ALLOC", "MIXED", "PLANNED", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"),
    *("POWERED_DOWN", "POWER_UP", "POWERING_UP"),
}
"""Of these a node takes jobs; one that is powered down to save power is started for them."""

_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "$": "MAINT",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
}
"""Marks behind a state, as some releases write flags."""

_HOLDING = {"RUNNING", "SUSPENDED", "CONFIGURING", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING"}
"""Jobs of these states hold devices: a suspended one keeps its GPUs."""

_WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "COMPLETING"}
"""Jobs of these states may yet start, or have not quite ended."""

_ENDED = {
    *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"),
    *("OUT_OF_MEMORY", "LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED"),
}
"""Jobs of these states never start again under their id."""

_OF_A_GROUP = {"USER", "MCS", "TOPO"}
"""Of a job that shares its hosts with jobs of its user or group alone."""

_ENTRY = re.compile(r"(?:[^,()]|\([^()]*\))+")
_GIVEN = re.compile(r"^\S*(?:DRAIN|DOWN|FAIL|ERROR)")
"""States with a reason; other states may carry an old one."""

_DECISION = re.compile(r"mw:(?!auto(?:\s|$))(\S+)")
"""Begins the comment of a job that came from a decision."""

PARTS = ("shard", "mps")
"""Resources that are parts of GPUs: a job with a part holds the GPU.

Slurm writes them as ``shard:1(1/4,0/4)``: for each GPU of the node the parts in use and all parts (``gres_stepmgr.c``).
"""

_SLICE = re.compile(r"[0-9]g[._-]?[0-9]+gb", re.IGNORECASE)
"""In the type of a MIG slice, as ``1g.10gb``, ``a100_1g.5gb`` or a site's own ``1g10gb``."""


class ListedNode(NamedTuple):
    """A node.

    Attributes:
        name: of it.
        state: its words, joined by ``+``.
        gres, gres_used: generic resources, as ``gpu:4(S:0)``.
        reason: somebody's words why it is closed.
    """

    name: str
    state: str
    gres: str
    gres_used: str
    reason: str


class ListedJob(NamedTuple):
    """A job.

    Attributes:
        number: of it.
        id: as ``squeue`` shows it: ``12``, ``12_3`` for a task of an array, ``12+1`` for a part of a heterogeneous job.
        name: for people; None where it has none.
        ends_at: by its limit, ``YYYY-MM-DDTHH:MM:SSZ``; None where it does not run or has none.
        decision: that it came from.
        state: one word.
        shares: ``NO``, ``YES``, ``OK``, ``USER``, ``MCS`` or ``TOPO``: its sharing of hosts.
        allocated: for each of its hosts the number of its GPUs there, and their indices where Slurm gives them.
    """

    number: int
    id: str
    name: str | None
    ends_at: str | None
    decision: str | None
    state: str
    shares: str
    allocated: Mapping[str, tuple[int, tuple[int, ...]]]


def decision_of(comment: str) -> str | None:
    """Return the decision that a job's comment names."""
    match = _DECISION.match(comment)
    return plain(match[1]) if match else None


def id_of(number: int, array: tuple[str, str] | None = None, part: tuple[str, str] | None = None) -> str:
    """Return a job's id as ``squeue`` shows it.

    Args:
        number: of the job.
        array: number of its array, and its task.
        part: number of the heterogeneous job that it is a part of, and which.
    """
    if array is not None:
        return f"{array[0]}_{array[1]}"[:300]
    return f"{number}" if part is None else f"{part[0]}+{part[1]}"[:300]


def listing_of(nodes: Sequence[ListedNode], jobs: Sequence[ListedJob], known: ClusterState) -> Listing:
    """Return the listing that nodes and jobs make.

    Args:
        nodes: all of them.
        jobs: all of them, those that wait and have ended too.
        known: the state so far, which keeps indices that Slurm does not give.

    Raises:
        StateError: it contradicts itself.
        ConfigError: a name in it that cannot be.
    """
    hosts, used = _hosts(nodes)
    cut = [node.name for node in nodes if _SLICE.search(node.gres)]
    jobs = _counted(jobs, {name: used[name][0] for name in cut if name in used})
    twice = [number for number, count in Counter(job.number for job in jobs).items() if count > 1]
    if twice:
        raise StateError("the job appears twice; is there a line break in a name or comment?", field="JobId", value=twice[0])
    free = FreeDevices({name: host.get("num_devices") for name, host in hosts.items()})
    held, remarks = _held(jobs, free, known)
    if cut:
        remarks.append(f"MIG slices are no devices and are left out: {plain(some(cut, 5))}")
    ours = [job for job in jobs if job.decision is not None]
    waiting = [str(job.decision) for job in ours if job.state in _WAITING]
    result = listed("slurm", hosts, [*held, *unlisted(used, free, known)], remarks, waiting)
    alive = {job.decision for job in ours if job.state not in _ENDED}
    return replace(
        result,
        queued={str(job.decision): job.id for job in ours if job.state in _WAITING},
        ended={str(job.decision): job.id for job in ours if job.decision not in alive},
    )


def _hosts(nodes: Iterable[ListedNode]) -> tuple[dict[str, dict[str, Any]], dict[str, tuple[int, tuple[int, ...]]]]:
    """Return the hosts as fields of their states, and for each the number and known indices of devices in use."""
    hosts: dict[str, dict[str, Any]] = {}
    used: dict[str, tuple[int, tuple[int, ...]]] = {}
    for node in nodes:
        if node.name in hosts:
            raise StateError("the node appears twice", value=node.name)
        condition, why = _condition(node.state)
        hosts[node.name] = {"condition": condition}
        if condition != "up":
            reason = node.reason if _GIVEN.search(node.state) else ""
            hosts[node.name]["reason"] = plain(reason.strip(), 1000) or why
        what = f"node {plain(node.name, 80)}"
        count, _ = gpus(node.gres, what)
        if count:
            hosts[node.name]["num_devices"] = count
            number, indices = gpus(node.gres_used, what)
            used[node.name] = (number, () if _SLICE.search(node.gres) else indices)
        elif _SLICE.search(node.gres) and condition == "up":
            hosts[node.name] |= {"condition": "drained", "reason": "its GPUs are cut into MIG slices"}
    return hosts, used


def _counted(jobs: Iterable[ListedJob], left: dict[str, int]) -> list[ListedJob]:
    """Return the jobs without indices of their devices on hosts that have slices too.

    Args:
        jobs: with what Slurm writes of them. A job that named no type may have slices.
        left: of each such host its whole devices in use, which jobs can have.
    """
    counted = []
    for job in sorted(jobs, key=lambda job: job.number):
        allocated = dict(job.allocated)
        for host in allocated.keys() & left.keys():
            number = min(allocated[host][0], left[host])
            left[host] -= number
            allocated[host] = (number, ())
        counted.append(job._replace(allocated=allocated))
    return counted


def _condition(state: str) -> tuple[str, str | None]:
    """Return whether a node takes jobs, and the words of its state that say why not; a word of a later release closes it."""
    flags = [flag for flag in state.split("+") if flag]
    for suffix, flag in _SUFFIXES.items():
        flags += [flag] if any(suffix in one for one in flags) else []
    flags = [flag.rstrip("*~#!%$@^-") for flag in flags]
    down = [_DOWN[flag] for flag in flags if flag in _DOWN]
    others = [_DRAINED.get(flag, plain(flag.lower(), 60)) for flag in flags if flag not in _DOWN and flag not in _UP]
    condition = ", ".join(dict.fromkeys([*down, *others])) or None
    return ("down" if down else "drained" if others or not flags else "up"), condition


def _held(jobs: Sequence[ListedJob], free: FreeDevices, known: ClusterState) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the jobs that hold devices, and remarks.

    Where two hold one device, as after a suspension, it is the running one's.
    """
    dealt = sorted(jobs, key=lambda job: (job.state == "SUSPENDED", job.number))
    devices: list[dict[str, tuple[int, ...]]] = [{} for _ in dealt]
    counts: list[dict[str, int]] = [{} for _ in dealt]  # of devices without an index
    is_whole = [job.shares == "NO" and job.state in _HOLDING for job in dealt]
    sharing, users = [], []
    for place, job in enumerate(dealt):
        whole = is_whole[place]
        for host, (number, indices) in job.allocated.items():
            target = range(free.num_devices.get(host) or 0) if whole else indices
            taken = free.take(host, target)
            if taken or whole:
                devices[place][host] = taken
            if len(taken) < len(target):
                sharing.append(job.id)
                is_whole[place] = False
            if number and not target:
                counts[place][host] = number
    named = [{"id": job.id, "decision": job.decision, "counts": count} for job, count in zip(dealt, counts, strict=True)]
    for where, result in zip(devices, assumed(named, free, known), strict=True):
        where.update(result["devices"])
    for job, where in zip(dealt, devices, strict=True):
        if job.shares in _OF_A_GROUP and job.state in _HOLDING:
            for host in job.allocated:
                rest = free.take(host, range(free.num_devices.get(host) or 0))
                if rest:
                    where[host] = tuple(sorted((*where.get(host, ()), *rest)))
                    users.append(job.id)
    assuming = [job.id for job, count in zip(dealt, counts, strict=True) if count]
    remarks = [
        f"{remark}: {some(list(dict.fromkeys(ids)), 5)}"
        for remark, ids in (
            ("devices of these jobs are shown with another one, which holds them too", sharing),
            ("Slurm reports how many devices these jobs hold, not which; indices are assumed", assuming),
            ("the rest of their hosts is kept for the user or group of these jobs", users),
        )
        if ids
    ]
    held = [
        {
            "id": job.id,
            "name": job.name,
            "ends_at": job.ends_at,
            "decision": job.decision,
            "devices": where,
            "whole_hosts": whole,
        }
        for job, where, whole in sorted(zip(dealt, devices, is_whole, strict=True), key=lambda row: row[0].number)
    ]
    return held, remarks


def gpus(gres: str, what: str) -> tuple[int, tuple[int, ...]]:
    """Return the number of whole GPUs in a list of generic resources, and the indices, if given, of those and of parts.

    Raises:
        StateError: a number that cannot be.
    """
    count, indices, is_shared = 0, list[int](), False
    for entry in _ENTRY.findall(gres.replace("(null)", "")):
        words, _, detail = entry.partition("(")
        name, *others = words.strip().split(":")
        if name not in ("gpu", *PARTS) or _SLICE.search(words):
            continue
        counted = re.match(r"CNT:([0-9]+)", detail)
        number = counted[1] if counted else others[-1] if others and re.fullmatch("[0-9]+", others[-1]) else "1"
        if len(number) > 6:
            raise StateError(f"{what}: so many devices cannot be", value=entry)
        match = re.search(r"IDX:([0-9,-]+)", detail)
        parts = re.findall(r"([0-9]+)/[0-9]+", detail)
        index_text = match[1] if match else ",".join(str(index) for index, used in enumerate(parts) if used.strip("0"))
        indices += _indices(index_text, what) if index_text else []
        if name == "gpu":
            count += int(number)
        elif int(number) and not index_text:
            is_shared = True
    return max(count, int(is_shared)), tuple(sorted(set(indices)))


def _indices(text: str, what: str) -> list[int]:
    """Return the numbers of ``0-2,5``."""
    result: list[int] = []
    for piece in text.split(","):
        bounds = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", piece)
        first, last = (int(bounds[1]), int(bounds[2] or bounds[1])) if bounds else (1, 0)
        if bounds is None or not first <= last < MOST_DEVICES:
            raise StateError(f"{what}: indices of devices cannot be read", value=text)
        result += range(first, last + 1)
    return result
