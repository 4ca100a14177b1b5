"""The instance that a job and a cluster make: what each op takes on each device, what moves between ops, what has to fit.

Legend of shapes: ``n`` ops of the job graph, ``m`` devices, ``e`` edges of the job graph. In training the backward computation of
op ``v`` is op ``n + v`` of the instance and in the group of ``v``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...costs import compute
from ...costs.network import RankNetwork
from ...devices import DeviceType, device_names, device_type
from ...errors import GraphError, PlanError
from ...jobs.graph import JobGraph
from ...plans.document import PlacementPlan
from ...plans.op_placement import OpPlacementPartition, Optimizer, op_memory_bytes
from .instance import OperatorInstance, numbered
from .placement import OperatorPlacement, placed

BACKWARD = " backward"
"""Put behind the name of an op for its backward computation."""


def instance_of_job(
    graph: JobGraph,
    cluster: Cluster,
    *,
    optimizer: Optimizer | None = "adam",
    in_flight: int = 1,
    among: Sequence[int] | None = None,
) -> OperatorInstance:
    """Return the placement of a job's ops on a cluster's devices as an instance.

    An op's output is one tensor, which crosses once to each device that reads it. In training the backward op of ``v`` waits for
    its forward op. It sends the gradient of each input, as large as the input, to the backward op of its producer. Each is a
    tensor of its own. Links are those of the cluster's own routes, each message alone on its path.

    Args:
        graph: the job; its figures are those of one micro-batch.
        cluster: its devices may be of several types.
        optimizer: None where only the forward pass runs.
        in_flight: micro-batches whose outputs a device holds at once.
        among: devices that may be chosen; all by default.

    Raises:
        GraphError: the times hold on a device type that is not known, or an op fits no device.
        PlanError: a device that is absent or appears twice.
    """
    devices = _selected_devices(cluster, among)
    forward_s, backward_s = times_s(graph, cluster, devices)
    resident, workspace = op_memory_bytes(graph, optimizer, in_flight)
    n, training = graph.num_ops, optimizer is not None
    producers = np.unique(graph.edges[:, 0])
    tensor_of = np.full(n, -1, np.int64)
    tensor_of[producers] = np.arange(len(producers))
    edges, edge_tensor = graph.edges, tensor_of[graph.edges[:, 0]]
    tensor_bytes = graph.activation_bytes[producers]
    if training:
        e, p, ops = graph.num_edges, len(producers), np.arange(n)
        edges = np.concatenate([edges, np.stack([ops, n + ops], axis=1), n + graph.edges[:, ::-1]])
        # The forward op leaves what its backward op reads where it is, which is the same device.
        edge_tensor = np.concatenate([edge_tensor, p + ops, p + n + np.arange(e)])
        tensor_bytes = np.concatenate([tensor_bytes, np.zeros(n), graph.activation_bytes[graph.edges[:, 0]]])
    network = RankNetwork(cluster, devices)
    labels = graph.group
    return OperatorInstance(
        name=graph.name,
        op_names=(*graph.op_names, *(name + BACKWARD for name in graph.op_names if training)),
        times_s=np.concatenate([forward_s, backward_s]) if training else forward_s,
        edges=edges,
        edge_tensor=edge_tensor,
        tensor_bytes=tensor_bytes,
        resident_bytes=np.concatenate([resident, np.zeros(n)]) if training else resident,
        workspace_bytes=np.concatenate([workspace, workspace]) if training else workspace,
        group=numbered(np.concatenate([labels, labels]) if training else labels),
        is_backward=np.arange(n * (1 + training)) >= n,
        device_names=tuple(cluster.device_name(device) for device in devices.tolist()),
        device_types=tuple(cluster.device_types[kind].name for kind in cluster.device_type[devices].tolist()),
        memory_bytes=cluster.memory_bytes[devices],
        latency_s=network.latency_s,
        bandwidth_bytes_per_s=network.bandwidth_bytes_per_s,
    )


def times_s(graph: JobGraph, cluster: Cluster, devices: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the forward and backward seconds of each op on each device, ``(n, m)`` each.

    Times that the graph gives for a type (`JobGraph.times_s`) hold there, infinite where the type cannot run the op. Other types
    are timed as follows.

    A graph whose times are estimated from its operations is timed by the roofline on every type. Measured times hold on their own
    type; on another they scale with the roofline of the op, see `scaled_s`. Where the graph does not name the measured type, it
    is that of the cluster's first device.

    Raises:
        GraphError: the graph was timed on a device type that neither the cluster has nor the package knows.
    """
    types = np.unique(cluster.device_type[devices]).tolist()
    estimated = compute.model_named("auto", graph)
    by_type: dict[int, Sequence[NDArray[np.float64]] | NDArray[np.float64]] = {}
    for number in types:
        kind = cluster.device_types[number]
        if kind.name in graph.times_s:
            by_type[number] = graph.times_s[kind.name]
        elif estimated.name == "roofline":
            by_type[number] = estimated.share_s(graph, np.ones(graph.num_ops, np.int64), kind)
        else:
            by_type[number] = scaled_s(graph, _reference(graph, cluster), kind)
    of_device = [by_type[number] for number in cluster.device_type[devices].tolist()]
    return np.stack([both[0] for both in of_device], axis=1), np.stack([both[1] for both in of_device], axis=1)


