"""PipeDream's and Piper's pipelines where a stage is one device: their recurrences behind the interface of all planners.

A placement gives each op one device, so stages have no replicas and no tensor parallelism; what is left of the two is which
pipeline of at most so many stages is the best by their own forms (`simulation.operators.stage_forms`). For stages with replicas
see `pipedream` and `piper`, which plan for profiles and for Piper's files. The value of what they find is max-load, as that of
every planner for throughput.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ....errors import PlanError
from ....quantities import counted
from ....simulation.operators.instance import OperatorInstance
from ....simulation.operators.placement import OperatorPlacement, placed
from ....simulation.operators.stage_forms import forward_edges, shared_bandwidth
from ....simulation.ragged import joined_rows
from ..request import PlacementRequest
from .downset_kernel import best_chain
from .ideals import by_seconds, downsets_of, orders, prefixes
from .pipedream_kernel import best_line
from .units import Units

REPLICAS = "plan --search and validate placements have replicas of stages"
"""What a reader who expected them should know."""


Chain = list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]


def pipedream_stages(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """The best stages of one replica each by PipeDream's form, on as many of the devices as that takes.

    Raises:
        PlanError: devices or links differ, more downsets than ``request.max_ideals`` (their number is named), or nothing fits.
    """
    units, kind, bandwidth = _equal_devices(instance, "PipeDream")
    edges = forward_edges(instance)
    ends, tensor_of = units.of_op[instance.edges[edges]], instance.edge_tensor[edges]

    def best(downsets: NDArray[np.bool_], bound_s: float) -> tuple[float, Chain]:
        handed = np.zeros(len(downsets))
        for tensor in np.unique(tensor_of).tolist():
            of = ends[tensor_of == tensor]
            is_open = downsets[:, of[0, 0]] & ~downsets[:, of[:, 1]].all(axis=1)
            handed[is_open] += float(instance.tensor_bytes[tensor])
        found, chain = best_line(
            downsets,
            np.ascontiguousarray(units.times_s[:, kind]),
            units.resident_bytes,
            units.workspace_bytes,
            float(units.memory_bytes[kind]),
            int(units.num_devices[kind]),
            2.0 * handed / bandwidth,
            bound_s,
        )
        return float(found), [(downsets[here], downsets[before]) for here, before in chain[::-1].tolist()]

    return _planned(instance, units, request, best, kind, "pipedream")


def piper_stages(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """The best stages of one device each by Piper's form; nothing is computed again, and no op is split.

    Raises:
        PlanError: as `pipedream_stages`.
    """
    units, kind, bandwidth = _equal_devices(instance, "Piper")
    edges = forward_edges(instance)
    ends = units.of_op[instance.edges[edges]]
    is_between = ends[:, 0] != ends[:, 1]
    seconds = 2.0 * instance.edge_bytes[edges][is_between] / bandwidth
    joined = joined_rows(np.sort(ends[is_between], axis=1).tolist())

    def best(downsets: NDArray[np.bool_], bound_s: float) -> tuple[float, Chain]:
        found, chain = best_chain(
            downsets,
            np.ascontiguousarray(units.times_s[:, [kind]]),
            units.resident_bytes,
            units.workspace_bytes,
            units.memory_bytes[[kind]],
            units.num_devices[[kind]],
            joined,
            np.ascontiguousarray(seconds[:, None]),
            bound_s,
        )
        return float(found), [(downsets[here], downsets[before]) for _, here, before in chain[::-1].tolist()]

    return _planned(instance, units, request, best, kind, "piper")


def _equal_devices(instance: OperatorInstance, whose: str) -> tuple[Units, int, float]:
    """Units, the class of devices that are stages, and bytes a second between any two; hosts are left out."""
    units = Units.of(instance)
    devices = np.flatnonzero(~instance.is_host)
    kinds = np.unique(units.device_class[devices])
    if len(kinds) != 1:
        firsts = [instance.device_names[int(devices[units.device_class[devices] == kind][0])] for kind in kinds[:2]]
        differ = f"{' and '.join(firsts)} differ; ideals and linear take them" if firsts else "here are hosts' processors alone"
        raise PlanError(f"{whose}'s recurrence is of equal devices, and {differ}", field="devices", value=instance.num_devices)
    unable = np.flatnonzero(~np.isfinite(units.times_s[:, kinds[0]]))
    if unable.size:
        op = instance.op_names[int(np.flatnonzero(units.of_op == unable[0])[0])]
        raise PlanError(f"{whose}'s recurrence leaves hosts' processors out, and this op runs on no other", value=op)
    return units, int(kinds[0]), shared_bandwidth(instance, devices)


def _planned(
    instance: OperatorInstance,
    units: Units,
    request: PlacementRequest,
    best: Callable[[NDArray[np.bool_], float], tuple[float, Chain]],
    kind: int,
    planner: str,
) -> OperatorPlacement:
    times_s = units.times_s[:, kind]
    downsets = by_seconds(times_s, downsets_of(units, request.max_ideals))
    bound_s = np.inf
    for order in orders(units):  # which need not be searched again
        bound_s = min(bound_s, best(by_seconds(times_s, prefixes(order)), bound_s)[0])
    value_s, chain = best(downsets, bound_s)
    if not np.isfinite(value_s):
        raise PlanError("no stages of one device each fit the devices", value=instance.name)
    count = f"{counted(len(chain), 'stage')}"
    note = f"best {count} of one device by {planner}'s form: {1e3 * value_s:.6g} ms; {len(downsets):,} downsets; {REPLICAS}"
    device_of = units.devices([(kind, here & ~before) for here, before in chain])
    return placed(instance, device_of, "throughput", planner, note=note)
