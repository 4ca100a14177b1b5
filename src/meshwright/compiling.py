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


class Stopwatch:
    """Adds up times between begin and end, by each of its clocks; nested times count once."""

    def __init__(self, **clocks: Callable[[], float]) -> None:
        self.spent_s = dict.fromkeys(clocks, 0.0)
        self._clocks, self._depth, self._began_s = clocks, 0, dict.fromkeys(clocks, 0.0)

    def begin(self, name: str = "") -> None:
        """Begin a time of this name."""
        if self._depth == 0:
            self._began_s = {key: clock() for key, clock in self._clocks.items()}
        self._depth += 1

    def end(self) -> None:
        """End the innermost of the times that began."""
        self._depth -= 1
        if self._depth == 0:
            for name, clock in self._clocks.items():
                self.spent_s[name] += clock() - self._began_s[name]


LOADING = Stopwatch(wall=time.perf_counter, cpu=time.process_time)
"""The time in which this process compiles or loads compiled code; `compiled` starts and stops it."""


class CompileTimer(Stopwatch):
    """Counts compiled functions and their time, and reports them to the watcher."""

    def __init__(self) -> None:
        super().__init__(wall=time.monotonic)
        self.number = 0

    def begin(self, name: str = "") -> None:
        """Begin the compilation of a function."""
        super().begin(name)
        self.number += 1
        for watcher in _watchers[-1:]:
            watcher(name, self.number, self.spent_s["wall"] + time.monotonic() - self._began_s["wall"])
