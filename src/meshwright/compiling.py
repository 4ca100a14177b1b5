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
