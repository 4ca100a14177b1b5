"""PipeDream's pipelines where a stage is one device: its recurrence behind the interface of all planners.

A placement gives each op one device, so stages have no replicas. The planner finds the best pipeline of at most so many stages
by PipeDream's form. That is the largest of a stage's ops and of twice its transfers (forward and backward), each by itself,
without latencies. For stages with replicas see `pipedream`, which plans for profiles. The value of the result is max-load, as
for every planner for throughput.

Legend of shapes: ``d`` downsets, ``u`` units.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ....errors import PlanError
from ....quantities import counted
from ....simulation.operators.instance import OperatorInstance
from ....simulation.operators.placement import OperatorPlacement, placed
from ..request import PlacementRequest
from .ideals import along_orders, best_stages, downsets_of
from .units import Units

REPLICAS = "plan --search and dev validate placements have replicas of stages"
"""Note for readers who expect replicas."""


def pipedream_stages(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """Return the best stages of one replica each by PipeDream's form, on as many of the devices as that takes.

    Raises:
        PlanError: devices or links differ, more downsets than ``request.max_ideals`` (their number is named), or nothing fits.
    """
    units, bandwidth = _equal_devices(instance)
    downsets = downsets_of(units, request.max_ideals)

    def handed_s(begun: NDArray[np.bool_]) -> NDArray[np.float64]:
        return 2.0 * _handed_bytes(instance, units, begun) / bandwidth

    value_s, device_of = best_stages(units, downsets, along_orders(units, handed_s)[0], handed_s)
    if device_of is None:
        raise PlanError("no stages of one device each fit the devices", value=instance.name)
    count = f"{counted(len(np.unique(device_of)), 'stage')}"
    note = f"best {count} of one device by pipedream's form: {1e3 * value_s:.6g} ms; {len(downsets):,} downsets; {REPLICAS}"
    return placed(instance, device_of, "throughput", "pipedream", note=note)


def _handed_bytes(instance: OperatorInstance, units: Units, downsets: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the bytes that units of each downset ``(d, u)`` hand to units behind it, ``(d,)``."""
    # Backward ops pass the stages of their forward ones in reverse.
    edges = np.flatnonzero(~instance.is_backward[instance.edges].any(axis=1))
    ends, tensor_of, handed = units.of_op[instance.edges[edges]], instance.edge_tensor[edges], np.zeros(len(downsets))
    for tensor in np.unique(tensor_of).tolist():
        of = ends[tensor_of == tensor]
        is_open = downsets[:, of[0, 0]] & ~downsets[:, of[:, 1]].all(axis=1)
        handed[is_open] += float(instance.tensor_bytes[tensor])
    return handed


def _equal_devices(instance: OperatorInstance) -> tuple[Units, float]:
    """Return units on the devices that are stages, whose tensors cost no port, and bytes a second between any two."""
    units = Units.from_instance(instance)
    devices = np.flatnonzero(~instance.is_host)
    kinds = np.unique(units.device_class[devices])
    if len(kinds) != 1:
        firsts = [instance.device_names[int(devices[units.device_class[devices] == kind][0])] for kind in kinds[:2]]
        differ = f"{' and '.join(firsts)} differ; ideals and linear take them" if firsts else "here are hosts' processors alone"
        raise PlanError(f"PipeDream's recurrence is of equal devices, and {differ}", field="devices", value=instance.num_devices)
    unable = np.flatnonzero(~np.isfinite(units.times_s[:, kinds[0]]))
    if unable.size:
        op = instance.op_names[int(np.flatnonzero(units.of_op == unable[0])[0])]
        raise PlanError("PipeDream's recurrence leaves hosts' processors out, and this op runs on no other", value=op)
    result = instance.bandwidth_bytes_per_s[np.ix_(devices, devices)][~np.eye(len(devices), dtype=np.bool_)]
    if result.size and (result != result[0]).any():
        range_of = f"{result.min() / 1e9:.3g} to {result.max() / 1e9:.3g} GB/s"
        raise PlanError("this form has one bandwidth between all devices", field="bandwidth_bytes_per_s", value=range_of)
    (kind,) = kinds
    alone = replace(
        units,
        times_s=np.ascontiguousarray(units.times_s[:, [kind]]),
        memory_bytes=units.memory_bytes[[kind]],
        num_devices=units.num_devices[[kind]],
        device_class=np.where(units.device_class == kind, 0, 1),
        members=(),
        tensor_s=np.zeros((0, 1)),
    )
    return alone, float(result[0]) if result.size else float("inf")
