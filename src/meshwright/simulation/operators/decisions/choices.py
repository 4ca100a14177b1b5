"""Decisions about which op and which device, compiled: ops placed in the order in which they are chosen, and placements refined.

While ops are placed (``order: policy``) a group may be chosen once all producers of its first op are scheduled; it then runs at
once, and with it all ops of groups placed before whose producers are scheduled now. For throughput, where loads add up in any
order, an op counts as scheduled as soon as it has a device. In refinement any group may be chosen, for
its own device too, which leaves everything as it is; else the whole placement is scheduled anew.

States are `placing.PlacingState`, instances `stacked.StackedInstances`; see there for the legend of shapes.
"""

from __future__ import annotations

import numpy as np

from ....compiled import njit
from .candidates import rooms
from .memory import allow, fits
from .pipeline import add_group
from .placing import clear, clear_schedule, give, is_over, run, tell


@njit
def begin_choosing(stacked, state, e, instance):  # type: ignore[no-untyped-def]
    """Start episode ``e`` on an instance with nothing placed."""
    clear(stacked, state, e, instance)
    state.is_open[e] = False
    state.op_can[e] = False
    state.op_candidates[e] = 0.0
    state.op_features[e] = 0.0
    for op in range(stacked.num_ops[instance]):
        state.waits_for[e, op] = stacked.first_in[instance, op + 1] - stacked.first_in[instance, op]
    look_at_choices(stacked, state, e)


@njit
def is_refined(stacked, state, e):  # type: ignore[no-untyped-def]
    """Whether every group has a device and every step of refinement is done."""
    return is_over(stacked, state, e) and state.num_moves[e] == stacked.refine_steps


@njit
def is_possible(state, e, op, device):  # type: ignore[no-untyped-def]
    """Whether a group, by its first op, may be chosen for a device."""
    is_inside = 0 <= op < state.op_can.shape[1] and 0 <= device < state.op_can.shape[2]
    return is_inside and state.op_can[e, op, device]


@njit
def place_chosen(stacked, state, e, op, device):  # type: ignore[no-untyped-def]
    """Place the group of an op, and schedule what can run then; returns the growth of the value, in scales.

    Looks at nothing yet.
    """
    i = state.instance[e]
    before = state.value_s[e]
    group = stacked.group[i, op]
    give(stacked, state, e, group, device)
    if stacked.is_throughput:
        add_group(stacked, state, e, group, device)
        for at in range(stacked.first_member[i, group], stacked.first_member[i, group + 1]):
            other = stacked.member[i, at]
            state.waits_for[e, other] = -1
            for out in range(stacked.first_out[i, other], stacked.first_out[i, other + 1]):
                state.waits_for[e, stacked.reader[i, out]] -= 1
        return (state.value_s[e] - before) / stacked.scale_s[i]
    for place in range(stacked.num_ops[i]):
        other = stacked.order[i, place]
        on = state.device_of[e, stacked.group[i, other]]
        if on < 0 or state.waits_for[e, other] != 0:
            if not stacked.picks_ops and state.waits_for[e, other] >= 0:
                break  # in a given order nothing overtakes
            continue
        run(stacked, state, e, other, on)
        state.waits_for[e, other] = -1
        for out in range(stacked.first_out[i, other], stacked.first_out[i, other + 1]):
            state.waits_for[e, stacked.reader[i, out]] -= 1
    return (state.value_s[e] - before) / stacked.scale_s[i]


@njit
def move(stacked, state, e, op, device):  # type: ignore[no-untyped-def]
    """Move a group to another device; its schedule is that of before until `reschedule`."""
    i = state.instance[e]
    group = stacked.group[i, op]
    source = state.device_of[e, group]
    state.device_of[e, group] = device
    for changed in (source, device):
        state.held_bytes[e, changed], state.workspace_bytes[e, changed] = 0.0, 0.0
        for other in range(stacked.num_groups[i]):
            if state.device_of[e, other] == changed:
                state.held_bytes[e, changed] += stacked.resident_bytes[i, other]
                state.workspace_bytes[e, changed] = max(state.workspace_bytes[e, changed], stacked.workspace_bytes[i, other])


@njit
def reschedule(stacked, state, e, order):  # type: ignore[no-untyped-def]
    """Schedule the ops of every device in an order, each as soon as its inputs are there."""
    i = state.instance[e]
    clear_schedule(state, e)
    state.num_scheduled[e] = 0
    if stacked.is_throughput:
        for group in range(stacked.num_groups[i]):
            add_group(stacked, state, e, group, state.device_of[e, group])
        return
    for op in order:
        on = state.device_of[e, stacked.group[i, op]]
        ready = state.busy_end_s[e, on, state.num_busy[e, on] - 1] if state.num_busy[e, on] else 0.0
        for place in range(stacked.first_in[i, op], stacked.first_in[i, op + 1]):
            source = stacked.producer[i, place]
            there, sender = state.end_s[e, source], state.device_of[e, stacked.group[i, source]]
            if sender != on:
                there += stacked.latency_s[i, sender, on] + stacked.in_bytes[i, place] * stacked.s_per_byte[i, sender, on]
            ready = max(ready, there)
        length, at = stacked.times_s[i, op, on], state.num_busy[e, on]
        state.start_s[e, op], state.end_s[e, op] = ready, ready + length
        state.busy_start_s[e, on, at], state.busy_end_s[e, on, at] = ready, ready + length
        state.num_busy[e, on] = at + 1
        state.work_s[e, on] += length
        state.value_s[e] = max(state.value_s[e], ready + length)
        state.num_scheduled[e] += 1


