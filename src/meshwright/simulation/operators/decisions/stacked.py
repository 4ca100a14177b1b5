"""Many instances as padded arrays, so that compiled code places ops of all of them side by side.

Legend of shapes: ``i`` instances, ``n`` most ops, ``m`` most devices, ``g`` most groups, ``e`` most edges, ``k`` most tensors,
for latency 0. Places beyond an instance's own numbers are never read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....numba_records import by_reference
from ...ragged import arrays_of
from ..instance import OperatorInstance
from ..placement import OperatorObjective, feature_unit_s, lower_bound, port_s
from ..schedules import upward_order


@by_reference
class StackedInstances(NamedTuple):
    """Instances side by side.

    Attributes:
        num_ops: ``(i,)``.
        num_devices: ``(i,)``.
        num_groups: ``(i,)``.
        times_s: infinite where an op cannot run, ``(i, n, m)``.
        order: ops by falling upward rank, a topological order, ``(i, n)``.
        group: ``(i, n)``.
        decided: groups in the order in which they are decided: by the place of their first op in ``order``, ``(i, g)``.
        lead: that first op of each of them, so ``lead[k]`` is of the group decided ``k``-th, ``(i, g)``.
        first_in: first input of each op, ``(i, n + 1)``.
        producer: of each input, ``(i, e)``.
        in_bytes: of each input, ``(i, e)``.
        in_tensor: of each input, ``(i, e)``.
        first_out: first reader of each op, ``(i, n + 1)``.
        reader: ``(i, e)``.
        out_bytes: of what each reader reads, ``(i, e)``.
        out_tensor: of what each reader reads, ``(i, e)``.
        first_member: place of the first op of each group in ``member``, ``(i, g + 1)``.
        member: ops group by group, those of a group in ``order``, ``(i, n)``.
        latency_s: ``(i, m, m)``.
        s_per_byte: ``(i, m, m)``.
        port_s: seconds that each tensor keeps each device's port busy; 0 for a host's processors, ``(i, k, m)``.
        resident_bytes: of each group, ``(i, g)``.
        workspace_bytes: of each group, ``(i, g)``.
        by_size: groups, the largest first, ``(i, g)``.
        can_run: ``(i, g, m)``.
        runs_anywhere: whether every device runs and holds every group alone, ``(i,)``.
        all_bytes: resident bytes of all groups, ``(i,)``.
        most_workspace_bytes: largest of all groups, ``(i,)``.
        memory_bytes: ``(i, m)``.
        scale_s: lower bound of the value, or next to nothing where that is 0, ``(i,)``.
        feature_unit_s: unit of differences of times in features, see `placement.feature_unit_s`, ``(i,)``.
        is_throughput: the objective.
    """

    num_ops: NDArray[np.int64]
    num_devices: NDArray[np.int64]
    num_groups: NDArray[np.int64]
    times_s: NDArray[np.float64]
    order: NDArray[np.int64]
    group: NDArray[np.int64]
    decided: NDArray[np.int64]
    lead: NDArray[np.int64]
    first_in: NDArray[np.int64]
    producer: NDArray[np.int64]
    in_bytes: NDArray[np.float64]
    in_tensor: NDArray[np.int64]
    first_out: NDArray[np.int64]
    reader: NDArray[np.int64]
    out_bytes: NDArray[np.float64]
    out_tensor: NDArray[np.int64]
    first_member: NDArray[np.int64]
    member: NDArray[np.int64]
    latency_s: NDArray[np.float64]
    s_per_byte: NDArray[np.float64]
    port_s: NDArray[np.float64]
    resident_bytes: NDArray[np.float64]
    workspace_bytes: NDArray[np.float64]
    by_size: NDArray[np.int64]
    can_run: NDArray[np.bool_]
    runs_anywhere: NDArray[np.bool_]
    all_bytes: NDArray[np.float64]
    most_workspace_bytes: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]
    scale_s: NDArray[np.float64]
    feature_unit_s: NDArray[np.float64]
    is_throughput: bool


def room_for(i: int, n: int, m: int, e: int, objective: OperatorObjective) -> StackedInstances:
    """Return empty places for ``i`` instances of at most ``n`` ops, ``m`` devices and ``e`` edges, for `fill`."""
    g, k = n, e if objective == "throughput" else 0  # an edge carries one tensor
    return arrays_of(
        StackedInstances,
        {
            "num_ops num_devices num_groups runs_anywhere all_bytes most_workspace_bytes scale_s feature_unit_s": i,
            "times_s": (i, n, m),
            "order group member": (i, n),
            "decided lead resident_bytes workspace_bytes by_size": (i, g),
            "first_in first_out": (i, n + 1),
            "producer in_bytes in_tensor reader out_bytes out_tensor": (i, e),
            "first_member": (i, g + 1),
            "latency_s s_per_byte": (i, m, m),
            "port_s": (i, k, m),
            "can_run": (i, g, m),
            "memory_bytes": (i, m),
        },
        {"times_s": np.inf},
        is_throughput=objective == "throughput",
    )


def fill(made: StackedInstances, at: int, instance: OperatorInstance, objective: OperatorObjective) -> None:
    """Write an instance to a place, over what was there before."""
    made.num_ops[at], made.num_devices[at], made.num_groups[at] = instance.num_ops, instance.num_devices, instance.num_groups
    made.runs_anywhere[at] = bool(instance.can_run.all())
    made.all_bytes[at] = instance.resident_bytes.sum()
    made.most_workspace_bytes[at] = instance.workspace_bytes.max()
    made.scale_s[at] = max(lower_bound(instance, objective), 1e-30)
    made.feature_unit_s[at] = feature_unit_s(instance, objective)
    n, m, g, e = instance.num_ops, instance.num_devices, instance.num_groups, len(instance.edges)
    read, tensor = np.unique(instance.edge_tensor, return_inverse=True)  # files may name tensors that no op reads
    order = upward_order(instance)
    position = np.empty(n, np.int64)
    position[order] = np.arange(n)
    first_place = np.full(g, n, np.int64)
    np.minimum.at(first_place, instance.group, position)
    made.times_s[at, :n, :m] = instance.times_s
    made.order[at, :n], made.group[at, :n] = order, instance.group
    decided = np.argsort(first_place)
    made.decided[at, :g], made.lead[at, :g] = decided, order[first_place[decided]]
    first, edge = instance.incoming
    made.first_in[at, : n + 1], made.first_in[at, n + 1 :] = first, e
    made.producer[at, :e], made.in_bytes[at, :e] = instance.edges[edge, 0], instance.edge_bytes[edge]
    made.in_tensor[at, :e] = tensor[edge]
    first, edge = instance.outgoing
    made.first_out[at, : n + 1], made.first_out[at, n + 1 :] = first, e
    made.reader[at, :e], made.out_bytes[at, :e] = instance.edges[edge, 1], instance.edge_bytes[edge]
    made.out_tensor[at, :e] = tensor[edge]
    made.member[at, :n] = order[np.argsort(instance.group[order], kind="stable")]
    made.first_member[at, 1 : g + 1] = np.cumsum(np.bincount(instance.group, minlength=g))
    made.latency_s[at, :m, :m] = instance.latency_s
    made.s_per_byte[at, :m, :m] = 1.0 / instance.bandwidth_bytes_per_s
    if made.is_throughput:
        made.port_s[at, : len(read), :m] = np.where(instance.is_host, 0.0, port_s(instance, instance.tensor_bytes[read]))
    resident, workspace = instance.group_bytes
    made.resident_bytes[at, :g], made.workspace_bytes[at, :g] = resident, workspace
    made.by_size[at, :g] = np.argsort(-resident, kind="stable")
    made.can_run[at, :g, :m] = instance.can_run
    made.memory_bytes[at, :m] = instance.memory_bytes
