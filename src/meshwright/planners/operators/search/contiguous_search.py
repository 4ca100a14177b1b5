"""A search for the latency of dnn-partitioning (`simulation.operators.contiguous`): fill accelerators in order, then anneal."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ....compiled import njit
from ....errors import PlanError
from ....jobs.graph import topological_order
from ....simulation.operators.contiguous import box_arrays, boxes_latency_s, contiguous_latency_s
from ....simulation.operators.instance import OperatorInstance
from ....simulation.operators.placement import check
from ..rules.packing import memory_of
from .problem import devices_of_units, draw, draw_below, draw_moves, problem_of, undo

HOTTEST, COLDEST = 0.05, 1e-4
"""Temperature at the begin and at the end, as shares of the value that the search starts from."""
NUM_STEPS = 200_000
"""Moves of a search."""


def contiguous_search(
    instance: OperatorInstance,
    *,
    start: Sequence[NDArray[np.int64]] = (),
    num_steps: int = NUM_STEPS,
) -> tuple[NDArray[np.int64], float]:
    """Return the device of each op and the seconds of one step, each accelerator's set contiguous.

    Args:
        instance: what is placed, with hosts.
        start: more placements to start from, those that are not contiguous are passed over.
        num_steps: moves to try.

    Raises:
        PlanError: no start is legal.
    """
    starts = [fill_in_order(instance, depth_first=each) for each in (True, False)]
    for each in start:
        check(instance, each)
        starts.append(each)
    values_s = [contiguous_latency_s(instance, each) for each in starts]
    if not np.isfinite(min(values_s)):
        raise PlanError("no contiguous placement was found to start from", value=instance.name)
    best = starts[int(np.argmin(values_s))]
    problem, ops = problem_of(instance, instance.group, memory_of(instance))
    of_group = np.empty(instance.num_groups, np.int64)
    of_group[instance.group] = best
    units = devices_of_units(problem.memory, of_group, 0)
    best_s = np.array([min(values_s)])
    inputs, hot = box_arrays(instance), min(values_s) * HOTTEST
    _anneal(problem, ops, inputs, instance.times_s, instance.is_host, units, of_group, best_s, hot, COLDEST / HOTTEST, num_steps)
    result = of_group[instance.group]
    check(instance, result)
    return result, contiguous_latency_s(instance, result)


def fill_in_order(instance: OperatorInstance, *, depth_first: bool) -> NDArray[np.int64]:
    """Fill one accelerator after another in topological order, ``(n,)``; ops that fit none run on a host.

    Ops that must stay together are taken at once: they share a device, or a way between two such ops leads through them. The
    greedy baseline of dnn-partitioning does the same, in an order of its own.

    Raises:
        PlanError: an op fits no accelerator any more and there is no host.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    g = instance.num_groups
    source, target = instance.group[instance.edges].reshape(-1, 2).T
    graph = coo_array((np.ones(len(source)), (source, target)), shape=(g, g))
    num_blocks, result = connected_components(graph, connection="strong")
    block_of = result.astype(np.int64)
    memory = memory_of(instance)
    accelerators, hosts = np.flatnonzero(~instance.is_host), np.flatnonzero(instance.is_host)
    of_group = np.full(g, -1, np.int64)
    used, widest = np.zeros(len(memory.room), np.int64), np.zeros(len(memory.room), np.int64)
    place, is_open = 0, False
    pairs = np.stack([block_of[source], block_of[target]], axis=1)
    take = deque.pop if depth_first else deque.popleft
    for block in topological_order(num_blocks, pairs[pairs[:, 0] != pairs[:, 1]], take).tolist():
        groups = np.flatnonzero(block_of == block)
        resident, workspace = memory.resident[groups].sum(), memory.workspace[groups].max()
        choice = -1
        for at in range(place, len(accelerators)):
            device = accelerators[at]
            fits = used[device] + resident + max(widest[device], workspace) <= memory.room[device]
            if fits and memory.can_run[groups, device].all():
                choice, place = int(device), at
                break
        if choice < 0:
            if not hosts.size:
                raise PlanError("no accelerator has room for the ops that must stay together", value=instance.name)
            choice = int(hosts[0])
            # What comes later may wait for these ops, so the accelerator that was being filled must not run any of it.
            place += is_open
            is_open = False
        else:
            is_open = True
        used[choice] += resident
        widest[choice] = max(widest[choice], workspace)
        of_group[groups] = choice
    return of_group[instance.group]


@njit
def _anneal(problem, ops, inputs, times_s, is_host, units, best_of, best_s, hot_s, cooling, num_steps):  # type: ignore[no-untyped-def]
    """Try so many moves; ``best_of`` and ``best_s`` hold the best contiguous placement."""
    n, m = times_s.shape
    box_of, now_s = np.empty(n, np.int64), np.empty(n)
    current_s, temperature_s = best_s[0], hot_s
    factor = cooling ** (1.0 / num_steps)
    for unit in range(len(units.device_of)):
        _follow(problem, ops, times_s, is_host, units, unit, box_of, now_s)
    for _ in range(num_steps):
        temperature_s *= factor
        count = draw_moves(problem, units, draw_below(units.random, len(units.device_of)))
        if count == 0:
            continue
        for at in range(count):
            _follow(problem, ops, times_s, is_host, units, units.moved[at], box_of, now_s)
        value_s = boxes_latency_s(inputs, now_s, box_of, m)
        if value_s <= current_s - temperature_s * np.log(1.0 - draw(units.random)):
            current_s = value_s
            if value_s < best_s[0]:
                best_s[0] = value_s
                best_of[:] = units.device_of
        else:
            undo(problem.memory, units, count)
            for at in range(count):
                _follow(problem, ops, times_s, is_host, units, units.moved[at], box_of, now_s)


@njit
def _follow(problem, ops, times_s, is_host, units, unit, box_of, now_s):  # type: ignore[no-untyped-def]
    """Let a unit's ops be where the unit is."""
    device = units.device_of[unit]
    for place in range(problem.first_op[unit], problem.first_op[unit + 1]):
        op = ops[problem.op[place]]
        box_of[op] = -1 if is_host[device] else device
        now_s[op] = times_s[op, device]
