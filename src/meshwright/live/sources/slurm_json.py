"""Slurm: its nodes and jobs as JSON, of the commands and of slurmrestd alike.

Each release writes its own form, which the answer names (``meta.plugin``), and none is guessed: a form that is not in `FORMS` is
refused by its name. Read against a real 22.05 (v0.0.38) and the shapes that Slurm's release notes and OpenAPI documents give of
23.02 (v0.0.39), 23.11 (v0.0.40), 24.05 (v0.0.41), 24.11, 25.05 and 25.11 (v0.0.42 to v0.0.44, in what is read here as v0.0.41).

An answer holds all that the text form does. Where a running job asked for GPUs and the answer does not say which it has, it is
refused as well, so that the text is asked in its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ...errors import StateError
from ..state import ClusterState
from .host_lists import hosts_in
from .listings import EMPTY, Listing, plain
from .programs import OR_A_FILE, answer
from .slurm_records import PARTS, ListedJob, ListedNode, decision_of, gpus, id_of, listing_of

PROGRAM = "squeue --json"

JOBS_COMMAND = ("squeue", "--json")
NODES_COMMAND = ("scontrol", "show", "node", "--json")
OLD_NODES_COMMAND = ("sinfo", "--json")
"""Lists nodes in the first form; later it lists groups of them, and before those ``scontrol`` knows no JSON."""


class Form(NamedTuple):
    """How a release writes what is read here, where releases differ.

    Attributes:
        has_lists: states of nodes and ``shared`` are lists of words; before, a word and flags of nodes beside.
        has_objects: numbers that may be absent are ``{set, infinite, number}``; before, null.
        has_later_objects: times are such numbers too, and states of jobs are lists.
        has_node_objects: ``job_resources.nodes`` is an object; before, a list of hosts in one word.
    """

    has_lists: bool = True
    has_objects: bool = True
    has_later_objects: bool = True
    has_node_objects: bool = True


_LATEST = Form()
OLDEST = "v0.0.38"
FORMS: Mapping[str, Form] = {
    OLDEST: Form(has_lists=False, has_objects=False, has_later_objects=False, has_node_objects=False),
    "v0.0.39": Form(has_later_objects=False, has_node_objects=False),
    "v0.0.40": Form(has_node_objects=False),
    **dict.fromkeys(("v0.0.41", "v0.0.42", "v0.0.43", "v0.0.44"), _LATEST),
}
"""By what ``meta.plugin`` calls it, the oldest first."""

_SHARES = {"none": "NO", "shared": "YES", "oversubscribe": "YES", "user": "USER", "mcs": "MCS", "topo": "TOPO"}
"""Words of ``shared`` as ``scontrol`` writes them; without one of them it is OK."""

_FLAGS = (
    *("COMPLETING", "STAGE_OUT", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"),
    *("STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING"),
)
"""Of a job's states these are told before the others, as where ``scontrol`` writes one word."""

_NAME = re.compile(r"(?:data_parser/|openapi/)?(v[0-9]+\.[0-9]+\.[0-9]+)")
_WORD = re.compile(r"[A-Za-z0-9_]{1,60}")
_GPUS = re.compile(rf"\b(?:gpu|{'|'.join(PARTS)})\b(?!(?:[:=][^,:=]*)?[:=]0+(?:,|$))")
"""Of generic resources: some GPUs, or parts of them."""

_WANTED = ("tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task", "tres_alloc_str")
"""What a job asked for, and what it got."""

_LATEST_S = 253_402_300_799
"""The end of the year 9999, as seconds since 1970."""

_KINDS = {str: "text", list: "list", dict: "object", int: "number"}


class FormError(StateError):
    """An answer that is whole and cannot be read as JSON for all that; the text form may be."""


def ask(otherwise: str = OR_A_FILE) -> str:
    """The answers of Slurm's commands on this machine, one after the other.

    Args:
        otherwise: what can be done where a command is absent.

    Raises:
        FormError: they write JSON in a form that is not known.
        StateError: what they write is no JSON.
        InputFileError: a command is not there, fails or takes too long.
    """
    jobs = answer(JOBS_COMMAND, otherwise=otherwise)
    written = form_name(next(_answers(jobs)))
    return jobs + answer(OLD_NODES_COMMAND if written == OLDEST else NODES_COMMAND, otherwise=otherwise)


