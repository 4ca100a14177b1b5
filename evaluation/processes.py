"""Tasks in several processes, with results in the order of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from signal import SIG_IGN, SIGINT, signal
from threading import current_thread, main_thread
from typing import Any, TypeVar

from ..errors import MeshwrightError

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_processes(
    play: Callable[[Task], Result],
    tasks: Sequence[Task],
    num_processes: int,
    set_up: Callable[..., None],
    arguments: tuple[Any, ...],
    keep: Callable[[Task, Result], None],
) -> None:
    """Do tasks in several processes.

    Args:
        play: does one task; a function of a module.
        tasks: at least one.
        num_processes: at work at a time.
        set_up: is called in each process first, with ``arguments``.
        arguments: that can be pickled.
        keep: called with each task and its result in the order of the tasks, as soon as those before it are there.

    Raises:
        MeshwrightError: a process died, or what ``play`` raises.
    """
    workers = min(num_processes, len(tasks))
    not_ours = set(active_children())
    with ProcessPoolExecutor(workers, get_context("spawn"), set_up, arguments) as pool:
        try:
            with _deaf_to_interrupts():
                # Not `map`: it cancels what waits when interrupted, and a pool that then loses its processes trips over that.
                results = [pool.submit(play, task) for task in tasks]
            for task, result in zip(tasks, results, strict=True):
                keep(task, result.result())
        except BrokenProcessPool:
            raise MeshwrightError("a process that played episodes died; try fewer", field="jobs", value=workers) from None
        except KeyboardInterrupt:
            for process in set(active_children()) - not_ours:
                process.terminate()
            raise


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes begun in this block ignore Ctrl-C, which a terminal sends to all: the one that began them stops them."""
    if current_thread() is not main_thread():  # only the main one may say what a signal does
        yield
        return
    before = signal(SIGINT, SIG_IGN)
    try:
        yield
    finally:
        signal(SIGINT, before)
