"""Placing ops one after another, compiled: the partial schedule, and the features of each device for the next op.

Legend of shapes: ``E`` episodes, ``n`` most ops, ``m`` most devices, ``g`` most groups, ``k`` most tensors, for latency 0. A
decision gives one group of ops a device. Under ``latency`` every op is inserted into the earliest gap of its device, once it and
all ops before it in the order have devices. Under ``throughput`` loads grow as in `placement.loads_s`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....compiled import njit
from ....numba_records import by_reference
from ...ragged import arrays_of
from ..schedules import earliest_gap, insert_busy
from .memory import allow, is_roomy, pack
from .pipeline import add_group, group_best_s, group_shares, group_time_s, group_transfers
from .stacked import StackedInstances

NUM_CANDIDATE_FEATURES = 17
CANDIDATE_FEATURES = (
    "start",
    "start_beyond_best",
    "end_beyond_best",
    "wait_for_inputs",
    "op_time",
    "relative_speed",
    "memory_left",
    "load_beyond_least",
    "free_beyond_first",
    "input_share_here",
    "growth",
    "co_input_share_here",
    "is_allowed",
    "room",
    "room_share",
    "filled_by_op",
    "tightness",
)
"""Features of each device for the next group, in this order.

Seconds ``s`` are given as ``s / (s + unit)``. The unit of ``start``, the earliest start of the group's first op (for throughput
the load before), is the lower bound of the value. All others have the unit of `placement.feature_unit_s` and are lengths or
differences, since the time since the begin would saturate in long graphs.

- ``start_beyond_best``, ``end_beyond_best``: start and end of the op, less the least of all allowed devices. For throughput they
  are the loads before and after.
- ``load_beyond_least``: seconds of work on the device, less the least of all allowed devices.
- ``free_beyond_first``: the end of the device's last op (for throughput the load before), less the least of all allowed devices.
- ``wait_for_inputs``: seconds between the end of the last producer and the arrival of all inputs, for throughput the seconds of
  transfers.
- ``op_time``, and ``relative_speed``: the best time of the op over its time here.
- ``memory_left``: share of the device's memory after it.
- ``input_share_here``: share of the input bytes already on the device.
- ``growth``: of the value so far.
- ``co_input_share_here``: share already here of the bytes that the readers of this op read from others.
- ``is_allowed``.

The last four describe memory before the decision. ``r`` are the device's free bytes, ``R`` those of all devices. ``b`` are the
bytes of all groups without a device, the next one among them. ``room`` is ``r / (r + b)``, ``room_share`` is ``r / R``,
``filled_by_op`` is the next group's bytes over ``r``, and ``tightness`` is ``b / R``, the same for all devices. With unlimited
memory they are 1, one over the number of devices, 0 and 0.
"""

BEYOND_LEAST = tuple(
    CANDIDATE_FEATURES.index(name) for name in ("start_beyond_best", "end_beyond_best", "load_beyond_least", "free_beyond_first")
)
"""Places of the features that are differences to the least of all allowed devices."""


@njit
def rooms(stacked, state, e):  # type: ignore[no-untyped-def]
    """Return free bytes of each device, of all together, and the bytes of all groups that have no device yet."""
    i = state.instance[e]
    m = stacked.num_devices[i]
    room, all_room, open_bytes = np.zeros(m), 0.0, stacked.all_bytes[i]
    for device in range(m):
        open_bytes -= state.held_bytes[e, device]
        held = state.held_bytes[e, device] + state.workspace_bytes[e, device]
        room[device] = max(0.0, stacked.memory_bytes[i, device] - held)
        all_room += room[device]
    return room, all_room, max(0.0, open_bytes)


@njit
def write_room(out, room, all_room, open_bytes, needed_bytes, m):  # type: ignore[no-untyped-def]
    """Write the four features of memory, see `CANDIDATE_FEATURES`."""
    if room == np.inf:
        out[13], out[14], out[15], out[16] = 1.0, 1.0 / m, 0.0, 0.0
        return
    out[13] = room / (room + open_bytes) if room + open_bytes > 0.0 else 1.0
    out[14] = room / all_room if all_room > 0.0 else 1.0 / m
    out[15] = min(1.0, needed_bytes / room) if room > 0.0 else 0.0
    out[16] = min(1.0, open_bytes / all_room) if all_room > 0.0 else 0.0


@by_reference
class PlacingState(NamedTuple):
    """Episodes side by side.

    Attributes:
        instance: which of the stacked instances each episode places, ``(E,)``.
        num_decided: groups that have a device, ``(E,)``.
        num_scheduled: ops of the order that are scheduled, ``(E,)``.
        device_of: device of each group, -1 while it has none, ``(E, g)``.
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
    """Return episodes that have not begun; `begin` starts them."""
    n, m = stacked.times_s.shape[1:]
    g, k, e = stacked.decided.shape[1], stacked.port_s.shape[1], num_episodes
    return arrays_of(
        PlacingState,
        {
            "instance num_decided num_scheduled value_s": e,
            "device_of packing": (e, g),
            "end_s": (e, n),
            "busy_start_s busy_end_s": (e, m, n),
            "num_busy work_s load_s held_bytes workspace_bytes can_place": (e, m),
            "arrived": (e, k, m),
            "candidates": (e, m, NUM_CANDIDATE_FEATURES),
        },
        {"device_of packing": -1},
    )


