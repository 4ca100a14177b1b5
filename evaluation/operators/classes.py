"""Classes of instances of operator placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.schedules import mean_times_s, mean_transfer_s

DIMENSIONS = ("ops", "devices", "communication to computation", "memory slack")
MOST_VALUES = 6
"""A dimension with more values is divided into three classes of equally many instances."""


def facts(instance: OperatorInstance) -> dict[str, Any]:
    """Ops, devices, mean transfer over mean op, and memory of all devices over what all ops hold; None where unlimited."""
    transfer_s = mean_transfer_s(instance)
    held, memory = float(instance.resident_bytes.sum()), float(instance.memory_bytes.sum())
    return {
        "name": instance.name,
        "ops": instance.num_ops,
        "devices": instance.num_devices,
        "communication to computation": float(transfer_s.mean() / mean_times_s(instance).mean()) if len(transfer_s) else 0.0,
        "memory slack": memory / held if np.isfinite(memory) and held > 0 else None,
    }


def classes(told: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[int]]]:
    """Return the numbers of the instances by dimension and class; dimensions with a single class are left out."""
    found = {}
    for dimension in DIMENSIONS:
        values = [each[dimension] for each in told]
        known = np.array([value for value in values if value is not None], np.float64)
        distinct = sorted({_rounded(value) for value in known})
        if len(distinct) <= MOST_VALUES:
            of = {
                _text(value): [at for at, each in enumerate(values) if each is not None and _rounded(each) == value]
                for value in distinct
            }
        else:
            of = _thirds(values, known)
        unlimited = [at for at, value in enumerate(values) if value is None]
        if unlimited:
            of["unlimited"] = unlimited
        if len(of) > 1:
            found[dimension] = of
    return found


def _thirds(values: Sequence[Any], known: NDArray[np.float64]) -> dict[str, list[int]]:
    low, high = np.quantile(known, [1 / 3, 2 / 3])
    ends = [
        (-np.inf, low, f"up to {_text(low)}"),
        (low, high, f"{_text(low)} to {_text(high)}"),
        (high, np.inf, f"above {_text(high)}"),
    ]
    found = {
        text: [at for at, value in enumerate(values) if value is not None and begin < value <= end] for begin, end, text in ends
    }
    return {text: rows for text, rows in found.items() if rows}


def _rounded(value: float) -> float:
    """To two digits after the point: a slack comes back from sums of bytes."""
    return round(float(value), 2)


def _text(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
