"""Decisions as a ledger keeps them: the request once, and a job that it brought along once for all requests of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic_core import from_json

from ... import files
from ..decisions import JobDecision, JobRequest

REFERENCE = "document"
"""In place of a job that a request brought along: the digest under which it is kept."""


def packed(decision: JobDecision) -> tuple[str, dict[str, str]]:
    """Return the body of a decision, and the documents that it names by their digests."""
    own = {"inputs": {"request"}}
    job = decision.request.job
    if isinstance(job, str):
        return decision.model_dump_json(exclude=own), {}
    text = json.dumps(job, sort_keys=True)
    digest = files.digest(text)
    data = decision.model_dump(mode="json", exclude=own)
    data["request"]["job"] = {REFERENCE: digest}
    return json.dumps(data), {digest: text}


def named_documents(body: str) -> list[str]:
    """Return the digests of the documents that a decision's body names."""
    data = from_json(body)
    job = data["request"]["job"]
    return [*data.get("documents", {}).values(), *([job[REFERENCE]] if isinstance(job, dict) else [])]


def request_of(body: str, document: Callable[[str], str | None]) -> JobRequest:
    """Return the request of a decision from its body; arguments and errors as of `unpacked`."""
    return JobRequest.model_validate(_with_job(from_json(body), document)["request"])


def unpacked(body: str, document: Callable[[str], str | None]) -> JobDecision:
    """Return a decision from its body.

    Raises:
        ValueError: it cannot be read, or a document is missing.
    """
    data = _with_job(from_json(body), document)
    if data.get("inputs") is not None:
        data["inputs"]["request"] = data["request"]
    return JobDecision.model_validate(data)


def _with_job(data: Any, document: Callable[[str], str | None]) -> Any:
    """Return the data of a body with the job that its request brought along."""
    job = data["request"]["job"]
    if isinstance(job, dict):
        text = document(job[REFERENCE])
        if text is None:
            raise ValueError("the job of the request is not kept")
        data["request"]["job"] = json.loads(text)
    return data
