"""Memory of each rank while a step runs: the parts of the plan's peak, moment by moment.

The counting is that of `plans.memory.op_split_memory_bytes`. A rank holds the whole model state of its ops all the time. It holds
its share of an op's activation from the start of the forward computation to the end of the backward one. It holds its share of a
workspace while the op runs. So no peak exceeds the plan's. Both are equal where the op with the largest workspace runs while all
activations are held.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...jobs.graph import JobGraph
from ...plans.memory import STATE_BYTES_PER_WEIGHT_BYTE
from ..ragged import row_starts
from .execution import ExecutionGraph, TaskKind


@dataclass(frozen=True, eq=False)
class MemoryOverTime:
    """Steps of memory in use.

    Attributes:
        start: steps of rank ``r`` are ``start[r]:start[r + 1]`` of the others, ``(n + 1,)``; each rank has at least one.
        time_s: from when on, not descending within a rank.
        memory_bytes: in use from then on. At one moment there may be several, in the order in which they came about.
    """

    start: NDArray[np.int64]
    time_s: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]

    @property
    def num_ranks(self) -> int:
        """Number of ranks, ``n``."""
        return len(self.start) - 1

    def rank(self, rank: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the times and bytes of one rank."""
        rows = slice(self.start[rank], self.start[rank + 1])
        return self.time_s[rows], self.memory_bytes[rows]

    @property
    def peak_bytes(self) -> NDArray[np.float64]:
        """Most that each rank has in use at once, ``(n,)``."""
        return np.maximum.reduceat(self.memory_bytes, self.start[:-1])


def memory_over_time(
    execution: ExecutionGraph,
    graph: JobGraph,
    start_s: NDArray[np.float64],
    finish_s: NDArray[np.float64],
    state_copies: float = STATE_BYTES_PER_WEIGHT_BYTE,
) -> MemoryOverTime:
    """Return the memory in use on each rank of a step that ran so.

    Args:
        execution: what the ranks do.
        graph: the job that was lowered to it.
        start_s: start of each task, ``(t,)``.
        finish_s: finish of each task, ``(t,)``.
        state_copies: bytes of model state for each byte of parameters.
    """
    is_compute = execution.kind == TaskKind.COMPUTE
    split = np.bincount(execution.op[is_compute & ~execution.is_backward], minlength=graph.num_ops)
    # A rank computes one op at a time, so its tasks in order of their starts are its events in order.
    tasks = np.flatnonzero(is_compute)
    tasks = tasks[np.lexsort((tasks, finish_s[tasks], start_s[tasks], execution.rank[tasks]))]
    op, backward = execution.op[tasks], execution.is_backward[tasks]
    activation, workspace = graph.activation_bytes[op] / split[op], graph.workspace_bytes[op] / split[op]
    times = np.stack([start_s[tasks], finish_s[tasks]], axis=1)
    changes = np.stack([workspace + np.where(backward, 0, activation), -workspace - np.where(backward, activation, 0)], axis=1)
    start = row_starts(1 + 2 * np.bincount(execution.rank[tasks], minlength=execution.num_ranks))
    time_s, memory_bytes = np.zeros(start[-1]), np.zeros(start[-1])
    for rank in range(execution.num_ranks):
        mine = execution.rank[tasks] == rank
        rows = slice(start[rank], start[rank + 1])
        state = state_copies * graph.parameter_bytes[np.unique(op[mine])].sum()
        time_s[rows] = np.append(0.0, times[mine])
        memory_bytes[rows] = state + np.cumsum(np.append(0.0, changes[mine]))
    return MemoryOverTime(start, time_s, memory_bytes)
