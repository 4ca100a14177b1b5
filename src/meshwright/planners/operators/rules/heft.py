"""HEFT: ops by falling upward rank, each on the device on which it ends first, gaps between earlier ops included.

Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing", 2002. Memory:
a device is passed over where the op's group does not fit, or where what is left to place would then fit nowhere (`packing`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....compiled import njit
from ....simulation.operators.instance import OperatorInstance
from ....simulation.operators.placement import OperatorPlacement, placed
from ....simulation.operators.schedules import arrays, earliest_gap, inputs_ready_s, insert_busy, upward_order
from ..request import PlacementRequest
from .packing import memory_of, place_group, reserve


def heft(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """Place each op where it ends first; a group's device is that of its first op.

    Raises:
        PlanError: no placement was found that memory and devices allow.
    """
    return placed(instance, heft_devices(instance), request.objective, "heft")


def heft_devices(instance: OperatorInstance, *, with_insertion: bool = True) -> NDArray[np.int64]:
    """Return the device of each op by HEFT, ``(n,)``; without insertion each op runs after the last that its device was given.

    Raises:
        PlanError: as `heft`.
    """
    memory = memory_of(instance)
    reserved = reserve(instance, memory)
    _place_all(arrays(instance), instance.group, memory, reserved, upward_order(instance), with_insertion)
    return reserved.device_of[instance.group]


@njit
def _place_all(inputs, group_of, memory, reserved, order, with_insertion):  # type: ignore[no-untyped-def]
    """Place every group, in the order of their first ops."""
    times_s = inputs[0]
    n, m = times_s.shape
    device_of, end_s = np.full(n, -1, np.int64), np.zeros(n)
    starts, ends, count = np.empty((m, n)), np.empty((m, n)), np.zeros(m, np.int64)
    start_on, place_on, end_on = np.zeros(m), np.zeros(m, np.int64), np.zeros(m)
    for op in order:
        group = group_of[op]
        only = reserved.device_of[group] if reserved.is_placed[group] else -1
        for device in range(m):
            end_on[device] = np.inf
            if (only >= 0 and device != only) or not memory.can_run[group, device]:
                continue
            ready = inputs_ready_s(inputs, op, device, device_of, end_s)
            if with_insertion:
                start_on[device], place_on[device] = earliest_gap(
                    starts[device], ends[device], count[device], ready, times_s[op, device]
                )
            else:
                last = ends[device, count[device] - 1] if count[device] > 0 else 0.0
                start_on[device], place_on[device] = max(ready, last), count[device]
            end_on[device] = start_on[device] + times_s[op, device]
        best = np.argmin(end_on)
        while only < 0 and end_on[best] < np.inf and not place_group(memory, reserved, group, best):
            end_on[best] = np.inf
            best = np.argmin(end_on)
        device_of[op], end_s[op] = best, end_on[best]
        insert_busy(starts[best], ends[best], count[best], place_on[best], start_on[best], end_s[op])
        count[best] += 1
