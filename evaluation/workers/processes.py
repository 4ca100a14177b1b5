"""Tasks in this process or in several of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from typing import Any, Self

from ...errors import ConfigError, MeshwrightError
from ...worker_pool import WorkerPool, deaf_to_interrupts
from .workers import Result, Task

MAX_PROCESSES = 256


@dataclass(frozen=True)
class Processes:
    """Workers on this machine.

    Attributes:
        number: tasks done at a time; one alone, or a single task, is done in this process.

    Raises:
        ConfigError: the number is not 1 to `MAX_PROCESSES`.
    """

    number: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= MAX_PROCESSES:
            raise ConfigError(f"must be 1 to {MAX_PROCESSES}", field="jobs", value=self.number)

    def do(self, play: Callable[[Task], Result], tasks: Sequence[Task], keep: Callable[[Task, Result], None]) -> None:
        """See `workers.Workers.do`."""
        with KeptProcesses(min(self.number, len(tasks))) as kept:
            kept.do(play, tasks, keep)


class KeptProcesses:
    """Workers on this machine that stay, with what they play, from one call of `do` to the next, until the context ends.

    Args:
        number: tasks done at a time; one alone is done in this process.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._play: Callable[[Any], Any] | None = None
        self._pool: WorkerPool | None = None
        self._not_ours: set[BaseProcess] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def do(self, play: Callable[[Task], Result], tasks: Sequence[Task], keep: Callable[[Task, Result], None]) -> None:
        """See `workers.Workers.do`; other processes take the place of these where something else is played."""
        if self._number <= 1:
            for task in tasks:
                keep(task, play(task))
            return
        if self._pool is None or self._play is not play:
            self._end()
            self._not_ours = set(active_children())
            self._play, self._pool = play, WorkerPool(self._number, _bring, (play,))
        try:
            with deaf_to_interrupts():
                # Not `map`: it cancels what waits when interrupted, and a pool that then loses its processes trips over that.
                results = [self._pool.submit(_do, task) for task in tasks]
            for task, result in zip(tasks, results, strict=True):
                keep(task, result.result())
        except BrokenProcessPool:
            raise MeshwrightError("a worker process died; try fewer", field="jobs", value=self._number) from None
        except KeyboardInterrupt:
            for process in set(active_children()) - self._not_ours:
                process.terminate()
            raise

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = None


# What a worker process was brought.
_play: Callable[[Any], Any]


def _bring(play: Callable[[Any], Any]) -> None:
    global _play
    _play = play


def _do(task: Any) -> Any:
    return _play(task)
