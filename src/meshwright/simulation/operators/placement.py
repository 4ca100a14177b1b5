"""A placement of ops on devices: whether it is legal, and its value under each objective.

Legend of shapes: ``n`` ops, ``m`` devices, ``g`` groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, PlanError
from .instance import OperatorInstance, bytes_by_part
from .schedules import append_in_order, arrays, best_order, critical_path_s

OperatorObjective = Literal["latency", "throughput"]
OBJECTIVES: tuple[OperatorObjective, ...] = get_args(OperatorObjective)
"""Objectives of a placement; each has its case in `value`, `lower_bound` and `feature_unit_s`."""


@dataclass(frozen=True, eq=False)
class OperatorPlacement:
    """The device of each op, and the order in which a device runs its ops.

    Attributes:
        device_of: device of each op, ``(n,)``.
        order: all ops in a topological order; a device runs its ops in it, ``(n,)``.
        objective: what ``value_s`` counts.
        value_s: seconds of a step (``latency``) or between two micro-batches (``throughput``).
        planner: which planner or policy found it.
        lower_bound_s: no placement is better than this.
        is_optimal: whether the planner proved that none is better, within the family that it searches.
        note: for the reader of the figures, for example the family that was searched; may be empty.
    """

    device_of: NDArray[np.int64]
    order: NDArray[np.int64]
    objective: OperatorObjective
    value_s: float
    planner: str
    lower_bound_s: float
    is_optimal: bool = False
    note: str = ""

    @property
    def optimality_gap(self) -> float:
        """How far the value is above the lower bound, as a fraction of the value; 0 where it was proved optimal."""
        return 0.0 if self.is_optimal or self.value_s <= 0 else max(0.0, 1.0 - self.lower_bound_s / self.value_s)


def placed(
    instance: OperatorInstance,
    device_of: NDArray[np.int64],
    objective: OperatorObjective,
    planner: str,
    *,
    order: NDArray[np.int64] | None = None,
    lower_bound_s: float | None = None,
    is_optimal: bool = False,
    note: str = "",
) -> OperatorPlacement:
    """Return a legal placement with its value, which is computed here and not taken from the planner.

    Args:
        instance: what is placed.
        device_of: device of each op, ``(n,)``.
        objective: what is counted.
        planner: who found it.
        order: order of the ops, ``(n,)``; by default that of `schedules.best_order`.
        lower_bound_s: a bound better than `lower_bound_s`, if the planner has one.
        is_optimal: see `OperatorPlacement`.
        note: see `OperatorPlacement`.

    Raises:
        PlanError: the placement is not legal.
        ConfigError: no such objective.
    """
    device_of = np.array(device_of, np.int64)
    check(instance, device_of)
    if order is None:
        order = best_order(instance, device_of)
    bound = lower_bound(instance, objective)
    return OperatorPlacement(
        device_of=device_of,
        order=np.asarray(order, np.int64),
        objective=objective,
        value_s=value(instance, device_of, objective, order),
        planner=planner,
        lower_bound_s=bound if lower_bound_s is None else max(bound, lower_bound_s),
        is_optimal=is_optimal,
        note=note,
    )


OPS_OF_UNIT = 8.0
"""A decision of a step is about so many ops: those that are ready at once, and those next to them."""


def feature_unit_s(instance: OperatorInstance, objective: OperatorObjective) -> float:
    """Return the typical effect of one decision in seconds: the unit of differences of times in observations.

    For latency it is the time of `OPS_OF_UNIT` mean ops on their best devices, however many ops there are. For throughput, where
    all loads add up, it is the lower bound of the value.

    Raises:
        ConfigError: no such objective.
    """
    check_objective(objective)
    if objective == "throughput":
        return max(lower_bound(instance, objective), 1e-30)
    return max(OPS_OF_UNIT * float(instance.times_s.min(axis=1).mean()), 1e-30)


def check(instance: OperatorInstance, device_of: NDArray[np.int64]) -> None:
    """Refuse a placement with an op on a device that cannot run it, a group apart, or too little memory.

    Raises:
        PlanError: with the first op or device for which it does not hold.
    """
    n, m = instance.num_ops, instance.num_devices
    if device_of.shape != (n,):
        raise PlanError("names a device for each op", field="device_of", value=str(device_of.shape))
    if device_of.min() < 0 or device_of.max() >= m:
        op = int(np.flatnonzero((device_of < 0) | (device_of >= m))[0])
        raise PlanError("no such device", field=f"device_of.{instance.op_names[op]}", value=int(device_of[op]))
    refused = np.flatnonzero(~np.isfinite(instance.times_s[np.arange(n), device_of]))
    if refused.size:
        op = int(refused[0])
        field, device = f"device_of.{instance.op_names[op]}", instance.device_names[device_of[op]]
        raise PlanError("this device cannot run the op", field=field, value=device)
    of_group = np.full(instance.num_groups, -1, np.int64)
    of_group[instance.group] = device_of
    apart = np.flatnonzero(of_group[instance.group] != device_of)
    if apart.size:
        op = int(apart[0])
        field, device = f"device_of.{instance.op_names[op]}", instance.device_names[device_of[op]]
        raise PlanError("must be on the device of the ops that it is colocated with", field=field, value=device)
    held = held_bytes(instance, device_of)
    over = np.flatnonzero(held > instance.memory_bytes)
    if over.size:
        device = int(over[0])
        raise PlanError(
            f"needs {held[device]:.4g} bytes and has {instance.memory_bytes[device]:.4g}", field=instance.device_names[device]
        )


def check_objective(objective: str) -> None:
    """Refuse an objective that is not one of `OBJECTIVES`.

    Raises:
        ConfigError: no such objective.
    """
    if objective not in OBJECTIVES:
        raise ConfigError("no such objective of a placement", field="objective", value=objective, choices=OBJECTIVES)


def held_bytes(instance: OperatorInstance, device_of: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the bytes that each device needs: what its ops hold, and its largest workspace, ``(m,)``."""
    resident, workspace = bytes_by_part(device_of, instance.num_devices, instance.resident_bytes, instance.workspace_bytes)
    return resident + workspace