@njit
def begin(stacked, state, e, instance):  # type: ignore[no-untyped-def]
    """Start episode ``e`` on an instance with nothing placed, in the instance's order."""
    state.instance[e] = instance
    state.num_decided[e] = 0
    state.num_scheduled[e] = 0
    state.device_of[e, :] = -1
    state.packing[e, :] = -1
    state.num_busy[e, :] = 0
    state.work_s[e, :] = 0.0
    state.load_s[e, :] = 0.0
    state.arrived[e, :, :] = False
    state.value_s[e] = 0.0
    state.held_bytes[e, :] = 0.0
    state.workspace_bytes[e, :] = 0.0
    pack(stacked, state, e, -1, -1, np.empty(0))
    look(stacked, state, e)


@njit
def is_over(stacked, state, e):  # type: ignore[no-untyped-def]
    """Return whether every group has a device."""
    return state.num_decided[e] == stacked.num_groups[state.instance[e]]


@njit
def place_next(stacked, state, e, device):  # type: ignore[no-untyped-def]
    """Place the next group and observe the one after it; returns the growth of the value, in scales."""
    i = state.instance[e]
    before = state.value_s[e]
    group = stacked.decided[i, state.num_decided[e]]
    _give(stacked, state, e, group, device)
    if stacked.is_throughput:
        add_group(stacked, state, e, group, device)
    else:
        _run_in_order(stacked, state, e)
    look(stacked, state, e)
    return (state.value_s[e] - before) / stacked.scale_s[i]


@njit
def _run_in_order(stacked, state, e):  # type: ignore[no-untyped-def]
    """For latency, schedule the next ops of the order that have a device, up to the first that has none."""
    i = state.instance[e]
    while state.num_scheduled[e] < stacked.num_ops[i]:
        op = stacked.order[i, state.num_scheduled[e]]
        on = state.device_of[e, stacked.group[i, op]]
        if on < 0:
            break
        _run(stacked, state, e, op, on)


@njit
def _give(stacked, state, e, group, device):  # type: ignore[no-untyped-def]
    """Place a group on a device; its ops are not scheduled yet."""
    i = state.instance[e]
    is_known = state.packing[e, group] == device
    if not is_known and (is_roomy(stacked, state, e, group) or not pack(stacked, state, e, group, device, np.empty(0))):
        state.packing[e, :] = -1
    state.device_of[e, group] = device
    state.num_decided[e] += 1
    state.held_bytes[e, device] += stacked.resident_bytes[i, group]
    state.workspace_bytes[e, device] = max(state.workspace_bytes[e, device], stacked.workspace_bytes[i, group])


