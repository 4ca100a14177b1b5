"""Slurm: its nodes and jobs as JSON, both of the commands and of slurmrestd.

Each release writes its own form, which the answer names (``meta.plugin``). A form that is not in `FORMS` is refused by its
name. It was checked against a real 22.05 (v0.0.38). The shapes of Slurm's release notes and OpenAPI documents cover 23.02
(v0.0.39), 23.11 (v0.0.40) and 24.05 (v0.0.41). Those of 24.11, 25.05 and 25.11 (v0.0.42 to v0.0.44) are as v0.0.41 in the keys
that are read here.

An answer holds all that the text form does. An answer without the GPUs of a running job that asked for some is refused too, so
that the text takes its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from ... import settings
from ...errors import StateError
from ..state import ClusterState
from .host_lists import hosts_in
from .listings import EMPTY, Listing, ReadPart, plain
from .programs import answer
from .slurm_records import PARTS, ListedJob, ListedNode, decision_of, gpus, id_of, listing_of

PROGRAM = "squeue --json"

JOBS_COMMAND = ("squeue", "--json")
NODES_COMMAND = ("scontrol", "show", "node", "--json")
OLD_NODES_COMMAND = ("sinfo", "--json")
"""Lists nodes in the first form; later it lists groups of them, and before those ``scontrol`` knows no JSON."""


OLDEST = "v0.0.38"
FORMS = (OLDEST, "v0.0.39", "v0.0.40", "v0.0.41", "v0.0.42", "v0.0.43", "v0.0.44")
"""By what ``meta.plugin`` calls them, the oldest first; `_Node` and `_Job` say what changed."""

_SHARES = {"none": "NO", "shared": "YES", "oversubscribe": "YES", "user": "USER", "mcs": "MCS", "topo": "TOPO"}
"""Words of ``shared`` as ``scontrol`` writes them; without one of them it is OK."""

_FLAGS = (
    *("COMPLETING", "STAGE_OUT", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"),
    *("STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING"),
)
"""States of a job that come before its others, as where ``scontrol`` writes one word."""

_NAME = re.compile(r"(?:data_parser/|openapi/)?(v[0-9]+\.[0-9]+\.[0-9]+)")
_GPUS = re.compile(rf"\b(?:gpu|{'|'.join(PARTS)})\b(?!(?:[:=][^,:=]*)?[:=]0+(?:,|$))")
"""Of generic resources: some GPUs, or parts of them."""

_WANTED = ("tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task", "tres_alloc_str")
"""Resources that a job asked for, and those that it got."""

_LATEST_S = 253_402_300_799
"""The end of the year 9999, as seconds since 1970."""


def _before(form: str, convert: Callable[[Any], Any]) -> BeforeValidator:
    """Bring a value of the forms before this one into the shape of the later ones; the context is the number of the form."""
    return BeforeValidator(lambda value, about: convert(value) if about.context < FORMS.index(form) else value)


def _since(form: str, convert: Callable[[Any], Any]) -> BeforeValidator:
    """Read a value of this form and the later ones in their own shape."""
    return BeforeValidator(lambda value, about: convert(value) if about.context >= FORMS.index(form) else value)


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else [value]


def _if_set(value: Any) -> Any:
    """Return the number of ``{set, infinite, number}``; one without a limit is absent too."""
    if not isinstance(value, dict) or not all(isinstance(value.get(flag), bool) for flag in ("set", "infinite")):
        raise ValueError("is no number with set and infinite")
    return value.get("number") if value["set"] and not value["infinite"] else None


def _listed(value: Any) -> Any:
    if not isinstance(value, dict | None):
        raise ValueError("is no object")
    return None if value is None else value.get("list")


_Words = list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,60}$")]]
_Whole = Annotated[int, Field(strict=True, ge=0, le=_LATEST_S)]
_Maybe = Annotated[_Whole | None, _since("v0.0.39", _if_set)]
"""A number that may be absent; in the oldest form null then."""


class _Node(ReadPart):
    """A node; in the oldest form its state is a word, with a list of flags."""

    name: str
    state: Annotated[_Words, _before("v0.0.39", _as_list)]
    state_flags: _Words | None = None
    gres: str
    gres_used: str
    reason: str


class _Resources(ReadPart):
    nodes: Annotated[str | None, _since("v0.0.41", _listed)] = None


class _Job(ReadPart):
    """A job; ``gres_detail`` has an entry for each host, in their order, or none once it has ended or has no resources."""

    job_id: _Whole
    job_state: Annotated[_Words, _before("v0.0.40", _as_list), Field(min_length=1)]
    name: str
    comment: str
    end_time: Annotated[_Whole | None, _since("v0.0.40", _if_set)]
    time_limit: _Maybe
    shared: Annotated[_Words, _before("v0.0.39", _as_list)]
    gres_detail: list[str | None]
    job_resources: Annotated[_Resources | None, BeforeValidator(lambda value: value or None)] = None
    array_job_id: _Maybe
    array_task_id: _Maybe
    array_task_string: str = ""
    het_job_id: _Maybe
    het_job_offset: _Maybe


_Part = TypeVar("_Part", _Node, _Job)


class FormError(StateError):
    """An answer that is whole and cannot be read as JSON for all that; the text form may be."""


def ask() -> str:
    """Return the answers of Slurm's commands on this machine, one after the other.

    Raises:
        FormError: they write JSON in a form that is not known.
        StateError: what they write is no JSON.
        InputFileError: a command is not there, fails or takes too long.
    """
    jobs = answer(JOBS_COMMAND)
    written = form_name(next(_answers(jobs)))
    return jobs + answer(OLD_NODES_COMMAND if written == OLDEST else NODES_COMMAND)


def read(text: str, known: ClusterState = EMPTY) -> Listing:
    """Read two answers, of the jobs and of the nodes.

    Args:
        text: both, one behind the other, in any order.
        known: the state so far, which keeps indices that Slurm does not give.

    Raises:
        FormError: its form is not known, or it lacks facts of the text form.
        StateError: a part of it is missing or cannot be understood, it contradicts itself, or Slurm says what went wrong.
        ConfigError: a name in it that cannot be.
    """
    jobs: list[ListedJob] | None = None
    nodes: list[ListedNode] | None = None
    for said in _answers(text):
        form = FORMS.index(form_name(said))
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
    """Return the name of an answer's form.

    Raises:
        StateError: nothing.
        FormError: what is not in `FORMS`.
    """
    meta = said.get("meta")
    plugin = meta.get("plugin") if isinstance(meta, dict) else None
    form = (plugin.get("data_parser") or plugin.get("type")) if isinstance(plugin, dict) else None
    if not isinstance(form, str) or not form:
        raise StateError("is no answer of Slurm: it does not name its form", field="meta.plugin")
    named = _NAME.fullmatch(form)
    if named is None or named[1] not in FORMS:
        known = f"{FORMS[0]} to {FORMS[-1]}"
        raise FormError(f"Slurm writes JSON as {plain(form, 60)}, which is not known; known are {known}")
    return named[1]


def _answers(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a text, one behind the other.

    Raises:
        StateError: there is none, or other text.
    """
    decoder, text = json.JSONDecoder(strict=False), text.strip()
    while True:
        try:
            result, end = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            raise StateError("is no JSON, or is cut short") from None
        if not isinstance(result, dict):
            raise StateError("is no answer of Slurm, which is an object")
        yield result
        text = text[end:].lstrip()
        if not text:
            return


