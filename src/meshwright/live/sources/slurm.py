"""Slurm: what ``scontrol`` says of its nodes and jobs.

The text form is read, as every release has it; the JSON of each release differs. It is the form of several lines, not that
of ``--oneliner``: there fields are parted by blanks and nothing is quoted, so a job may call itself ``x NodeList=node1``. In the
form of several lines a user's free text (JobName, Comment) ends its line, and each field that is read here begins one. Only a
line break in such a text could forge a field. Where the field then stands twice, the listing is refused with the job's id; a
whole forged record can claim devices, but frees none:

Devices are held against what the node itself counts (GresUsed). Those in use by no job of the listing, as where ``PrivateData``
hides the jobs of others, are held by a job called ``unlisted/HOST``. Jobs are therefore listed before nodes.

A job that is completing has given its devices back, as Slurm counts, but the node takes no jobs until it has ended there
(tried on 22.05: GRES empty, GresUsed 0, the next job waits). So the node is drained meanwhile.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import StateError
from ..state import ClusterState
from .host_lists import hosts_in
from .listings import EMPTY, MOST_DEVICES, FreeDevices, Listing, assumed, listed, plain, unlisted
from .programs import OR_A_FILE, answer

PROGRAM = "scontrol"

COMMANDS = ((PROGRAM, "--all", "--details", "show", "job"), (PROGRAM, "--all", "--details", "show", "node"))
"""What is run; a file holds both answers, in any order."""

VARIABLES = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
"""Set for `COMMANDS`: times are read as UTC."""

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
    "RESERVED": "reserved",
    "REBOOT": "waits for its reboot",
    "REBOOT_REQUESTED": "waits for its reboot",
    "POWER_DOWN": "to be powered down",
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

_JOB = re.compile(r"JobId=([0-9]{1,10})((?: (?:Array|Het|Pack)\w+=\S*)*) JobName=(.*)")
_NODE = re.compile(r"NodeName=(\S+)(?: |$)")
_FIELD = re.compile(r"   ([A-Za-z]+)=(.*)")
_ALLOCATED = re.compile(r"     Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES(?:_IDX)?=(.*)")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
_ENTRY = re.compile(r"(?:[^,()]|\([^()]*\))+")
_GIVEN = re.compile(r"^\S*(?:DRAIN|DOWN|FAIL|ERROR)")
"""Of states for which somebody gives a reason; behind others an old one may stand."""

_WRITTEN = re.compile(r"(.*) \[[^\[\]]*@[^\[\]]*\]")
"""A node's reason, and who gave it when."""

PARTS = ("shard", "mps")
"""Resources that are parts of GPUs: a GPU of which a job has a part is held."""

_OF_JOBS = {"JobState", "StartTime", "NodeList", "OverSubscribe", "Comment"}
_OF_NODES = {"Gres", "GresUsed", "State", "Reason"}
"""Fields that begin a line of a record, and are read."""


def ask(otherwise: str = OR_A_FILE) -> str:
    """The answers of `COMMANDS` on this machine.

    Args:
        otherwise: what can be done where ``scontrol`` is absent.

    Raises:
        InputFileError: ``scontrol`` is not there, fails or takes too long.
    """
    return "".join(answer(command, variables=VARIABLES, otherwise=otherwise) for command in COMMANDS)


def read(text: str, known: ClusterState = EMPTY) -> Listing:
    """What the answers of `COMMANDS` say.

    Args:
        text: both, one behind the other; times in it are UTC.
        known: the state so far, from which indices that Slurm does not tell are kept.

    Raises:
        StateError: a part of it is missing or cannot be understood, or it contradicts itself.
        ConfigError: a name in it that cannot be.
    """
    records = list(_records(text.replace("\r\n", "\n")))
    nodes = [record for record in records if record[0].startswith("NodeName=")]
    jobs = [record for record in records if record[0].startswith("JobId=")]
    if not nodes:
        raise StateError("holds no node; the answer of `scontrol --all --details show node` is wanted")
    if not jobs and not re.search(r"^No jobs in the system$", text, re.MULTILINE):
        raise StateError("holds no job; the answer of `scontrol --all --details show job` is wanted")
    hosts, used = _hosts(nodes)
    listed_jobs = [_job(record) for record in jobs]
    twice = [number for number, count in Counter(job["number"] for job in listed_jobs).items() if count > 1]
    if twice:
        raise StateError("the job stands twice; is there a line break in a name or comment?", field="JobId", value=twice[0])
    free = FreeDevices({name: host.get("num_devices") for name, host in hosts.items()})
    held, remarks = _held(listed_jobs, free, known)
    waiting = [job["decision"] for job in listed_jobs if job["decision"] is not None and job["state"] in _WAITING]
    found = listed("slurm", hosts, [*held, *unlisted(used, free, known)], remarks, waiting)
    ids = [(job["decision"], job["id"], job["state"]) for job in listed_jobs if job["decision"] is not None]
    alive = {decision for decision, _, state in ids if state not in _ENDED}
    return replace(
        found,
        queued={decision: name for decision, name, state in ids if state in _WAITING},
        ended={decision: name for decision, name, state in ids if decision not in alive},
    )