def scaled_s(graph: JobGraph, reference: DeviceType, kind: DeviceType) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scale measured forward and backward seconds of each op from one device type to another; ``(n,)`` each.

    The time is multiplied by the ratio of the two types' rooflines of the op. A graph without operations is assumed to have as
    many as fill its measured times on the reference type; bytes are known. On the reference type nothing changes.
    """
    if kind == reference:
        return graph.forward_s, graph.backward_s
    results = []
    sizes = ((graph.forward_s, graph.forward_flops, 1.0), (graph.backward_s, graph.backward_flops, 2.0))
    both_peaks = zip(graph.peaks_flops_per_s(reference), graph.peaks_flops_per_s(kind), strict=True)
    for (measured_s, flops, passes), (peaks, target_peak) in zip(sizes, both_peaks, strict=True):
        moved = passes * graph.moved_bytes
        if not graph.has_flops:
            busy_s = np.maximum(0.0, measured_s - reference.kernel_launch_s)
            flops = busy_s * peaks * reference.compute_efficiency
        there_s, here_s = kind.op_s(flops, moved, target_peak), reference.op_s(flops, moved, peaks)
        ratio = np.divide(there_s, here_s, out=np.ones_like(there_s), where=here_s > 0)
        results.append(measured_s * ratio)
    return results[0], results[1]


def placement_of_plan(plan: PlacementPlan) -> tuple[OperatorInstance, OperatorPlacement]:
    """Return the instance of a plan of ops on devices, and its placement, with its value computed again.

    Raises:
        PlanError: the plan has another partition, does not embed job and cluster, has replicas, or is not legal.
        GraphError, ClusterError or ConfigError: job or cluster are none.
    """
    partition, graph, cluster = plan.op_placement(), plan.job_graph(), plan.embedded_cluster()
    if partition is None:
        raise PlanError("does not put ops on devices", field="partition")
    for number, group in enumerate(partition.groups):
        if group.replicas > 1:
            problem = "replicas take turns from micro-batch to micro-batch, and one step of one micro-batch is valued"
            raise PlanError(problem, field=f"partition.groups.{number}.replicas", value=group.replicas)
    if graph is None or cluster is None:
        raise PlanError("is not embedded, so the time of an op is unknown", field="job.graph" if graph is None else "cluster")
    instance = instance_of_job(
        graph, cluster, optimizer=partition.optimizer, in_flight=partition.in_flight, among=partition.among
    )
    return instance, placed(
        instance, device_columns(partition, cluster), partition.objective, "plan", order=np.array(partition.order)
    )


def device_columns(partition: OpPlacementPartition, cluster: Cluster) -> NDArray[np.int64]:
    """Return the column of the instance that each of its ops runs on, ``(n,)``, or ``(2 n,)`` in training.

    Raises:
        PlanError: an op on a device that is not among those that could be chosen.
    """
    devices = _selected_devices(cluster, partition.among).tolist()
    column = {device: number for number, device in enumerate(devices)}
    for device in partition.device_of:
        if device not in column:
            raise PlanError("has an op and is not among the devices that could be chosen", field="partition.among", value=device)
    columns = np.array([column[device] for device in partition.device_of], np.int64)
    return columns if partition.optimizer is None else np.concatenate([columns, columns])


def whose_times(graph: JobGraph, cluster: Cluster) -> str:
    """Describe the source of the times of ops on this cluster's devices; empty where there is nothing to add."""
    names = [kind.name for kind in cluster.device_types]
    if not graph.times_s:
        return _by_rule(graph, cluster, names)
    types = [name for name in names if name in graph.times_s]
    if not types:
        remark = f"{graph.name} gives times for {', '.join(sorted(graph.times_s))}; this cluster has none of these types"
    else:
        remark = f"the times on {', '.join(types)} are those that {graph.name} gives"
    rest = [name for name in names if name not in types]
    if rest and compute.model_named("auto", graph).name == "roofline":
        return f"{remark}; those on {', '.join(rest)} are the roofline's"
    return f"{remark}; {by_rule}" if (by_rule := _by_rule(graph, cluster, rest)) else remark


def _by_rule(graph: JobGraph, cluster: Cluster, names: list[str]) -> str:
    """Return `whose_times` of those device types for which the graph gives none."""
    if not names or compute.model_named("auto", graph).name == "roofline":
        return ""
    first = cluster.device_types[0].name
    if graph.reference_device is None:
        remark = f"{graph.name} does not say on which device its times hold, so they are taken as those of {first}"
        others = [name for name in names if name != first]
    else:
        remark = f"the times of {graph.name} were measured on {graph.reference_device}"
        others = [name for name in names if name != graph.reference_device]
    if others:
        return f"{remark}, and brought to {', '.join(others)} by the ratio of the rooflines"
    return remark if graph.reference_device is None else ""


def _reference(graph: JobGraph, cluster: Cluster) -> DeviceType:
    name = graph.reference_device
    if name is None:
        return cluster.device_types[0]
    known = {kind.name: kind for kind in cluster.device_types}
    if name in known:
        return known[name]
    if name not in device_names():
        problem = "the times hold on a device type that is neither the cluster's nor built in"
        raise GraphError(problem, field="reference_device", value=name, choices=[*known, *device_names()])
    return device_type(name)


def _selected_devices(cluster: Cluster, among: Sequence[int] | None) -> NDArray[np.int64]:
    if among is None:
        return np.arange(cluster.num_devices)
    devices = np.array(among, np.int64)
    for device in devices[(devices < 0) | (devices >= cluster.num_devices)][:1].tolist():
        raise PlanError(f"cluster {cluster.name} has devices 0..{cluster.num_devices - 1}", field="among", value=device)
    if not len(devices) or len(np.unique(devices)) < len(devices):
        raise PlanError("names each of at least one device once", field="among", value=str(devices.tolist()))
    return devices
