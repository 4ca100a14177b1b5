"""A process that does a worker's share, with weights and gradients in memory that both processes have.

It is begun as a program of its own: it runs nothing of the program that trains, and ends when that one does, however it ends.
"""

from __future__ import annotations

import mmap
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Self

import torch

from ...worker_pool import deaf_to_interrupts
from ..rollouts.group import GroupPlayer, GroupTask
from ..updates.flat import bind
from .share import WorkerShare

READY = "ready"
PAGE = mmap.PAGESIZE

PROGRAM = "import sys; from meshwright.training.parallel.process import serve; serve(*map(int, sys.argv[1:]))"


class SharedVectors:
    """Vectors of single precision, each at the beginning of a page, in a file without a name.

    Args:
        num_vectors: how many.
        size: numbers in each.
        descriptor: of the file where another process has made it; None: a new one.

    Attributes:
        descriptor: of the file.
        vectors: ``(size,)`` each.
    """

    def __init__(self, num_vectors: int, size: int, descriptor: int | None = None) -> None:
        pages = -(-4 * size // PAGE) * PAGE
        if descriptor is None:
            in_memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108 - the file has no name there
            with tempfile.TemporaryFile(dir=in_memory) as file:
                descriptor = os.dup(file.fileno())
            os.truncate(descriptor, num_vectors * pages)
        self.descriptor = descriptor
        memory = mmap.mmap(descriptor, num_vectors * pages)
        self.vectors = [torch.frombuffer(memory, dtype=torch.float32, count=size, offset=i * pages) for i in range(num_vectors)]

    def close(self) -> None:
        """Close the file; the vectors stay."""
        os.close(self.descriptor)


class LostWorkerError(Exception):
    """A process has ended that was to do a share."""


class ShareProcess:
    """Does a share elsewhere. Its start takes seconds, in which `is_ready` is false.

    Args:
        player: plays groups of environments.
        tasks: some for a start, so that compiled code is loaded.
        shared: weights, which are read, and then the gradients of each worker.
        number: of the worker.
    """

    def __init__(self, player: GroupPlayer, tasks: Sequence[GroupTask], shared: SharedVectors, number: int) -> None:
        self._connection, theirs = Pipe()
        self.gradient = shared.vectors[number]
        vectors = len(shared.vectors), len(self.gradient)
        with tempfile.TemporaryFile() as brought, deaf_to_interrupts():
            # Not through the connection: this process would wait until that is read.
            pickle.dump((player, list(tasks)), brought, 5)
            brought.flush()
            descriptors = theirs.fileno(), brought.fileno(), shared.descriptor
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter and numbers
                [sys.executable, "-c", PROGRAM, *map(str, (*descriptors, *vectors, number))],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        theirs.close()
        self._is_ready = False

    @property
    def process_id(self) -> int:
        """The number of the process."""
        return self._process.pid

    def is_ready(self) -> bool:
        """Say whether it may be given something to do.

        Raises:
            LostWorkerError: it has ended.
        """
        if not self._is_ready and self._connection.poll():
            self._is_ready = self.answer() == READY
        return self._is_ready

    def ask(self, call: str, argument: object) -> None:
        """Call a method of the share of `WorkerShare`.

        Raises:
            LostWorkerError: it has ended.
        """
        try:
            self._connection.send((call, argument))
        except OSError:
            raise LostWorkerError from None

    def answer(self) -> Any:
        """Wait for what the method returns.

        Raises:
            LostWorkerError: it has ended.
        """
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise LostWorkerError from None

    def end(self) -> None:
        """End the process at once, also in the middle of its work."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


def serve(connection: int, brought: int, memory: int, num_vectors: int, size: int, number: int) -> None:
    """What the process does, until the other end of the connection is closed.

    Args:
        connection: descriptor of its end.
        brought: descriptor of a file with player and tasks.
        memory: descriptor of the shared vectors.
        num_vectors: of these.
        size: numbers in each.
        number: of the worker, and of the vector that its gradients are written to.
    """
    with open(brought, "rb") as file:
        file.seek(0)
        player, tasks = pickle.load(file)  # noqa: S301 - of this run's own process
    weights, *gradients = SharedVectors(num_vectors, size, memory).vectors
    network, gradient = player.new_network(), gradients[number - 1]
    bind(network.parameters(), weights, gradient)
    share = WorkerShare(player, network, gradient)
    share.warm_up(tasks)
    other = Connection(connection)
    with suppress(EOFError, OSError):
        other.send(READY)
        while True:
            call, argument = other.recv()
            other.send(getattr(share, call)(argument))