def read(text: str, known: ClusterState = EMPTY) -> Listing:
    """What two answers say, of the jobs and of the nodes.

    Args:
        text: both, one behind the other, in any order.
        known: the state so far, from which indices that Slurm does not tell are kept.

    Raises:
        FormError: its form is not known, or it lacks what the text form tells.
        StateError: a part of it is missing or cannot be understood, it contradicts itself, or Slurm says what went wrong.
        ConfigError: a name in it that cannot be.
    """
    jobs: list[ListedJob] | None = None
    nodes: list[ListedNode] | None = None
    for said in _answers(text):
        form = FORMS[form_name(said)]
        problem = problem_of(said)
        if problem is not None:
            raise StateError(f"Slurm says: {problem}")
        if "sinfo" in said:
            raise StateError(f"holds groups of nodes, as sinfo writes them; the answer of `{' '.join(NODES_COMMAND)}` is wanted")
        if "jobs" in said:
            jobs = [*(jobs or ()), *(_job(one, form) for one in _records(said, "jobs"))]
        if "nodes" in said:
            nodes = [*(nodes or ()), *(_node(one, form) for one in _records(said, "nodes"))]
    if not nodes:
        raise StateError("holds no node; an answer with all nodes is wanted")
    if jobs is None:
        raise StateError("holds no list of jobs; an answer with all jobs is wanted")
    return listing_of(nodes, jobs, known)


def form_name(said: Mapping[str, Any]) -> str:
    """What an answer calls its form.

    Raises:
        StateError: nothing.
        FormError: what is not in `FORMS`.
    """
    meta = said.get("meta")
    plugin = meta.get("plugin") if isinstance(meta, dict) else None
    told = (plugin.get("data_parser") or plugin.get("type")) if isinstance(plugin, dict) else None
    if not isinstance(told, str) or not told:
        raise StateError("is no answer of Slurm: it does not name its form", field="meta.plugin")
    named = _NAME.fullmatch(told)
    if named is None or named[1] not in FORMS:
        known = f"{next(iter(FORMS))} to {list(FORMS)[-1]}"
        raise FormError(f"Slurm writes JSON as {plain(told, 60)}, which is not known; known are {known}")
    return named[1]


def _answers(text: str) -> Iterator[dict[str, Any]]:
    """The objects that stand in a text, one behind the other.

    Raises:
        StateError: there is none, or what stands there is none.
    """
    decoder, text = json.JSONDecoder(strict=False), text.strip()
    while True:
        try:
            found, end = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            raise StateError("is no JSON, or is cut short") from None
        if not isinstance(found, dict):
            raise StateError("is no answer of Slurm, which is an object")
        yield found
        text = text[end:].lstrip()
        if not text:
            return


def problem_of(said: Mapping[str, Any]) -> str | None:
    """What an answer says went wrong, in one line; None where it says nothing."""
    problems = said.get("errors")
    if not problems:
        return None
    first = problems[0] if isinstance(problems, list) else problems
    if isinstance(first, dict):
        told = [str(first[key]) for key in ("description", "error") if first.get(key)]
        first = ": ".join(told) or "something went wrong"
    return plain(" ".join(str(first).split()), 200)


