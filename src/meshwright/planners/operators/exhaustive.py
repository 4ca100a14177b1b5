"""Every placement of a small instance, and for the latency of a step every order that can be the best.

Devices that may change places (see `device_classes`) are tried once. A branch is left when its devices are already as busy as
the best placement is slow. For a latency each placement that could still win gets the best of all orders in which its devices
can run their ops: among the active schedules of Giffler and Thompson (1960) there is always one, and a branch of these is
left when the longest way to the end, or the work that a device has left, cannot beat the best.

Legend of shapes: ``n`` ops, ``m`` devices, ``g`` groups, ``k`` tensors, ``c`` classes of devices.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorPlacement, placed, port_s, value
from ...simulation.operators.schedules import arrays, best_order
from .device_classes import device_classes
from .exhaustive_kernel import search
from .request import PlacementRequest

MOST_STEPS = 400_000_000
"""Of the search over orders; about a minute of one core."""


def exhaustive(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """The best of all legal placements, for a latency over all orders too.

    Raises:
        PlanError: more placements than ``request.max_placements`` (their number is named), more orders than can be searched,
            or no placement fits.
    """
    classes = device_classes(instance, request.objective)
    count = num_placements(instance, classes)
    if count > request.max_placements:
        problem = f"has {count:,} placements, and at most {request.max_placements:,} are tried"
        raise PlanError(problem, field="max_placements", value=request.max_placements)
    rank = np.array([int((classes[:device] == classes[device]).sum()) for device in range(instance.num_devices)])
    resident, workspace = instance.group_bytes
    times_s = np.zeros((instance.num_groups, instance.num_devices))
    np.add.at(times_s, instance.group, instance.times_s)
    readers = np.argsort(instance.edge_tensor, kind="stable")
    first_reader = np.zeros(len(instance.tensor_bytes) + 1, np.int64)
    np.cumsum(np.bincount(instance.edge_tensor, minlength=len(instance.tensor_bytes)), out=first_reader[1:])
    tensors = (
        instance.tensor_source,
        first_reader,
        instance.edges[readers, 1],
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
    return placed(
        instance,
        device_of,
        request.objective,
        "exhaustive",
        order=order,
        lower_bound_s=made.value_s,
        is_optimal=True,
        note=searched,
    )


def num_placements(instance: OperatorInstance, classes: NDArray[np.int64]) -> int:
    """Placements that differ by more than an exchange of devices of one class; those that memory rules out are counted.

    Args:
        instance: what is placed.
        classes: class of each device, ``(m,)``, see `device_classes`.
    """
    sizes = np.bincount(classes)
    of_class = [int(np.flatnonzero(classes == each)[0]) for each in range(len(sizes))]
    ways: dict[tuple[int, ...], int] = {(0,) * len(sizes): 1}
    for group in range(instance.num_groups):
        after: dict[tuple[int, ...], int] = {}
        allowed = [each for each, device in enumerate(of_class) if instance.can_run[group, device]]
        for (used, number), each in itertools.product(ways.items(), allowed):
            if used[each]:
                after[used] = after.get(used, 0) + number * used[each]
            if used[each] < sizes[each]:
                more = (*used[:each], used[each] + 1, *used[each + 1 :])
                after[more] = after.get(more, 0) + number
        ways = after
    return sum(ways.values())
