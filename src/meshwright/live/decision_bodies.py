"""Decisions as a ledger keeps them: the request once, and a job that it brought along once for all requests of it."""

from __future__ import annotations

import json
from collections.abc import Callable

from .. import files
from .decisions import JobDecision

REFERENCE = "document"
"""In place of a job that a request brought along: the digest under which it is kept."""


def packed(decision: JobDecision) -> tuple[str, dict[str, str]]:
    """The body of a decision, and the documents that it names by their digests."""
    data = decision.model_dump(mode="json", exclude={"inputs": {"request"}})
    job, documents = data["request"]["job"], {}
    if isinstance(job, dict):
        text = json.dumps(job, sort_keys=True)
        digest = files.digest(text)
        documents[digest] = text
        data["request"]["job"] = {REFERENCE: digest}
    return json.dumps(data), documents


def unpacked(body: str, document: Callable[[str], str | None]) -> JobDecision:
    """A decision from its body.

    Args:
        body: of it.
        document: a text by its digest.

    Raises:
        ValueError: it cannot be read, or a document is missing.
    """
    data = json.loads(body)
    job = data["request"]["job"]
    if isinstance(job, dict):
        text = document(job[REFERENCE])
        if text is None:
            raise ValueError("the job of the request is not kept")
        data["request"]["job"] = json.loads(text)
    if data.get("inputs") is not None:
        data["inputs"]["request"] = data["request"]
    return JobDecision.model_validate(data)
