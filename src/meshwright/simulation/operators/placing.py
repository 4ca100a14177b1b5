"""Placing ops one after another, compiled: the partial schedule, what each device would make of the next op, and memory.

Legend of shapes: ``E`` episodes, ``n`` most ops, ``m`` most devices, ``g`` most groups, ``k`` most tensors. A decision gives one
group of ops a device. Under ``latency`` every op is inserted into the earliest gap of its device as soon as its device and the
devices of all ops before it in the order are known. Under ``throughput`` loads grow as in `placement.loads_s`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...numba_records import by_reference
from .candidates import BEYOND_LEAST, NUM_CANDIDATE_FEATURES, rooms, tell_room
from .schedules import earliest_gap, insert_busy
from .stacked import StackedInstances


@by_reference
class PlacingState(NamedTuple):
    """Episodes side by side.

    Attributes:
        instance: which of the stacked instances each episode places, ``(E,)``.
        num_decided: groups that have a device, ``(E,)``.
        num_scheduled: ops of the order that are scheduled, ``(E,)``.
        device_of: device of each group, -1 while it has none, ``(E, g)``.
        start_s: ``(E, n)``.
        end_s: ``(E, n)``.
        busy_start_s: busy times of each device in order, ``(E, m, n)``.
        busy_end_s: ``(E, m, n)``.
        num_busy: ``(E, m)``.
        work_s: seconds of work on each device, ``(E, m)``.
        load_s: for throughput: that and the transfers through its port, ``(E, m)``.
        held_bytes: of each device, ``(E, m)``.
        workspace_bytes: largest of each device, ``(E, m)``.
        packing: a device for each group with which all that is left still fits, -1 where none was found, ``(E, g)``.
        arrived: whether a tensor crossed to a device, or for its own device left it, ``(E, k, m)``.
        value_s: of what is placed so far, ``(E,)``.
        can_place: devices that the next group may have, ``(E, m)``.
        candidates: features of each device for the next group, ``(E, m, 17)``.
    """

    instance: NDArray[np.int64]
    num_decided: NDArray[np.int64]
    num_scheduled: NDArray[np.int64]
    device_of: NDArray[np.int64]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    busy_start_s: NDArray[np.float64]
    busy_end_s: NDArray[np.float64]
    num_busy: NDArray[np.int64]
    work_s: NDArray[np.float64]
    load_s: NDArray[np.float64]
    held_bytes: NDArray[np.float64]
    workspace_bytes: NDArray[np.float64]
    packing: NDArray[np.int64]
    arrived: NDArray[np.bool_]
    value_s: NDArray[np.float64]
    can_place: NDArray[np.bool_]
    candidates: NDArray[np.float32]


def new_state(stacked: StackedInstances, num_episodes: int) -> PlacingState:
    """Episodes that have not begun; `begin` starts them."""
    n, m = stacked.times_s.shape[1:]
    g, k, e = stacked.decided.shape[1], stacked.port_s.shape[1], num_episodes
    k = k if stacked.is_throughput else 1
    return PlacingState(
        instance=np.zeros(e, np.int64),
        num_decided=np.zeros(e, np.int64),
        num_scheduled=np.zeros(e, np.int64),
        device_of=np.full((e, g), -1, np.int64),
        start_s=np.zeros((e, n)),
        end_s=np.zeros((e, n)),
        busy_start_s=np.zeros((e, m, n)),
        busy_end_s=np.zeros((e, m, n)),
        num_busy=np.zeros((e, m), np.int64),
        work_s=np.zeros((e, m)),
        load_s=np.zeros((e, m)),
        held_bytes=np.zeros((e, m)),
        workspace_bytes=np.zeros((e, m)),
        packing=np.full((e, g), -1, np.int64),
        arrived=np.zeros((e, k, m), np.bool_),
        value_s=np.zeros(e),
        can_place=np.zeros((e, m), np.bool_),
        candidates=np.zeros((e, m, NUM_CANDIDATE_FEATURES), np.float32),
    )


@njit
def begin(stacked, state, e, instance):  # type: ignore[no-untyped-def]
    """Start episode ``e`` on an instance with nothing placed."""
    state.instance[e] = instance
    state.num_decided[e] = 0
    state.num_scheduled[e] = 0
    state.device_of[e, :] = -1
    state.num_busy[e, :] = 0
    state.work_s[e, :] = 0.0
    state.load_s[e, :] = 0.0
    state.held_bytes[e, :] = 0.0
    state.workspace_bytes[e, :] = 0.0
    state.packing[e, :] = -1
    state.arrived[e, :, :] = False
    state.value_s[e] = 0.0
    _pack(stacked, state, e, -1, -1)
    look(stacked, state, e)


@njit
def is_over(stacked, state, e):  # type: ignore[no-untyped-def]
    """Whether every group has a device."""
    return state.num_decided[e] == stacked.num_groups[state.instance[e]]


@njit
def place_next(stacked, state, e, device):  # type: ignore[no-untyped-def]
    """Give the next group a device and look at the one after it; how much the value grew, in scales of the instance."""
    i = state.instance[e]
    group = stacked.decided[i, state.num_decided[e]]
    before = state.value_s[e]
    is_known = state.packing[e, group] == device
    if not is_known and (_is_roomy(stacked, state, e, group) or not _pack(stacked, state, e, group, device)):
        state.packing[e, :] = -1
    state.device_of[e, group] = device
    state.num_decided[e] += 1
    state.held_bytes[e, device] += stacked.resident_bytes[i, group]
    state.workspace_bytes[e, device] = max(state.workspace_bytes[e, device], stacked.workspace_bytes[i, group])
    while state.num_scheduled[e] < stacked.num_ops[i]:
        op = stacked.order[i, state.num_scheduled[e]]
        on = state.device_of[e, stacked.group[i, op]]
        if on < 0:
            break
        if stacked.is_throughput:
            _add_load(stacked, state, e, op, on)
        else:
            _insert(stacked, state, e, op, on)
        state.work_s[e, on] += stacked.times_s[i, op, on]
        state.num_scheduled[e] += 1
    look(stacked, state, e)
    return (state.value_s[e] - before) / stacked.scale_s[i]


@njit
def _insert(stacked, state, e, op, device):  # type: ignore[no-untyped-def]
    i = state.instance[e]
    length = stacked.times_s[i, op, device]
    ready, _ = _inputs_ready(stacked, state, e, op, device)
    start, place = earliest_gap(
        state.busy_start_s[e, device], state.busy_end_s[e, device], state.num_busy[e, device], ready, length
    )
    state.start_s[e, op] = start
    state.end_s[e, op] = start + length
    insert_busy(
        state.busy_start_s[e, device], state.busy_end_s[e, device], state.num_busy[e, device], place, start, start + length
    )
    state.num_busy[e, device] += 1
    state.value_s[e] = max(state.value_s[e], start + length)


@njit
def _inputs_ready(stacked, state, e, op, device):  # type: ignore[no-untyped-def]
    """When all inputs are on a device, and when the last producer ends."""
    i = state.instance[e]
    ready, ended = 0.0, 0.0
    for place in range(stacked.first_in[i, op], stacked.first_in[i, op + 1]):
        source = stacked.producer[i, place]
        there = state.end_s[e, source]
        ended = max(ended, there)
        on = state.device_of[e, stacked.group[i, source]]
        if on != device:
            there += stacked.latency_s[i, on, device] + stacked.in_bytes[i, place] * stacked.s_per_byte[i, on, device]
        ready = max(ready, there)
    return ready, ended


@njit
def _add_load(stacked, state, e, op, device):  # type: ignore[no-untyped-def]
    """Under throughput: the op's time, and each tensor that now crosses for the first time."""
    i = state.instance[e]
    state.load_s[e, device] += stacked.times_s[i, op, device]
    for place in range(stacked.first_in[i, op], stacked.first_in[i, op + 1]):
        on = state.device_of[e, stacked.group[i, stacked.producer[i, place]]]
        tensor = stacked.in_tensor[i, place]
        if on == device or state.arrived[e, tensor, device]:
            continue
        state.arrived[e, tensor, device] = True
        state.load_s[e, device] += stacked.port_s[i, tensor, device]
        if not state.arrived[e, tensor, on]:
            state.arrived[e, tensor, on] = True
            state.load_s[e, on] += stacked.port_s[i, tensor, on]
            state.value_s[e] = max(state.value_s[e], state.load_s[e, on])
    state.value_s[e] = max(state.value_s[e], state.load_s[e, device])


