"""Every placement of a small instance, and for the latency of a step every order that can be the best.

Devices that may change places (see `device_classes`) are tried once. A branch is left when its devices are already busy for the
best placement's time. For a latency each placement that could still win gets the best order of its devices' ops. The active
schedules of Giffler and Thompson (1960) always contain one. A branch of these is left when its longest way to the end, or a
device's remaining work, cannot beat the best.

Legend of shapes: ``n`` ops, ``m`` devices, ``g`` groups, ``k`` tensors, ``c`` classes of devices.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...errors import PlanError
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorPlacement, placed, port_s, value
from ...simulation.operators.schedules import arrays, best_order
from ...simulation.ragged import rows_by_owner
from .request import PlacementRequest
from .stages.units import device_classes

MOST_STEPS = 400_000_000
"""Of the search over orders; about a minute of one core."""
_MANY_STEPS = 50_000
"""Of counting placements; about a tenth of a second."""
_MOST_WRITTEN = 10**24
"""Greater numbers are shown as powers of ten."""


def exhaustive(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """Return the best of all legal placements, for a latency over all orders too.

    Raises:
        PlanError: more placements than ``request.max_placements`` (their number is named), more orders than can be searched,
            or no placement fits.
    """
    classes = device_classes(instance, request.objective)
    count, is_whole = num_placements(instance, classes, enough=request.max_placements)
    if count > request.max_placements:
        count_text = f"{count:,}" if count < _MOST_WRITTEN else f"about 1e{int(math.log10(count))}"
        problem = (
            f"has {'' if is_whole else 'more than '}{count_text} placements, and at most {request.max_placements:,} are tried"
        )
        raise PlanError(problem, field="max_placements", value=request.max_placements)
    rank = np.array([int((classes[:device] == classes[device]).sum()) for device in range(instance.num_devices)])
    resident, workspace = instance.group_bytes
    times_s = np.zeros((instance.num_groups, instance.num_devices))
    np.add.at(times_s, instance.group, instance.times_s)
    tensors = (
        instance.tensor_source,
        *rows_by_owner(instance.edge_tensor, instance.edges[:, 1], len(instance.tensor_bytes)),
        np.where(instance.is_host, 0.0, port_s(instance, instance.tensor_bytes)),
    )
    first_out, out_edge = instance.outgoing
    graph = (first_out, instance.edges[out_edge, 1], instance.edge_bytes[out_edge], instance.topological)
    groups = (instance.group, times_s, instance.can_run, resident, workspace, instance.memory_bytes)
    is_latency = request.objective == "latency"
    result, device_of, order, steps = search(is_latency, groups, (classes, rank), tensors, arrays(instance), graph, MOST_STEPS)
    if steps > MOST_STEPS:
        raise PlanError("has more orders of its ops than can be searched", field="max_placements", value=instance.num_ops)
    if not np.isfinite(result):
        raise PlanError("no placement fits the devices' memory", value=instance.name)
    if not is_latency or value(instance, device_of, "latency", best_order(instance, device_of)) <= result:
        order = best_order(instance, device_of)
    made = placed(instance, device_of, request.objective, "exhaustive", order=order, is_optimal=True)
    searched = f"best of all {count:,} placements" + (" and of all orders of their ops" if is_latency else "")
    return replace(made, lower_bound_s=max(made.lower_bound_s, made.value_s), note=searched)


def num_placements(instance: OperatorInstance, classes: NDArray[np.int64], enough: float = math.inf) -> tuple[int, bool]:
    """Return placements that differ by more than an exchange of devices of one class; memory's exclusions are counted.

    Args:
        instance: what is placed.
        classes: class of each device, ``(m,)``, see `device_classes`.
        enough: counting ends where there are more than so many and it takes long, as with many classes of some devices each.

    Returns:
        how many, and whether these are all.
    """
    sizes = np.bincount(classes)
    allowed = instance.can_run[:, [int(np.flatnonzero(classes == each)[0]) for each in range(len(sizes))]]
    alone, shared = np.flatnonzero(sizes == 1).tolist(), np.flatnonzero(sizes > 1).tolist()
    # By how many devices of each class of several are used; a class of one device takes a group in one way, used or not.
    ways: dict[tuple[int, ...], int] = {(0,) * len(shared): 1}
    steps, left = 0, math.prod(int(each) for each in allowed.sum(axis=1))
    for may in allowed:
        least = sum(ways.values()) * left  # each class that may have a group takes it in one way or more
        if least > enough and steps > _MANY_STEPS:
            return least, False
        single = int(may[alone].sum())
        after: dict[tuple[int, ...], int] = {used: number * single for used, number in ways.items()} if single else {}
        places = [at for at, each in enumerate(shared) if may[each]]
        for (used, number), at in itertools.product(ways.items(), places):
            if used[at]:
                after[used] = after.get(used, 0) + number * used[at]
            if used[at] < sizes[shared[at]]:
                more = (*used[:at], used[at] + 1, *used[at + 1 :])
                after[more] = after.get(more, 0) + number
        steps += len(ways) * len(places)
        left //= int(may.sum())
        ways = after
    return sum(ways.values()), True


@njit
def search(is_latency, groups, by_class, tensors, inputs, graph, most_steps):  # type: ignore[no-untyped-def]
    """Return the least value, its device of each op and order of ops, and the steps that the search over orders took.

    Args:
        is_latency: else the largest load is counted.
        groups: group of each op, seconds of each group ``(g, m)``, where each can be ``(g, m)``, its resident and workspace
            bytes, memory of each device.
        by_class: class of each device, and how many of its class come before it, ``(m,)`` each.
        tensors: source of each tensor, first of its readers, readers, seconds in each device's port ``(k, m)``.
        inputs: `schedules.arrays`.
        graph: first reader of each op, readers, bytes to each, topological order.
        most_steps: the search ends when it has taken more.
    """
    group, group_s, can_run, resident, workspace, memory = groups
    classes, rank = by_class
    g, m = group_s.shape
    n = len(group)
    best, best_device, best_order = np.inf, np.zeros(n, np.int64), np.zeros(n, np.int64)
    at = np.full(g, -1, np.int64)
    work_s, held = np.zeros((g + 1, m)), np.zeros((g + 1, m))
    largest = np.zeros((g + 1, m))
    used = np.zeros((g + 1, m), np.int64)
    device_of = np.zeros(n, np.int64)
    order = np.zeros(n, np.int64)
    steps = 0
    depth = 0
    while depth >= 0:
        if depth == g:
            for op in range(n):
                device_of[op] = at[group[op]]
            if is_latency:
                result, steps = _best_of_orders(device_of, inputs, graph, best, order, steps, most_steps)
                if steps > most_steps:
                    break
            else:
                result = _largest_load(device_of, work_s[g], tensors)
            if result < best:
                best = result
                best_device[:] = device_of
                best_order[:] = order
            depth -= 1
            continue
        at[depth] += 1
        device = at[depth]
        if device == m:
            at[depth] = -1
            depth -= 1
            continue
        if not can_run[depth, device] or rank[device] > used[depth, classes[device]]:
            continue
        work_s[depth + 1] = work_s[depth]
        held[depth + 1] = held[depth]
        largest[depth + 1] = largest[depth]
        used[depth + 1] = used[depth]
        work_s[depth + 1, device] += group_s[depth, device]
        held[depth + 1, device] += resident[depth]
        largest[depth + 1, device] = max(largest[depth, device], workspace[depth])
        if rank[device] == used[depth, classes[device]]:
            used[depth + 1, classes[device]] += 1
        fits = held[depth + 1, device] + largest[depth + 1, device] <= memory[device]
        if fits and work_s[depth + 1, device] < best:
            depth += 1
    return best, best_device, best_order, steps


@njit
def _largest_load(device_of, work_s, tensors):  # type: ignore[no-untyped-def]
    source, first, reader, port_s = tensors
    loads_s = work_s.copy()
    m = len(work_s)
    seen = np.full(m, -1, np.int64)
    for tensor in range(len(source)):
        if source[tensor] < 0:
            continue
        home = device_of[source[tensor]]
        seen[home] = tensor
        leaves = False
        for place in range(first[tensor], first[tensor + 1]):
            device = device_of[reader[place]]
            if seen[device] != tensor:
                seen[device] = tensor
                leaves = True
                loads_s[device] += port_s[tensor, device]
        if leaves:
            loads_s[home] += port_s[tensor, home]
    return loads_s.max()


@njit
def _best_of_orders(device_of, inputs, graph, best, best_order, steps, most_steps):  # type: ignore[no-untyped-def]
    """Return the least end of any order of a placement if it is below ``best``, else infinite; writes that order."""
    times_s, first_in, producer, input_bytes, latency_s, s_per_byte = inputs
    first_out, reader, reader_bytes, topological = graph
    n, m = times_s.shape
    tail_s = np.zeros(n)  # from the start of an op to the end of the last one that waits for it
    for op in topological[::-1]:
        home = device_of[op]
        for place in range(first_out[op], first_out[op + 1]):
            device = device_of[reader[place]]
            after = tail_s[reader[place]]
            if device != home:
                after += latency_s[home, device] + reader_bytes[place] * s_per_byte[home, device]
            tail_s[op] = max(tail_s[op], after)
        tail_s[op] += times_s[op, home]
    if tail_s.max() >= best:
        return np.inf, steps
    waits = np.zeros(n, np.int64)
    left_s = np.zeros(m)
    for op in range(n):
        waits[op] = first_in[op + 1] - first_in[op]
        left_s[device_of[op]] += times_s[op, device_of[op]]
    ready_s, is_ready = np.zeros(n), np.zeros(n, np.bool_)
    for op in range(n):
        if waits[op] == 0:
            is_ready[op] = True
    end_s, free_s = np.zeros(n), np.zeros(m)
    choice, before_s = np.full(n + 1, -1, np.int64), np.zeros(n + 1)
    is_choice = np.zeros((n + 1, n), np.bool_)
    result = np.inf
    depth = 0
    is_new = True
    while depth >= 0:
        if is_new:
            steps += 1
            if steps > most_steps:
                return np.inf, steps
            is_choice[depth] = False
            choice[depth] = -1
            if depth == n:
                last_s = end_s.max()
                if last_s < min(best, result):
                    result = last_s
                    best_order[:] = choice[:n]
            elif _bound_s(device_of, is_ready, ready_s, free_s, tail_s, left_s) < min(best, result):
                _active(device_of, is_ready, ready_s, free_s, times_s, is_choice[depth])
            is_new = False
        # Take back the choice that was made here, and make the next one.
        op = choice[depth]
        if op >= 0:
            device = device_of[op]
            free_s[device] = before_s[depth]
            left_s[device] += times_s[op, device]
            is_ready[op] = True
            end_s[op] = 0.0
            for place in range(first_out[op], first_out[op + 1]):
                if waits[reader[place]] == 0:
                    is_ready[reader[place]] = False
                waits[reader[place]] += 1
        op += 1
        while op < n and not is_choice[depth, op]:
            op += 1
        if op == n:
            depth -= 1
            continue
        choice[depth] = op
        device = device_of[op]
        before_s[depth] = free_s[device]
        end_s[op] = max(free_s[device], ready_s[op]) + times_s[op, device]
        free_s[device] = end_s[op]
        left_s[device] -= times_s[op, device]
        is_ready[op] = False
        for place in range(first_out[op], first_out[op + 1]):
            after = reader[place]
            waits[after] -= 1
            if waits[after] == 0:
                is_ready[after] = True
                ready_s[after] = 0.0
                for feed in range(first_in[after], first_in[after + 1]):
                    arrival_s = end_s[producer[feed]]
                    home = device_of[producer[feed]]
                    if home != device_of[after]:
                        arrival_s += latency_s[home, device_of[after]] + input_bytes[feed] * s_per_byte[home, device_of[after]]
                    ready_s[after] = max(ready_s[after], arrival_s)
        depth += 1
        is_new = True
    return result, steps


@njit
def _bound_s(device_of, is_ready, ready_s, free_s, tail_s, left_s):  # type: ignore[no-untyped-def]
    """Return a lower bound on the end of every order that continues from here."""
    bound = 0.0
    for op in range(len(device_of)):
        if is_ready[op]:
            bound = max(bound, max(ready_s[op], free_s[device_of[op]]) + tail_s[op])
    for device in range(len(free_s)):
        # Work left was summed and taken back again; a hair less cannot cut off a better order.
        bound = max(bound, free_s[device] + left_s[device] * (1.0 - 1e-12) - 1e-15)
    return bound


@njit
def _active(device_of, is_ready, ready_s, free_s, times_s, is_choice):  # type: ignore[no-untyped-def]
    """Mark the ops such that every active schedule that continues from here has one of them next on its device."""
    earliest, least_s = -1, np.inf
    for op in range(len(device_of)):
        if is_ready[op]:
            ends_s = max(ready_s[op], free_s[device_of[op]]) + times_s[op, device_of[op]]
            if ends_s < least_s:
                earliest, least_s = op, ends_s
    device = device_of[earliest]
    for op in range(len(device_of)):
        if is_ready[op] and device_of[op] == device and max(ready_s[op], free_s[device]) < least_s:
            is_choice[op] = True
    is_choice[earliest] = True