def _records(text: str) -> Iterator[list[str]]:
    """The lines of each node and job; a blank line in a user's text begins no record."""
    record: list[str] = []
    for line in text.split("\n"):
        if line.startswith(("JobId=", "NodeName=")):
            if record:
                yield record
            record = [line]
        elif record:
            record.append(line)
    if record:
        yield record


def _fields(record: Sequence[str], wanted: set[str], needed: Iterable[str], what: str) -> dict[str, str]:
    """The fields of a record.

    Raises:
        StateError: one that is needed is missing, or one stands twice.
    """
    found: dict[str, str] = {}
    for line in record[1:]:
        field = _FIELD.fullmatch(line)
        if field is None or field[1] not in wanted:
            continue
        if field[1] in found:
            problem = f"{what}: {field[1]} stands twice; is there a line break in its name or comment?"
            raise StateError(problem)
        found[field[1]] = field[2]
    for name in needed:
        if name not in found:
            problem = f"{what}: the record has no {name}; it is cut short, or was written with --oneliner"
            raise StateError(problem)
    return found


def _hosts(records: Iterable[Sequence[str]]) -> tuple[dict[str, dict[str, Any]], dict[str, tuple[int, tuple[int, ...]]]]:
    """The hosts as fields of their states, and of each the number and the indices, where told, of devices in use."""
    hosts: dict[str, dict[str, Any]] = {}
    used: dict[str, tuple[int, tuple[int, ...]]] = {}
    for record in records:
        named = _NODE.match(record[0])
        if named is None:
            raise StateError("a node without a name", value=record[0])
        name = named[1]
        if name in hosts:
            raise StateError("the node stands twice", value=name)
        fields = _fields(record, _OF_NODES, ("State",), f"node {plain(name, 80)}")
        condition, why = _condition(fields["State"].partition(" ")[0])
        hosts[name] = {"condition": condition}
        if condition != "up":
            told = fields.get("Reason", "") if _GIVEN.search(fields["State"]) else ""
            written = _WRITTEN.fullmatch(told)
            hosts[name]["reason"] = plain((written[1] if written else told).strip(), 1000) or why
        count, _ = _gpus(fields.get("Gres", ""), f"node {plain(name, 80)}")
        if count:
            hosts[name]["num_devices"] = count
            used[name] = _gpus(fields.get("GresUsed", ""), f"node {plain(name, 80)}")
    return hosts, used


def _condition(state: str) -> tuple[str, str | None]:
    """Whether a node takes jobs, and the words of its state that say why not; a word of a later release closes it."""
    flags = [flag for flag in state.split("+") if flag]
    for suffix, flag in _SUFFIXES.items():
        flags += [flag] if any(suffix in one for one in flags) else []
    flags = [flag.rstrip("*~#!%$@^-") for flag in flags]
    down = [_DOWN[flag] for flag in flags if flag in _DOWN]
    others = [_DRAINED.get(flag, plain(flag.lower(), 60)) for flag in flags if flag not in _DOWN and flag not in _UP]
    told = ", ".join(dict.fromkeys([*down, *others])) or None
    return ("down" if down else "drained" if others or not flags else "up"), told


def _job(record: Sequence[str]) -> dict[str, Any]:
    """A job: its id, state, how it shares hosts, and on each host its devices or, where no index is told, their number."""
    head = _JOB.fullmatch(record[0])
    if head is None:
        raise StateError("a job without an id and a name", value=record[0])
    what = f"job {head[1]}"
    parts = dict(part.split("=", 1) for part in head[2].split())
    fields = _fields(record, _OF_JOBS, ("JobState", "StartTime", "OverSubscribe"), what)
    state = fields["JobState"].partition(" ")[0]
    allocated: dict[str, tuple[int, tuple[int, ...]]] = {}
    for line in record[1:]:
        one = _ALLOCATED.fullmatch(line)
        if line.startswith("   OverSubscribe="):  # what comes later is the user's
            break
        if one is not None:
            allocated.update(dict.fromkeys(hosts_in(one[1]), _gpus(one[2], what)))
    if state == "RUNNING" and not allocated:
        raise StateError(f"{what}: no word of its devices; was scontrol asked without --details?")
    end = re.fullmatch(r"\S* EndTime=(\S*) .*", fields["StartTime"])
    if end is None:
        raise StateError(f"{what}: the record has no EndTime")
    decision = re.match(r"mw:(?!auto(?:\s|$))(\S+)", fields.get("Comment", ""))
    return {
        "number": int(head[1]),
        "id": _id(head[1], parts),
        "name": plain(head[3]) or None,
        "ends_at": f"{end[1]}Z" if state in ("RUNNING", "CONFIGURING") and _TIME.fullmatch(end[1]) else None,
        "decision": plain(decision[1]) if decision else None,
        "state": state,
        "shares": fields["OverSubscribe"].partition(" ")[0],
        "allocated": allocated,
    }


