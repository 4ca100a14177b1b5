"""A partition that places each op of the job graph on a device: its form, its memory, and the check of its parts.

Legend of shapes: ``n`` ops of the job graph, ``t`` tasks. The forward computation of op ``v`` is task ``v``, its backward one,
where the plan trains, task ``n + v``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from .. import settings
from ..clusters.cluster import Cluster
from ..errors import PlanError
from ..jobs.graph import JobGraph
from ..settings import Count, Index

Optimizer = Literal["sgd", "adam"]

STATE_COPIES: dict[str | None, float] = {None: 1.0, "sgd": 2.0, "adam": 4.0}
"""Bytes held for each byte of weights, by optimizer. None holds these alone, SGD their gradients too, Adam also its two moments.

Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 1.
"""
OPTIMIZERS = tuple(name for name in STATE_COPIES if name is not None)


class OpGroup(settings.Settings):
    """Ops that the same ranks run."""

    ops: tuple[Index, ...] = Field(min_length=1, description="numbers of the ops in the job graph")
    ranks: tuple[Index, ...] = Field(min_length=1, description="ranks that run them, each all of them")
    replicas: Count = Field(default=1, description="ranks among which micro-batches take turns; as many as there are ranks")


class OpPlacementPartition(settings.Settings):
    """A partition by ops on devices; ranks have no coordinates."""

    kind: Literal["ops"] = "ops"
    device_of: tuple[Index, ...] = Field(
        min_length=1, description="the cluster's id of the device of each op, in the graph's order; of replicas the first one's"
    )
    groups: tuple[OpGroup, ...] = Field(min_length=1, description="in the order of the pipeline, if they form one")
    order: tuple[Index, ...] = Field(
        min_length=1, description="every task in a topological order, which each device follows. Task n + v is op v backward"
    )
    objective: Literal["latency", "throughput"] = Field(description="minimised figure: the time of a step, or the largest load")
    pipeline: bool = Field(description="whether no group gets anything from a later one, so that they are pipeline stages")
    optimizer: Optimizer | None = Field(default=None, description="of the training; absent where only the forward pass runs")
    in_flight: Count = Field(default=1, description="micro-batches whose outputs a device holds at once")
    among: tuple[Index, ...] | None = Field(
        default=None, description="the cluster's devices that could be chosen; absent where all could"
    )


def op_memory_bytes(
    graph: JobGraph, optimizer: Optimizer | None, in_flight: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the bytes that each op holds for the whole step, and those only while it runs; ``(n,)`` each.

        The former are the state of the parameters, `STATE_COPIES` times their size, and the output of each micro-batch in flight.

    Args:
        graph: the job.
        optimizer: None where nothing is trained.
        in_flight: micro-batches whose outputs are held at once.
    """
    return STATE_COPIES[optimizer] * graph.parameter_bytes + in_flight * graph.activation_bytes, graph.workspace_bytes


def rank_memory_bytes(graph: JobGraph, partition: OpPlacementPartition, num_ranks: int) -> NDArray[np.float64]:
    """Return the peak memory of each rank: what its ops hold, and its largest workspace, ``(num_ranks,)``."""
    resident, workspace = op_memory_bytes(graph, partition.optimizer, partition.in_flight)
    result = np.zeros(num_ranks)
    for group in partition.groups:
        ops = np.sort(np.array(group.ops))
        stored_bytes = 0.0
        for op in ops.tolist():  # one by one, as the planners add them up
            stored_bytes += float(resident[op])
        result[list(group.ranks)] = stored_bytes + float(workspace[ops].max())
    return result


def pipeline_order(graph: JobGraph, device_of: NDArray[np.int64]) -> list[int] | None:
    """Return the devices in the order in which a micro-batch passes them; None where two wait for each other.

    Of devices that do not wait for each other that comes first whose first op does in the graph's topological order.

    Args:
        graph: the job.
        device_of: device of each op, ``(n,)``.
    """
    devices = list(dict.fromkeys(device_of[graph.order].tolist()))
    sources, targets = device_of[graph.edges[:, 0]], device_of[graph.edges[:, 1]]
    links = {(a, b) for a, b in zip(sources.tolist(), targets.tolist(), strict=True) if a != b}
    ordered: list[int] = []
    while devices:
        free = next((device for device in devices if not any((other, device) in links for other in devices)), None)
        if free is None:
            return None
        ordered.append(free)
        devices.remove(free)
    return ordered


