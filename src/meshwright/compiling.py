"""Notice of functions that are compiled, for which a first run waits; the command line shows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Watcher = Callable[[str, int, float], None]
"""Called as a function begins to be compiled: its name, how many began in this process, and seconds spent so far."""

_watchers: list[Watcher] = []


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Report what is compiled inside the block to a watcher; of nested blocks the innermost gets the report."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


class LoadTimer:
    """Counts the time that the process spends compiling and loading compiled code, by wall and by CPU."""

    def __init__(self) -> None:
        self.spent_s = {"wall": 0.0, "cpu": 0.0}
        self._depth, self._began_s = 0, {"wall": 0.0, "cpu": 0.0}

    def begin(self) -> None:
        """Something is compiled or loaded, maybe on the way to another."""
        if self._depth == 0:
            self._began_s = _now_s()
        self._depth += 1

    def end(self) -> None:
        """What began last is there."""
        self._depth -= 1
        if self._depth == 0:
            for clock, now_s in _now_s().items():
                self.spent_s[clock] += now_s - self._began_s[clock]


def _now_s() -> dict[str, float]:
    return {"wall": time.perf_counter(), "cpu": time.process_time()}


LOADING = LoadTimer()
"""Of this process; `compiled` starts and stops it."""


class CompileTimer:
    """Counts compiled functions and the time that they take; those compiled on the way to another count once in time."""

    def __init__(self) -> None:
        self.number = 0
        self.spent_s = 0.0
        self._depth = 0
        self._began_s = 0.0

    def begin(self, name: str) -> None:
        """A function begins to be compiled."""
        if self._depth == 0:
            self._began_s = time.monotonic()
        self._depth += 1
        self.number += 1
        for watcher in _watchers[-1:]:
            watcher(name, self.number, self.spent_s + time.monotonic() - self._began_s)

    def end(self) -> None:
        """The function that began last has been compiled."""
        self._depth -= 1
        if self._depth == 0:
            self.spent_s += time.monotonic() - self._began_s