@njit
def _run(stacked, state, e, op, device):  # type: ignore[no-untyped-def]
    """Schedule an op, whose producers are scheduled, on its device; for latency."""
    i = state.instance[e]
    length = stacked.times_s[i, op, device]
    ready, _ = _inputs_ready(stacked, state, e, op, device)
    start, place = earliest_gap(
        state.busy_start_s[e, device], state.busy_end_s[e, device], state.num_busy[e, device], ready, length
    )
    state.end_s[e, op] = start + length
    insert_busy(
        state.busy_start_s[e, device], state.busy_end_s[e, device], state.num_busy[e, device], place, start, start + length
    )
    state.num_busy[e, device] += 1
    state.value_s[e] = max(state.value_s[e], start + length)
    state.work_s[e, device] += length
    state.num_scheduled[e] += 1


@njit
def _inputs_ready(stacked, state, e, op, device):  # type: ignore[no-untyped-def]
    """Return when all inputs are on a device, and when the last producer ends."""
    i = state.instance[e]
    ready, ended = 0.0, 0.0
    for place in range(stacked.first_in[i, op], stacked.first_in[i, op + 1]):
        source = stacked.producer[i, place]
        arrival_s = state.end_s[e, source]
        ended = max(ended, arrival_s)
        on = state.device_of[e, stacked.group[i, source]]
        if on != device:
            arrival_s += stacked.latency_s[i, on, device] + stacked.in_bytes[i, place] * stacked.s_per_byte[i, on, device]
        ready = max(ready, arrival_s)
    return ready, ended


@njit
def look(stacked, state, e):  # type: ignore[no-untyped-def]
    """Write mask and features of the next group."""
    state.candidates[e, :, :] = 0.0
    state.can_place[e, :] = False
    if is_over(stacked, state, e):
        return
    i, at = state.instance[e], state.num_decided[e]
    group, op = stacked.decided[i, at], stacked.lead[i, at]
    allow(stacked, state, e, group, state.can_place[e])
    _write_features(stacked, state, e, op, state.can_place[e], state.candidates[e])


@njit
def _write_features(stacked, state, e, op, can, features):  # type: ignore[no-untyped-def]
    """Write the features of each device that a group may have: for throughput the whole group's, for latency its first op's.

    Args:
        stacked: instances.
        state: of the episodes.
        e: which one.
        op: first of the group.
        can: devices that it may have, ``(m,)``.
        features: written, ``(m, 17)``.
    """
    i = state.instance[e]
    m, group = stacked.num_devices[i], stacked.group[i, op]
    unit = stacked.feature_unit_s[i]
    best_time = group_best_s(stacked, i, group) if stacked.is_throughput else stacked.times_s[i, op, :m].min()
    total_in, total_co = 0.0, 0.0
    in_here, co_here = np.zeros(m), np.zeros(m)
    if stacked.is_throughput:
        total_in = group_shares(stacked, state, e, group, in_here)
    else:
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
        if not can[device]:
            continue
        length = stacked.times_s[i, op, device]
        out = features[device]
        if stacked.is_throughput:
            length = group_time_s(stacked, i, group, device)
            moved, sender = group_transfers(stacked, state, e, group, device)
            start, wait = state.load_s[e, device], moved
            end = start + length + moved
            growth = max(0.0, max(end, sender) - state.value_s[e])
            free = start
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
        write_room(out, room[device], all_room, open_bytes, stacked.resident_bytes[i, group], m)
    for device in range(m):
        if can[device]:
            for kind in range(4):
                beyond = times[device, kind] - least[kind]
                features[device, BEYOND_LEAST[kind]] = beyond / (beyond + unit)
