"""Times of the calls of a traced model, measured where the command runs: each call alone, forward and backward.

A call is given tensors of its own shapes, filled with small random numbers; only those of one call are there at a time. Calls of
one function with the same shapes and values are measured once. The first run is thrown away (it loads code and fills caches); of
the others the median counts.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_flatten, tree_unflatten  # nothing public flattens nested inputs

from ..devices import device_names
from ..errors import TraceError
from .op_costs import GROUPED, tensors_of
from .recorder import RecordedOp
from .trace import first_line, quiet

MOST_S = 0.2
"""Of one call and direction: after so long no further run begins."""

RUNS = (3, 50)
"""Least and most runs that count."""


@dataclass(frozen=True)
class CallTimes:
    """Seconds of the calls of a model, one after another as they were traced, ``n`` of them.

    Attributes:
        forward_s: ``(n,)``.
        backward_s: of the gradients of those inputs that want one, ``(n,)``.
        device: the device type on which they hold, where it is one that is known here.
        remarks: where and how they were measured, for people.
    """

    forward_s: NDArray[np.float64]
    backward_s: NDArray[np.float64]
    device: str | None
    remarks: tuple[str, ...]


def measure(ops: Sequence[RecordedOp], *, on: str | None = None) -> CallTimes:
    """Measure calls one by one.

    Args:
        ops: the calls.
        on: ``cuda`` or ``cpu``; the GPU where there is one by default.

    Raises:
        TraceError: a call does not run on that device.
    """
    place = torch.device(on or ("cuda" if torch.cuda.is_available() else "cpu"))
    known: dict[object, tuple[float, float]] = {}
    results = []
    with quiet():
        for op in ops:
            key = _key(op)
            if key not in known:
                try:
                    known[key] = _timed(op, place)
                except Exception as error:  # whatever a kernel raises
                    floats = [one.dtype for one in tensors_of((op.args, op.kwargs)) if one.is_floating_point()]
                    dtype = str(floats[0]).removeprefix("torch.") if floats else "whole numbers"
                    problem = f"{op.name} does not run on this {place.type} in {dtype}: {first_line(error)}"
                    raise TraceError(problem, field="--times here") from None
            results.append(known[key])
    seconds = np.array(results).reshape(-1, 2)
    name = torch.cuda.get_device_name() if place.type == "cuda" else f"this processor, {torch.get_num_threads()} threads"
    message = f"measured on {name}: {len(known)} different calls of {len(ops)}, each alone"
    return CallTimes(seconds[:, 0], seconds[:, 1], known_device(name) if place.type == "cuda" else None, (message,))


def known_device(gpu: str) -> str | None:
    """Return the device type that a GPU's name holds as a word: ``h100`` of ``NVIDIA H100 80GB HBM3``; None if none does."""
    words = f" {' '.join(re.split(r'[^a-z0-9]+', gpu.lower()))} "
    return next((name for name in device_names() if f" {name.replace('-', ' ')} " in words), None)


def _key(op: RecordedOp) -> object:
    """Return the key of calls that take equally long: function, shapes, strides, types, and all values that are no tensors."""
    leaves, spec = tree_flatten((op.args, op.kwargs))
    parts = [
        (tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.requires_grad) if isinstance(leaf, torch.Tensor) else repr(leaf)
        for leaf in leaves
    ]
    return op.func, tuple(parts), str(spec)


def _timed(op: RecordedOp, place: torch.device) -> tuple[float, float]:
    leaves, spec = tree_flatten((op.args, op.kwargs))
    rows = next((leaf.shape[0] for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.ndim), 1)
    made: dict[int, Any] = {}
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and id(leaf) not in made:
            made[id(leaf)] = _filled(leaf, place, rows if op.kind.startswith(GROUPED) else 0)
    target = [tensor for tensor in made.values() if tensor.requires_grad]

    def call() -> Any:
        options = {key: tensor.clone() if tensor.requires_grad else tensor for key, tensor in made.items()}  # see `cost_of`
        values = [place if isinstance(leaf, torch.device) else options.get(id(leaf), leaf) for leaf in leaves]
        args, kwargs = tree_unflatten(values, spec)
        return lambda: op.func(*args, **kwargs)

    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        forward_s, out = _median_s(call, place)
        outputs = [tensor for tensor in tensors_of(out) if tensor.requires_grad]
        if not outputs or not target:
            return forward_s, 0.0
        gradients = [torch.ones_like(tensor) for tensor in outputs]

        def back() -> Any:
            made_now = [tensor for tensor in tensors_of(call()()) if tensor.requires_grad]
            return lambda: torch.autograd.grad(made_now, target, gradients, allow_unused=True)

        return forward_s, _median_s(back, place)[0]


def _median_s(prepare: Callable[[], Callable[[], Any]], place: torch.device) -> tuple[float, Any]:
    """Return the median seconds of what is prepared anew for each run, and what the last run gave."""
    taken: list[float] = []
    out, begun = prepare()(), time.perf_counter()
    while len(taken) < RUNS[0] or (len(taken) < RUNS[1] and time.perf_counter() - begun < MOST_S):
        run = prepare()
        if place.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        out = run()
        if place.type == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return median(taken), out


def _filled(bare: torch.Tensor, place: torch.device, rows: int) -> torch.Tensor:
    """Return a tensor like one without data: small numbers, zeros that are legal as tokens and labels, masks that hide nothing.

    Args:
        bare: on the ``meta`` device.
        place: where it shall be.
        rows: of a grouped product, which ends of groups divide evenly.
    """
    made = torch.empty_strided(tuple(bare.shape), bare.stride(), dtype=bare.dtype, device=place)
    # The numbers as they lie in memory: of an expanded tensor, as of keys that heads share, several places are one of them.
    stored = made.as_strided((made.untyped_storage().nbytes() // made.element_size(),), (1,), 0)
    with torch.no_grad():
        if bare.is_floating_point():
            stored.normal_(0.0, 0.02)
        elif bare.dtype == torch.bool:
            stored.fill_(True)
        elif rows and bare.ndim == 1:
            made.copy_(torch.linspace(rows / max(1, bare.numel()), rows, bare.numel()).to(bare.dtype))
        else:
            stored.zero_()
    return made.requires_grad_(bare.requires_grad)
