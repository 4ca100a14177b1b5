"""Schedules of placed ops, compiled: one op at a time on a device, each as soon as its inputs arrive.

Finding the best order of placed ops is as hard as job-shop scheduling, so `best_order` makes several quick ones and keeps the
best. Two follow HEFT's upward rank, with mean times, as if nothing were placed. The others use the devices. They follow each op's
*tail*: the longest path from its start to the end, with the times and transfers of the actual devices. They are the inserted, the
non-delay and the active schedule (Giffler and Thompson, "Algorithms for solving production-scheduling problems", 1960).

Legend of shapes: ``n`` ops, ``m`` devices, ``e`` edges. A tensor needs the link's latency and its bytes at the link's bandwidth.
As in the literature on list scheduling, transfers do not slow each other. Kernels take the `arrays` of an instance.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from .instance import OperatorInstance

Arrays = tuple[NDArray[Any], ...]

_known: WeakKeyDictionary[OperatorInstance, tuple[Arrays, Arrays, NDArray[np.int64], NDArray[np.int64]]] = WeakKeyDictionary()


def arrays(instance: OperatorInstance) -> Arrays:
    """Return the input of the kernels: times, producers of each op's inputs and their bytes, latencies, seconds a byte.

    Returns:
        times_s ``(n, m)``, first input of each op ``(n + 1,)``, producer ``(e,)`` and bytes ``(e,)`` of each input,
        latency_s ``(m, m)``, s_per_byte ``(m, m)``.
    """
    first, edge = instance.incoming
    return (
        instance.times_s,
        first,
        instance.edges[edge, 0],
        instance.edge_bytes[edge],
        instance.latency_s,
        1.0 / instance.bandwidth_bytes_per_s,
    )


@njit
def inputs_ready_s(inputs, op, device, device_of, end_s):  # type: ignore[no-untyped-def]
    """Return the time at which all inputs of an op are on a device; those on it are there when their producers end."""
    _, first, producer, input_bytes, latency_s, s_per_byte = inputs
    ready = 0.0
    for place in range(first[op], first[op + 1]):
        source = producer[place]
        arrival_s = end_s[source]
        if device_of[source] != device:
            arrival_s += latency_s[device_of[source], device] + input_bytes[place] * s_per_byte[device_of[source], device]
        ready = max(ready, arrival_s)
    return ready


@njit
def append_in_order(inputs, device_of, order):  # type: ignore[no-untyped-def]
    """Start and end of each op where every device runs its ops in this order, which must be topological; ``(n,)`` each."""
    times_s = inputs[0]
    n, m = times_s.shape
    start_s, end_s, free_s = np.zeros(n), np.zeros(n), np.zeros(m)
    for op in order:
        device = device_of[op]
        start_s[op] = max(free_s[device], inputs_ready_s(inputs, op, device, device_of, end_s))
        end_s[op] = start_s[op] + times_s[op, device]
        free_s[device] = end_s[op]
    return start_s, end_s


@njit
def earliest_gap(starts, ends, count, ready_s, length_s):  # type: ignore[no-untyped-def]
    """Start in the first gap between the busy times of a device that is long enough, and its place among them.

    ``starts`` and ``ends`` hold ``count`` busy times in order. The rule is the insertion of HEFT (Topcuoglu, Hariri, Wu 2002).
    """
    # Busy times that end before the op is ready cannot come after it.
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if ends[middle] <= ready_s:
            low = middle + 1
        else:
            high = middle
    free = ready_s if low == 0 else max(ready_s, ends[low - 1])
    for place in range(low, count):
        if free + length_s <= starts[place]:
            return free, place
        free = max(free, ends[place])
    return free, count


@njit
def insert_busy(starts, ends, count, place, start_s, end_s):  # type: ignore[no-untyped-def]
    """Insert a busy time at its place; the caller counts."""
    for later in range(count, place, -1):
        starts[later] = starts[later - 1]
        ends[later] = ends[later - 1]
    starts[place] = start_s
    ends[place] = end_s


@njit
def insert_in_order(inputs, device_of, order):  # type: ignore[no-untyped-def]
    """Start and end of each op where ops are taken in this order, each into the earliest gap of its device; ``(n,)`` each."""
    times_s = inputs[0]
    n, m = times_s.shape
    start_s, end_s = np.zeros(n), np.zeros(n)
    starts, ends, count = np.empty((m, n)), np.empty((m, n)), np.zeros(m, np.int64)
    for op in order:
        device = device_of[op]
        ready = inputs_ready_s(inputs, op, device, device_of, end_s)
        start, place = earliest_gap(starts[device], ends[device], count[device], ready, times_s[op, device])
        start_s[op], end_s[op] = start, start + times_s[op, device]
        insert_busy(starts[device], ends[device], count[device], place, start, end_s[op])
        count[device] += 1
    return start_s, end_s


@njit
def _upward(times, first, reader, transfer_s, topological):  # type: ignore[no-untyped-def]
    rank = np.zeros(len(times))
    for op in topological[::-1]:
        after = 0.0
        for place in range(first[op], first[op + 1]):
            after = max(after, transfer_s[place] + rank[reader[place]])
        rank[op] = times[op] + after
    return rank


def mean_transfer_s(instance: OperatorInstance) -> NDArray[np.float64]:
    """Return seconds that each edge's tensor needs between different devices, in the mean over all ordered pairs, ``(e,)``."""
    m = instance.num_devices
    if m < 2:
        return np.zeros(len(instance.edges))
    apart = ~np.eye(m, dtype=np.bool_)
    mean_latency = instance.latency_s[apart].mean()
    mean_s_per_byte = (1.0 / instance.bandwidth_bytes_per_s[apart]).mean()
    return np.asarray(mean_latency + instance.edge_bytes * mean_s_per_byte)


