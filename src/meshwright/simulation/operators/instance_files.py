"""Instances of operator placement as files: the project's own JSON, and published ones by what they hold.

A figure that is infinite (no device can run an op, memory without limit, no link) is null in the project's JSON. What was written
is read back bit by bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ... import files
from ...errors import GraphError, InputFileError
from .instance import OperatorInstance
from .json_fields import MOST, JsonFields
from .published_files import is_published, published_instance

FORMAT_VERSION = 1

_CAN_BE_INFINITE = ("times_s", "memory_bytes", "bandwidth_bytes_per_s")
_TEXTS = ("op_names", "device_names", "device_types")


def to_data(instance: OperatorInstance) -> dict[str, Any]:
    """Plain data that `from_data` reads back to an equal instance."""
    found: dict[str, Any] = {"format_version": FORMAT_VERSION, "kind": "operator-instance"}
    for name in instance.__dataclass_fields__:
        figures = getattr(instance, name)
        if name in _CAN_BE_INFINITE:
            figures = np.asarray(figures, object)
            figures[figures == np.inf] = None
        found[name] = figures.tolist() if isinstance(figures, np.ndarray) else figures if name == "name" else list(figures)
    return found


def from_data(data: Any, file: str | Path) -> OperatorInstance:
    """The instance that `to_data` described.

    Raises:
        InputFileError: a key is missing or unknown, or a field holds something else than it should.
        GraphError: the instance is impossible.
    """
    root = JsonFields(data, file)
    fields = list(OperatorInstance.__dataclass_fields__)
    for key in data:
        if key not in (*fields, "format_version", "kind"):
            raise InputFileError("unknown key", file=file, field=str(key), value=str(key), choices=fields)
    if root.whole("format_version") != FORMAT_VERSION:
        raise root.error(f"only version {FORMAT_VERSION} is known", "format_version", data["format_version"])
    if root.text("kind") != "operator-instance":
        raise root.error("must be operator-instance", "kind", data["kind"])
    found: dict[str, Any] = {"name": root.text("name")}
    for name in fields[1:]:
        items = root.items(name)
        if name in _TEXTS:
            if not all(isinstance(each, str) and each for each in items):
                raise root.error("must be a list of texts", name)
            found[name] = tuple(items)
        else:
            found[name] = _numbers(root, name, items)
    try:
        return OperatorInstance(**found)
    except GraphError as error:
        raise error.at(file=file) from None


def save(instance: OperatorInstance, path: str | Path) -> None:
    """Write an instance as JSON."""
    files.write_json(path, to_data(instance))


def load_instance(path: str | Path) -> OperatorInstance:
    """Read an instance: the project's own JSON, or one of dnn-partitioning.

    Raises:
        InputFileError: missing, truncated or of another form.
        GraphError: what it describes is impossible.
    """
    data = files.read_json(path)
    return published_instance(data, path) if is_published(data) else from_data(data, path)


def _numbers(root: JsonFields, name: str, items: list[Any]) -> Any:
    kind: type = np.float64
    if name in ("is_backward", "is_host"):
        kind = np.bool_
    elif name in ("edges", "edge_tensor", "group"):
        kind = np.int64
    filled = _filled(items, root, name, kind)
    try:
        return np.array(filled, kind) if filled or name != "edges" else np.zeros((0, 2), kind)
    except (TypeError, ValueError, OverflowError):
        raise root.error("its rows must be equally long", name) from None


def _filled(items: list[Any], root: JsonFields, name: str, kind: type, *, depth: int = 0) -> list[Any]:
    found: list[Any] = []
    for each in items:
        if isinstance(each, list) and depth == 0:
            found.append(_filled(each, root, name, kind, depth=1))
        elif each is None and name in _CAN_BE_INFINITE:
            found.append(np.inf)
        elif isinstance(each, bool) != (kind is np.bool_) or not isinstance(each, int | (int if kind is np.int64 else float)):
            wanted = {np.bool_: "true or false", np.int64: "whole numbers"}.get(kind, "numbers")
            raise root.error(f"must hold {wanted}", name, each)
        else:
            if abs(each) > MOST:
                raise root.error(f"must be at most {MOST:g}", name, each)
            found.append(each)
    return found
