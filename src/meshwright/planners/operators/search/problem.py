"""The data of an instance for searches, laid out for speed, and draws of moves that memory allows.

Ops are numbered by falling upward rank, so that their order is that of their numbers. Moves act on a *unit*: a group, or in the
coarse levels of `multilevel` several groups.

Legend of shapes: ``n`` ops, ``m`` devices, ``e`` edges, ``u`` units, ``k`` tensors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....compiled import njit
from ....numba_records import by_reference
from ....simulation.operators.instance import OperatorInstance, bytes_by_part
from ....simulation.operators.placement import port_s
from ....simulation.operators.schedules import upward_order
from ....simulation.ragged import rows_by_owner
from ..rules.packing import GroupMemory, fits

NEIGHBOUR_SHARE = 0.4
"""Share of moves that go to the device of a unit that the moved one is tied to by an edge."""
CLUSTER_SHARE = 0.3
"""Share of moves that take along units which are tied to the moved one and on its device."""
MOST_TOGETHER = 5
"""Units that move to a device together."""
MOST_MOVED = 12
"""Units that move at once, with those that make room."""
NEAR = 8
"""Ops for each device among which one is looked for that makes room."""
SWAP_SHARE = 0.1
"""Share of moves that send another unit away although all would fit."""


@by_reference
class SearchProblem(NamedTuple):
    """An instance as searches read it.

    Attributes:
        times_s: seconds of each op on each device, ``(n, m)``.
        first: first input of each op, ``(n + 1,)``.
        producer: the op that each input comes from, ``(e,)``.
        input_bytes: size of each input, ``(e,)``.
        first_out: first edge that leaves each op, ``(n + 1,)``.
        reader: the op that it goes to, ``(e,)``.
        output_bytes: its size, ``(e,)``.
        latency_s: ``(m, m)``.
        s_per_byte: ``(m, m)``.
        tail_s: longest chain of best times after each op, ``(n,)``.
        input_tensor: the tensor of each input, ``(e,)``.
        first_tensor: first tensor of each op, ``(n + 1,)``; tensors are numbered by the op that they come from.
        tensor_port_s: seconds that each tensor keeps a device's port busy, 0 for hosts, ``(k, m)``.
        first_op: first member of each unit, ``(u + 1,)``.
        op: members of units, each unit's in order, ``(n,)``.
        unit_of: ``(n,)``.
        first_tied: first of the units that each unit shares an edge with, ``(u + 1,)``.
        tied: those units.
        memory: of units, see `packing`.
    """

    times_s: NDArray[np.float64]
    first: NDArray[np.int64]
    producer: NDArray[np.int64]
    input_bytes: NDArray[np.float64]
    first_out: NDArray[np.int64]
    reader: NDArray[np.int64]
    output_bytes: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    s_per_byte: NDArray[np.float64]
    tail_s: NDArray[np.float64]
    input_tensor: NDArray[np.int64]
    first_tensor: NDArray[np.int64]
    tensor_port_s: NDArray[np.float64]
    first_op: NDArray[np.int64]
    op: NDArray[np.int64]
    unit_of: NDArray[np.int64]
    first_tied: NDArray[np.int64]
    tied: NDArray[np.int64]
    memory: GroupMemory


@by_reference
class UnitDevices(NamedTuple):
    """The devices of units, and the memory that they leave.

    Attributes:
        device_of: device of each unit, ``(u,)``.
        used: resident quanta on each device, ``(m,)``.
        widest: the largest workspace on each device, ``(m,)``.
        random: state of the generator of random numbers, ``(1,)``.
        moved: units of the move that is tried, ``(MOST_MOVED,)``.
        moved_from: where they were, ``(MOST_MOVED,)``.
    """

    device_of: NDArray[np.int64]
    used: NDArray[np.int64]
    widest: NDArray[np.int64]
    random: NDArray[np.uint64]
    moved: NDArray[np.int64]
    moved_from: NDArray[np.int64]


def problem_of(
    instance: OperatorInstance, unit_of: NDArray[np.int64], memory: GroupMemory
) -> tuple[SearchProblem, NDArray[np.int64]]:
    """Return the problem, and the op at each of its numbers.

    Args:
        instance: what is placed.
        unit_of: unit of each op of the instance, ``(n,)``.
        memory: of units.
    """
    n = instance.num_ops
    order = upward_order(instance)
    place = np.argsort(order)
    source, target = place[instance.edges].reshape(-1, 2).T
    by_reader = np.lexsort((source, target))
    source, target, tensor = source[by_reader], target[by_reader], instance.edge_tensor[by_reader]
    used_tensors = np.flatnonzero(instance.tensor_source >= 0)
    used_tensors = used_tensors[np.argsort(place[instance.tensor_source[used_tensors]], kind="stable")]
    number = np.full(len(instance.tensor_bytes), -1, np.int64)
    number[used_tensors] = np.arange(len(used_tensors))
    ports = np.where(instance.is_host, 0.0, port_s(instance, instance.tensor_bytes[used_tensors]))
    unit = unit_of[order]
    units = len(memory.resident)
    first_op, members = rows_by_owner(unit, np.arange(n), units)
    pairs = np.concatenate([np.stack([unit[source], unit[target]]), np.stack([unit[target], unit[source]])], axis=1)
    pairs = np.unique(pairs[0, pairs[0] != pairs[1]] * units + pairs[1, pairs[0] != pairs[1]])
    first_tied, tied = rows_by_owner(pairs // units, pairs % units, units)
    first, _ = rows_by_owner(target, target, n)
    first_out, leaving = rows_by_owner(source, np.arange(len(source)), n)
    problem = SearchProblem(
        np.ascontiguousarray(instance.times_s[order]),
        first,
        source,
        instance.tensor_bytes[tensor],
        first_out,
        target[leaving],
        instance.tensor_bytes[tensor[leaving]],
        np.array(instance.latency_s),
        1.0 / instance.bandwidth_bytes_per_s,
        _tails(instance.times_s[order].min(axis=1), first, source),
        number[tensor],
        rows_by_owner(place[instance.tensor_source[used_tensors]], used_tensors, n)[0],
        np.ascontiguousarray(ports),
        first_op,
        members,
        unit,
        first_tied,
        tied,
        memory,
    )
    return problem, order


def merged_memory(memory: GroupMemory, unit_of_group: NDArray[np.int64]) -> GroupMemory:
    """Return the memory of units that are made of several groups; those that no device holds may run nowhere."""
    units = int(unit_of_group.max()) + 1
    resident, workspace = bytes_by_part(unit_of_group, units, memory.resident, memory.workspace)
    can_run = np.ones((units, len(memory.room)), np.bool_)
    np.logical_and.at(can_run, unit_of_group, memory.can_run)
    can_run &= (resident + workspace)[:, None] <= memory.room
    order = np.lexsort((np.arange(units), -(resident + workspace), can_run.sum(axis=1))).astype(np.int64)
    return GroupMemory(resident, workspace, can_run, memory.room, order)


def devices_of_units(memory: GroupMemory, device_of: NDArray[np.int64], seed: int) -> UnitDevices:
    """Return the units on these devices, ``(u,)``, and a generator of random numbers for a seed."""
    used, widest = bytes_by_part(device_of, len(memory.room), memory.resident, memory.workspace)
    random = np.random.SeedSequence(seed).generate_state(1, np.uint64).astype(np.uint64)
    moved = np.zeros((2, MOST_MOVED + 1), np.int64)
    return UnitDevices(device_of.astype(np.int64), used, widest, random, moved[0], moved[1])


@njit
def _tails(best_s, first, producer):  # type: ignore[no-untyped-def]
    tail_s = np.zeros(len(best_s))
    for op in range(len(best_s) - 1, -1, -1):
        for place in range(first[op], first[op + 1]):
            tail_s[producer[place]] = max(tail_s[producer[place]], tail_s[op] + best_s[op])
    return tail_s


@njit
def draw(random):  # type: ignore[no-untyped-def]
    """Return a number in [0, 1) (SplitMix64; Steele, Lea, Flood 2014)."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    mixed = random[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit
