"""Times of the calls of a traced model, read from a trace of PyTorch's profiler (Kineto) of its training steps.

The profiler writes the operators that ran, not the way of tensors. So the model is traced as usual, and its calls are matched
with the operators of the file in their order, by name and shapes. Other operators (preparation of data, the optimizer) are
skipped. Each match of the whole model is a step; of several the median counts.

On a GPU the time of an operator is that of the kernels which it launched, else its own. A backward pass belongs to the call
with the same number of autograd (``Sequence number``).

Source:
    pytorch/kineto and torch/csrc/autograd/profiler_kineto.cpp. Events ``cpu_op`` have ``External id``, ``Sequence number`` and
    ``Input Dims``. Events ``kernel``, ``gpu_memcpy`` and ``gpu_memset`` have the ``External id`` of the operator behind them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import files, quantities
from ..errors import InputFileError
from ..quantities import counted
from .measure import CallTimes, known_device
from .recorder import RecordedOp

BACKWARD = "autograd::engine::evaluate_function: "
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass
class _Event:
    """An operator, microseconds, and those inside it."""

    name: str
    start: float
    end: float
    args: dict[str, Any]
    inside: list[_Event] = field(default_factory=list)

    def all(self) -> list[_Event]:
        """Return itself and all inside it."""
        result, left = [], [self]
        while left:
            one = left.pop()
            result.append(one)
            left += one.inside
        return result


def is_trace(data: object) -> bool:
    """Return whether JSON is a trace of events."""
    return isinstance(data, dict) and isinstance(data.get("traceEvents"), list)


def read_times(path: str | Path, ops: Sequence[RecordedOp]) -> CallTimes:
    """Return the times of calls.

    Args:
        path: a file that ``prof.export_chrome_trace`` wrote, of a profiler with ``record_shapes=True``.
        ops: the calls of the model.

    Raises:
        InputFileError: it is no such trace, was recorded without shapes, or does not hold the whole model.
    """
    data = files.read_json(path)
    if not is_trace(data):
        raise InputFileError("is no trace of PyTorch's profiler: there are no traceEvents", file=path)
    operators, launched_us, device = _events(data, path)
    forward = [one for one in operators if not one.name.startswith(BACKWARD)]
    backward: dict[int, float] = defaultdict(float)
    for operator in operators:
        if operator.name.startswith(BACKWARD) and "Sequence number" in operator.args:
            backward[_whole(operator.args["Sequence number"])] += _seconds(operator, launched_us)
    if not any("Input Dims" in one.args for one in forward):
        raise InputFileError("was recorded without shapes, by which calls are found: profile(record_shapes=True)", file=path)
    steps = _steps(forward, ops, path)
    times = np.array([_both(step, launched_us, backward) for step in steps])  # (steps, n, 2)
    middle = np.median(times, axis=0)
    total_s = float(np.median(times.sum(axis=(1, 2))))
    where = "kernels on the GPU" if launched_us else "operators on the processor"
    source = (
        f"times from {Path(path).name}: {counted(len(steps), 'step')}, {1e3 * total_s:,.3f} ms of {where} in each, "
        f"{1e3 * float(np.median(times[:, :, 1].sum(axis=1))):,.3f} ms of them backward"
    )
    return CallTimes(middle[:, 0], middle[:, 1], device, (source,))


def _events(data: dict[str, Any], path: str | Path) -> tuple[list[_Event], dict[int, float], str | None]:
    """Return operators that are inside no other, in order; device microseconds by the operator that launched them; the GPU."""
    by_thread: dict[object, list[_Event]] = defaultdict(list)
    launched: dict[int, float] = defaultdict(float)
    for event in data["traceEvents"]:
        try:
            if event.get("ph") != "X":
                continue
            kind, args = event.get("cat"), event.get("args") or {}
            if kind in ON_DEVICE and "External id" in args:
                launched[_whole(args["External id"])] += quantities.amount(str(event["dur"]), "dur_us")
            elif kind == "cpu_op":
                start = float(quantities.number(str(event["ts"])))
                numbers = {key: _whole(args[key]) for key in ("External id", "Sequence number") if key in args}
                args_of = dict(args) | numbers
                made = _Event(str(event["name"]), start, start + quantities.amount(str(event.get("dur", 0)), "dur_us"), args_of)
                by_thread[str(event.get("pid")), str(event.get("tid"))].append(made)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputFileError("an event has no name, times or numbers", file=path, field="traceEvents") from None
    results: list[_Event] = []
    for events in by_thread.values():
        open_: list[_Event] = []
        for one in sorted(events, key=lambda event: (event.start, -event.end)):
            while open_ and one.start >= open_[-1].end:
                open_.pop()
            (open_[-1].inside if open_ else results).append(one)
            open_.append(one)
    properties = data.get("deviceProperties")
    gpus = [one.get("name") for one in (properties if isinstance(properties, list) else []) if isinstance(one, dict)]
    device = known_device(str(gpus[0])) if gpus and launched else None
    return sorted(results, key=lambda event: event.start), dict(launched), device


def _steps(events: list[_Event], ops: Sequence[RecordedOp], path: str | Path) -> list[list[_Event]]:
    """Return of each step, the operator of each call."""
    flat = [one for event in events for one in _callable(event)]
    steps: list[list[_Event]] = []
    at = 0
    while True:
        step: list[_Event] = []
        for op in ops:
            while at < len(flat) and not _is_call(flat[at], op):
                at += 1
            if at == len(flat):
                if steps:
                    return steps
                shapes = ", ".join("x".join(map(str, shape)) for shape in op.input_shapes)
                problem = (
                    f"holds no whole step of this model: {len(step)} of {len(ops)} calls are there in order, and then no "
                    f"aten::{op.kind} of {shapes}; batch, length and attention must be those that ran"
                )
                raise InputFileError(problem, file=path, value=op.name)
            step.append(flat[at])
            at += 1
        steps.append(step)


def _callable(event: _Event) -> list[_Event]:
    """Return the operator, or, of a range that is none of PyTorch's, those in it."""
    return [event] if event.name.startswith("aten::") else [one for inner in event.inside for one in _callable(inner)]


