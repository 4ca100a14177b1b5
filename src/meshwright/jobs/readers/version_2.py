"""Version 2 of a saved job graph: seconds of each op on several device types, and ops that share a device.

``times_s`` is an object of device types; each holds ``forward_s`` and ``backward_s``, a number per op, null where the type cannot
run the op. ``colocate`` is a list of labels per op. ``memory`` may hold the three sizes of each op in place of the top of the
file, where version 1 has them. The top may leave out the seconds on the reference device where ``times_s`` has them.

Legend of shapes: ``n`` ops. In memory times are ``(2, n)`` for each device type: forward and backward, infinite for null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import quantities
from ...errors import GraphError

FORMAT_VERSION = 2
KEYS = ("times_s", "colocate", "memory")

PASSES = ("forward_s", "backward_s")
SIZES = ("activation_bytes", "parameter_bytes", "workspace_bytes")

Times = Mapping[str, NDArray[np.float64]]


def in_full(data: dict[str, Any]) -> dict[str, Any]:
    """Return a saved graph with all keys of version 1 at the top and those of version 2 as a graph holds them.

    Raises:
        GraphError: keys of version 2 in a file of version 1, an unknown key, a key given twice, or a wrong type.
    """
    version = data.get("format_version")
    if version == 1:
        for key in KEYS:
            if key in data:
                raise GraphError(f"goes with format_version {FORMAT_VERSION}", field=key)
    if version != FORMAT_VERSION:
        return data
    result = {key: figures for key, figures in data.items() if key not in KEYS}
    memory = _object(data.get("memory", {}), "memory")
    for key, figures in memory.items():
        _check_key(key, "memory", SIZES)
        if key in result:
            raise GraphError("is at the top of the file as well", field=f"memory.{key}")
        result[key] = figures
    if "times_s" in data:
        result["times_s"] = _read_times(data["times_s"])
        reference = data.get("reference_device")
        known = result["times_s"].get(reference) if isinstance(reference, str) else None
        for key, seconds in zip(PASSES, known or (), strict=False):
            result.setdefault(key, seconds)
    if "colocate" in data:
        labels = data["colocate"]
        if not (isinstance(labels, list) and all(isinstance(each, list) for each in labels)):
            raise GraphError("must hold a list of labels for each op", field="colocate")
        result["colocate"] = labels
    return result


def to_data(times_s: Times, colocate: Sequence[frozenset[str]]) -> dict[str, Any]:
    """Return the keys of version 2 that say something, as `in_full` reads them."""
    result: dict[str, Any] = {}
    if times_s:
        result["times_s"] = {
            kind: {
                key: [None if each == np.inf else each for each in seconds.tolist()]
                for key, seconds in zip(PASSES, both, strict=True)
            }
            for kind, both in times_s.items()
        }
    if colocate:
        result["colocate"] = [sorted(labels) for labels in colocate]
    return result


def frozen_times(times_s: Any) -> dict[str, NDArray[np.float64]]:
    """Return read-only times of each device type, ``(2, n)`` where they are right.

    Raises:
        GraphError: no numbers, or the two passes of a type differ in length.
    """
    result = {}
    for kind, both in dict(times_s).items():
        try:
            lengths = [len(seconds) for seconds in both]
            if len(set(lengths)) > 1:
                problem = f"has {lengths[1]} entries, and {PASSES[0]} has {lengths[0]}"
                raise GraphError(problem, field=f"times_s.{kind}.{PASSES[1]}")
            result[kind] = np.array(both, np.float64)
        except (TypeError, ValueError, OverflowError):
            raise GraphError("holds something other than numbers", field=f"times_s.{kind}") from None
        result[kind].flags.writeable = False
    return result


def frozen_labels(colocate: Iterable[Iterable[str]]) -> tuple[frozenset[str], ...]:
    """Return the labels of each op; empty where no op has one.

    Raises:
        GraphError: a label that is no text, or a text in place of several.
    """
    results: list[frozenset[str]] = []
    for labels in colocate:
        if isinstance(labels, str) or not all(isinstance(label, str) for label in labels):
            raise GraphError("labels are texts, several for each op", field=f"colocate.{len(results)}")
        results.append(frozenset(labels))
    return tuple(results) if any(results) else ()


def check_times(
    times_s: Times, op_names: Sequence[str], reference: str | None, measured: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> None:
    """Refuse times that no op could take, or that contradict those of the reference device.

    Args:
        times_s: by device type.
        op_names: names of the ops, length ``n``.
        reference: the type on which ``measured`` hold.
        measured: forward and backward seconds, ``(n,)`` each.

    Raises:
        GraphError: so it is; type, pass and op are named.
    """
    n = len(op_names)
    for kind, both in times_s.items():
        if not isinstance(kind, str) or not kind.isprintable() or not kind:
            raise GraphError("a device type needs a name", field="times_s", value=str(kind))
        if both.shape != (2, n):
            raise GraphError(f"has {both.shape[-1] if both.ndim == 2 else 0} entries for {n} ops", field=f"times_s.{kind}")
        for key, seconds, on_reference in zip(PASSES, both, measured, strict=True):
            field, most = f"times_s.{kind}.{key}", quantities.range_of(key).most
            wrong = np.flatnonzero(~((seconds >= 0) & ((seconds <= most) | (seconds == np.inf))))
            for op in wrong[:1].tolist():
                refusal = quantities.problem(key, float(seconds[op])) if seconds[op] > 0 else "must be 0 or more"
                raise GraphError(str(refusal), field=f"{field}.{op_names[op]}", value=float(seconds[op]))
            other = np.flatnonzero(np.isfinite(seconds) & (seconds != on_reference)) if kind == reference else np.zeros(0, int)
            for op in other[:1].tolist():
                problem = f"is not the {key} of {op_names[op]}, {on_reference[op]:g}, though the reference device is {kind}"
                raise GraphError(problem, field=f"{field}.{op_names[op]}", value=float(seconds[op]))
        refusal = quantities.problem("step_s", float(both[np.isfinite(both)].sum()))
        if refusal is not None:
            raise GraphError(f"the times of all ops together: {refusal}", field=f"times_s.{kind}")


def check_labels(colocate: Sequence[frozenset[str]], num_ops: int) -> None:
    """Refuse labels of another number of ops, and those that no file could hold.

    Raises:
        GraphError: so it is.
    """
    if colocate and len(colocate) != num_ops:
        raise GraphError(f"has {len(colocate)} entries for {num_ops} ops", field="colocate")
    for op, labels in enumerate(colocate):
        for label in labels:
            if any("\ud800" <= letter <= "\udfff" for letter in label):
                raise GraphError("is not Unicode, so no file could hold it", field=f"colocate.{op}", value=label)


def left_out(times_s: Times, colocate: Sequence[frozenset[str]]) -> tuple[str, ...]:
    """Return the parts of a graph that count only where ops are placed on devices, as remarks for people."""
    names = [f"times_s of {', '.join(sorted(times_s))}"] if times_s else []
    names += ["colocate"] if colocate else []
    return (f"left out: {' and '.join(names)} of the file, which `meshwright plan --ops` alone reads",) if names else ()


def groups(colocate: Sequence[frozenset[str]], num_ops: int) -> NDArray[np.int64]:
    """Return the first of the ops that share a device with each op, ``(n,)``.

    Ops of one label do, and so do those that a chain of labels joins.
    """
    group = np.arange(num_ops)
    first: dict[str, int] = {}
    for op, labels in enumerate(colocate):
        for label in labels:
            low, high = sorted((group[op], group[first.setdefault(label, op)]))
            group[group == high] = low
    return group


def _read_times(value: Any) -> dict[str, list[list[float]]]:
    result = {}
    for kind, passes in _object(value, "times_s").items():
        field = f"times_s.{kind}"
        for key in _object(passes, field):
            _check_key(key, field, PASSES)
        for key in PASSES:
            if key not in passes:
                raise GraphError("the key is missing", field=f"{field}.{key}")
        result[kind] = [_seconds(passes[key], f"{field}.{key}") for key in PASSES]
    return result


def _seconds(value: Any, field: str) -> list[float]:
    if not isinstance(value, list):
        raise GraphError("must be a list, a number for each op", field=field)
    for each in value:
        if each is not None and (isinstance(each, bool) or not isinstance(each, int | float)):
            raise GraphError("must hold numbers, and null where the type cannot run the op", field=field, value=each)
    return [np.inf if each is None else each for each in value]


def _object(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise GraphError("must be an object", field=field, value=type(value).__name__)
    return value


def _check_key(key: str, where: str, choices: Sequence[str]) -> None:
    if key not in choices:
        raise GraphError("unknown key", field=f"{where}.{key}", value=key, choices=choices)
