"""Memory of a partial placement, compiled: which devices hold the next ops, and whether all that is left still fits.

States are `placing.PlacingState`, instances `stacked.StackedInstances`.
"""

import numpy as np

from ....compiled import njit


@njit
def fits(stacked, state, e, group, device):  # type: ignore[no-untyped-def]
    """Return whether a device runs a group and can hold it in addition to what it has."""
    i = state.instance[e]
    workspace = max(state.workspace_bytes[e, device], stacked.workspace_bytes[i, group])
    held = state.held_bytes[e, device] + stacked.resident_bytes[i, group] + workspace
    return stacked.can_run[i, group, device] and held <= stacked.memory_bytes[i, device]


@njit
def is_roomy(stacked, state, e, group):  # type: ignore[no-untyped-def]
    """Return whether packing the groups after ``group`` succeeds wherever the group goes, without trying.

    Packing fails at a group of size ``s`` only where each of the ``m`` devices has less than ``s`` left. Then all room together
    is less than ``(m - 1) s`` and the groups still to be packed. Where there is more, it cannot fail.
    """
    i = state.instance[e]
    if not stacked.runs_anywhere[i]:
        return False
    m = stacked.num_devices[i]
    room = -m * stacked.most_workspace_bytes[i] - stacked.all_bytes[i]
    for device in range(m):
        if stacked.memory_bytes[i, device] == np.inf:
            return True
        room += stacked.memory_bytes[i, device]
    largest = 0.0
    for at in range(stacked.num_groups[i]):
        other = stacked.by_size[i, at]
        if other != group and state.device_of[e, other] < 0:
            largest = stacked.resident_bytes[i, other]
            break
    return room >= (m - 1) * largest


@njit
def needed_bytes(stacked, state, e, group):  # type: ignore[no-untyped-def]
    """Return the room of all devices with which `pack` cannot fail from each place of ``by_size`` on; empty if ops are bound.

    It fails at a size ``s`` only where all of the ``m`` devices have less than ``s`` left, so together less than ``m s``.
    """
    i = state.instance[e]
    result = np.full(stacked.num_groups[i] if stacked.runs_anywhere[i] else 0, -np.inf)
    needed, margin = -np.inf, 1e-9 * stacked.all_bytes[i]
    for at in range(len(result) - 1, -1, -1):
        other = stacked.by_size[i, at]
        if other != group and state.device_of[e, other] < 0:
            size = stacked.resident_bytes[i, other]
            needed = max(stacked.num_devices[i] * size + margin, size + needed)
        result[at] = needed
    return result


@njit
def pack(stacked, state, e, group, device, needed):  # type: ignore[no-untyped-def]
    """Return whether all that is left fits when ``group`` goes to ``device``, packed largest first, each where most is left.

    The packing is kept in ``state.packing``, unless it ends early, where the rest has the room of ``needed`` (`needed_bytes`).
    An empty array packs all. Group -1 packs everything that is left.
    """
    i = state.instance[e]
    m, room = stacked.num_devices[i], 0.0
    held, workspace = state.held_bytes[e, :m].copy(), state.workspace_bytes[e, :m].copy()
    if group >= 0:
        held[device] += stacked.resident_bytes[i, group]
        workspace[device] = max(workspace[device], stacked.workspace_bytes[i, group])
    for j in range(m):
        room += stacked.memory_bytes[i, j] - held[j] - stacked.most_workspace_bytes[i]
    result = np.full(stacked.num_groups[i], -1, np.int64)
    for at in range(stacked.num_groups[i]):
        if len(needed) > 0 and room >= needed[at]:
            return True
        other = stacked.by_size[i, at]
        if other == group or state.device_of[e, other] >= 0:
            continue
        best, most = -1, -1.0
        for j in range(m):
            if stacked.can_run[i, other, j]:
                needs = held[j] + stacked.resident_bytes[i, other] + max(workspace[j], stacked.workspace_bytes[i, other])
                left = stacked.memory_bytes[i, j] - needs
                if left > most or (left >= 0.0 and best < 0):
                    best, most = j, left
        if best < 0 or most < 0.0:
            return False
        result[other] = best
        held[best] += stacked.resident_bytes[i, other]
        room -= stacked.resident_bytes[i, other]
        workspace[best] = max(workspace[best], stacked.workspace_bytes[i, other])
    if group >= 0:
        result[group] = device
    for other in range(stacked.num_groups[i]):
        if result[other] >= 0:
            state.packing[e, other] = result[other]
    return True


@njit
def allow(stacked, state, e, group, can):  # type: ignore[no-untyped-def]
    """Write the devices that a group may have, ``(m,)``: they can hold it, and packing finds room for the rest.

    One device always stays while a packing is known: that of the packing. Where none is known, holding the group is enough.
    """
    i = state.instance[e]
    can[:] = False
    has_room = is_roomy(stacked, state, e, group)
    if not has_room and state.packing[e, group] < 0:
        pack(stacked, state, e, -1, -1, np.empty(0))
    planned = state.packing[e, group]
    packing = state.packing[e].copy() if not has_room else state.packing[e]
    needed = needed_bytes(stacked, state, e, group) if not has_room else np.empty(0)
    for device in range(stacked.num_devices[i]):
        if fits(stacked, state, e, group, device):
            is_planned = has_room or planned < 0 or device == planned
            can[device] = is_planned or pack(stacked, state, e, group, device, needed)
    if not has_room:
        state.packing[e, :] = packing