def mean_times_s(instance: OperatorInstance) -> NDArray[np.float64]:
    """Return the seconds of each op in the mean over the devices that run it, ``(n,)``."""
    runs = np.isfinite(instance.times_s)
    return np.asarray(np.where(runs, instance.times_s, 0.0).sum(axis=1) / runs.sum(axis=1))


def upward_rank_s(instance: OperatorInstance) -> NDArray[np.float64]:
    """Return the longest way from an op's start to the end, with mean times and mean transfers, ``(n,)`` (HEFT's upward rank)."""
    first, edge = instance.outgoing
    ranks = _upward(mean_times_s(instance), first, instance.edges[edge, 1], mean_transfer_s(instance)[edge], instance.topological)
    return np.asarray(ranks)


def upward_order(instance: OperatorInstance) -> NDArray[np.int64]:
    """Return the ops by falling upward rank, equal ones in topological order: a topological order, ``(n,)``."""
    position = np.empty(instance.num_ops, np.int64)
    position[instance.topological] = np.arange(instance.num_ops)
    rank = upward_rank_s(instance)
    return np.lexsort((position, -rank)).astype(np.int64)


def critical_path_s(instance: OperatorInstance) -> float:
    """Return the longest chain of ops, each on its fastest device and without transfers."""
    first, edge = instance.outgoing
    best = instance.times_s.min(axis=1)
    return float(_upward(best, first, instance.edges[edge, 1], np.zeros(len(edge)), instance.topological).max())


def best_order(instance: OperatorInstance, device_of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the best of five topological orders in which devices run their ops, ``(n,)``; `append_in_order` says when they run.

    Args:
        instance: whose ops are ordered.
        device_of: device of each op, ``(n,)``.
    """
    order: NDArray[np.int64] = _best_of(*_instance_arrays(instance), np.asarray(device_of, np.int64))[0]
    return order


def best_order_end_s(instance: OperatorInstance, device_of: NDArray[np.int64]) -> float:
    """Return the time at which the last op ends in the order of `best_order`, in seconds."""
    return float(_best_of(*_instance_arrays(instance), np.asarray(device_of, np.int64))[1])


def _instance_arrays(instance: OperatorInstance) -> tuple[Arrays, Arrays, NDArray[np.int64], NDArray[np.int64]]:
    """Return the data of an instance that no placement changes, computed once: arrays, readers of each op, two orders."""
    if instance not in _known:
        first, edge = instance.outgoing
        readers = first, instance.edges[edge, 1], instance.edge_bytes[edge]
        _known[instance] = arrays(instance), readers, instance.topological, upward_order(instance)
    return _known[instance]


@njit
def _best_of(inputs, readers, topological, by_rank, device_of):  # type: ignore[no-untyped-def]
    tail = _tails_s(inputs, readers, topological, device_of)
    start_s, end_s = insert_in_order(inputs, device_of, by_rank)
    best, best_s = by_rank, append_in_order(inputs, device_of, by_rank)[1].max()
    by_tail = topological[np.argsort(-tail[topological], kind="mergesort")]
    for which in range(4):
        if which == 0:
            order = by_starts(topological, start_s, end_s)
        elif which == 1:
            start_s, end_s = insert_in_order(inputs, device_of, by_tail)
            order = by_starts(topological, start_s, end_s)
        else:
            order = _list_order(inputs, readers, topological, device_of, tail, which == 3)
        now_s = append_in_order(inputs, device_of, order)[1].max()
        if now_s < best_s:
            best, best_s = order, now_s
    return best, best_s


@njit
def by_starts(topological, start_s, end_s):  # type: ignore[no-untyped-def]
    """Return the ops as a schedule starts them, equal starts by ends and then topologically."""
    order = topological[np.argsort(end_s[topological], kind="mergesort")]
    return order[np.argsort(start_s[order], kind="mergesort")]


@njit
def _transfer_s(inputs, source, target, tensor_bytes):  # type: ignore[no-untyped-def]
    if source == target:
        return 0.0
    return inputs[4][source, target] + tensor_bytes * inputs[5][source, target]


@njit
def _tails_s(inputs, readers, topological, device_of):  # type: ignore[no-untyped-def]
    first, reader, tensor_bytes = readers
    tail = np.zeros(len(topological))
    for op in topological[::-1]:
        after = 0.0
        for place in range(first[op], first[op + 1]):
            path_s = _transfer_s(inputs, device_of[op], device_of[reader[place]], tensor_bytes[place])
            after = max(after, path_s + tail[reader[place]])
        tail[op] = inputs[0][op, device_of[op]] + after
    return tail


@njit
def _list_order(inputs, readers, topological, device_of, tail, is_active):  # type: ignore[no-untyped-def]
    """Order ops one after another, each the most urgent (of the longest tail) of its candidates.

    In a non-delay schedule the candidates are the ready ops that can start first. In an active one they are the ops of the device
    where an op can end first that could start before that end. So a device may wait for an urgent op.
    """
    times_s, first_input = inputs[0], inputs[1]
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
            ready_s[later] = max(ready_s[later], end + _transfer_s(inputs, device, device_of[later], tensor_bytes[place]))
            waits_for[later] -= 1
            if waits_for[later] == 0:
                ready[num_ready] = later
                num_ready += 1
    return order
