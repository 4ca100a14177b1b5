"""The time at which each message must have arrived: the start of its reader in a run without contention.

Without contention every task starts as soon as what it waits for is done; nothing is queued. The earliest start of the tasks
that wait for a message is its deadline. Messages that one task waits for have one deadline, that of the last of them: they must
end together and count as one. A message for which nothing waits has until the end of the run.

Legend: ``t`` tasks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from .execution import ExecutionGraph, TaskKind


def deadlines_s(execution: ExecutionGraph) -> NDArray[np.float64]:
    """Return the deadline of each task in seconds from the start of the run, ``(t,)``; of tasks in a cycle their durations.

    Source:
        Earliest deadline first for groups of flows: Pan et al., "Efficient flow scheduling in distributed deep learning training
        with echelon formation", 2022.
    """
    start, successors = execution.successors
    result: NDArray[np.float64] = _deadlines_s(execution.duration_s, start, successors, execution.num_predecessors.copy())
    return result


def by_deadline(execution: ExecutionGraph) -> ExecutionGraph:
    """Return the graph with the earliest deadline first among messages; computations keep their order."""
    is_message = execution.kind != TaskKind.COMPUTE
    return replace(execution, priority=np.where(is_message, deadlines_s(execution), execution.priority))


@njit(error_model="numpy")
def _deadlines_s(duration_s, start, successors, waiting_for):  # type: ignore[no-untyped-def]
    t = len(duration_s)
    begin_s, ready, num_ready = np.zeros(t), np.zeros(t, np.int64), 0
    for i in range(t):
        if waiting_for[i] == 0:
            ready[num_ready] = i
            num_ready += 1
    done, last_s = 0, 0.0
    while done < num_ready:
        i = ready[done]
        done += 1
        end_s = begin_s[i] + duration_s[i]
        last_s = max(last_s, end_s)
        for k in range(start[i], start[i + 1]):
            j = successors[k]
            begin_s[j] = max(begin_s[j], end_s)
            waiting_for[j] -= 1
            if waiting_for[j] == 0:
                ready[num_ready] = j
                num_ready += 1
    result = np.full(t, last_s)
    for i in range(t):
        for k in range(start[i], start[i + 1]):
            result[i] = min(result[i], begin_s[successors[k]])
    return result