def _is_call(event: _Event, op: RecordedOp) -> bool:
    if event.name.removeprefix("aten::").strip("_") != op.kind:
        return False
    dims = event.args.get("Input Dims")
    if not isinstance(dims, list):
        return False
    shapes = [tuple(dim) for dim in dims if isinstance(dim, list) and dim and not isinstance(dim[0], list)]
    left = list(shapes)
    for shape in op.input_shapes:
        if shape and shape in left:
            left.remove(shape)
        elif shape and not any(isinstance(dim, list) and dim and isinstance(dim[0], list) for dim in dims):
            return False
    return True


def _both(step: list[_Event], launched_us: dict[int, float], backward_s: dict[int, float]) -> list[tuple[float, float]]:
    """Return forward and backward seconds of each call of a step.

    A call that autograd does not follow carries the number of the next one that it follows. So the last call with a number owns
    it.
    """
    owner = {
        _whole(one.args["Sequence number"]): number
        for number, event in enumerate(step)
        for one in event.all()
        if "Sequence number" in one.args
    }
    backward_us = [0.0] * len(step)
    for number, call in owner.items():
        backward_us[call] += backward_s.get(number, 0.0)
    return [(_seconds(event, launched_us), seconds) for event, seconds in zip(step, backward_us, strict=True)]


def _seconds(event: _Event, launched_us: dict[int, float]) -> float:
    if not launched_us:
        return (event.end - event.start) / 1e6
    return sum(launched_us.get(_whole(one.args["External id"]), 0.0) for one in event.all() if "External id" in one.args) / 1e6


def _whole(value: object) -> int:
    return value if isinstance(value, int) else int(str(value))