def _id(number: str, parts: Mapping[str, str]) -> str:
    """The id that ``squeue`` shows: ``12``, ``12_3`` for a task of an array, ``12+1`` for a part of a heterogeneous job."""
    if "ArrayJobId" in parts:
        return f"{parts['ArrayJobId']}_{parts.get('ArrayTaskId', number)}"[:300]
    for kind in ("Het", "Pack"):
        if f"{kind}JobId" in parts:
            return f"{parts[f'{kind}JobId']}+{parts.get(f'{kind}JobOffset', number)}"[:300]
    return number


def _held(jobs: Sequence[Mapping[str, Any]], free: FreeDevices, known: ClusterState) -> tuple[list[dict[str, Any]], list[str]]:
    """The jobs that hold devices, and remarks.

    Where two hold one device, as after a suspension, it is the running one's.
    """
    jobs = sorted(jobs, key=lambda job: (job["state"] == "SUSPENDED", job["number"]))
    devices: list[dict[str, tuple[int, ...]]] = [{} for _ in jobs]
    is_whole = [job["shares"] == "NO" and job["state"] in _HOLDING for job in jobs]
    counts: list[dict[str, int]] = [{} for _ in jobs]
    sharing, users = [], []
    for place, (job, where, count) in enumerate(zip(jobs, devices, counts, strict=True)):
        whole = is_whole[place]
        for host, (number, indices) in job["allocated"].items():
            wanted = range(free.num_devices.get(host) or 0) if whole else indices
            taken = free.take(host, wanted)
            if taken or whole:
                where[host] = taken
            if len(taken) < len(wanted):
                sharing.append(job["id"])
                is_whole[place] = False
            if number and not wanted:
                count[host] = number
    named = [{**job, "counts": count} for job, count in zip(jobs, counts, strict=True)]
    for where, found in zip(devices, assumed(named, free, known), strict=True):
        where |= found
    for job, where in zip(jobs, devices, strict=True):
        if job["shares"] in _OF_A_GROUP and job["state"] in _HOLDING:
            for host in job["allocated"]:
                rest = free.take(host, range(free.num_devices.get(host) or 0))
                if rest:
                    where[host] = tuple(sorted((*where.get(host, ()), *rest)))
                    users.append(job["id"])
    assuming = [job["id"] for job in named if job["counts"]]
    remarks = [
        f"{told}: {', '.join(list(dict.fromkeys(ids))[:5])}{', ...' if len(set(ids)) > 5 else ''}"
        for told, ids in (
            ("devices of these jobs are shown with another one, which holds them too", sharing),
            ("Slurm tells how many devices these jobs hold, not which; indices are assumed", assuming),
            ("the rest of their hosts is kept for the user or group of these jobs", users),
        )
        if ids
    ]
    kept = ("id", "name", "ends_at", "decision")
    held = {
        job["number"]: {**{key: job[key] for key in kept}, "devices": where, "whole_hosts": whole}
        for job, where, whole in zip(jobs, devices, is_whole, strict=True)
    }
    return [held[number] for number in sorted(held)], remarks


def _gpus(gres: str, what: str) -> tuple[int, tuple[int, ...]]:
    """How many GPUs a list of generic resources names, and their indices where these are told.

    Raises:
        StateError: a number that cannot be.
    """
    count, indices = 0, list[int]()
    for entry in _ENTRY.findall(gres.replace("(null)", "")):
        words, _, detail = entry.partition("(")
        name, *others = words.strip().split(":")
        if name not in ("gpu", *PARTS):
            continue
        number = others[-1] if others and others[-1].isascii() and others[-1].isdigit() else "1"
        if len(number) > 6:
            raise StateError(f"{what}: so many devices cannot be", value=entry)
        told = re.search(r"IDX:([0-9,-]+)", detail)
        count += int(number) if name == "gpu" else 0
        indices += _indices(told[1], what) if told else []
    return count, tuple(sorted(set(indices)))


def _indices(text: str, what: str) -> list[int]:
    """The numbers of ``0-2,5``."""
    found: list[int] = []
    for piece in text.split(","):
        bounds = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", piece)
        first, last = (int(bounds[1]), int(bounds[2] or bounds[1])) if bounds else (1, 0)
        if bounds is None or not first <= last < MOST_DEVICES:
            raise StateError(f"{what}: indices of devices cannot be read", value=text)
        found += range(first, last + 1)
    return found
