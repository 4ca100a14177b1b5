"""The execution graph: the tasks of all ranks in one step, as flat arrays that the kernel reads.

Legend: ``t`` tasks, ``d`` dependencies, ``u`` uses of streams, ``s`` streams. A *stream* does one task at a time.
Rank ``r`` of ``n`` has the compute stream ``r`` and the communication stream ``n + r``. A task *holds* its streams. A message
also keeps the communication streams of all its ranks busy. Several messages may do so at once if none of them holds one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...errors import GraphError
from ..ragged import rows_by_owner, starts_behind
from .messages import Messages


class TaskKind(IntEnum):
    """The kind of a task."""

    COMPUTE = 0
    TRANSFER = 1
    COLLECTIVE = 2


_OF_TASKS = ("kind", "duration_s", "priority", "op", "rank", "is_backward", "payload_bytes")
"""Arrays with an entry for each task."""


@dataclass(frozen=True, eq=False)
class ExecutionGraph:
    """Tasks with durations, the streams that they occupy, and dependencies.

    Attributes:
        num_ranks: ranks of the job.
        kind: `TaskKind` of each task, ``(t,)``.
        duration_s: seconds, ``(t,)``.
        priority: among ready tasks that want the same stream the smallest goes first, ties by task number, ``(t,)``.
        stream_start: uses of task ``i`` are ``stream_start[i]:stream_start[i + 1]`` of ``streams``, ``(t + 1,)``.
        streams: stream numbers, ``(u,)``; a task without streams waits for nothing but its dependencies.
        edges: pairs ``(before, after)`` of tasks, ``(d, 2)``.
        op: op of the job graph that the task belongs to, ``(t,)``.
        rank: rank of a compute task, sender of a transfer, first rank of a collective, ``(t,)``.
        is_backward: whether it belongs to the backward pass, ``(t,)``.
        payload_bytes: bytes moved, zero for compute, ``(t,)``.
        describe_messages: makes `messages` when they are read; None: there are none.

    Raises:
        GraphError: a negative or non-finite duration, a priority that is no number, an absent task, stream or rank. A
            cycle is found by whoever schedules the tasks.
    """

    num_ranks: int
    kind: NDArray[np.int8]
    duration_s: NDArray[np.float64]
    priority: NDArray[np.float64]
    stream_start: NDArray[np.int64]
    streams: NDArray[np.int64]
    edges: NDArray[np.int64]
    op: NDArray[np.int64]
    rank: NDArray[np.int64]
    is_backward: NDArray[np.bool_]
    payload_bytes: NDArray[np.float64]
    describe_messages: Callable[[], Messages] | None = None

    def __post_init__(self) -> None:
        bad = np.flatnonzero(~(np.isfinite(self.duration_s) & (self.duration_s >= 0)))
        if len(bad):
            raise GraphError(
                "must be finite and not negative", field=f"task {bad[0]} duration_s", value=float(self.duration_s[bad[0]])
            )
        unordered = np.flatnonzero(np.isnan(self.priority))
        if len(unordered):
            raise GraphError("must be a number", field=f"task {unordered[0]} priority", value="nan")
        if len(self.edges) and not (self.edges.min() >= 0 and self.edges.max() < self.num_tasks):
            raise GraphError(f"a dependency names a task outside 0..{self.num_tasks - 1}", field="edges")
        if len(self.streams) and not (self.streams.min() >= 0 and self.streams.max() < self.num_streams):
            raise GraphError(f"a task uses a stream outside 0..{self.num_streams - 1}", field="streams")
        absent = np.flatnonzero((self.rank < 0) | (self.rank >= self.num_ranks))
        if len(absent):
            problem = f"is on a rank outside 0..{self.num_ranks - 1}"
            raise GraphError(problem, field=f"task {absent[0]}", value=int(self.rank[absent[0]]))

    @classmethod
    def joined(cls, parts: Sequence[ExecutionGraph], edges: NDArray[np.int64]) -> ExecutionGraph:
        """Return the tasks of several graphs of the same ranks, one behind the other, with their own dependencies, ``(d, 2)``."""
        return cls(
            num_ranks=parts[0].num_ranks,
            edges=edges,
            stream_start=starts_behind([part.stream_start for part in parts]),
            describe_messages=lambda: Messages.joined([part.messages for part in parts]),
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in ("streams", *_OF_TASKS)},
        )

    def part(self, first: int, end: int) -> ExecutionGraph:
        """Return the tasks from one up to another, without their dependencies."""
        uses = self.stream_start[first : end + 1]
        return ExecutionGraph(
            num_ranks=self.num_ranks,
            edges=np.zeros((0, 2), np.int64),
            stream_start=uses - uses[0],
            streams=self.streams[uses[0] : uses[-1]],
            describe_messages=lambda: self.messages.part(first, end),
            **{name: getattr(self, name)[first:end] for name in _OF_TASKS},
        )

    @property
    def num_tasks(self) -> int:
        """Number of tasks, ``t``."""
        return len(self.duration_s)

    @property
    def num_streams(self) -> int:
        """Number of streams: one for compute and one for communication per rank."""
        return 2 * self.num_ranks

    @cached_property
    def messages(self) -> Messages:
        """The members of each task's message, and its flows.

        Raises:
            GraphError: the description is of another number of tasks, or names an absent rank.
        """
        messages = Messages.none(self.num_tasks) if self.describe_messages is None else self.describe_messages()
        messages.check(self.num_tasks, self.num_ranks)
        return messages

    @cached_property
    def successors(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Start offsets ``(t + 1,)`` and successor tasks ``(d,)``, by task."""
        return rows_by_owner(self.edges[:, 0], self.edges[:, 1], self.num_tasks)

    @cached_property
    def num_predecessors(self) -> NDArray[np.int64]:
        """Dependencies that each task waits for, ``(t,)``."""
        return np.bincount(self.edges[:, 1], minlength=self.num_tasks).astype(np.int64)