def value(
    instance: OperatorInstance, device_of: NDArray[np.int64], objective: OperatorObjective, order: NDArray[np.int64] | None = None
) -> float:
    """Return the seconds that a legal placement takes under an objective; less is better.

    Args:
        instance: what is placed.
        device_of: device of each op, ``(n,)``.
        objective: ``latency``: end of the last op of one step; ``throughput``: the largest load, see `loads_s`.
        order: topological order in which devices run their ops; by default that of `schedules.best_order`. Throughput has none.

    Raises:
        ConfigError: no such objective.
    """
    check_objective(objective)
    if objective == "throughput":
        return float(loads_s(instance, device_of).max())
    if order is None:
        order = best_order(instance, device_of)
    _, end_s = append_in_order(arrays(instance), device_of, order)
    return float(end_s.max())


def loads_s(instance: OperatorInstance, device_of: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the seconds for which each device is busy for one micro-batch of a full pipeline, ``(m,)``.

    These are the times of its ops and of each tensor that leaves or reaches it, once. Tensors pass its port, as wide as its
    widest link. Processors of a host pay for no tensor.

    Source:
        Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", 2020 (max-load objective).
    """
    n, m, k = instance.num_ops, instance.num_devices, len(instance.tensor_bytes)
    loads = np.zeros(m)
    np.add.at(loads, device_of, instance.times_s[np.arange(n), device_of])
    if k and m > 1:
        reads = np.zeros((k, m), np.bool_)
        reads[instance.edge_tensor, device_of[instance.edges[:, 1]]] = True
        used = np.flatnonzero(instance.tensor_source >= 0)
        home = device_of[instance.tensor_source[used]]
        reads = reads[used]
        reads[np.arange(len(used)), home] = False
        crossing = reads.copy()
        crossing[np.arange(len(used)), home] = reads.any(axis=1)
        seconds = port_s(instance, instance.tensor_bytes[used])
        loads += np.where(crossing & ~instance.is_host, seconds, 0.0).sum(axis=0)
    return loads


def port_s(instance: OperatorInstance, tensor_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the seconds that a tensor of each size keeps each device's port busy, ``(sizes, m)``."""
    apart = np.where(np.eye(instance.num_devices, dtype=np.bool_), 0.0, instance.bandwidth_bytes_per_s)
    widest = np.maximum(apart.max(axis=0), apart.max(axis=1))
    return np.asarray(tensor_bytes[:, None] / np.where(widest > 0, widest, np.inf))


def lower_bound(instance: OperatorInstance, objective: OperatorObjective) -> float:
    """Return seconds below which no placement comes: all work at best times shared evenly, for latency also the longest chain.

    Raises:
        ConfigError: no such objective.
    """
    check_objective(objective)
    shared = float(instance.times_s.min(axis=1).sum()) / instance.num_devices
    return shared if objective == "throughput" else max(shared, critical_path_s(instance))