def problem_of(said: Mapping[str, Any]) -> str | None:
    """Return the problem that an answer reports, in one line, or None."""
    problems = said.get("errors")
    if not problems:
        return None
    first = problems[0] if isinstance(problems, list) else problems
    if isinstance(first, dict):
        texts = [str(first[key]) for key in ("description", "error") if first.get(key)]
        first = ": ".join(texts) or "something went wrong"
    return plain(" ".join(str(first).split()), 200)


def _records(said: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    records = said[name]
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise StateError("is no list of objects", field=name)
    yield from records


def _part(model: type[_Part], record: Mapping[str, Any], form: int, what: str) -> _Part:
    """Return a record of a form, read.

    Raises:
        StateError: a field of it is missing or is something else.
    """
    try:
        return model.model_validate(record, context=form)
    except ValidationError as error:
        wrong = settings.as_config_error(error.errors(), model, record)
        value = None if wrong.value is None else plain(str(wrong.value), 60)
        raise StateError(f"{what}: {wrong.problem}", field=wrong.field, value=value) from None


def _node(record: Mapping[str, Any], form: int) -> ListedNode:
    """Return a node; raises as `_part`."""
    what = f"node {plain(str(record.get('name')), 80)}"
    node = _part(_Node, record, form, what)
    words = node.state
    if FORMS[form] == OLDEST:
        if node.state_flags is None:
            raise StateError(f"{what}: the key is missing", field="state_flags")
        words = [*(word.upper() for word in words), *node.state_flags]
    return ListedNode(node.name, "+".join(words), node.gres, node.gres_used, node.reason.partition("\n")[0])


def _job(record: Mapping[str, Any], form: int) -> ListedJob:
    """Return a job.

    Raises:
        FormError: it runs on GPUs, and nothing says on which.
        StateError: as `_part`.
    """
    what = f"job {plain(str(record.get('job_id')), 40)}"
    job = _part(_Job, record, form, what)
    state = next((flag for flag in _FLAGS if flag in job.job_state), job.job_state[0])
    allocated = _allocated(job, what)
    if state == "RUNNING" and not allocated:
        raise StateError(f"{what}: no word of its hosts", field="job_resources")
    if state == "RUNNING" and not job.gres_detail and any(_GPUS.search(str(record.get(key))) for key in _WANTED):
        raise FormError(f"{what} runs on devices, and Slurm's JSON does not say which")
    runs = job.end_time and job.time_limit is not None and state in ("RUNNING", "CONFIGURING")
    return ListedJob(
        number=job.job_id,
        id=_id(job),
        name=plain(job.name.partition("\n")[0]) or None,
        ends_at=datetime.fromtimestamp(job.end_time or 0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if runs else None,
        decision=decision_of(job.comment.partition("\n")[0]),
        state=state,
        shares=_SHARES.get(job.shared[0], job.shared[0].upper()) if job.shared else "OK",
        allocated=allocated,
    )


def _id(job: _Job) -> str:
    """Return the id that ``squeue`` shows."""
    if job.array_job_id:
        tasks = f"{job.array_task_id}" if job.array_task_id is not None else job.array_task_string or f"{job.job_id}"
        return id_of(job.job_id, array=(f"{job.array_job_id}", tasks))
    return id_of(job.job_id, part=(f"{job.het_job_id}", f"{job.het_job_offset or 0}") if job.het_job_id else None)


def _allocated(job: _Job, what: str) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Return, for each host of a job, the number of its GPUs there, and their indices where Slurm gives them."""
    nodes = None if job.job_resources is None else job.job_resources.nodes
    if not nodes:
        return {}
    hosts = hosts_in(nodes)
    if job.gres_detail and len(job.gres_detail) != len(hosts):
        problem = f"{what}: names devices of {len(job.gres_detail)} hosts, and runs on {len(hosts)}"
        raise StateError(problem, field="gres_detail")
    return {host: gpus(one or "", what) for host, one in zip(hosts, job.gres_detail or [""] * len(hosts), strict=True)}
