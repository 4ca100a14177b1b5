"""Requests of Slurm's hooks to the service, and its answers: a job is submitted, starts, has ended.

The scripts of `slurm_hook_files` post these bodies. Nothing here waits: a job that is not ready is left unplanned, and the answer
says which request to prepare. Every answer has a ``why`` in letters that Slurm can show.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from ... import settings
from ...errors import ConfigError, ConflictError, MeshwrightError, StateError
from ...settings import Count
from ..controller import Controller
from ..decisions import JobRequest
from ..sources.listings import plain
from .slurm import COMMENT

AUTO = f"{COMMENT}auto"
"""Begins the comment by which a user asks that the job is planned; words like ``steps=2000`` may follow it."""

Text = Annotated[str, Field(max_length=1000)]
_WORDS = ("job", "steps", "batch", "sequence_length", "deadline_s")
_COMMENT = re.compile(rf"{COMMENT}([A-Za-z0-9._-]+)(?:\s.*)?", re.DOTALL)


class SubmitBody(settings.Settings):
    """A job that a user submits.

    Attributes:
        comment, name, user: of the job.
        nodes, gpus_per_node, gpus: what it asks for.
        whole_hosts: whether it asks for hosts to the exclusion of others.
    """

    comment: Text
    name: Text | None = None
    user: Text | None = None
    nodes: Count | None = None
    gpus_per_node: Count | None = None
    gpus: Count | None = None
    whole_hosts: bool = False


class PrologBody(settings.Settings):
    """A job that has its hosts and is about to start.

    Attributes:
        job_id: as ``squeue`` shows it.
        comment, name, user, nodes: of the job.
    """

    job_id: Annotated[str, Field(min_length=1, max_length=300)]
    comment: Text = ""
    name: Text | None = None
    user: Text | None = None
    nodes: Text | None = None


class EpilogBody(PrologBody):
    """A job that has ended.

    Attributes:
        exit_code: exit status and signal, as ``1:0``.
    """

    exit_code: Text | None = None


@dataclass(frozen=True)
class HookAnswer:
    """The answer to a hook, and what is done after it was sent.

    Attributes:
        body: ``why``, and of a planned job ``comment`` and ``req_nodes``.
        prepare: a request whose job is to be made ready, as the next one will ask for it.
        look: whether a listing is wanted.
    """

    body: dict[str, str]
    prepare: JobRequest | None = None
    look: bool = False


def on_submit(controller: Controller, body: SubmitBody) -> HookAnswer:
    """Decide for a job that a user submits, where it asks for that and is ready.

    Returns:
        Comment and hosts for it, or why it continues unchanged.
    """
    try:
        request = _request(body)
        if body.whole_hosts and not controller.whole_hosts:
            raise StateError("it asks for whole hosts, and here parts of hosts are planned")
        controller.planners.spec_of(request)
        if not controller.planners.is_ready(request):
            message = "its kind of job is made ready now, later ones will be planned"
            return HookAnswer(_answer(message), prepare=request)
        decision = controller.decide(request).decision
        if decision.outcome != "placed":
            return HookAnswer(_answer(decision.why))
        hosts = {host: len(local) for host, local in decision.devices.items()}
        unfit = _unfit(hosts, body)
        if unfit is not None:
            controller.release(decision.id, unfit)
            return HookAnswer(_answer(unfit))
    except MeshwrightError as error:
        return HookAnswer(_answer(str(error)))
    planned = {"comment": f"{COMMENT}{decision.id}", "req_nodes": ",".join(sorted(hosts))}
    return HookAnswer({**planned, **_answer(decision.why)})


def on_prolog(controller: Controller, body: PrologBody) -> HookAnswer:
    """Start a job: if it came from a decision, confirm that."""
    planned = _COMMENT.fullmatch(body.comment)
    if planned is None or controller.store.decision(planned[1]) is None:
        return HookAnswer(_answer("it was not planned here"), look=True)
    try:
        controller.confirm(planned[1], body.job_id)
    except ConflictError as error:
        return HookAnswer(_answer(str(error)), look=True)
    return HookAnswer(_answer(f"decision {planned[1]} runs"), look=True)


def on_epilog(controller: Controller, body: EpilogBody) -> HookAnswer:
    """End a job, which holds nothing any more."""
    held = controller.end(body.job_id, f"ended with exit code {body.exit_code or 'unknown'}")
    return HookAnswer(_answer("its devices are free" if held else "it held nothing that is known here"), look=not held)


def _request(body: SubmitBody) -> JobRequest:
    """Return the request in the comment and the job.

    Raises:
        StateError: it does not ask to be planned, or for no GPUs.
        ConfigError: a wrong word in the comment.
    """
    first, *words = body.comment.split() or [""]
    if first != AUTO:
        raise StateError(f"its comment does not begin with {AUTO}")
    devices = body.gpus if body.gpus is not None else (body.nodes or 1) * (body.gpus_per_node or 0)
    if not devices:
        raise StateError("it asks for no GPUs, by --gpus-per-node or --gpus")
    data: dict[str, Any] = {"job": body.name, "name": _word(body.name), "owner": _word(body.user)}
    data |= {"devices": devices, "max_devices": devices}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in _WORDS:
            raise ConfigError("has no such word", field="comment", value=key, choices=_WORDS)
        data[key] = value if key == "job" else _number(key, value)
    return settings.build_settings(JobRequest, {key: value for key, value in data.items() if value is not None})


def _word(text: str | None) -> str | None:
    """Return a user's text as a name for people."""
    return plain(text, 200) or None if text else None


def _number(key: str, text: str) -> float | int:
    try:
        return float(text) if key == "deadline_s" else int(text)
    except ValueError:
        raise ConfigError("is no number", field=key, value=text) from None


def _unfit(hosts: dict[str, int], body: SubmitBody) -> str | None:
    """Return why a plan cannot be had by naming its hosts to a job that asks for what it asks for."""
    if body.nodes is not None and body.nodes != len(hosts):
        return f"the plan takes {len(hosts)} hosts, the job asks for {body.nodes}"
    if body.gpus_per_node is not None and set(hosts.values()) != {body.gpus_per_node}:
        counts = "+".join(map(str, hosts.values()))
        return f"the plan takes {counts} devices of its hosts, the job asks for {body.gpus_per_node} of each"
    return None


def _answer(why: str) -> dict[str, str]:
    """Return the reason in plain letters: Slurm's Lua looks for its end, a quotation mark."""
    return {"why": "".join(letter if 32 <= ord(letter) < 127 and letter not in '"\\' else "'" for letter in why)[:500]}
