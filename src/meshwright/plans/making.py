"""Making, checking and loading plans.

Every plan from this module is legal. `op_split_plan` and `layout_plan` build a plan from its parts; `load_plan` reads one that a
user may have written by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .. import files
from ..clusters.cluster import Cluster
from ..errors import InputFileError, PlanError
from ..jobs.job import Job
from ..jobs.transformer import TransformerShape
from . import legality, versions
from .document import Figure, LayoutPartition, OpSplitsPartition, PlacementPlan, PlannedCluster, PlannedJob, Rank, Stage
from .frameworks.names import build_of_plan
from .memory import check_memory, op_split_memory_bytes
from .op_placement import OpGroup, OpPlacementPartition, Optimizer, pipeline_order
from .partition import Coordinates, Layout
from .placement import Placement, place
from .rank_order import DEFAULT_ORDER, coordinates
from .splitting.op_splits import OpSplits
from .stages import layout_stages, op_split_stages
from .transformer import PlannedTransformer

__all__ = ["Figure", "PlacementPlan", "layout_plan", "load_plan", "moved_plan", "op_placement_plan", "op_split_plan"]


def op_split_plan(
    job: Job,
    cluster: Cluster,
    splits: OpSplits,
    placement: Placement,
    *,
    predicted: Sequence[Figure] = (),
    why: str | None = None,
) -> PlacementPlan:
    """Return a plan that cuts a job by op splits.

    The largest memory of a rank is added to the predicted figures as ``memory_bytes`` unless it is given.

    Args:
        job: what is run.
        cluster: where.
        splits: split degree of each op.
        placement: device of each rank.
        predicted: figures for this plan, for example ``step_s``.
        why: the reason for the choice, for people.

    Raises:
        PlanError: parts that do not go together, or a rank that needs more memory than its device has.
    """
    memory_bytes = op_split_memory_bytes(job.graph, splits)
    _check_num_ranks(placement, splits.degree)
    ranks = _ranks(cluster, placement)
    check_memory(memory_bytes, placement, cluster)
    figures = tuple(predicted)
    if not any(figure.name == "memory_bytes" for figure in figures):
        peak = Figure.predicted("memory_bytes", float(memory_bytes.max()), "bytes")
        figures = (*figures, peak)
    plan = PlacementPlan(
        job=_planned_job(job),
        cluster=PlannedCluster(name=cluster.name, data=cluster.to_data()),
        partition=OpSplitsPartition(splits=tuple(splits.splits.tolist())),
        ranks=ranks,
        stages=op_split_stages(splits),
        predicted=figures,
        why=why,
    )
    legality.check(plan)
    return plan


def layout_plan(
    job: Job,
    cluster: Cluster,
    layout: Layout,
    placement: Placement,
    *,
    order: str = DEFAULT_ORDER,
    layers: Sequence[int] | None = None,
    shape: TransformerShape | None = None,
    sequence_length: int | None = None,
    predicted: Sequence[Figure] = (),
    why: str | None = None,
) -> PlacementPlan:
    """Return a plan that cuts a job by a parallel layout, its ops in contiguous pipeline stages.

    Args:
        job: to be run. cluster: on which it runs.
        layout: degrees, schedule and batch.
        placement: device of each rank.
        order: how ranks are numbered, see `rank_order`.
        layers: layers of each model chunk in model order; by default stages are balanced by time.
        shape: of the job, if it is a transformer; embedded, so that exports know the messages between the ranks of a layer.
        sequence_length: tokens of a sequence of the shape; by default the model's own, 2,048 at most.
        predicted: figures for this plan, for example ``step_s``.
        why: the reason for the choice, for people.

    Raises:
        PlanError: parts that do not go together, or more stages than ops.
    """
    _check_num_ranks(placement, layout.world)
    places = coordinates(layout, order)
    transformer = None if shape is None else PlannedTransformer.from_shape(shape, sequence_length)
    plan = PlacementPlan(
        job=_planned_job(job).model_copy(update={"transformer": transformer}),
        cluster=PlannedCluster(name=cluster.name, data=cluster.to_data()),
        partition=LayoutPartition(layout=layout),
        ranks=_ranks(cluster, placement, places),
        stages=layout_stages(job.graph, layout, places, layers),
        micro_batches=layout.num_micro_batches,
        predicted=tuple(predicted),
        why=why,
    )
    legality.check(plan)
    return plan


def op_placement_plan(
    job: Job,
    cluster: Cluster,
    device_of: NDArray[np.int64],
    order: NDArray[np.int64],
    objective: Literal["latency", "throughput"],
    *,
    optimizer: Optimizer | None = None,
    in_flight: int = 1,
    among: Sequence[int] | None = None,
    predicted: Sequence[Figure] = (),
    why: str | None = None,
) -> PlacementPlan:
    """Return a plan that puts each op of a job on a device, one rank on each device that has ops.

    Where the devices form a pipeline ranks follow it, and each is a stage; otherwise ranks follow the devices' numbers.

    Args:
        job: what is run, ``n`` ops.
        cluster: where.
        device_of: the cluster's id of the device of each op, ``(n,)``.
        order: all tasks in a topological order, ``(n,)``, or ``(2 n,)`` where the plan trains; see `op_placement`.
        objective: minimised figure.
        optimizer: None where only the forward pass runs.
        in_flight: micro-batches whose outputs a device holds at once.
        among: the devices that could be chosen; all by default.
        predicted: figures for this plan, for example ``step_s``.
        why: the reason for the choice, for people.

    Raises:
        PlanError: parts that do not go together, or a device that needs more memory than it has.
    """
    if device_of.shape != (job.graph.num_ops,):
        raise PlanError(f"names a device for each of {job.graph.num_ops} ops", field="device_of", value=str(device_of.shape))
    line = pipeline_order(job.graph, device_of)
    devices = sorted(set(device_of.tolist())) if line is None else line
    held = [np.flatnonzero(device_of == device).tolist() for device in devices]
    position = {op: at for at, op in enumerate(job.graph.order.tolist())}
    stages = (
        ()
        if line is None
        else tuple(
            Stage(
                stage=rank,
                ranks=(rank,),
                num_ops=len(ops),
                ops=tuple(job.graph.op_names[op] for op in sorted(ops, key=position.__getitem__)),
            )
            for rank, ops in enumerate(held)
        )
    )
    partition = OpPlacementPartition(
        device_of=tuple(device_of.tolist()),
        groups=tuple(OpGroup(ops=tuple(ops), ranks=(rank,)) for rank, ops in enumerate(held)),
        order=tuple(order.tolist()),
        objective=objective,
        pipeline=line is not None,
        optimizer=optimizer,
        in_flight=in_flight,
        among=None if among is None else tuple(among),
    )
    plan = PlacementPlan(
        job=_planned_job(job),
        cluster=PlannedCluster(name=cluster.name, data=cluster.to_data()),
        partition=partition,
        ranks=_ranks(cluster, place(cluster, np.array(devices))),
        stages=stages,
        predicted=tuple(predicted),
        why=why,
    )
    legality.check(plan)
    return plan


def moved_plan(
    plan: PlacementPlan,
    cluster: Cluster,
    placement: Placement,
    *,
    num_steps: int,
    deadline_s: float | None = None,
    predicted: Sequence[Figure] = (),
    why: str | None = None,
) -> PlacementPlan:
    """Return the plan of the same cut of the same job on other devices of its cluster.

    Args:
        plan: made on some devices of the cluster; what its ranks hold is as it was.
        cluster: where.
        placement: device of each rank.
        num_steps, deadline_s, predicted, why: of the new plan.

    Raises:
        PlanError: another number of ranks, or a device that is not there.
    """
    _check_num_ranks(placement, plan.num_ranks)
    places = [rank.coordinates for rank in plan.ranks]
    ranks = _ranks(cluster, placement, None if places[0] is None else [one for one in places if one is not None])
    changes = {
        "job": plan.job.model_copy(update={"num_steps": num_steps, "deadline_s": deadline_s}),
        "ranks": ranks,
        "host_order": tuple(dict.fromkeys(rank.host for rank in ranks)),
        "predicted": tuple(predicted),
        "why": why,
    }
    return plan.model_copy(update=changes)


def load_plan(path: str | Path) -> PlacementPlan:
    """Read a plan of this or an older version and check it.

    Raises:
        InputFileError: the file is missing, not JSON or no JSON object.
        PlanError: an unknown version or key, an impossible value, or parts that contradict each other.
        GraphError, ClusterError or ConfigError: an embedded job graph or cluster that is none.
    """
    if Path(path).suffix in (".txt", ".csv", ".yaml", ".yml") and Path(path).is_file():
        raise InputFileError("a plan is JSON, as `meshwright plan --json FILE` writes it", file=path)
    data = files.read_json(path)
    if not isinstance(data, dict):
        raise InputFileError("a plan is a JSON object", file=path, value=type(data).__name__)
    if "schema_version" not in data:
        problem = "the key is missing; a plan is what `meshwright plan --json FILE` writes"
        raise PlanError(problem, file=path, field="schema_version")
    if not versions.is_known(data["schema_version"]):
        problem = f"versions 1 to {versions.SCHEMA_VERSION} are known"
        raise PlanError(problem, file=path, field="schema_version", value=data["schema_version"])
    plan = build_of_plan(PlacementPlan, data, file=path)
    legality.check(plan, file=path)
    return plan


def _check_num_ranks(placement: Placement, num_ranks: int) -> None:
    if placement.num_ranks != num_ranks:
        raise PlanError(f"the partition has {num_ranks} ranks", field="placement", value=placement.num_ranks)


def _ranks(cluster: Cluster, placement: Placement, places: Sequence[Coordinates] | None = None) -> tuple[Rank, ...]:
    devices = place(cluster, placement.devices).devices
    hosts, local_ranks = cluster.device_host[devices].tolist(), cluster.local_rank[devices].tolist()
    return tuple(
        Rank(
            rank=rank,
            host=cluster.host_names[hosts[rank]],
            local_rank=local_ranks[rank],
            device=device,
            coordinates=None if places is None else places[rank],
        )
        for rank, device in enumerate(devices.tolist())
    )


def _planned_job(job: Job) -> PlannedJob:
    return PlannedJob(name=job.graph.name, num_steps=job.num_steps, deadline_s=job.deadline_s, graph=job.graph.to_data())
