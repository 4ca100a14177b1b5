"""Memory of a partial placement: where a group still fits, such that the remaining groups fit as well.

A rule that fills devices greedily may leave no place for the last ops. Here a legal *reserve*, a device for each group that is
not placed yet, is kept at all times. A group may go to a device if the reserve still holds afterwards: unchanged, with some
groups moved, or packed anew. So a rule never comes to a dead end where the first packing was found.

Legend of shapes: ``g`` groups, ``m`` devices. Bytes are whole numbers of a quantum (see `memory_of`), so that sums are exact
however often groups move. Workspaces of the groups on a device do not add up; the largest counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....compiled import njit
from ....errors import PlanError
from ....simulation.operators.instance import OperatorInstance

MOST_NODES = 200_000
"""Steps of the bounded search with which the first packing ends, where simple rules find none."""
NUM_SHUFFLES = 200
"""Random orders that are tried before it."""
EMPTIEST, FULLEST, FIRST = 0, 1, 2
"""Which device gets the next group: that with the most room left, with the least in which it fits, the first in which it fits."""


class GroupMemory(NamedTuple):
    """The data of an instance for packing.

    Attributes:
        resident: memory that each group holds for the whole step, in quanta, ``(g,)``.
        workspace: the largest that an op of the group holds while it runs, in quanta, ``(g,)``.
        can_run: whether a device runs all ops of the group and holds it alone, ``(g, m)``.
        room: memory of each device, in quanta, ``(m,)``.
        order: groups in the order in which they are packed: those with few devices first, then the largest, ``(g,)``.
    """

    resident: NDArray[np.int64]
    workspace: NDArray[np.int64]
    can_run: NDArray[np.bool_]
    room: NDArray[np.int64]
    order: NDArray[np.int64]


class Reserve(NamedTuple):
    """The places of placed groups, and those where the others could go.

    Attributes:
        device_of: device of each group, placed or only reserved, ``(g,)``.
        is_placed: ``(g,)``.
        used: resident quanta of all groups on each device, ``(m,)``.
        widest: the largest workspace on each device, at least, ``(m,)``.
        placed_used: as ``used``, of placed groups only, ``(m,)``.
        placed_widest: the largest workspace of placed groups, ``(m,)``.
    """

    device_of: NDArray[np.int64]
    is_placed: NDArray[np.bool_]
    used: NDArray[np.int64]
    widest: NDArray[np.int64]
    placed_used: NDArray[np.int64]
    placed_widest: NDArray[np.int64]


def memory_of(instance: OperatorInstance) -> GroupMemory:
    """Return bytes of an instance as whole quanta: sizes of groups are rounded up, memory of devices down.

    The quantum is a power of two. All sizes together are at most 2^50 of it, so whole bytes of any real job stay exact.
    """
    resident_bytes, workspace_bytes = instance.group_bytes
    held = float(resident_bytes.sum() + workspace_bytes.max())
    quantum = 2.0 ** (int(np.ceil(np.log2(held))) - 50) if held > 0 else 1.0
    resident = np.ceil(resident_bytes / quantum).astype(np.int64)
    workspace = np.ceil(workspace_bytes / quantum).astype(np.int64)
    room = np.floor(np.minimum(instance.memory_bytes / quantum, 2.0**52)).astype(np.int64)
    can_run = instance.can_run & (resident[:, None] + workspace[:, None] <= room)
    order = np.lexsort((np.arange(len(resident)), -(resident + workspace), can_run.sum(axis=1))).astype(np.int64)
    return GroupMemory(resident, workspace, can_run, room, order)


def reserve(instance: OperatorInstance, memory: GroupMemory) -> Reserve:
    """Return a first packing of all groups before any is placed.

    Raises:
        PlanError: none was found.
    """
    groups, devices = memory.can_run.shape
    made = Reserve(
        np.full(groups, -1, np.int64),
        np.zeros(groups, np.bool_),
        np.zeros(devices, np.int64),
        np.zeros(devices, np.int64),
        np.zeros(devices, np.int64),
        np.zeros(devices, np.int64),
    )
    if not _packed(memory, made):
        needed, capacity = float(instance.resident_bytes.sum()), float(instance.memory_bytes.sum())
        raise PlanError(
            f"no legal placement was found: {instance.num_groups} groups that hold {needed:.4g} bytes, and "
            f"{instance.num_devices} devices with {capacity:.4g} in all",
            field="memory_bytes",
        )
    return made


def _packed(memory: GroupMemory, made: Reserve) -> bool:
    if repack(memory, made, memory.order):
        return True
    rng = np.random.default_rng(0)
    choices = memory.can_run.sum(axis=1)
    size = (memory.resident + memory.workspace).astype(np.float64)
    for _ in range(NUM_SHUFFLES):
        order = np.lexsort((-size * rng.uniform(0.5, 1.5, len(size)), choices)).astype(np.int64)
        if repack(memory, made, order):
            return True
    return bool(_pack_exactly(memory, made, MOST_NODES))


@njit
def fits(memory, used, widest, group, device):  # type: ignore[no-untyped-def]
    """Return whether a group can go to a device with these quanta in use."""
    return (
        memory.can_run[group, device]
        and used[device] + memory.resident[group] + max(widest[device], memory.workspace[group]) <= memory.room[device]
    )


@njit
def place_group(memory, reserved, group, device):  # type: ignore[no-untyped-def]
    """Place a group on a device if what is left still fits somewhere; whether it did."""
    if reserved.is_placed[group] or not fits(memory, reserved.placed_used, reserved.placed_widest, group, device):
        return False
    old = reserved.device_of[group]
    if old != device:
        if not fits(memory, reserved.used, reserved.widest, group, device) and not _make_room(memory, reserved, group, device):
            return _place_packed(memory, reserved, group, device)
        _move(memory, reserved, group, device)
    _set_placed(memory, reserved, group, device)
    return True


@njit
def _set_placed(memory, reserved, group, device):  # type: ignore[no-untyped-def]
    reserved.is_placed[group] = True
    reserved.placed_used[device] += memory.resident[group]
    reserved.placed_widest[device] = max(reserved.placed_widest[device], memory.workspace[group])


@njit
def _move(memory, reserved, group, device):  # type: ignore[no-untyped-def]
    """Reserve another device for a group. The old one keeps a widest workspace that is at least the true one."""
    reserved.used[reserved.device_of[group]] -= memory.resident[group]
    reserved.used[device] += memory.resident[group]
    reserved.widest[device] = max(reserved.widest[device], memory.workspace[group])
    reserved.device_of[group] = device


@njit
def _make_room(memory, reserved, group, device):  # type: ignore[no-untyped-def]
    """Reserve other devices for groups that are only reserved on this one, the largest first, until another fits here.

    What was moved stays moved where that is not enough: the reserve is as legal as before.
    """
    for other in memory.order:
        if reserved.device_of[other] != device or reserved.is_placed[other] or other == group or memory.resident[other] == 0:
            continue
        best, most = -1, np.int64(-1)
        for target in range(len(memory.room)):
            if target != device and fits(memory, reserved.used, reserved.widest, other, target):
                left = memory.room[target] - reserved.used[target]
                if left > most:
                    best, most = target, left
        if best >= 0:
            _move(memory, reserved, other, best)
            if fits(memory, reserved.used, reserved.widest, group, device):
                return True
    return False


@njit
def _place_packed(memory, reserved, group, device):  # type: ignore[no-untyped-def]
    """Place a group and pack all that is not placed anew; nothing has changed where that fails."""
    before_of, before_used, before_widest = reserved.device_of.copy(), reserved.used.copy(), reserved.widest.copy()
    before_placed_widest = reserved.placed_widest[device]
    reserved.device_of[group] = device
    _set_placed(memory, reserved, group, device)
    if repack(memory, reserved, memory.order):
        return True
    reserved.is_placed[group] = False
    reserved.placed_used[device] -= memory.resident[group]
    reserved.placed_widest[device] = before_placed_widest
    reserved.device_of[:], reserved.used[:], reserved.widest[:] = before_of, before_used, before_widest
    return False


@njit
def repack(memory, reserved, order):  # type: ignore[no-untyped-def]
    """Reserve a device for each group that is not placed, in this order; whether one of three ways did."""
    for fill in (EMPTIEST, FULLEST, FIRST):
        reserved.used[:] = reserved.placed_used
        reserved.widest[:] = reserved.placed_widest
        is_whole = True
        for group in order:
            if reserved.is_placed[group]:
                continue
            best, best_left = -1, np.int64(0)
            for device in range(len(memory.room)):
                if fits(memory, reserved.used, reserved.widest, group, device):
                    left = memory.room[device] - reserved.used[device]
                    if best < 0 or (fill == EMPTIEST and left > best_left) or (fill == FULLEST and left < best_left):
                        best, best_left = device, left
            if best < 0:
                is_whole = False
                break
            reserved.device_of[group] = best
            reserved.used[best] += memory.resident[group]
            reserved.widest[best] = max(reserved.widest[best], memory.workspace[group])
        if is_whole:
            return True
    return False


@njit
def _pack_exactly(memory, reserved, most_nodes):  # type: ignore[no-untyped-def]
    """Search depth first for a packing, the largest groups first, in at most so many steps; nothing is placed yet."""
    groups, devices = memory.can_run.shape
    tried = np.full(groups, -1, np.int64)
    widest_before = np.zeros(groups, np.int64)
    reserved.used[:] = 0
    reserved.widest[:] = 0
    depth = 0
    for _ in range(most_nodes):
        group = memory.order[depth]
        device = tried[depth] + 1
        while device < devices and not fits(memory, reserved.used, reserved.widest, group, device):
            device += 1
        if device < devices:
            tried[depth] = device
            widest_before[depth] = reserved.widest[device]
            reserved.device_of[group] = device
            reserved.used[device] += memory.resident[group]
            reserved.widest[device] = max(reserved.widest[device], memory.workspace[group])
            depth += 1
            if depth == groups:
                return True
            tried[depth] = -1
        else:
            depth -= 1
            if depth < 0:
                return False
            previous = reserved.device_of[memory.order[depth]]
            reserved.used[previous] -= memory.resident[memory.order[depth]]
            reserved.widest[previous] = widest_before[depth]
    return False
