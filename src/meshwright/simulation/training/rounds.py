"""Rounds of workers as an execution graph: a step of a worker is one task, and so is a message of a group.

Steps of a worker follow each other; a message begins when all of its members are there, and what waits for it says so. This is
how gossip is lowered, whose steps go on while others' are not done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ...costs.training.gossip import Round
from ..ragged import row_starts
from ..step.execution import ExecutionGraph, TaskKind
from ..step.messages import Messages


class Task(NamedTuple):
    """A step of a worker, or a message.

    Attributes:
        kind: which.
        seconds: it takes.
        members: workers that take part.
        stream_numbers: that it holds: a worker's own for its steps, another one for its messages.
        payload_bytes: of a message.
        op: number of its op.
    """

    kind: TaskKind
    seconds: float
    members: Sequence[int]
    stream_numbers: Sequence[int]
    payload_bytes: float = 0.0
    op: int = 0


class WorkerRounds:
    """The tasks so far, of ``n`` workers.

    Attributes:
        num_workers: ``n``.
    """

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self._tasks: list[Task] = []
        self._edges: list[tuple[int, int]] = []

    def put(self, task: Task, after: Iterable[int]) -> int:
        """Add a task behind others; returns its number."""
        self._edges += [(before, len(self._tasks)) for before in set(after)]
        self._tasks.append(task)
        return len(self._tasks) - 1

    def execution(self) -> ExecutionGraph:
        """The execution graph of everything that was added."""
        kind, seconds, members, streams, payload, op = zip(*self._tasks, strict=True)
        return ExecutionGraph(
            num_ranks=self.num_workers,
            kind=np.array(kind, np.int8),
            duration_s=np.array(seconds, np.float64),
            priority=np.arange(len(kind), dtype=np.float64),
            stream_start=row_starts([len(one) for one in streams]),
            streams=np.concatenate(streams).astype(np.int64),
            edges=np.array(self._edges, np.int64).reshape(-1, 2),
            op=np.array(op, np.int64),
            rank=np.array([one[0] for one in members], np.int64),
            is_backward=np.zeros(len(kind), np.bool_),
            payload_bytes=np.array(payload, np.float64),
            describe_messages=self._messages,
        )

    def _messages(self) -> Messages:
        """Who takes part in each message; it takes its duration."""
        members = [list(one.members) if one.kind != TaskKind.COMPUTE else [] for one in self._tasks]
        return Messages.of(members, [()] * len(members))


def gossip_rounds(
    times_s: ArrayLike, found: Sequence[Round], rounds_s: Sequence[float], payload_bytes: float = 0.0
) -> tuple[WorkerRounds, list[list[int]]]:
    """Steps of gossip, whose averaging of one step is hidden behind the next, and the last tasks of each step.

    A group begins to average when all of its members begin a step, and a member begins its next one when its step and the
    averaging are done. A message of a round has the round's number as its op, counted from 1.

    Args:
        times_s: seconds of each step of each worker, ``(steps, n)``.
        found: the rounds, which repeat.
        rounds_s: seconds of each.
        payload_bytes: of a message.
    """
    times = np.asarray(times_s, np.float64)
    num_steps, n = times.shape
    put = WorkerRounds(n)
    waits: list[list[int]] = [[] for _ in range(n)]
    lasts = []
    for step in range(num_steps):
        place = step % len(found)
        later: list[list[int]] = [[] for _ in range(n)]
        one = found[place]
        is_directed = one.is_exchange and len(one.groups) == n
        for members in one.groups.tolist():
            ready = [task for member in members for task in waits[member]]
            kind, senders = (TaskKind.TRANSFER, members[:1]) if is_directed else (TaskKind.COLLECTIVE, members)
            streams = [n + sender for sender in senders]
            task = put.put(Task(kind, rounds_s[place], members, streams, payload_bytes, place + 1), ready)
            for member in members:
                later[member].append(task)
        ends = [
            put.put(Task(TaskKind.COMPUTE, float(times[step, worker]), [worker], [worker]), waits[worker]) for worker in range(n)
        ]
        waits = [[*later[worker], ends[worker]] for worker in range(n)]
        lasts.append([task for tasks in waits for task in tasks])
    return put, lasts