def draw_below(random, count):  # type: ignore[no-untyped-def]
    """Return a whole number from 0 to ``count - 1``."""
    return int(draw(random) * count)


@njit
def draw_moves(problem, units, unit):  # type: ignore[no-untyped-def]
    """Move a unit to another device, some with it, and others out of the way; how many moved, 0 where it is not legal.

    What moved and from where is in ``units.moved`` and ``units.moved_from``; `undo` takes it back.
    """
    memory = problem.memory
    home = units.device_of[unit]
    device = _draw_device(problem, units, unit)
    if device == home or not memory.can_run[unit, device]:
        return 0
    units.moved[0], units.moved_from[0] = unit, home
    put(memory, units, unit, device)
    count = 1
    if draw(units.random) < CLUSTER_SHARE:
        for _ in range(1 + draw_below(units.random, MOST_TOGETHER - 1)):
            near = units.moved[draw_below(units.random, count)]
            begin, end = problem.first_tied[near], problem.first_tied[near + 1]
            if end > begin:
                near = problem.tied[begin + draw_below(units.random, end - begin)]
                if units.device_of[near] == home and memory.can_run[near, device]:
                    units.moved[count], units.moved_from[count] = near, home
                    put(memory, units, near, device)
                    count += 1
    together = count
    is_over = units.used[device] + units.widest[device] > memory.room[device]
    while is_over or (count == together and draw(units.random) < SWAP_SHARE):
        count = _move_out(problem, units, home, device, together, count)
        is_now_over = units.used[device] + units.widest[device] > memory.room[device]
        if is_now_over and (count < 0 or count == MOST_MOVED):
            undo(memory, units, max(count, -count))
            return 0
        count = max(count, -count)
        if not is_over:
            break
        is_over = is_now_over
    return count


