"""The effect of a decision on a full pipeline, compiled: the loads of whole groups.

Loads are sums in any order. So a group's ops and their transfers with all placed neighbours count as soon as the group has a
device. States are `placing.PlacingState`, instances `stacked.StackedInstances`.
"""

import numpy as np

from ....compiled import njit


@njit
def group_time_s(stacked, i, group, device):  # type: ignore[no-untyped-def]
    """Return the seconds of a group's ops on a device."""
    total = 0.0
    for at in range(stacked.first_member[i, group], stacked.first_member[i, group + 1]):
        total += stacked.times_s[i, stacked.member[i, at], device]
    return total


@njit
def group_best_s(stacked, i, group):  # type: ignore[no-untyped-def]
    """Return the least of `group_time_s`."""
    best = np.inf
    for device in range(stacked.num_devices[i]):
        best = min(best, group_time_s(stacked, i, group, device))
    return best


@njit
def group_shares(stacked, state, e, group, here):  # type: ignore[no-untyped-def]
    """Return bytes that a group reads from other groups or sends to placed ones; adds those on each device to ``here``."""
    i, total = state.instance[e], 0.0
    for at in range(stacked.first_member[i, group], stacked.first_member[i, group + 1]):
        op = stacked.member[i, at]
        for place in range(stacked.first_in[i, op], stacked.first_in[i, op + 1]):
            other = stacked.group[i, stacked.producer[i, place]]
            if other != group:
                total += stacked.in_bytes[i, place]
                if state.device_of[e, other] >= 0:
                    here[state.device_of[e, other]] += stacked.in_bytes[i, place]
        for place in range(stacked.first_out[i, op], stacked.first_out[i, op + 1]):
            on = state.device_of[e, stacked.group[i, stacked.reader[i, place]]]
            if on >= 0 and stacked.group[i, stacked.reader[i, place]] != group:
                total += stacked.out_bytes[i, place]
                here[on] += stacked.out_bytes[i, place]
    return total


@njit
def group_transfers(stacked, state, e, group, device):  # type: ignore[no-untyped-def]
    """Return the seconds on the device's port, and the largest load of another device, if the group came here."""
    m = stacked.num_devices[state.instance[e]]
    added, other = np.zeros(m), 0.0
    marked = _cross(stacked, state, e, group, device, added)
    for at in range(len(marked)):
        state.arrived[e, marked[at, 0], marked[at, 1]] = False
    for j in range(m):
        if j != device and added[j] > 0.0:
            other = max(other, state.load_s[e, j] + added[j])
    return added[device], other


@njit
def add_group(stacked, state, e, group, device):  # type: ignore[no-untyped-def]
    """Count the ops of a group that a device holds now, and each tensor that now crosses for the first time."""
    i = state.instance[e]
    m = stacked.num_devices[i]
    added = np.zeros(m)
    _cross(stacked, state, e, group, device, added)
    work = group_time_s(stacked, i, group, device)
    state.work_s[e, device] += work
    added[device] += work
    for j in range(m):
        if added[j] > 0.0:
            state.load_s[e, j] += added[j]
            state.value_s[e] = max(state.value_s[e], state.load_s[e, j])
    state.num_scheduled[e] += stacked.first_member[i, group + 1] - stacked.first_member[i, group]


@njit
def _cross(stacked, state, e, group, device, added):  # type: ignore[no-untyped-def]
    """Let the tensors between a group on a device and all neighbours that have one cross; tensors and devices newly reached."""
    i = state.instance[e]
    most = 0
    for at in range(stacked.first_member[i, group], stacked.first_member[i, group + 1]):
        op = stacked.member[i, at]
        most += stacked.first_in[i, op + 1] - stacked.first_in[i, op] + stacked.first_out[i, op + 1] - stacked.first_out[i, op]
    marked, count = np.empty((2 * most, 2), np.int64), 0
    for at in range(stacked.first_member[i, group], stacked.first_member[i, group + 1]):
        op = stacked.member[i, at]
        for place in range(stacked.first_in[i, op], stacked.first_in[i, op + 1]):
            other = stacked.group[i, stacked.producer[i, place]]
            on = state.device_of[e, other]
            if other != group and on >= 0 and on != device:
                count = _mark(stacked, state, e, stacked.in_tensor[i, place], device, on, added, marked, count)
        for place in range(stacked.first_out[i, op], stacked.first_out[i, op + 1]):
            other = stacked.group[i, stacked.reader[i, place]]
            on = state.device_of[e, other]
            if other != group and on >= 0 and on != device:
                count = _mark(stacked, state, e, stacked.out_tensor[i, place], on, device, added, marked, count)
    return marked[:count]


@njit
def _mark(stacked, state, e, tensor, reader, sender, added, marked, count):  # type: ignore[no-untyped-def]
    i = state.instance[e]
    for on in (reader, sender):
        if not state.arrived[e, tensor, on]:
            state.arrived[e, tensor, on] = True
            added[on] += stacked.port_s[i, tensor, on]
            marked[count, 0], marked[count, 1] = tensor, on
            count += 1
    return count
