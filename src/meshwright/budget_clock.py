"""The clock by which budgets of searches are counted: wall time, or CPU time where other processes share the machine.

A search on a busy machine gets less done in a second of wall time, so that comparisons of searches depend on what else runs. The
CPU time of the process (all its threads) depends on it much less. HiGHS counts its time limit by wall time under either clock.
The clock stops while code is compiled or loaded, and each search loads its modules before it first looks at it. A new thread
counts by wall time again, and a generator that is suspended within `budgets_by` leaves its clock to its caller.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from .compiling import LOADING

BudgetClock = Literal["wall", "cpu"]
NO_MOVE = "the budget ended before any move was tried"
"""Note of a search that returns its starting point."""

_CLOCK: ContextVar[BudgetClock] = ContextVar("budget_clock", default="wall")


def clock_s() -> float:
    """Return seconds of the clock in use, from an arbitrary start; only differences have a meaning."""
    clock = _CLOCK.get()
    return (time.process_time() if clock == "cpu" else time.perf_counter()) - LOADING.spent_s[clock]


def clock_words(clock: BudgetClock) -> list[str]:
    """Return the note of a report on times in CPU seconds; wall time needs none."""
    return ["Times and budgets are CPU seconds of the process."] if clock == "cpu" else []


@contextmanager
def budgets_by(clock: BudgetClock) -> Iterator[None]:
    """Count budgets by a clock within this context."""
    token = _CLOCK.set(clock)
    try:
        yield
    finally:
        _CLOCK.reset(token)
