"""In which order devices run the ops that they were given.

Finding the best order of placed ops is as hard as job-shop scheduling, so several quick orders are made and the best is kept.
Two go by HEFT's upward rank, with mean times, as if nothing were placed. The others know the devices: they go by each op's
*tail*, the longest way from its start to the end with the times and transfers of the devices that the ops have, and are the
inserted, the non-delay and the active schedule (Giffler and Thompson 1960, "Algorithms for solving production-scheduling
problems").

Legend of shapes: ``n`` ops, ``m`` devices, ``e`` edges.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from .instance import OperatorInstance
from .schedules import append_in_order, arrays, insert_in_order, upward_order


def best_order(instance: OperatorInstance, device_of: NDArray[np.int64]) -> NDArray[np.int64]:
    """The best of five topological orders in which devices run their ops, ``(n,)``; `append_in_order` says when they run.

    Args:
        instance: whose ops are ordered.
        device_of: device of each op, ``(n,)``.
    """
    return _best_of(*_given(instance), np.asarray(device_of, np.int64))[0]


def best_order_end_s(instance: OperatorInstance, device_of: NDArray[np.int64]) -> float:
    """When the last op ends in the order of `best_order`, in seconds."""
    return float(_best_of(*_given(instance), np.asarray(device_of, np.int64))[1])


def _given(instance: OperatorInstance):  # type: ignore[no-untyped-def]
    first, edge = instance.outgoing
    readers = first, instance.edges[edge, 1], instance.edge_bytes[edge]
    return arrays(instance), readers, instance.topological, upward_order(instance)


@njit
def _best_of(given, readers, topological, by_rank, device_of):  # type: ignore[no-untyped-def]
    tail = _tails_s(given, readers, topological, device_of)
    start_s, end_s = insert_in_order(given, device_of, by_rank)
    best, best_s = by_rank, append_in_order(given, device_of, by_rank)[1].max()
    by_tail = topological[np.argsort(-tail[topological], kind="mergesort")]
    for which in range(4):
        if which == 0:
            order = _by_starts(topological, start_s, end_s)
        elif which == 1:
            start_s, end_s = insert_in_order(given, device_of, by_tail)
            order = _by_starts(topological, start_s, end_s)
        else:
            order = _list_order(given, readers, topological, device_of, tail, which == 3)
        now_s = append_in_order(given, device_of, order)[1].max()
        if now_s < best_s:
            best, best_s = order, now_s
    return best, best_s


@njit
def _by_starts(topological, start_s, end_s):  # type: ignore[no-untyped-def]
    """Ops as a schedule starts them, equal starts by ends and then topologically."""
    order = topological[np.argsort(end_s[topological], kind="mergesort")]
    return order[np.argsort(start_s[order], kind="mergesort")]


@njit
def _transfer_s(given, source, target, tensor_bytes):  # type: ignore[no-untyped-def]
    if source == target:
        return 0.0
    return given[4][source, target] + tensor_bytes * given[5][source, target]


@njit
def _tails_s(given, readers, topological, device_of):  # type: ignore[no-untyped-def]
    first, reader, tensor_bytes = readers
    tail = np.zeros(len(topological))
    for op in topological[::-1]:
        after = 0.0
        for place in range(first[op], first[op + 1]):
            there = _transfer_s(given, device_of[op], device_of[reader[place]], tensor_bytes[place])
            after = max(after, there + tail[reader[place]])
        tail[op] = given[0][op, device_of[op]] + after
    return tail


@njit
def _list_order(given, readers, topological, device_of, tail, is_active):  # type: ignore[no-untyped-def]
    """Ops one after another, each the most urgent (of the longest tail) of those in question.

    Of a non-delay schedule those are the ready ops that can start first. Of an active one they are those that could start on a
    device before the first op to end there would end, so that a device may wait for an urgent op.
    """
    times_s, first_input = given[0], given[1]
    first, reader, tensor_bytes = readers
    n, m = times_s.shape
    position = np.empty(n, np.int64)
    position[topological] = np.arange(n)
    waits_for = first_input[1:] - first_input[:-1]
    ready_s, free_s = np.zeros(n), np.zeros(m)
    ready, order, num_ready = np.empty(n, np.int64), np.empty(n, np.int64), 0
    for op in topological:
        if waits_for[op] == 0:
            ready[num_ready] = op
            num_ready += 1
    for step in range(n):
        first_end, leads = np.inf, 0
        for place in range(num_ready):
            op = ready[place]
            start = max(free_s[device_of[op]], ready_s[op])
            end = start + times_s[op, device_of[op]] if is_active else start
            if place == 0 or end < first_end or (end == first_end and position[op] < position[ready[leads]]):
                first_end, leads = end, place
        at = leads
        for place in range(num_ready):
            op = ready[place]
            start = max(free_s[device_of[op]], ready_s[op])
            is_here = device_of[op] == device_of[ready[leads]]
            in_question = is_here and start < first_end if is_active else start <= first_end
            if in_question and (tail[op], -position[op]) > (tail[ready[at]], -position[ready[at]]):
                at = place
        op = ready[at]
        num_ready -= 1
        ready[at] = ready[num_ready]
        device, order[step] = device_of[op], op
        end = max(free_s[device], ready_s[op]) + times_s[op, device]
        free_s[device] = end
        for place in range(first[op], first[op + 1]):
            later = reader[place]
            ready_s[later] = max(ready_s[later], end + _transfer_s(given, device, device_of[later], tensor_bytes[place]))
            waits_for[later] -= 1
            if waits_for[later] == 0:
                ready[num_ready] = later
                num_ready += 1
    return order
