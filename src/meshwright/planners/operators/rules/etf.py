"""Earliest start first under memory, plain and with favourite children.

`m-etf` takes, of all ready ops and devices, the pair that starts first (Hwang et al. 1989). Memory is as in Jeon et al.,
"Baechi: fast device placement of machine learning graphs", 2020. `m-sct` also reserves a device for the favourite child of its
last op, as in Baechi. It follows Hanen and Munier, "An approximation algorithm for scheduling dependent tasks on m processors
with small communication delays", 1995. While that child is ready and would start nowhere earlier, the device runs only urgent
ops. An op is urgent if it could start by then wherever its inputs are. Memory is reserved for the remaining ops as in
`packing`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....compiled import njit
from ....errors import PlanError
from ....simulation.operators.instance import OperatorInstance
from ....simulation.operators.placement import OperatorPlacement, placed, value
from ....simulation.operators.schedules import arrays, best_order, inputs_ready_s, mean_times_s, mean_transfer_s, upward_rank_s
from ..request import PlacementRequest
from .packing import fits, memory_of, place_group, reserve

THRESHOLD = 0.1
"""An edge is a favourite one where the relaxed program pays less of its transfer than this (Baechi)."""


def m_etf(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """Return the ready op and the device that start first; of equal ones the op of higher upward rank, where it ends first.

    Raises:
        PlanError: no placement was found that memory and devices allow.
    """
    return _placed(instance, np.full(instance.num_ops, -1, np.int64), request, "m-etf")


def m_sct(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """Place ops as `m_etf` does, with devices reserved for favourite children from a linear program.

    Raises:
        PlanError: as `m_etf`.
    """
    return _placed(instance, favourite_children(instance), request, "m-sct")


def earliest_starts(
    instance: OperatorInstance, favourite: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the device of each op by earliest start, and the order in which ops were placed, ``(n,)`` each.

    Args:
        instance: what is placed.
        favourite: each op's favourite child, -1 for none, ``(n,)``; by default none has one.

    Raises:
        PlanError: as `m_etf`.
    """
    memory = memory_of(instance)
    reserved = reserve(instance, memory)
    first, edge = instance.outgoing
    rank_s = upward_rank_s(instance)
    if favourite is None:
        favourite = np.full(instance.num_ops, -1, np.int64)
    order = _place_all(arrays(instance), first, instance.edges[edge, 1], instance.group, memory, reserved, rank_s, favourite)
    return reserved.device_of[instance.group], np.asarray(order)


def _placed(
    instance: OperatorInstance, favourite: NDArray[np.int64], request: PlacementRequest, planner: str
) -> OperatorPlacement:
    """Return the placement, ordered as it was made or by upward rank, whichever is faster."""
    device_of, order = earliest_starts(instance, favourite)
    if value(instance, device_of, "latency") < value(instance, device_of, "latency", order):
        order = best_order(instance, device_of)
    return placed(instance, device_of, request.objective, planner, order=order)


@njit
def _place_all(inputs, first_out, reader, group_of, memory, reserved, rank_s, favourite):  # type: ignore[no-untyped-def]
    """Place every op; the order. When a ready op's inputs are on each device is worked out once."""
    times_s, first_in = inputs[0], inputs[1]
    n, m = times_s.shape
    device_of, end_s = np.full(n, -1, np.int64), np.zeros(n)
    ready_s = np.zeros((n, m))
    waits = first_in[1:] - first_in[:-1]
    ready, num_ready = np.empty(n, np.int64), 0
    is_refused = np.zeros(memory.can_run.shape, np.bool_)
    free_s, last = np.zeros(m), np.full(m, -1, np.int64)
    order = np.empty(n, np.int64)
    for op in range(n):
        if waits[op] == 0:
            ready[num_ready] = op
            num_ready += 1
    for placed_before in range(n):
        kept_for = _reservations(ready_s, waits, device_of, group_of, reserved, memory, free_s, last, favourite)
        while True:
            at, device = _earliest(
                ready, num_ready, ready_s, times_s, group_of, memory, reserved, is_refused, free_s, kept_for, rank_s
            )
            if at < 0:
                # Only reserved devices are left for these ops, and not for them.
                kept_for[:] = -1
                continue
            group = group_of[ready[at]]
            if reserved.is_placed[group] or place_group(memory, reserved, group, device):
                break
            is_refused[group, device] = True
        op = ready[at]
        num_ready -= 1
        ready[at] = ready[num_ready]
        device_of[op] = device
        end_s[op] = max(free_s[device], ready_s[op, device]) + times_s[op, device]
        free_s[device], last[device] = end_s[op], op
        order[placed_before] = op
        for place in range(first_out[op], first_out[op + 1]):
            child = reader[place]
            waits[child] -= 1
            if waits[child] == 0:
                ready[num_ready] = child
                num_ready += 1
                for target in range(m):
                    ready_s[child, target] = inputs_ready_s(inputs, child, target, device_of, end_s)
    return order


