"""Several steps of a job one after another, as one execution graph."""

from __future__ import annotations

import numpy as np

from ...errors import GraphError
from .execution import ExecutionGraph, TaskKind


def repeated(execution: ExecutionGraph, num_steps: int) -> ExecutionGraph:
    """Repeat the tasks ``num_steps`` times; a step begins when all of the step before has ended.

    Between two steps is one task without duration and streams. Tasks of step ``k`` are numbered from ``k (t + 1)`` on.

    Raises:
        GraphError: less than one step.
    """
    if num_steps < 1:
        raise GraphError("must be at least 1", field="num_steps", value=num_steps)
    if num_steps == 1:
        return execution
    t = execution.num_tasks
    is_sink = np.ones(t, np.bool_)
    is_sink[execution.edges[:, 0]] = False
    sinks, sources = np.flatnonzero(is_sink), np.flatnonzero(execution.num_predecessors == 0)
    firsts = np.arange(num_steps) * (t + 1)
    edges = [execution.edges + first for first in firsts]
    for first in firsts[:-1]:
        barrier = first + t
        edges.append(np.stack([sinks + first, np.full(len(sinks), barrier)], axis=1))
        edges.append(np.stack([np.full(len(sources), barrier), sources + barrier + 1], axis=1))
    parts = [execution, *[_barrier(execution.num_ranks), execution] * (num_steps - 1)]
    return ExecutionGraph.joined(parts, np.concatenate(edges).astype(np.int64))


def _barrier(num_ranks: int) -> ExecutionGraph:
    """A task that takes no time and uses nothing."""
    return ExecutionGraph(
        num_ranks=num_ranks,
        kind=np.array([TaskKind.COMPUTE], np.int8),
        duration_s=np.zeros(1),
        priority=np.zeros(1),
        stream_start=np.zeros(2, np.int64),
        streams=np.zeros(0, np.int64),
        edges=np.zeros((0, 2), np.int64),
        op=np.zeros(1, np.int64),
        rank=np.zeros(1, np.int64),
        is_backward=np.zeros(1, np.bool_),
        payload_bytes=np.zeros(1),
    )