def _records(said: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    records = said[name]
    if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
        raise StateError("is no list of objects", field=name)
    yield from records


def _node(record: Mapping[str, Any], form: Form) -> ListedNode:
    """A node.

    Raises:
        StateError: a field of it is missing or is something else.
    """
    name = _text(record, "name", "a node")
    what = f"node {plain(name, 80)}"
    if form.has_lists:
        words = _words(record, "state", what)
    else:
        words = [_text(record, "state", what).upper(), *_words(record, "state_flags", what)]
    reason = _text(record, "reason", what).partition("\n")[0]
    return ListedNode(name, "+".join(words), _text(record, "gres", what), _text(record, "gres_used", what), reason)


def _job(record: Mapping[str, Any], form: Form) -> ListedJob:
    """A job.

    Raises:
        FormError: it runs on GPUs, and nothing says on which.
        StateError: a field of it is missing or is something else.
    """
    number = _plain_number(_field(record, "job_id", "a job"), "job_id", "a job")
    what = f"job {number}"
    states = _words(record, "job_state", what) if form.has_later_objects else [_text(record, "job_state", what)]
    if not states:
        raise StateError(f"{what}: it is in no state", field="job_state")
    state = next((flag for flag in _FLAGS if flag in states), states[0])
    end_s = _number(record, "end_time", what, is_object=form.has_later_objects)
    has_limit = _number(record, "time_limit", what, is_object=form.has_objects) is not None
    allocated = _allocated(record, form, what)
    if state == "RUNNING" and not allocated:
        raise StateError(f"{what}: no word of its hosts", field="job_resources")
    if state == "RUNNING" and not record["gres_detail"] and any(_GPUS.search(str(record.get(key))) for key in _WANTED):
        raise FormError(f"{what} runs on devices, and Slurm's JSON does not say which")
    return ListedJob(
        number=number,
        id=_id(record, form, number, what),
        name=plain(_text(record, "name", what).partition("\n")[0]) or None,
        ends_at=_instant(end_s, what) if end_s and has_limit and state in ("RUNNING", "CONFIGURING") else None,
        decision=decision_of(_text(record, "comment", what).partition("\n")[0]),
        state=state,
        shares=_shares(record, form, what),
        allocated=allocated,
    )


def _id(record: Mapping[str, Any], form: Form, number: int, what: str) -> str:
    """The id that ``squeue`` shows."""
    array, task, whole, offset = (
        _number(record, key, what, is_object=form.has_objects)
        for key in ("array_job_id", "array_task_id", "het_job_id", "het_job_offset")
    )
    if array:
        tasks = f"{task}" if task is not None else _text(record, "array_task_string", what) or f"{number}"
        return id_of(number, array=(f"{array}", tasks))
    return id_of(number, part=(f"{whole}", f"{offset or 0}") if whole else None)


def _shares(record: Mapping[str, Any], form: Form, what: str) -> str:
    """With whom a job shares its hosts, in the words of ``scontrol``."""
    if form.has_lists:
        words = _words(record, "shared", what)
    else:
        words = [] if _field(record, "shared", what) is None else [_text(record, "shared", what)]
    return _SHARES.get(words[0], words[0].upper()) if words else "OK"


def _allocated(record: Mapping[str, Any], form: Form, what: str) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Of each host of a job the number of its GPUs there, and their indices where these are told.

    ``gres_detail`` has an entry for each host, in their order, or none once the job has ended or where it has no resources.
    """
    details = _field(record, "gres_detail", what, list)
    resources = record.get("job_resources")
    if not resources:
        return {}
    if not isinstance(resources, dict):
        raise StateError(f"{what}: is no object", field="job_resources")
    nodes: Any = resources.get("nodes")
    if form.has_node_objects and nodes is not None:
        nodes = _text(_field(resources, "nodes", what, dict), "list", what)
    if nodes is None or nodes == "":
        return {}
    if not isinstance(nodes, str):
        raise StateError(f"{what}: is no text", field="job_resources.nodes")
    hosts = hosts_in(nodes)
    if details and len(details) != len(hosts):
        told = f"{what}: names devices of {len(details)} hosts, and runs on {len(hosts)}"
        raise StateError(told, field="gres_detail")
    if not all(one is None or isinstance(one, str) for one in details):
        raise StateError(f"{what}: is no list of texts", field="gres_detail")
    return {host: gpus(one or "", what) for host, one in zip(hosts, details or [""] * len(hosts), strict=True)}


def _field(record: Mapping[str, Any], key: str, what: str, kind: type | None = None) -> Any:
    """A field.

    Raises:
        StateError: it is missing, or of another kind.
    """
    if key not in record:
        raise StateError(f"{what}: the record has no {key}")
    value = record[key]
    if kind is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise StateError(f"{what}: is no {_KINDS[kind]}", field=key, value=plain(str(value), 60))
    return value


def _text(record: Mapping[str, Any], key: str, what: str) -> str:
    return str(_field(record, key, what, str))


def _words(record: Mapping[str, Any], key: str, what: str) -> list[str]:
    words = _field(record, key, what, list)
    if not all(isinstance(one, str) and _WORD.fullmatch(one) for one in words):
        raise StateError(f"{what}: is no list of words", field=key, value=plain(str(words), 60))
    return list(words)


def _number(record: Mapping[str, Any], key: str, what: str, *, is_object: bool) -> int | None:
    """A number that may be absent; one without a limit is absent too."""
    value = _field(record, key, what, dict if is_object else None)
    if is_object:
        if not all(isinstance(value.get(flag), bool) for flag in ("set", "infinite")):
            raise StateError(f"{what}: is no number with set and infinite", field=key, value=plain(str(value), 60))
        value = value.get("number") if value["set"] and not value["infinite"] else None
    return None if value is None else _plain_number(value, key, what)


def _plain_number(value: Any, key: str, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LATEST_S:
        raise StateError(f"{what}: is no such number", field=key, value=plain(str(value), 60))
    return value


def _instant(end_s: int, what: str) -> str:
    try:
        return datetime.fromtimestamp(end_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        raise StateError(f"{what}: is no time", field="end_time", value=end_s) from None
