"""The chain of tasks that decides how long a step takes."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from ...errors import GraphError
from .execution import ExecutionGraph


def critical_path(execution: ExecutionGraph, start_s: NDArray[np.float64], finish_s: NDArray[np.float64]) -> list[int]:
    """Tasks that follow each other without a gap from the beginning of the step to its end, in order.

    Each one starts at the very moment at which the one before it ends: because it depends on it, or because it waits
    for a stream that the other held. Of several such chains it is one of those with the fewest tasks, dependencies
    before streams. Shortening any other task alone leaves this chain as long as it is.

    Args:
        execution: the tasks, ``t``.
        start_s: start of each, ``(t,)``.
        finish_s: finish of each, ``(t,)``.

    Raises:
        GraphError: the times are of no schedule: no such chain reaches back to zero.
    """
    if execution.num_tasks == 0:
        return []
    predecessors: dict[int, list[int]] = defaultdict(list)
    for before, after in execution.edges.tolist():
        predecessors[after].append(before)
    held: dict[tuple[int, float], list[int]] = defaultdict(list)  # who lets go of a stream at a moment
    for task in range(execution.num_tasks):
        for stream in _streams(execution, task):
            held[stream, float(finish_s[task])].append(task)
    first: list[int] = np.flatnonzero(finish_s == finish_s.max()).tolist()
    later: dict[int, int | None] = dict.fromkeys(first)
    queue = first
    for task in queue:  # grows while it is read: breadth first
        now_s = float(start_s[task])
        if now_s == 0.0:
            return _chain(task, later)
        reasons = [before for before in predecessors[task] if finish_s[before] == now_s]
        for stream in _streams(execution, task):
            reasons += held[stream, now_s]
        for before in reasons:
            if before not in later:
                later[before] = task
                queue.append(before)
    raise GraphError("no chain of tasks without a gap leads from zero to the end", field="start_s")


def _streams(execution: ExecutionGraph, task: int) -> list[int]:
    found: list[int] = execution.streams[execution.stream_start[task] : execution.stream_start[task + 1]].tolist()
    return found


def _chain(task: int, later: dict[int, int | None]) -> list[int]:
    chain = [task]
    while (following := later[chain[-1]]) is not None:
        chain.append(following)
    return chain
