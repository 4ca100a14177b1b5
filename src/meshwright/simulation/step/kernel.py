"""The compiled kernel: list scheduling of an execution graph, equal to `list_scheduling.schedule` to the last bit.

A discrete-event loop over flat arrays. Running tasks are in a heap by finish time. A ready task with busy streams hangs in the
heap of the first busy one, so an event touches only tasks that it can change.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...errors import GraphError
from .execution import ExecutionGraph


def schedule(graph: ExecutionGraph) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Start and finish of every task in seconds, two arrays ``(t,)``.

    Raises:
        GraphError: the dependencies form a cycle.
    """
    start, successors = graph.successors
    start_s, finish_s, num_done = _schedule(
        graph.duration_s,
        _rank_of(graph.priority),
        graph.stream_start,
        graph.streams,
        graph.num_streams,
        start,
        successors,
        graph.num_predecessors.copy(),
    )
    if num_done < graph.num_tasks:
        raise GraphError("the tasks form a cycle", field="edges", value=f"{graph.num_tasks - num_done} tasks never start")
    return start_s, finish_s


def _rank_of(priority: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the position of each task in the order by (priority, number)."""
    rank = np.empty(len(priority), np.int64)
    rank[np.argsort(priority, kind="stable")] = np.arange(len(priority))
    return rank


@njit
def _schedule(duration_s, rank, stream_start, streams, num_streams, successor_start, successors, waiting_for):  # type: ignore[no-untyped-def]
    t = len(duration_s)
    task_of = np.empty(t, np.int64)
    for i in range(t):
        task_of[rank[i]] = i
    start_s = np.full(t, np.nan)
    finish_s = np.full(t, np.nan)
    running = np.empty(t, np.int64)  # heap of tasks by finish; what finishes together is taken out together
    num_running = 0
    candidates = np.empty(t, np.int64)  # heap of tasks to be tried now, by rank
    num_candidates = 0
    # Per stream one leftist heap of the ranks that hang on it; a rank hangs in at most one, so they share nodes.
    hanging_head = np.full(num_streams, -1, np.int64)
    left = np.full(t, -1, np.int64)
    right = np.full(t, -1, np.int64)
    depth = np.ones(t, np.int64)
    is_busy = np.zeros(num_streams, np.bool_)
    for i in range(t):
        if waiting_for[i] == 0:
            num_candidates = _push(candidates, num_candidates, i, rank)
    now_s = 0.0
    num_done = 0
    while True:
        while num_candidates > 0:
            i = candidates[0]
            num_candidates = _pop(candidates, num_candidates, rank)
            r = rank[i]
            blocked_by = -1
            for k in range(stream_start[i], stream_start[i + 1]):
                if is_busy[streams[k]]:
                    blocked_by = streams[k]
                    break
            if blocked_by >= 0:
                left[r] = -1
                right[r] = -1
                depth[r] = 1
                hanging_head[blocked_by] = _merge(hanging_head[blocked_by], r, left, right, depth)
                # The free streams that this task wanted may serve the next one that hangs on them.
                for k in range(stream_start[i], stream_start[i + 1]):
                    s = streams[k]
                    if not is_busy[s] and hanging_head[s] >= 0 and s != blocked_by:
                        top = hanging_head[s]
                        hanging_head[s] = _merge(left[top], right[top], left, right, depth)
                        num_candidates = _push(candidates, num_candidates, task_of[top], rank)
                continue
            for k in range(stream_start[i], stream_start[i + 1]):
                is_busy[streams[k]] = True
            start_s[i] = now_s
            finish_s[i] = now_s + duration_s[i]
            num_running = _push(running, num_running, i, finish_s)
        if num_running == 0:
            break
        now_s = finish_s[running[0]]
        while num_running > 0 and finish_s[running[0]] == now_s:
            i = running[0]
            num_running = _pop(running, num_running, finish_s)
            num_done += 1
            for k in range(stream_start[i], stream_start[i + 1]):
                is_busy[streams[k]] = False
            for k in range(successor_start[i], successor_start[i + 1]):
                j = successors[k]
                waiting_for[j] -= 1
                if waiting_for[j] == 0:
                    num_candidates = _push(candidates, num_candidates, j, rank)
            for k in range(stream_start[i], stream_start[i + 1]):
                s = streams[k]
                if hanging_head[s] >= 0:
                    top = hanging_head[s]
                    hanging_head[s] = _merge(left[top], right[top], left, right, depth)
                    num_candidates = _push(candidates, num_candidates, task_of[top], rank)
    return start_s, finish_s, num_done


@njit
def _merge(a, b, left, right, depth):  # type: ignore[no-untyped-def]
    """Merge two leftist heaps of ranks, smallest on top; -1 is the empty heap."""
    if a < 0:
        return b
    if b < 0:
        return a
    if b < a:
        a, b = b, a
    right[a] = _merge(right[a], b, left, right, depth)
    left_depth = depth[left[a]] if left[a] >= 0 else 0
    right_depth = depth[right[a]] if right[a] >= 0 else 0
    if left_depth < right_depth:
        left[a], right[a] = right[a], left[a]
        left_depth, right_depth = right_depth, left_depth
    depth[a] = right_depth + 1
    return a


@njit
def _push(heap, size, task, key):  # type: ignore[no-untyped-def]
    """Add a task to a heap with the smallest key on top; return the new size."""
    k = size
    while k > 0:
        parent = (k - 1) >> 1
        if key[heap[parent]] <= key[task]:
            break
        heap[k] = heap[parent]
        k = parent
    heap[k] = task
    return size + 1


@njit
def _pop(heap, size, key):  # type: ignore[no-untyped-def]
    """Remove the top of a heap; return the new size."""
    size -= 1
    task = heap[size]
    k = 0
    while True:
        child = 2 * k + 1
        if child >= size:
            break
        if child + 1 < size and key[heap[child + 1]] < key[heap[child]]:
            child += 1
        if key[task] <= key[heap[child]]:
            break
        heap[k] = heap[child]
        k = child
    heap[k] = task
    return size
