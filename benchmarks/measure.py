"""What every benchmark shares: the form of a figure and how a median is taken."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

REPEATS = 5


@dataclass
class Figure:
    """One measured figure: its name, value and unit, and what it is measured on."""

    name: str
    value: float
    unit: str
    on: str


def median_s(action: Callable[[], object], *, repeats: int = REPEATS) -> float:
    """Median wall-clock seconds of an action over some runs, after one that is not counted."""
    action()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