@njit
def look_at_choices(stacked, state, e):  # type: ignore[no-untyped-def]
    """Write masks and features of all ops that may be chosen; whether there is a choice."""
    i = state.instance[e]
    for op in range(stacked.num_ops[i]):
        if state.is_open[e, op]:  # no other row holds anything
            state.op_candidates[e, op] = 0.0
            state.op_can[e, op] = False
            state.op_features[e, op] = 0.0
            state.is_open[e, op] = False
    if is_refined(stacked, state, e):
        return False
    is_moved = is_over(stacked, state, e)
    found = np.zeros((stacked.num_ops[i], 4))
    has_any = False
    slack = _slack(stacked, state, e) if is_moved else np.zeros(0)
    room_of = rooms(stacked, state, e)
    for at in range(stacked.num_groups[i]):
        op, group = stacked.lead[i, at], stacked.decided[i, at]
        if is_moved:
            found[op, 0], found[op, 1], found[op, 2], found[op, 3] = _tell_move(stacked, state, e, op)
        else:
            if state.device_of[e, group] >= 0 or state.waits_for[e, op] != 0:
                continue
            can = state.op_can[e, op]
            if allow(stacked, state, e, group, can):
                told = tell(stacked, state, e, op, room_of, -1, can, state.op_candidates[e, op])
                found[op, 0], found[op, 1], found[op, 2], found[op, 3] = told
        state.is_open[e, op] = state.op_can[e, op].any()
        has_any |= state.is_open[e, op]
        if not stacked.picks_ops and not is_moved:
            break
    _tell_ops(stacked, state, e, found, slack)
    return has_any


@njit
def _tell_move(stacked, state, e, op):  # type: ignore[no-untyped-def]
    """Devices that a placed group may have and their features, as if its device did not hold it and its ops still ran there."""
    i = state.instance[e]
    group = stacked.group[i, op]
    own = state.device_of[e, group]
    can = state.op_can[e, op]
    for device in range(stacked.num_devices[i]):
        can[device] = device == own or fits(stacked, state, e, group, device)
    held, work = state.held_bytes[e, own], state.work_s[e, own]
    state.held_bytes[e, own] -= stacked.resident_bytes[i, group]
    for other in range(stacked.num_ops[i]):
        if stacked.group[i, other] == group:
            state.work_s[e, own] -= stacked.times_s[i, other, own]
    told = tell(stacked, state, e, op, rooms(stacked, state, e), own, can, state.op_candidates[e, op])
    state.held_bytes[e, own], state.work_s[e, own] = held, work
    return told


@njit
def _tell_ops(stacked, state, e, found, slack):  # type: ignore[no-untyped-def]
    """Write `candidates.OP_FEATURES`; ``found`` is what `placing.tell` returned of each op, ``(n, 4)``."""
    i = state.instance[e]
    unit, is_moved = stacked.feature_unit_s[i], is_over(stacked, state, e)
    highest, first_start, first_end = 0.0, np.inf, np.inf
    for op in range(stacked.num_ops[i]):
        if state.is_open[e, op]:
            highest = max(highest, stacked.rank_s[i, op])
            first_start, first_end = min(first_start, found[op, 0]), min(first_end, found[op, 1])
    for op in range(stacked.num_ops[i]):
        if not state.is_open[e, op]:
            continue
        told = state.op_features[e, op]
        start, end, second = found[op, 0] - first_start, found[op, 1] - first_end, found[op, 2] - found[op, 1]
        told[1], told[2] = start / (start + unit), end / (end + unit)
        told[3] = second / (second + unit) if second < np.inf else 1.0
        told[4] = found[op, 3] / stacked.num_devices[i]
        if is_moved:
            own = state.device_of[e, stacked.group[i, op]]
            now = state.load_s[e, own] if stacked.is_throughput else state.end_s[e, op]
            gain = max(0.0, now - found[op, 1])
            told[5], told[6], told[7] = gain / (gain + unit), slack[op] / (slack[op] + unit), 1.0
        else:
            below = highest - stacked.rank_s[i, op]
            told[0] = below / (below + unit)


@njit
def _slack(stacked, state, e):  # type: ignore[no-untyped-def]
    """How much later each op could end without a later end of the step, or how far its device's load is below the largest."""
    i = state.instance[e]
    n = stacked.num_ops[i]
    latest = np.full(n, state.value_s[e])
    if stacked.is_throughput:
        for op in range(n):
            latest[op] -= state.load_s[e, state.device_of[e, stacked.group[i, op]]]
        return latest
    by_start = stacked.order[i, :n][np.argsort(state.start_s[e, :n][stacked.order[i, :n]], kind="mergesort")]
    next_latest = np.full(stacked.num_devices[i], state.value_s[e])
    for place in range(n - 1, -1, -1):
        op = by_start[place]
        on = state.device_of[e, stacked.group[i, op]]
        latest[op] = min(latest[op], next_latest[on])
        starts = latest[op] - stacked.times_s[i, op, on]
        next_latest[on] = starts
        for at in range(stacked.first_in[i, op], stacked.first_in[i, op + 1]):
            source = stacked.producer[i, at]
            there, sender = starts, state.device_of[e, stacked.group[i, source]]
            if sender != on:
                there -= stacked.latency_s[i, sender, on] + stacked.in_bytes[i, at] * stacked.s_per_byte[i, sender, on]
            latest[source] = min(latest[source], there)
    for op in range(n):
        latest[op] = max(0.0, latest[op] - state.end_s[e, op])
    return latest
