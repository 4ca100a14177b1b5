"""Reads the profiles that PipeDream's profiler writes: a ``graph.txt`` of ops with measured times, then edges.

A line of an op reads ``node1 -- Conv2d(3, 64, ...) -- forward_compute_time=1.5, backward_compute_time=3.0,
activation_size=100.0, parameter_size=20.0``; times are milliseconds, sizes bytes. An activation may be a list ``[a; b]`` of
several outputs, which are summed. An indented line ``node1 -- node2`` is an edge.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import files, quantities
from ...errors import GraphError
from ..graph import JobGraph

SECONDS_PER_MILLISECOND = 1e-3
_SEPARATOR = " -- "
_UNITS = {"forward_compute_time": "ms", "backward_compute_time": "ms", "activation_size": "bytes", "parameter_size": "bytes"}
_FIELDS = tuple(_UNITS)

_INPUT = re.compile(r"Input\d*")
"""The profiler's name for an op that brings a tensor from the data loader; a model with several counts them."""

_Fail = Callable[..., GraphError]


def load_profile(path: str | Path) -> JobGraph:
    """Read a ``graph.txt``; ops keep the order of the file, the graph takes the name of its folder.

    Blank lines and Windows line endings are accepted. The profile does not say on which device it was measured, nor
    the batch size, nor any FLOPs.

    Raises:
        InputFileError: the file is missing or unreadable.
        GraphError: a malformed line, an unknown or missing field, an impossible value, an op or edge twice, an absent op, a
            cycle, or no op.
    """
    path = Path(path)
    costs: dict[str, list[float]] = {}
    kinds: list[str] = []
    edges: dict[tuple[str, str], int] = {}
    for number, line in enumerate(files.read_text(path).splitlines(), start=1):

        def fail(problem: str, *, number: int = number, **details: object) -> GraphError:
            return GraphError(problem, file=path, line=number, **details)  # type: ignore[arg-type]

        if not line.strip():
            continue
        parts = [part.strip() for part in line.strip().split(_SEPARATOR)]
        if len(parts) == 2 and all(parts):
            edge = (parts[0], parts[1])
            if edge in edges:
                raise fail(f"the edge is already on line {edges[edge]}", value=line.strip())
            edges[edge] = number
        elif len(parts) >= 3 and all(parts):
            name = parts[0]
            if name in costs:
                raise fail("the op appears twice", value=name)
            costs[name] = _costs(parts[-1], name, fail)
            kinds.append(_kind(_SEPARATOR.join(parts[1:-1])))
        else:
            raise fail("neither an op (name -- description -- fields) nor an edge (name -- name)", value=line.strip())
    return _graph(path, costs, kinds, edges)


def is_input(graph: JobGraph) -> NDArray[np.bool_]:
    """Return whether each op times the data loader instead of the model, ``(n,)``."""
    return np.array([_INPUT.fullmatch(kind) is not None for kind in graph.op_kinds])


def without_inputs(graph: JobGraph) -> JobGraph:
    """Return the profile without its ``Input`` ops, see `is_input`.

    Raises:
        GraphError: nothing would be left.
    """
    keep = ~is_input(graph)
    if not keep.any():
        raise GraphError("has no op but its inputs", value=graph.name)
    number = np.cumsum(keep) - 1
    costs = ("forward_s", "backward_s", "forward_flops", "backward_flops")
    sizes = ("activation_bytes", "parameter_bytes", "workspace_bytes")
    return replace(
        graph,
        op_names=tuple(np.array(graph.op_names, object)[keep]),
        op_kinds=tuple(np.array(graph.op_kinds, object)[keep]),
        edges=number[graph.edges[keep[graph.edges].all(axis=1)]],
        times_s={kind: both[:, keep] for kind, both in graph.times_s.items()},
        colocate=tuple(np.array(graph.colocate, object)[keep]) if graph.colocate else (),
        **{field: getattr(graph, field)[keep] for field in costs + sizes},
    )


def _graph(path: Path, costs: dict[str, list[float]], kinds: list[str], edges: dict[tuple[str, str], int]) -> JobGraph:
    if not costs:
        raise GraphError("has no ops", file=path)
    for edge, number in edges.items():
        for name in edge:
            if name not in costs:
                raise GraphError(
                    "the edge names an op that is not in the file", file=path, line=number, value=name, choices=costs
                )
    index = {name: op for op, name in enumerate(costs)}
    values = np.array(list(costs.values()))
    zeros = np.zeros(len(costs))
    try:
        return JobGraph(
            name=path.resolve().parent.name if path.name == "graph.txt" else path.stem,
            op_names=tuple(costs),
            op_kinds=tuple(kinds),
            forward_s=values[:, 0] * SECONDS_PER_MILLISECOND,
            backward_s=values[:, 1] * SECONDS_PER_MILLISECOND,
            forward_flops=zeros,
            backward_flops=zeros,
            activation_bytes=values[:, 2],
            parameter_bytes=values[:, 3],
            workspace_bytes=zeros,
            edges=np.array([(index[a], index[b]) for a, b in edges], np.int64),
            source="measured",
        )
    except GraphError as error:
        raise GraphError(error.problem, file=path, field=error.field, value=error.value) from None


def _kind(description: str) -> str:
    """Return the description up to its arguments: ``Conv2d`` of ``Conv2d(3, 64, ...)``."""
    return description.partition("(")[0].strip() or description


def _costs(text: str, op: str, fail: _Fail) -> list[float]:
    results: dict[str, float] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise fail("a field must read name=value", field=op, value=part.strip())
        if key not in _FIELDS:
            raise fail("unknown field", field=f"{op}.{key}", value=key, choices=_FIELDS)
        if key in results:
            raise fail("the field appears twice", field=f"{op}.{key}")
        numbers = value[1:-1].split(";") if key == "activation_size" and value[:1] == "[" and value[-1:] == "]" else [value]
        results[key] = sum(_number(number.strip(), f"{op}.{key}", fail) for number in numbers)
    for key in _FIELDS:
        if key not in results:
            raise fail("the field is missing", field=f"{op}.{key}")
    return [results[key] for key in _FIELDS]


def _number(text: str, field: str, fail: _Fail) -> float:
    try:
        return quantities.amount(text, _UNITS[field.rpartition(".")[2]])
    except ValueError as error:
        raise fail(str(error), field=field, value=text) from None
