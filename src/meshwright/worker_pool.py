"""`WorkerPool`: processes that do what they are handed, and end with the one that began them, however it ends.

A worker of the standard library's pool holds both ends of the pipe at which it waits. So it never hears that its parent is gone,
and would wait there for ever with all that it had loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from signal import SIG_IGN, SIGINT, signal
from threading import Thread, current_thread, main_thread
from typing import Any


class WorkerPool(ProcessPoolExecutor):
    """A number of processes that are started afresh, not forked: they share no threads and no locks with this one."""

    def __init__(self, number: int) -> None:
        super().__init__(number, get_context("spawn"), _begin)

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> bool | None:
        """Wait for what is under way, or end it where Ctrl-C came."""
        if kind is KeyboardInterrupt:
            self.end()
        return super().__exit__(kind, *rest)

    def end(self) -> None:
        """Kill the processes, whatever they do, and begin no more."""
        if sys.version_info >= (3, 14):
            self.kill_workers()
        else:  # no public method does it
            for process in (self._processes or {}).values():
                process.kill()
        self.shutdown(wait=True, cancel_futures=True)


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Let processes begun in this block ignore Ctrl-C, which a terminal sends to all: the one that began them stops them."""
    if current_thread() is not main_thread():  # only the main one may say what a signal does
        yield
        return
    before = signal(SIGINT, SIG_IGN)
    try:
        yield
    finally:
        signal(SIGINT, before)


def _begin() -> None:
    Thread(target=_end_with_parent, name="ends with its parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "a worker was begun by somebody"
    parent.join()
    os._exit(1)