@njit
def _transfers(stacked, state, e, op, device):  # type: ignore[no-untyped-def]
    """Under throughput: seconds on the device's port, and the largest load of a sender, if the op came here."""
    i = state.instance[e]
    here, sender = 0.0, 0.0
    sent = np.zeros(stacked.num_devices[i])
    for place in range(stacked.first_in[i, op], stacked.first_in[i, op + 1]):
        on = state.device_of[e, stacked.group[i, stacked.producer[i, place]]]
        tensor = stacked.in_tensor[i, place]
        if on == device or state.arrived[e, tensor, device]:
            continue
        here += stacked.port_s[i, tensor, device]
        if not state.arrived[e, tensor, on]:
            sent[on] += stacked.port_s[i, tensor, on]
            sender = max(sender, state.load_s[e, on] + sent[on])
    return here, sender


@njit
def _fits(stacked, state, e, group, device):  # type: ignore[no-untyped-def]
    i = state.instance[e]
    workspace = max(state.workspace_bytes[e, device], stacked.workspace_bytes[i, group])
    held = state.held_bytes[e, device] + stacked.resident_bytes[i, group] + workspace
    return stacked.can_run[i, group, device] and held <= stacked.memory_bytes[i, device]


@njit
def _is_roomy(stacked, state, e, group):  # type: ignore[no-untyped-def]
    """Whether packing what is left after ``group`` succeeds wherever the group goes, without trying.

    Packing fails at a group of size ``s`` only where each of the ``m`` devices has less than ``s`` left, so all room together
    is less than what is still to be packed and ``(m - 1) s``. Where there is more, it cannot fail.
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
def _pack(stacked, state, e, group, device):  # type: ignore[no-untyped-def]
    """Whether all that is left fits when ``group`` goes to ``device``, packed largest first, each where most is left.

    A packing that was found is kept in ``state.packing``. Group -1 packs everything that is left.
    """
    i = state.instance[e]
    m = stacked.num_devices[i]
    held = np.empty(m)
    workspace = np.empty(m)
    for j in range(m):
        held[j] = state.held_bytes[e, j]
        workspace[j] = state.workspace_bytes[e, j]
    if group >= 0:
        held[device] += stacked.resident_bytes[i, group]
        workspace[device] = max(workspace[device], stacked.workspace_bytes[i, group])
    found = np.full(stacked.num_groups[i], -1, np.int64)
    for at in range(stacked.num_groups[i]):
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
        found[other] = best
        held[best] += stacked.resident_bytes[i, other]
        workspace[best] = max(workspace[best], stacked.workspace_bytes[i, other])
    if group >= 0:
        found[group] = device
    for other in range(stacked.num_groups[i]):
        if found[other] >= 0:
            state.packing[e, other] = found[other]
    return True


@njit
def allow(stacked, state, e):  # type: ignore[no-untyped-def]
    """Devices that the next group may have: they hold it, and what is left fits as far as packing can tell.

    One device always stays while a packing is known: that of the packing. Where none is known, holding the group is enough.
    """
    i = state.instance[e]
    group = stacked.decided[i, state.num_decided[e]]
    state.can_place[e, :] = False
    is_roomy = _is_roomy(stacked, state, e, group)
    if not is_roomy and state.packing[e, group] < 0:
        _pack(stacked, state, e, -1, -1)
    planned = state.packing[e, group]
    kept = state.packing[e].copy() if not is_roomy else state.packing[e]
    for device in range(stacked.num_devices[i]):
        if _fits(stacked, state, e, group, device):
            is_planned = is_roomy or planned < 0 or device == planned
            state.can_place[e, device] = is_planned or _pack(stacked, state, e, group, device)
    if not is_roomy:
        state.packing[e, :] = kept


@njit
def look(stacked, state, e):  # type: ignore[no-untyped-def]
    """Write mask and features of the next group."""
    state.candidates[e, :, :] = 0.0
    state.can_place[e, :] = False
    if is_over(stacked, state, e):
        return
    allow(stacked, state, e)
    i = state.instance[e]
    m, group = stacked.num_devices[i], stacked.decided[i, state.num_decided[e]]
    op = stacked.lead[i, state.num_decided[e]]
    unit = stacked.feature_unit_s[i]
    best_time = np.inf
    for device in range(m):
        best_time = min(best_time, stacked.times_s[i, op, device])
    total_in, total_co = 0.0, 0.0
    in_here, co_here = np.zeros(m), np.zeros(m)
    for place in range(stacked.first_in[i, op], stacked.first_in[i, op + 1]):
        amount = stacked.in_bytes[i, place]
        total_in += amount
        in_here[state.device_of[e, stacked.group[i, stacked.producer[i, place]]]] += amount
    for place in range(stacked.first_out[i, op], stacked.first_out[i, op + 1]):
        reader = stacked.reader[i, place]
        for other in range(stacked.first_in[i, reader], stacked.first_in[i, reader + 1]):
            source = stacked.producer[i, other]
            if source != op:
                total_co += stacked.in_bytes[i, other]
                on = state.device_of[e, stacked.group[i, source]]
                if on >= 0:
                    co_here[on] += stacked.in_bytes[i, other]
    times, least = np.zeros((m, 4)), np.full(4, np.inf)
    room, all_room, open_bytes = rooms(stacked, state, e)
    for device in range(m):
        if not state.can_place[e, device]:
            continue
        length = stacked.times_s[i, op, device]
        out = state.candidates[e, device]
        if stacked.is_throughput:
            moved, sender = _transfers(stacked, state, e, op, device)
            start, end, wait = state.load_s[e, device], state.load_s[e, device] + length + moved, moved
            growth = max(0.0, max(end, sender) - state.value_s[e])
            free = state.load_s[e, device]
        else:
            ready, ended = _inputs_ready(stacked, state, e, op, device)
            count = state.num_busy[e, device]
            start, _ = earliest_gap(state.busy_start_s[e, device], state.busy_end_s[e, device], count, ready, length)
            end, wait = start + length, ready - ended
            growth = max(0.0, end - state.value_s[e])
            free = state.busy_end_s[e, device, count - 1] if count else 0.0
        times[device, 0], times[device, 1], times[device, 2], times[device, 3] = start, end, state.work_s[e, device], free
        for kind in range(4):
            least[kind] = min(least[kind], times[device, kind])
        workspace = max(state.workspace_bytes[e, device], stacked.workspace_bytes[i, group])
        held = state.held_bytes[e, device] + stacked.resident_bytes[i, group] + workspace
        memory = stacked.memory_bytes[i, device]
        out[0] = start / (start + stacked.scale_s[i])
        out[3] = wait / (wait + unit)
        out[4] = length / (length + unit)
        out[5] = best_time / length if length > 0.0 else 1.0
        out[6] = 1.0 - held / memory if 0.0 < memory < np.inf else 1.0
        out[9] = in_here[device] / total_in if total_in > 0.0 else 0.0
        out[10] = growth / (growth + unit)
        out[11] = co_here[device] / total_co if total_co > 0.0 else 0.0
        out[12] = 1.0
        tell_room(out, room[device], all_room, open_bytes, stacked.resident_bytes[i, group], m)
    for device in range(m):
        if state.can_place[e, device]:
            for kind in range(4):
                beyond = times[device, kind] - least[kind]
                state.candidates[e, device, BEYOND_LEAST[kind]] = beyond / (beyond + unit)
