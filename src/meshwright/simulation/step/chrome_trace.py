"""A timeline in the Trace Event Format that Perfetto and chrome://tracing open; times in microseconds.

Each rank is a process. Thread 0 computes, the threads from 1 on communicate. There are as many as messages under way at once,
since events on one thread must not overlap. A transfer is on its sender, a collective on its first rank. Arrows lead from the
computation before a transfer to the transfer, and on to the computation that waits for it. A counter shows the memory of each
rank.

Source:
    Google, "Trace Event Format", section "Event descriptions" (complete ``X``, metadata ``M``, counter ``C`` and flow
    events ``s`` and ``f``).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...jobs.graph import JobGraph
from .execution import ExecutionGraph, TaskKind
from .memory_over_time import MemoryOverTime

_WORDS = {TaskKind.COMPUTE: "compute", TaskKind.TRANSFER: "transfer", TaskKind.COLLECTIVE: "all-reduce"}

Event = dict[str, Any]


def chrome_trace(
    execution: ExecutionGraph,
    graph: JobGraph,
    start_s: NDArray[np.float64],
    finish_s: NDArray[np.float64],
    memory: MemoryOverTime,
) -> dict[str, Any]:
    """Return the trace as plain data for JSON.

    Args:
        execution: the tasks, ``t``.
        graph: the job, for the names of its ops.
        start_s: start of each task, ``(t,)``.
        finish_s: finish of each task, ``(t,)``.
        memory: of each rank.
    """
    thread = _threads(execution, start_s, finish_s)
    events: list[Event] = []
    for rank in range(execution.num_ranks):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}})
        last = max(1, thread[execution.rank == rank].max(initial=0))
        for number in range(last + 1):
            name = "compute" if number == 0 else "communication" if number == 1 else f"communication {number}"
            events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": number, "args": {"name": name}})
    for i in np.lexsort((execution.rank, start_s)).tolist():
        kind = TaskKind(int(execution.kind[i]))
        direction = "backward" if execution.is_backward[i] else "forward"
        events.append(
            {
                "ph": "X",
                "name": f"{graph.op_names[int(execution.op[i])]} {direction}",
                "cat": _WORDS[kind],
                "pid": int(execution.rank[i]),
                "tid": int(thread[i]),
                "ts": float(start_s[i] * 1e6),
                "dur": float((finish_s[i] - start_s[i]) * 1e6),
                "args": {"bytes": float(execution.payload_bytes[i])},
            }
        )
    return {"traceEvents": [*events, *_arrows(execution, thread, start_s, finish_s), *_counters(memory)], "displayTimeUnit": "ms"}


def _threads(execution: ExecutionGraph, start_s: NDArray[np.float64], finish_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the thread of each task: 0, or the first one from 1 on that is free when a message starts, ``(t,)``."""
    thread = np.zeros(execution.num_tasks, np.int64)
    free_s: dict[int, list[float]] = defaultdict(list)
    for i in np.lexsort((finish_s, start_s)).tolist():
        if execution.kind[i] == TaskKind.COMPUTE:
            continue
        lanes = free_s[int(execution.rank[i])]
        lane = next((k for k, until_s in enumerate(lanes) if until_s <= start_s[i]), len(lanes))
        lanes[lane : lane + 1] = [float(finish_s[i])]
        thread[i] = lane + 1
    return thread


def _arrows(
    execution: ExecutionGraph, thread: NDArray[np.int64], start_s: NDArray[np.float64], finish_s: NDArray[np.float64]
) -> list[Event]:
    """Draw along each dependency from or to a transfer: out of the middle of one slice, into the beginning of the other."""
    is_transfer = execution.kind == TaskKind.TRANSFER
    events: list[Event] = []
    for number, (before, after) in enumerate(execution.edges.tolist()):
        if not (is_transfer[before] or is_transfer[after]):
            continue
        common = {"name": "transfer", "cat": "dependency", "id": number}
        for phase, task, at_s in (("s", before, (start_s[before] + finish_s[before]) / 2), ("f", after, start_s[after])):
            place = {"pid": int(execution.rank[task]), "tid": int(thread[task]), "ts": float(at_s * 1e6)}
            events.append({"ph": phase, **common, **place, **({"bp": "e"} if phase == "f" else {})})
    return events


def _counters(memory: MemoryOverTime) -> list[Event]:
    """Return the memory of each rank wherever it changes; of several values at one moment the last."""
    events: list[Event] = []
    for rank in range(memory.num_ranks):
        time_s, memory_bytes = memory.rank(rank)
        is_last = np.append(time_s[1:] != time_s[:-1], True)
        values = memory_bytes[is_last]
        changes = np.append(True, values[1:] != values[:-1])
        for at_s, value in zip(time_s[is_last][changes].tolist(), values[changes].tolist(), strict=True):
            events.append({"ph": "C", "name": "memory", "pid": rank, "tid": 0, "ts": at_s * 1e6, "args": {"bytes": value}})
    return events
