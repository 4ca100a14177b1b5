"""A layout in words: ``key=value`` with commas between, behind the path of a YAML file or without one."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

from ... import settings
from ...errors import ConfigError, PlanError

_GLUED = re.compile(r"([a-z_]+)[: ]?([0-9]+)")
"""A key and its value without the sign between them."""

SUFFIXES = (".yaml", ".yml")


def layout_keys(text: str, known: Container[str]) -> dict[str, Any]:
    """Return the keys that a text spells, as plain data; what follows a file takes the place of its keys.

    Args:
        text: ``tp=8,pp=8,micro_batch=1``, ``layout.yaml`` or ``layout.yaml,pp=4``.
        known: keys of a layout.

    Raises:
        PlanError: a word that is no ``key=value``, or a key twice.
        MeshwrightError: the file is missing, is no YAML or says no layout.
    """
    path, words = _split(text)
    data: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in words.split(","))):
        key = part.partition("=")[0].strip()
        if key in data:
            raise PlanError("the key appears twice", field=f"layout.{key}", value=part)
        if "=" not in part or "." in key or not key:
            glued = _GLUED.fullmatch(part)
            if glued and glued[1] in known:
                meant = f"must read key=value (got {part!r}); did you mean '{glued[1]}={glued[2]}'?"
                raise PlanError(meant, field="layout")
            raise PlanError("must read key=value, as tp=2,pp=4,micro_batch=1", field="layout", value=part)
        if len(part.split("=")) > 2:
            raise PlanError("a comma is wanted between two keys", field="layout", value=part)
        try:
            data = settings.override(data, part)
        except ConfigError as error:
            raise PlanError(error.problem, field="layout", value=part) from None
    return data if path is None else _of_file(path)["layout"] | data


def strategies_of_layout(text: str, training: str | None, compression: str | None) -> tuple[str | None, str | None]:
    """Return how a job is trained and its gradients are coded: as asked for, else as the file of a layout says under these keys.

    Args:
        text: of a layout.
        training, compression: what was asked for, as ``--training`` and ``--compression`` spell it.

    Raises:
        MeshwrightError: the file is missing, is no YAML or says no layout.
    """
    path, _ = _split(text)
    data = {} if path is None else _of_file(path)
    request = {"training": training, "compression": compression}
    result = {key: path if options is None and key in data else options for key, options in request.items()}
    return result["training"], result["compression"]


def _split(text: str) -> tuple[str | None, str]:
    first, _, others = text.partition(",")
    return (first.strip(), others) if first.strip().endswith(SUFFIXES) and "=" not in first else (None, text)


def _of_file(path: str) -> dict[str, Any]:
    data, _ = settings.read_yaml(path)
    keys = ("layout", "training", "compression")
    if not isinstance(data, dict) or not isinstance(data.get("layout"), dict):
        raise PlanError("must hold the keys of a layout under layout:", file=path, field="layout")
    for key in data:
        if key not in keys:
            raise PlanError("unknown key", file=path, field=str(key), value=str(key), choices=keys)
    return data