def check_op_placement(
    partition: OpPlacementPartition, devices: Sequence[int], graph: JobGraph | None, cluster: Cluster | None
) -> None:
    """Refuse ops on devices that contradict the ranks, the job graph or the devices' memory.

    Args:
        partition: the ops.
        devices: device of each rank.
        graph: the job, where the plan embeds it; without it only what the partition says of itself is checked.
        cluster: where, in the same way.

    Raises:
        PlanError: an op twice or nowhere, a rank without ops or in two groups, an op off its device. Also an invalid order, or
            too little memory.
    """
    n = len(partition.device_of) if graph is None else graph.num_ops
    names = [str(op) for op in range(n)] if graph is None else list(graph.op_names)
    if len(partition.device_of) != n:
        raise PlanError(f"names a device for each of {n} ops", field="partition.device_of", value=len(partition.device_of))
    _check_groups(partition, devices, names)
    tasks = n if partition.optimizer is None else 2 * n
    if sorted(partition.order) != list(range(tasks)):
        problem = f"names each of {tasks} tasks once: {n} ops forward" + (", then backward" if tasks > n else "")
        raise PlanError(problem, field="partition.order", value=len(partition.order))
    if cluster is not None:
        for position, device in enumerate(partition.among or ()):
            if device >= cluster.num_devices:
                problem = f"cluster {cluster.name} has devices 0..{cluster.num_devices - 1}"
                raise PlanError(problem, field=f"partition.among.{position}", value=device)
    if graph is None:
        return
    _check_order(partition, graph)
    for op, first in enumerate(graph.group.tolist()):
        if partition.device_of[op] != partition.device_of[first]:
            problem = f"the job has this op on one device with {names[first]} (colocate)"
            raise PlanError(problem, field=f"partition.device_of.{names[op]}", value=partition.device_of[op])
    if cluster is not None:
        memory = rank_memory_bytes(graph, partition, len(devices))
        for rank, device in enumerate(devices):
            if memory[rank] > cluster.memory_bytes[device]:
                has = f"device {cluster.device_name(device)} has {cluster.memory_bytes[device] / 1e9:.3f} GB"
                raise PlanError(f"needs {memory[rank] / 1e9:.3f} GB, {has}", field=f"rank {rank}")


def _check_groups(partition: OpPlacementPartition, devices: Sequence[int], names: Sequence[str]) -> None:
    holder: dict[int, int] = {}
    owner: dict[int, int] = {}
    for number, group in enumerate(partition.groups):
        field = f"partition.groups.{number}"
        if group.replicas != len(group.ranks):
            raise PlanError(f"{len(group.ranks)} ranks are as many replicas", field=f"{field}.replicas", value=group.replicas)
        for rank in group.ranks:
            if rank >= len(devices):
                problem = f"there is no rank {rank}; ranks count from 0 to {len(devices) - 1}"
                raise PlanError(problem, field=f"{field}.ranks")
            first = owner.setdefault(rank, number)
            if first != number or group.ranks.count(rank) > 1:
                raise PlanError(f"rank {rank} is in partition.groups.{first} already", field=f"{field}.ranks", value=rank)
        for op in group.ops:
            if op >= len(names):
                raise PlanError(f"ops count from 0 to {len(names) - 1}", field=f"{field}.ops", value=op)
            if op in holder:
                raise PlanError(f"this op is in partition.groups.{holder[op]} already", field=f"{field}.ops", value=names[op])
            holder[op] = number
            if partition.device_of[op] != devices[group.ranks[0]]:
                problem = f"rank {group.ranks[0]} runs the op, and has device {devices[group.ranks[0]]}"
                raise PlanError(problem, field=f"partition.device_of.{names[op]}", value=partition.device_of[op])
    absent = next((op for op in range(len(names)) if op not in holder), None)
    if absent is not None:
        raise PlanError("no group holds this op", field="partition.groups", value=names[absent])
    idle = next((rank for rank in range(len(devices)) if rank not in owner), None)
    if idle is not None:
        raise PlanError("no group names this rank, so it would run nothing", field=f"rank {idle}")


def _check_order(partition: OpPlacementPartition, graph: JobGraph) -> None:
    n, place = graph.num_ops, np.empty(len(partition.order), np.int64)
    place[list(partition.order)] = np.arange(len(place))
    before, after = graph.edges[:, 0], graph.edges[:, 1]
    if partition.optimizer is not None:
        backward = np.arange(n)
        before = np.concatenate([before, n + graph.edges[:, 1], backward])
        after = np.concatenate([after, n + graph.edges[:, 0], n + backward])
    wrong = np.flatnonzero(place[before] > place[after])
    if wrong.size:
        task = int(after[wrong[0]])
        name = graph.op_names[task % n] + (" backward" if task >= n else "")
        raise PlanError("a task comes before one that it waits for", field="partition.order", value=name)
