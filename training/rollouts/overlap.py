"""Collecting rollouts at once, or while weights are updated by the rollout before.

Tasks are begun, and their results are waited for later. What is played depends on the tasks alone, so that it is
the same whether anybody has played them meanwhile or not.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from multiprocessing import parent_process
from typing import NamedTuple, Self

import torch
from torch import Tensor

from ...worker_pool import WorkerPool, deaf_to_interrupts
from .group import GroupPlayer, GroupRollout, GroupTask

ALIGNMENT = 64
"""Bytes, of arrays, as compiled code likes them."""

Play = Callable[[GroupTask], GroupRollout]
ShareOut = Callable[[Play, Sequence[GroupTask], Callable[[GroupTask, GroupRollout], None]], None]
"""Does tasks and calls the last argument with each and its result, in their order: `evaluation.workers.workers.Workers.do`."""

Begin = Callable[[GroupPlayer, Sequence[GroupTask]], Callable[[], list[GroupRollout]]]
"""Begins tasks, and returns what waits for their results."""


def alone(play: Play, tasks: Sequence[GroupTask], keep: Callable[[GroupTask, GroupRollout], None]) -> None:
    """A `ShareOut` in this process."""
    for task in tasks:
        keep(task, play(task))


@contextmanager
def rollout_workers(share_out: ShareOut | None, *, is_overlapped: bool) -> Iterator[Begin]:
    """What plays tasks, as long as the context is.

    Args:
        share_out: who plays. None: this process, or one of its own where rollouts are overlapped, this process has a second CPU
            and is nobody's worker itself.
        is_overlapped: whether tasks are played after they are begun, or when their results are wanted.
    """
    if is_overlapped and share_out is None and parent_process() is None and num_cpus() > 1:
        with RolloutProcess() as process:
            yield process.begin
    elif is_overlapped and share_out is not None:
        with ThreadPoolExecutor(1, "rollouts") as thread:
            yield lambda play, tasks: thread.submit(_gathered, share_out, play, tasks).result
    else:
        yield lambda play, tasks: partial(_gathered, share_out or alone, play, tasks)


class SharedRollout(NamedTuple):
    """A rollout on its way from one process to another: what is large lies in memory that both of them have.

    Through a pipe it would come in hundreds of pieces, and for each of them the thread that reads would wait for its turn.

    Attributes:
        content: all but the arrays, pickled.
        sizes: bytes of each array.
        shared: the arrays, one after the other, each at a multiple of `ALIGNMENT`.
    """

    content: bytes
    sizes: list[int]
    shared: Tensor

    @classmethod
    def of(cls, rollout: GroupRollout) -> SharedRollout:
        """Pack a rollout."""
        arrays: list[pickle.PickleBuffer] = []
        content = pickle.dumps(rollout, 5, buffer_callback=arrays.append)
        parts = [array.raw() for array in arrays]
        sizes = [len(part) for part in parts]
        shared = torch.empty(sum(map(_padded, sizes)), dtype=torch.uint8)
        shared.share_memory_()  # type: ignore[no-untyped-call]
        for part, to in zip(parts, _parts(shared, sizes), strict=True):
            to[:] = part
        return cls(content, sizes, shared)

    def unpacked(self) -> GroupRollout:
        """The rollout; its arrays are not copied."""
        rollout: GroupRollout = pickle.loads(self.content, buffers=_parts(self.shared, self.sizes))  # noqa: S301 - of this run's own process
        return rollout


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _parts(shared: Tensor, sizes: list[int]) -> list[memoryview]:
    ends = list(accumulate(map(_padded, sizes)))
    view = shared.numpy().data
    return [view[end - _padded(size) : end - _padded(size) + size] for size, end in zip(sizes, ends, strict=True)]


class RolloutProcess:
    """A process that plays tasks while this one does something else.

    Its start takes seconds. Until then, and after it is lost, this process plays tasks itself when their results are wanted.
    """

    def __init__(self) -> None:
        self._play: GroupPlayer | None = None
        self._pool: WorkerPool | None = None
        self._start: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def begin(self, play: GroupPlayer, tasks: Sequence[GroupTask]) -> Callable[[], list[GroupRollout]]:
        """See `Begin`; another process takes the place of this one where something else is played."""
        if self._play is not play:
            self._end()
            self._play, self._pool = play, WorkerPool(1)
            with deaf_to_interrupts():
                # Not as what the pool begins with: this process would wait until that is read.
                self._start = self._pool.submit(_warm_up, play, tasks[0])
        here = partial(_gathered, alone, play, tasks)
        if self._pool is None or self._start is None or not self._start.done():
            return here
        try:
            self._start.result()
            there = [self._pool.submit(_play_shared, task) for task in tasks]
        except BrokenProcessPool:
            self._end()
            return here

        def wait() -> list[GroupRollout]:
            try:
                return [each.result().unpacked() for each in there]
            except BrokenProcessPool:
                self._end()
                return here()

        return wait

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool = self._start = None


def num_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gathered(share_out: ShareOut, play: Play, tasks: Sequence[GroupTask]) -> list[GroupRollout]:
    found: list[GroupRollout] = []
    share_out(play, tasks, lambda task, rollout: found.append(rollout))
    return found


# What the process was brought.
_play: GroupPlayer


def _warm_up(play: GroupPlayer, task: GroupTask) -> None:
    """Play what nobody asks for, so that compiled code is loaded."""
    global _play
    _play = play
    play(task)


def _play_shared(task: GroupTask) -> SharedRollout:
    return SharedRollout.of(_play(task))
