"""Slurm: ``scontrol``'s nodes and jobs as text, which every release has.

It is the form of several lines. With ``--oneliner`` fields are separated by blanks and nothing is quoted, so a job may call
itself ``x NodeList=node1``. In the form of several lines a user's free text (JobName, Comment) ends its line, and each field
that is read here begins one. Only a line break in such a text could forge a field. If it then appears twice, the listing is
refused with the job's id. A whole forged record can claim devices, but frees none, as `slurm_records` counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ...errors import StateError
from ..state import ClusterState
from .host_lists import hosts_in
from .listings import EMPTY, Listing, plain
from .programs import OR_A_FILE, answer
from .slurm_records import ListedJob, ListedNode, decision_of, gpus, id_of, listing_of

PROGRAM = "scontrol"

COMMANDS = ((PROGRAM, "--all", "--details", "show", "job"), (PROGRAM, "--all", "--details", "show", "node"))
"""Commands to run; a file holds both answers, in any order."""

VARIABLES = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
"""Set for `COMMANDS`: times are read as UTC."""

_JOB = re.compile(r"JobId=([0-9]{1,10})((?: (?:Array|Het|Pack)\w+=\S*)*) JobName=(.*)")
_NO_TASK = "4294967294"
"""Slurm's word for none, as of an array that was cancelled before its tasks began."""

_NODE = re.compile(r"NodeName=(\S+)(?: |$)")
_FIELD = re.compile(r"   ([A-Za-z]+)=(.*)")
_ALLOCATED = re.compile(r"     Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES(?:_IDX)?=(.*)")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
_WRITTEN = re.compile(r"(.*) \[[^\[\]]*@[^\[\]]*\]")
"""A node's reason, and who gave it when."""

_OF_JOBS = {"JobState", "StartTime", "NodeList", "OverSubscribe", "Comment"}
_OF_NODES = {"Gres", "GresUsed", "State", "Reason"}
"""Fields that begin a line of a record, and are read."""


def ask(otherwise: str = OR_A_FILE) -> str:
    """Return the answers of `COMMANDS` on this machine.

    Args:
        otherwise: what can be done where ``scontrol`` is absent.

    Raises:
        InputFileError: ``scontrol`` is not there, fails or takes too long.
    """
    return "".join(answer(command, variables=VARIABLES, otherwise=otherwise) for command in COMMANDS)


def read(text: str, known: ClusterState = EMPTY) -> Listing:
    """Read the answers of `COMMANDS`.

    Args:
        text: both, one behind the other; times in it are UTC.
        known: the state so far, which keeps indices that Slurm does not give.

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
    return listing_of([_node(record) for record in nodes], [_job(record) for record in jobs], known)


def _records(text: str) -> Iterator[list[str]]:
    """Yield the lines of each node and job; a blank line in a user's text begins no record."""
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


def _fields(record: Sequence[str], target: set[str], needed: Iterable[str], what: str) -> dict[str, str]:
    """Return the fields of a record.

    Raises:
        StateError: one that is needed is missing, or one appears twice.
    """
    result: dict[str, str] = {}
    for line in record[1:]:
        field = _FIELD.fullmatch(line)
        if field is None or field[1] not in target:
            continue
        if field[1] in result:
            problem = f"{what}: {field[1]} appears twice; is there a line break in its name or comment?"
            raise StateError(problem)
        result[field[1]] = field[2]
    for name in needed:
        if name not in result:
            problem = f"{what}: the record has no {name}; it is cut short, or was written with --oneliner"
            raise StateError(problem)
    return result


def _node(record: Sequence[str]) -> ListedNode:
    named = _NODE.match(record[0])
    if named is None:
        raise StateError("a node without a name", value=record[0])
    fields = _fields(record, _OF_NODES, ("State",), f"node {plain(named[1], 80)}")
    reason = fields.get("Reason", "")
    written = _WRITTEN.fullmatch(reason)
    state = fields["State"].partition(" ")[0]
    return ListedNode(named[1], state, fields.get("Gres", ""), fields.get("GresUsed", ""), written[1] if written else reason)


def _job(record: Sequence[str]) -> ListedJob:
    """Return a job: its id, state, sharing of hosts, and on each host the indices of its devices or else their number."""
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
            allocated.update(dict.fromkeys(hosts_in(one[1]), gpus(one[2], what)))
    if state == "RUNNING" and not allocated:
        raise StateError(f"{what}: no word of its devices; was scontrol asked without --details?")
    end = re.fullmatch(r"\S* EndTime=(\S*) .*", fields["StartTime"])
    if end is None:
        raise StateError(f"{what}: the record has no EndTime")
    task = parts.get("ArrayTaskId", _NO_TASK)
    array = (parts["ArrayJobId"], head[1] if task == _NO_TASK else task) if "ArrayJobId" in parts else None
    kind = next((kind for kind in ("Het", "Pack") if f"{kind}JobId" in parts), None)
    part = None if kind is None else (parts[f"{kind}JobId"], parts.get(f"{kind}JobOffset", head[1]))
    return ListedJob(
        number=int(head[1]),
        id=id_of(int(head[1]), array, part),
        name=plain(head[3]) or None,
        ends_at=f"{end[1]}Z" if state in ("RUNNING", "CONFIGURING") and _TIME.fullmatch(end[1]) else None,
        decision=decision_of(fields.get("Comment", "")),
        state=state,
        shares=fields["OverSubscribe"].partition(" ")[0],
        allocated=allocated,
    )
