"""Every placement of a small instance, and for the latency of a step every order that can be the best.

Devices that may change places (see `device_classes`) are tried once. A branch is left when its devices are already busy for the
best placement's time. For a latency each placement that could still win gets the best order of its devices' ops. The active
schedules of Giffler and Thompson (1960) always contain one. A branch of these is left when its longest way to the end, or a
device's remaining work, cannot beat the best.

Legend of shapes: ``n`` ops, ``m`` devices, ``g`` groups, ``k`` tensors, ``c`` classes of devices.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorPlacement, placed, port_s, value
from ...simulation.operators.schedules import arrays, best_order
from ...simulation.ragged import rows_by_owner
from .device_classes import device_classes
from .exhaustive_kernel import search
from .request import PlacementRequest

MOST_STEPS = 400_000_000
"""Of the search over orders; about a minute of one core."""
_MANY_STEPS = 50_000
"""Of counting placements; about a tenth of a second."""
_MOST_WRITTEN = 10**24
"""Greater numbers are shown as powers of ten."""


def exhaustive(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """The best of all legal placements, for a latency over all orders too.

    Raises:
        PlanError: more placements than ``request.max_placements`` (their number is named), more orders than can be searched,
            or no placement fits.
    """
    classes = device_classes(instance, request.objective)
    count, is_whole = num_placements(instance, classes, enough=request.max_placements)
    if count > request.max_placements:
        told = f"{count:,}" if count < _MOST_WRITTEN else f"about 1e{int(math.log10(count))}"
        problem = f"has {'' if is_whole else 'more than '}{told} placements, and at most {request.max_placements:,} are tried"
        raise PlanError(problem, field="max_placements", value=request.max_placements)
    rank = np.array([int((classes[:device] == classes[device]).sum()) for device in range(instance.num_devices)])
    resident, workspace = instance.group_bytes
    times_s = np.zeros((instance.num_groups, instance.num_devices))
    np.add.at(times_s, instance.group, instance.times_s)
    tensors = (
        instance.tensor_source,
        *rows_by_owner(instance.edge_tensor, instance.edges[:, 1], len(instance.tensor_bytes)),
        np.where(instance.is_host, 0.0, port_s(instance, instance.tensor_bytes)),
    )
    first_out, out_edge = instance.outgoing
    graph = (first_out, instance.edges[out_edge, 1], instance.edge_bytes[out_edge], instance.topological)
    groups = (instance.group, times_s, instance.can_run, resident, workspace, instance.memory_bytes)
    is_latency = request.objective == "latency"
    found, device_of, order, steps = search(is_latency, groups, (classes, rank), tensors, arrays(instance), graph, MOST_STEPS)
    if steps > MOST_STEPS:
        raise PlanError("has more orders of its ops than can be searched", field="max_placements", value=instance.num_ops)
    if not np.isfinite(found):
        raise PlanError("no placement fits the devices' memory", value=instance.name)
    if not is_latency or value(instance, device_of, "latency", best_order(instance, device_of)) <= found:
        order = best_order(instance, device_of)
    made = placed(instance, device_of, request.objective, "exhaustive", order=order, is_optimal=True)
    searched = f"best of all {count:,} placements" + (" and of all orders of their ops" if is_latency else "")
    return replace(made, lower_bound_s=max(made.lower_bound_s, made.value_s), note=searched)


def num_placements(instance: OperatorInstance, classes: NDArray[np.int64], enough: float = math.inf) -> tuple[int, bool]:
    """Placements that differ by more than an exchange of devices of one class; those that memory rules out are counted.

    Args:
        instance: what is placed.
        classes: class of each device, ``(m,)``, see `device_classes`.
        enough: counting ends where there are more than so many and it takes long, as with many classes of some devices each.

    Returns:
        how many, and whether these are all.
    """
    sizes = np.bincount(classes)
    allowed = instance.can_run[:, [int(np.flatnonzero(classes == each)[0]) for each in range(len(sizes))]]
    alone, shared = np.flatnonzero(sizes == 1).tolist(), np.flatnonzero(sizes > 1).tolist()
    # By how many devices of each class of several are used; a class of one device takes a group in one way, used or not.
    ways: dict[tuple[int, ...], int] = {(0,) * len(shared): 1}
    steps, left = 0, math.prod(int(each) for each in allowed.sum(axis=1))
    for may in allowed:
        least = sum(ways.values()) * left  # each class that may have a group takes it in one way or more
        if least > enough and steps > _MANY_STEPS:
            return least, False
        single = int(may[alone].sum())
        after: dict[tuple[int, ...], int] = {used: number * single for used, number in ways.items()} if single else {}
        places = [at for at, each in enumerate(shared) if may[each]]
        for (used, number), at in itertools.product(ways.items(), places):
            if used[at]:
                after[used] = after.get(used, 0) + number * used[at]
            if used[at] < sizes[shared[at]]:
                more = (*used[:at], used[at] + 1, *used[at + 1 :])
                after[more] = after.get(more, 0) + number
        steps += len(ways) * len(places)
        left //= int(may.sum())
        ways = after
    return sum(ways.values()), True
