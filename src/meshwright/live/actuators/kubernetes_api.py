"""Single objects of the Kubernetes API, by raw calls of ``kubectl`` under its identity.

A path is passed unchanged (``kubectl get --raw``). So a kubectl of 1.20 can also write parts of objects such as ``/status`` and
``/binding``; ``--subresource`` came with 1.24. An object is replaced as a whole with the version that was read. The API refuses
that after a write by somebody else.
"""

from __future__ import annotations

import json
from typing import Any

from ...errors import ConflictError, InputFileError, StateError
from ..sources.kubernetes import PROGRAM
from ..sources.programs import answer

WAIT_S = 10.0
"""Longest wait for one object."""

_REASONS = {"(NotFound)": StateError, "(Conflict)": ConflictError}
"""Reasons of the API server in ``kubectl``'s output, and our errors."""


def get(path: str) -> dict[str, Any]:
    """Return the object at a path.

    Raises:
        StateError: there is none.
        InputFileError: the API cannot be asked, or refuses.
    """
    try:
        data = json.loads(_kubectl(path, "get", "--raw", path))
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise InputFileError("its answer is no JSON object", file=PROGRAM)
    return data


def create(path: str, content: dict[str, Any]) -> None:
    """Post an object.

    Raises:
        StateError: what it is about is not there.
        ConflictError: it is there already, or contradicts what is there.
        InputFileError: the API cannot be asked, or refuses.
    """
    _kubectl(path, "create", "--raw", path, "--filename=-", said=json.dumps(content))


def replace(path: str, content: dict[str, Any]) -> None:
    """Replace the version of an object that was read, or a part of it such as ``.../status``.

    Raises:
        StateError: it is there no more.
        ConflictError: somebody else wrote it meanwhile.
        InputFileError: the API cannot be asked, or refuses.
    """
    _kubectl(path, "replace", "--raw", path, "--filename=-", said=json.dumps(content))


def label_nodes(names: list[str], key: str, value: str | None) -> None:
    """Add a label to nodes, or remove it.

    Args:
        names: of the nodes, at least one.
        key: of the label.
        value: None takes it away.

    Raises:
        StateError: a node is there no more; others have it.
        InputFileError: the API cannot be asked, or refuses.
    """
    change = f"{key}-" if value is None else f"{key}={value}"
    _kubectl("nodes", "label", "--overwrite", "nodes", *names, change)


def _kubectl(path: str, *words: str, said: str | None = None) -> str:
    try:
        return answer([PROGRAM, *words, f"--request-timeout={WAIT_S:g}s"], said=said, wait_s=WAIT_S + 5, otherwise="")
    except InputFileError as error:
        for word, kind in _REASONS.items():
            if word in error.problem:
                raise kind(error.problem, file=PROGRAM, field=path) from None
        raise error.at(field=path) from None
