"""The plain reference of the kernel: the rule of list scheduling, spelled out without an eye on speed.

At zero and whenever a task finishes, it scans all ready tasks in order of priority, ties by number. Each one starts if
every stream that it occupies is free. A task is ready once all its predecessors have finished. Nothing is pre-empted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import GraphError
from meshwright.simulation.step.execution import ExecutionGraph


def schedule(graph: ExecutionGraph) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Start and finish of every task in seconds, two arrays ``(t,)``.

    Raises:
        GraphError: the dependencies form a cycle.
    """
    t = graph.num_tasks
    streams = [graph.streams[graph.stream_start[i] : graph.stream_start[i + 1]].tolist() for i in range(t)]
    start_s, finish_s = np.full(t, np.nan), np.full(t, np.nan)
    waiting_for = graph.num_predecessors.copy()
    ready = {i for i in range(t) if waiting_for[i] == 0}
    running: set[int] = set()
    busy: set[int] = set()
    now_s = 0.0
    while ready or running:
        for i in sorted(ready, key=lambda i: (graph.priority[i], i)):
            if busy.isdisjoint(streams[i]):
                busy.update(streams[i])
                start_s[i], finish_s[i] = now_s, now_s + graph.duration_s[i]
                running.add(i)
                ready.remove(i)
        now_s = min(finish_s[i] for i in running)
        for i in [i for i in running if finish_s[i] == now_s]:
            running.remove(i)
            busy.difference_update(streams[i])
            for j in graph.edges[graph.edges[:, 0] == i, 1].tolist():
                waiting_for[j] -= 1
                if waiting_for[j] == 0:
                    ready.add(j)
    if np.isnan(finish_s).any():
        raise GraphError("the tasks form a cycle", field="edges", value=f"{int(np.isnan(finish_s).sum())} tasks never start")
    return start_s, finish_s
