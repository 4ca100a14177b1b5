"""Ops placed on devices as an execution graph, so that timeline, trace and memory over time come as for other plans.

Each op is a computation of its rank, each tensor one transfer for each other rank on which somebody reads it. A rank runs its
computations in the order of the placement; a transfer begins when its tensor is there.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...costs.phases import Flow, Phase, Phases
from ...plans.document import PlacementPlan
from ...plans.op_placement import STATE_COPIES
from ..contention.concurrent_jobs import schedule as schedule_together
from ..contention.placed_job import PlacedJob
from ..step import kernel
from ..step.execution import ExecutionGraph, TaskKind
from ..step.messages import Messages
from ..step.timeline import Timeline
from .from_job import placement_of_plan
from .instance import OperatorInstance

Contention = Literal["independent", "serialised", "fair"]


def lower(
    instance: OperatorInstance,
    rank_of: NDArray[np.int64],
    column_of: NDArray[np.int64],
    order: NDArray[np.int64],
    *,
    num_ops: int | None = None,
    contention: Contention = "independent",
) -> ExecutionGraph:
    """Return the execution graph of one micro-batch.

    Tasks are the instance's ops by their numbers, then the transfers. Without contention a transfer takes the link's latency
    and its bytes at the link's bandwidth; ``serialised``, it also holds the communication streams of both ranks.

    Args:
        instance: to be run.
        rank_of: rank of each op of the instance, ``(n,)``.
        column_of: device of each rank, ``(ranks,)``, a column of the instance.
        order: all ops in a topological order, ``(n,)``.
        num_ops: ops of the job graph; tasks from this number on are of the backward pass. By default those of the instance.
        contention: whether messages disturb each other, see `costs.settings.CostSettings`.
    """
    n, ranks = instance.num_ops, len(column_of)
    num_ops = n if num_ops is None else num_ops
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    edges = [np.stack([ops[:-1], ops[1:]], axis=1) for ops in (order[rank_of[order] == rank] for rank in range(ranks))]
    source, target = instance.edges[:, 0], instance.edges[:, 1]
    stays = rank_of[source] == rank_of[target]
    edges.append(instance.edges[stays])
    # A tensor and a rank that reads it elsewhere are one transfer.
    crossing = np.flatnonzero(~stays)
    pairs = np.stack([instance.edge_tensor[crossing], rank_of[target[crossing]]], axis=1).reshape(-1, 2)
    sent, transfer = np.unique(pairs, axis=0, return_inverse=True) if len(pairs) else (pairs, np.zeros(0, np.int64))
    transfer = transfer.reshape(-1)
    tensor, receiver = sent[:, 0], sent[:, 1]
    producer = instance.tensor_source[tensor]
    sender, number = rank_of[producer], n + np.arange(len(sent))
    edges.append(np.stack([producer, number], axis=1))
    edges.append(np.stack([n + transfer, target[crossing]], axis=1))
    a, b = column_of[sender], column_of[receiver]
    size = instance.tensor_bytes[tensor]
    seconds = instance.latency_s[a, b] + size * (1.0 / instance.bandwidth_bytes_per_s[a, b])
    first_reader = np.full(len(sent), n, np.int64)
    np.minimum.at(first_reader, transfer, place[target[crossing]])
    held = 2 if contention == "serialised" else 0
    streams = np.stack([ranks + sender, ranks + receiver], axis=1).reshape(-1) if held else np.zeros(0, np.int64)
    uses = np.concatenate([np.ones(n, np.int64), np.full(len(sent), held)])
    members = np.stack([sender, receiver], axis=1).tolist()
    latency_s = instance.latency_s[a, b].tolist()
    op = np.concatenate([np.arange(n), producer])

    def messages() -> Messages:
        phases: list[Phases] = [()] * n
        for (one, other), late_s, payload in zip(members, latency_s, size.tolist(), strict=True):
            phases.append((Phase(late_s, (Flow(one, other, payload),)),))
        return Messages.from_members([*([[]] * n), *members], phases)

    return ExecutionGraph(
        num_ranks=ranks,
        kind=np.concatenate([np.full(n, int(TaskKind.COMPUTE)), np.full(len(sent), int(TaskKind.TRANSFER))]).astype(np.int8),
        duration_s=np.concatenate([instance.times_s[np.arange(n), column_of[rank_of]], seconds]),
        priority=np.concatenate([place, first_reader - 0.5]).astype(np.float64),
        stream_start=np.concatenate([np.zeros(1, np.int64), np.cumsum(uses)]),
        streams=np.concatenate([rank_of, streams]),
        edges=np.concatenate(edges),
        op=op % num_ops,
        rank=np.concatenate([rank_of, sender]),
        is_backward=op >= num_ops,
        payload_bytes=np.concatenate([np.zeros(n), size]),
        describe_messages=messages,
    )


def run_plan(plan: PlacementPlan, *, contention: Contention = "independent") -> Timeline:
    """Run one micro-batch of a plan that puts ops on devices.

    Args:
        plan: the plan.
        contention: whether messages disturb each other: not at all, one at a time on each rank, or by sharing links fairly.

    Raises:
        PlanError: the plan has another partition, does not embed job and cluster, or has replicas.
        GraphError, ClusterError or ConfigError: job or cluster are none.
    """
    partition, cluster = plan.op_placement(), plan.embedded_cluster()
    instance, placement = placement_of_plan(plan)
    assert partition is not None
    assert cluster is not None
    devices = plan.placement().devices
    rank_at = np.full(cluster.num_devices, -1, np.int64)
    rank_at[devices] = np.arange(len(devices))
    among = np.arange(cluster.num_devices) if partition.among is None else np.array(partition.among)
    column_at = np.full(cluster.num_devices, -1, np.int64)
    column_at[among] = np.arange(len(among))
    execution = lower(
        instance,
        rank_at[among[placement.device_of]],
        column_at[devices],
        placement.order,
        num_ops=len(partition.device_of),
        contention=contention,
    )
    is_fair = contention == "fair"
    times = schedule_together([PlacedJob(execution, devices)], cluster)[0] if is_fair else kernel.schedule(execution)
    return Timeline(execution, *times, state_copies=STATE_COPIES[partition.optimizer])
