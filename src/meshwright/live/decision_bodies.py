"""Decisions as a ledger keeps them: the request once, and a job that it brought along once for all requests of it."""

from __future__ import annotations

import json
from collections.abc import Callable

from pydantic_core import from_json

from .. import files
from .decisions import JobDecision

REFERENCE = "document"
"""In place of a job that a request brought along: the digest under which it is kept."""


def packed(decision: JobDecision) -> tuple[str, dict[str, str]]:
    """The body of a decision, and the documents that it names by their digests."""
    own = {"inputs": {"request"}}
    job = decision.request.job
    if isinstance(job, str):
        return decision.model_dump_json(exclude=own), {}
    text = json.dumps(job, sort_keys=True)
    digest = files.digest(text)
    data = decision.model_dump(mode="json", exclude=own)
    data["request"]["job"] = {REFERENCE: digest}
    return json.dumps(data), {digest: text}


def unpacked(body: str, document: Callable[[str], str | None]) -> JobDecision:
    """A decision from its body.

    Args:
        body: of it.
        document: a text by its digest.

    Raises:
        ValueError: it cannot be read, or a document is missing.
    """
    data = from_json(body)
    job = data["request"]["job"]
    if isinstance(job, dict):
        text = document(job[REFERENCE])
        if text is None:
            raise ValueError("the job of the request is not kept")
        data["request"]["job"] = json.loads(text)
    if data.get("inputs") is not None:
        data["inputs"]["request"] = data["request"]
    return JobDecision.model_validate(data)
