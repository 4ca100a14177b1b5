"""Common parts of all benchmarks: the form of a figure and the median of repeats."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

REPEATS = 5


@dataclass
class BenchmarkFigure:
    """One measured figure: its name, value and unit, and what it is measured on."""

    name: str
    value: float
    unit: str
    on: str


def median_s(action: Callable[[], object]) -> float:
    """Return the median wall-clock seconds of an action over `REPEATS` runs, after one that is not counted."""
    action()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def printed_number(code: str, **variables: str) -> float:
    """Return the number that a program prints, run in a process of its own with these variables of the environment."""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **variables}, check=True, capture_output=True, text=True
    )
    return float(done.stdout.split()[-1])
