"""Several steps of a job one after another, as one execution graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...errors import GraphError
from .execution import ExecutionGraph, TaskKind
from .messages import Messages


def repeated(execution: ExecutionGraph, num_steps: int) -> ExecutionGraph:
    """The tasks ``num_steps`` times; a step begins when all of the step before has ended.

    Between two steps stands one task without duration and streams. Tasks of step ``k`` are numbered from
    ``k (t + 1)`` on.

    Raises:
        GraphError: less than one step.
    """
    if num_steps < 1:
        raise GraphError("must be at least 1", field="num_steps", value=num_steps)
    if num_steps == 1:
        return execution
    t = execution.num_tasks
    step = [_with_barrier(execution)] * (num_steps - 1) + [execution]
    firsts = np.arange(num_steps) * (t + 1)
    edges = [execution.edges + first for first in firsts]
    sources = np.flatnonzero(execution.num_predecessors == 0)
    is_sink = np.ones(t, np.bool_)
    is_sink[execution.edges[:, 0]] = False
    sinks = np.flatnonzero(is_sink)
    for first in firsts[:-1]:
        barrier = first + t
        edges.append(np.stack([sinks + first, np.full(len(sinks), barrier)], axis=1))
        edges.append(np.stack([np.full(len(sources), barrier), sources + barrier + 1], axis=1))
    return ExecutionGraph(
        num_ranks=execution.num_ranks,
        kind=np.concatenate([one.kind for one in step]),
        duration_s=np.concatenate([one.duration_s for one in step]),
        priority=np.concatenate([one.priority for one in step]),
        stream_start=_joined([one.stream_start for one in step]),
        streams=np.concatenate([one.streams for one in step]),
        edges=np.concatenate(edges).astype(np.int64),
        op=np.concatenate([one.op for one in step]),
        rank=np.concatenate([one.rank for one in step]),
        is_backward=np.concatenate([one.is_backward for one in step]),
        payload_bytes=np.concatenate([one.payload_bytes for one in step]),
        describe_messages=lambda: _messages(execution.messages, num_steps),
    )


def _with_barrier(execution: ExecutionGraph) -> ExecutionGraph:
    """The step and a task that takes no time, uses nothing and has no dependencies yet."""
    return ExecutionGraph(
        num_ranks=execution.num_ranks,
        kind=np.append(execution.kind, np.int8(TaskKind.COMPUTE)),
        duration_s=np.append(execution.duration_s, 0.0),
        priority=np.append(execution.priority, 0.0),
        stream_start=np.append(execution.stream_start, execution.stream_start[-1]),
        streams=execution.streams,
        edges=execution.edges,
        op=np.append(execution.op, 0),
        rank=np.append(execution.rank, 0),
        is_backward=np.append(execution.is_backward, False),
        payload_bytes=np.append(execution.payload_bytes, 0.0),
    )


def _messages(once: Messages, num_steps: int) -> Messages:
    """The messages of all steps; the tasks between steps have none."""
    gaps = [1] * (num_steps - 1) + [0]
    return Messages(
        member_start=_joined([np.append(once.member_start, [once.member_start[-1]] * gap) for gap in gaps]),
        members=np.tile(once.members, num_steps),
        phase_start=_joined([np.append(once.phase_start, [once.phase_start[-1]] * gap) for gap in gaps]),
        phase_latency_s=np.tile(once.phase_latency_s, num_steps),
        flow_start=_joined([once.flow_start] * num_steps),
        sender=np.tile(once.sender, num_steps),
        receiver=np.tile(once.receiver, num_steps),
        flow_bytes=np.tile(once.flow_bytes, num_steps),
    )


def _joined(starts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Offsets of lists that are put one behind the other."""
    found, end = [np.zeros(1, np.int64)], 0
    for start in starts:
        found.append(start[1:] + end)
        end += int(start[-1])
    return np.concatenate(found).astype(np.int64)
