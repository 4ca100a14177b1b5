"""Instances of operator placement as files: the project's own JSON, and published ones by what they hold.

A figure that is infinite (no device can run an op, memory without limit, no link) is null in the project's JSON. Reading a
written instance restores every bit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...errors import GraphError, InputFileError
from .instance import OperatorInstance
from .json_fields import MOST, JsonFields
from .published_files import is_published, published_instance

FORMAT_VERSION = 1

_CAN_BE_INFINITE = ("times_s", "memory_bytes", "bandwidth_bytes_per_s")
_TEXTS = ("op_names", "device_names", "device_types")


def to_data(instance: OperatorInstance) -> dict[str, Any]:
    """Return plain data that `from_data` reads back to an equal instance."""
    result: dict[str, Any] = {"format_version": FORMAT_VERSION, "kind": "operator-instance"}
    for name in instance.__dataclass_fields__:
        figures = getattr(instance, name)
        if name in _CAN_BE_INFINITE:
            figures = np.asarray(figures, object)
            figures[figures == np.inf] = None
        result[name] = figures.tolist() if isinstance(figures, np.ndarray) else figures if name == "name" else list(figures)
    return result


def from_data(data: Any, file: str | Path) -> OperatorInstance:
    """Return the instance that `to_data` described.

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
    results: dict[str, Any] = {"name": root.text("name")}
    for name in fields[1:]:
        items = root.items(name)
        if name in _TEXTS:
            if not all(isinstance(each, str) and each for each in items):
                raise root.error("must be a list of texts", name)
            results[name] = tuple(items)
        else:
            results[name] = _numbers(root, name, items)
    try:
        return OperatorInstance(**results)
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


def with_accelerators(
    instance: OperatorInstance, number: int | None, memory_bytes: float | None, num_hosts: int | None = None
) -> OperatorInstance:
    """Return an instance with other numbers of devices, or with other memory.

    Args:
        instance: what is changed.
        number: of devices that are no processors of a host, each as the first of them; None: as they are.
        memory_bytes: of each of these; None: as it is.
        num_hosts: of the processors, each as the first; None: as they are.

    Raises:
        GraphError: the number is changed of devices that differ, in times, memory or links, or an op fits no device then.
    """
    kinds = [np.flatnonzero(instance.is_host == is_host) for is_host in (False, True)]
    columns_taken: list[int] = []
    for columns, target in zip(kinds, (number, num_hosts), strict=True):
        if target is None or target == len(columns):
            columns_taken += columns.tolist()
            continue
        if target and (not columns.size or not _are_equal(instance, columns)):
            raise GraphError("only equal devices can have another number", field="devices.num", value=target)
        if target > 1 and instance.num_devices == 1:
            raise GraphError("has one device, so the links of more are unknown", field="devices.num", value=target)
        columns_taken += columns[:1].tolist() * target
    if sorted(columns_taken) != list(range(instance.num_devices)):
        first, apart = np.array(columns_taken), ~np.eye(len(columns_taken), dtype=np.bool_)
        names = _names(instance, columns_taken)
        other = {each: getattr(instance, each)[np.ix_(first, first)] for each in ("latency_s", "bandwidth_bytes_per_s")}
        for each, figures in other.items():  # between two of one kind it is as between the first two of the file
            known = getattr(instance, each)[~np.eye(instance.num_devices, dtype=np.bool_)]
            figures[apart & (first[:, None] == first)] = known[0] if known.size else 0.0
        instance = replace(
            instance,
            times_s=instance.times_s[:, columns_taken],
            device_names=names,
            device_types=tuple(instance.device_types[device] for device in columns_taken),
            memory_bytes=instance.memory_bytes[columns_taken],
            is_host=instance.is_host[columns_taken],
            **other,
        )
    if memory_bytes is not None:
        instance = replace(instance, memory_bytes=np.where(instance.is_host, instance.memory_bytes, memory_bytes))
    return instance


def _are_equal(instance: OperatorInstance, columns: NDArray[np.int64]) -> bool:
    """Return whether some devices have the same times and memory, and the instance the same links between all."""
    apart = ~np.eye(instance.num_devices, dtype=np.bool_)
    links = [getattr(instance, each)[apart] for each in ("latency_s", "bandwidth_bytes_per_s")]
    return (
        bool((instance.times_s[:, columns] == instance.times_s[:, columns[:1]]).all())
        and bool((instance.memory_bytes[columns] == instance.memory_bytes[columns[0]]).all())
        and all(bool((each == each[:1]).all()) for each in links)
    )


def _names(instance: OperatorInstance, choice: list[int]) -> tuple[str, ...]:
    count: dict[str, int] = {}
    names = []
    for device in choice:
        kind = instance.device_types[device]
        names.append(f"{kind}{count.setdefault(kind, 0)}")
        count[kind] += 1
    return tuple(names)


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
    result: list[Any] = []
    for each in items:
        if isinstance(each, list) and depth == 0:
            result.append(_filled(each, root, name, kind, depth=1))
        elif each is None and name in _CAN_BE_INFINITE:
            result.append(np.inf)
        elif isinstance(each, bool) != (kind is np.bool_) or not isinstance(each, int | (int if kind is np.int64 else float)):
            target = {np.bool_: "true or false", np.int64: "whole numbers"}.get(kind, "numbers")
            raise root.error(f"must hold {target}", name, each)
        else:
            if abs(each) > MOST:
                raise root.error(f"must be at most {MOST:g}", name, each)
            result.append(each)
    return result