@njit
def _move_out(problem, units, home, device, together, count):  # type: ignore[no-untyped-def]
    """Move some unit off a device to the home of those that came, or anywhere; the new count, or less the old one if none.

    It is one near those in the order of ops, so that few others are between.
    """
    memory, num_ops, num_devices = problem.memory, len(problem.unit_of), problem.times_s.shape[1]
    span, lead = min(num_ops, NEAR * num_devices), problem.op[problem.first_op[units.moved[0]]]
    begin = min(max(0, lead - span // 2), num_ops - span)
    for _ in range(2 * num_devices):
        other = problem.unit_of[begin + draw_below(units.random, span)]
        if units.device_of[other] != device:
            continue
        came = False
        for place in range(together):
            came |= units.moved[place] == other
        if came:
            continue
        target = home if draw(units.random) < 0.5 else draw_below(units.random, num_devices)
        if target != device and fits(memory, units.used, units.widest, other, target):
            units.moved[count], units.moved_from[count] = other, device
            put(memory, units, other, target)
            return count + 1
    return -count


@njit
def undo(memory, units, count):  # type: ignore[no-untyped-def]
    """Take back the last moves."""
    for place in range(count - 1, -1, -1):
        put(memory, units, units.moved[place], units.moved_from[place])


@njit
def _draw_device(problem, units, unit):  # type: ignore[no-untyped-def]
    begin, end = problem.first_tied[unit], problem.first_tied[unit + 1]
    if end > begin and draw(units.random) < NEIGHBOUR_SHARE:
        return units.device_of[problem.tied[begin + draw_below(units.random, end - begin)]]
    return draw_below(units.random, problem.memory.can_run.shape[1])


@njit
def _widest_without(memory, units, device, unit):  # type: ignore[no-untyped-def]
    """Return the largest workspace on a device where a unit leaves it."""
    if memory.workspace[unit] == 0 or memory.workspace[unit] < units.widest[device]:
        return units.widest[device]
    widest = np.int64(0)
    for other in range(len(units.device_of)):
        if other != unit and units.device_of[other] == device:
            widest = max(widest, memory.workspace[other])
    return widest


@njit
def put(memory, units, unit, device):  # type: ignore[no-untyped-def]
    """Move a unit to a device; whether it fits is the caller's matter."""
    home = units.device_of[unit]
    units.widest[home] = _widest_without(memory, units, home, unit)
    units.used[home] -= memory.resident[unit]
    units.device_of[unit] = device
    units.used[device] += memory.resident[unit]
    units.widest[device] = max(units.widest[device], memory.workspace[unit])
