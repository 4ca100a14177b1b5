"""The features of each device that the next group of ops may get, in the order of `placing.PlacingState.candidates`."""

import numpy as np

from ....compiled import njit

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
    """Free bytes of each device, of all together, and the bytes of all groups that have no device yet."""
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
    """The four features of memory, see `CANDIDATE_FEATURES`."""
    if room == np.inf:
        out[13], out[14], out[15], out[16] = 1.0, 1.0 / m, 0.0, 0.0
        return
    out[13] = room / (room + open_bytes) if room + open_bytes > 0.0 else 1.0
    out[14] = room / all_room if all_room > 0.0 else 1.0 / m
    out[15] = min(1.0, needed_bytes / room) if room > 0.0 else 0.0
    out[16] = min(1.0, open_bytes / all_room) if all_room > 0.0 else 0.0