@njit
def _may_run(group, device, memory, reserved, is_refused):  # type: ignore[no-untyped-def]
    """Return whether a group may be tried on a device; the device that is reserved for it is always tried."""
    if reserved.is_placed[group]:
        return reserved.device_of[group] == device
    if reserved.device_of[group] == device:
        return True
    return not is_refused[group, device] and fits(memory, reserved.placed_used, reserved.placed_widest, group, device)


@njit
def _earliest(  # type: ignore[no-untyped-def]
    ready, num_ready, ready_s, times_s, group_of, memory, reserved, is_refused, free_s, kept_for, rank_s
):
    """Place in the list of ready ops, and device, of the pair that starts first; -1 where none may."""
    best, best_device, best_start, best_end = -1, -1, np.inf, np.inf
    for at in range(num_ready):
        op = ready[at]
        group = group_of[op]
        for device in range(len(free_s)):
            start = max(free_s[device], ready_s[op, device])
            if start > best_start or not _may_run(group, device, memory, reserved, is_refused):
                continue
            end = start + times_s[op, device]
            if start == best_start:
                other = ready[best]
                if rank_s[op] < rank_s[other] or (rank_s[op] == rank_s[other] and op > other):
                    continue
                if op == other and end >= best_end:
                    continue
            if kept_for[device] >= 0 and kept_for[device] != op and ready_s[op].max() > start:
                continue
            best, best_device, best_start, best_end = at, device, start, end
    return best, best_device


@njit
def _reservations(ready_s, waits, device_of, group_of, reserved, memory, free_s, last, favourite):  # type: ignore[no-untyped-def]
    """Return the op for which each device is kept, -1 for none, ``(m,)``."""
    kept_for = np.full(len(free_s), -1, np.int64)
    for device in range(len(free_s)):
        if last[device] < 0:
            continue
        child = favourite[last[device]]
        if child < 0 or device_of[child] >= 0 or waits[child] > 0:
            continue
        group = group_of[child]
        if reserved.is_placed[group]:
            if reserved.device_of[group] != device:
                continue
        elif not fits(memory, reserved.placed_used, reserved.placed_widest, group, device):
            continue
        start, is_first = max(free_s[device], ready_s[child, device]), True
        for other in range(len(free_s)):
            is_first &= max(free_s[other], ready_s[child, other]) >= start
        if is_first:
            kept_for[device] = child
    return kept_for


def favourite_children(instance: OperatorInstance) -> NDArray[np.int64]:
    """Return the favourite child of each op, -1 where it has none; an op is the favourite of at most one, ``(n,)``.

    Start times s and x of each edge, 0 <= x <= 1, minimise the end of the last op under ``s_j >= s_i + p_i + c_ij x_ij``. The
    sum of x over an op's children is at least their number less one, and likewise over its parents. Times are means over
    devices, transfers means over pairs of devices. Of several edges below the threshold the lowest counts, ties by number.

    Raises:
        PlanError: the solver did not solve the program.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    n, e = instance.num_ops, len(instance.edges)
    if e == 0:
        return np.full(n, -1, np.int64)
    times_s, transfer_s = mean_times_s(instance), mean_transfer_s(instance)
    scale = float(times_s.sum() + transfer_s.sum()) / (n + e)
    times, transfer = times_s / (scale or 1.0), transfer_s / (scale or 1.0)
    source, target = instance.edges.T
    edge, op = np.arange(e), np.arange(n)
    # Columns: x of each edge, s of each op, the end. Rows: edges, ends of ops, children of ops, parents of ops; all "<=".
    entries = [
        (edge, e + source, np.ones(e)),
        (edge, e + target, -np.ones(e)),
        (edge, edge, transfer),
        (e + op, e + op, np.ones(n)),
        (e + op, np.full(n, e + n), -np.ones(n)),
        (e + n + source, edge, -np.ones(e)),
        (e + 2 * n + target, edge, -np.ones(e)),
    ]
    row, column, number = (np.concatenate(each) for each in zip(*entries, strict=True))
    # The stubs of linprog know dense matrices only.
    matrix: Any = coo_array((number, (row, column)), shape=(e + 3 * n, e + n + 1)).tocsr()
    most = np.concatenate(
        [
            -times[source],
            -times,
            1.0 - np.maximum(1, np.bincount(source, minlength=n)),
            1.0 - np.maximum(1, np.bincount(target, minlength=n)),
        ]
    )
    cost = np.zeros(e + n + 1)
    cost[-1] = 1.0
    bounds: list[tuple[float, float | None]] = [(0.0, 1.0)] * e + [(0.0, None)] * (n + 1)
    result = linprog(cost, A_ub=matrix, b_ub=most, bounds=bounds, method="highs")
    if result.x is None:
        raise PlanError("the linear program of favourite children was not solved", field="m-sct", value=result.message)
    favourite, has_parent = np.full(n, -1, np.int64), np.zeros(n, np.bool_)
    for each in np.lexsort((edge, result.x[:e])):
        parent, child = instance.edges[each]
        if result.x[each] < THRESHOLD and favourite[parent] < 0 and not has_parent[child]:
            favourite[parent] = child
            has_parent[child] = True
    return favourite
