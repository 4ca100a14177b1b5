"""The ops of a plan with their places: what exports of ops on devices have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import ExportError
from ...jobs.graph import JobGraph
from ...plans.document import PlacementPlan, Rank
from ...plans.op_placement import OpPlacementPartition
from ...plans.partition import Coordinates
from ..frameworks.megatron_layers import layer_of

_STAGES_BY = (
    "`meshwright plan --ops --objective throughput` with --policy linear, ideals or milp-contiguous makes stages in order"
)
_FOR_LAYERS = "`meshwright plan --search --for megatron` or `--for deepspeed` makes stages of layers"
_TAKEN_BY = "tensorflow, slurm, kubernetes, ray, openmpi and chakra take ops on any device, device-map those on one host"
"""Ways out of a refusal: what makes plans that are taken, and what takes this plan."""


@dataclass(frozen=True, eq=False)
class PlacedGraph:
    """A plan of ops on devices, with its job graph.

    Attributes:
        graph: the job.
        partition: what was decided.
        rank_of: the rank that runs each op; of replicas the first.
    """

    graph: JobGraph
    partition: OpPlacementPartition
    rank_of: tuple[Rank, ...]


def placed_graph(plan: PlacementPlan) -> PlacedGraph:
    """Return the ops of a plan.

    Raises:
        ExportError: the plan puts no op on a device, or does not embed its job graph, so that ops have no names.
    """
    partition, graph = plan.op_placement(), plan.job_graph()
    if partition is None:
        raise ExportError("puts no op on a device by itself; `meshwright plan --ops` makes plans that do", field="partition")
    if graph is None:
        raise ExportError("the plan embeds no job graph, so its ops have no names", field="job.graph")
    rank_of: list[Rank] = [plan.ranks[0]] * graph.num_ops
    for group in partition.groups:
        for op in group.ops:
            rank_of[op] = plan.ranks[group.ranks[0]]
    return PlacedGraph(graph, partition, tuple(rank_of))


def model_order(graph: JobGraph) -> list[int]:
    """Return the ops in the order in which the model runs them: that of the file where it is a topological one, else Kahn's."""
    in_file = bool((graph.edges[:, 0] < graph.edges[:, 1]).all())
    return list(range(graph.num_ops)) if in_file else [int(op) for op in graph.order]


def stages_in_order(placement: PlacedGraph, who: str) -> list[list[int]]:
    """Return the ops of each group in the model's order, where no group reads from a later one.

    Joined, the groups are a topological order of the ops, which the model's own order need not be.

    Raises:
        ExportError: the first op, in the model's order, that reads from a later group.
    """
    group_of = _group_of(placement)
    order = model_order(placement.graph)
    sources: dict[int, list[int]] = {}
    for source, target in placement.graph.edges.tolist():
        sources.setdefault(target, []).append(source)
    stages: list[list[int]] = [[] for _ in placement.partition.groups]
    for op in order:
        own = int(group_of[op])
        last = max((int(group_of[source]) for source in sources.get(op, ())), default=own)
        if last > own:
            problem = (
                f"{who} runs stages in order, and group {own} is none: this op comes behind one of group {last}. "
                f"{_STAGES_BY}; {_TAKEN_BY}"
            )
            raise ExportError(problem, field=f"partition.groups.{own}", value=placement.graph.op_names[op])
        stages[own].append(op)
    return stages


def are_runs(placement: PlacedGraph) -> bool:
    """Return whether the groups, one after another, are the ops in the model's own order."""
    groups = _group_of(placement)[model_order(placement.graph)]
    return bool((np.diff(groups) >= 0).all())


def has_shared_tensors(placement: PlacedGraph) -> bool:
    """Return whether an op's output is read by two groups or more other than its own."""
    group_of = _group_of(placement)
    ends = {(source, int(group_of[target])) for source, target in placement.graph.edges.tolist()}
    sources = [source for source, group in ends if group != group_of[source]]
    return len(sources) > len(set(sources))


def check_runs(placement: PlacedGraph, who: str) -> list[list[int]]:
    """Return the ops of each group in the model's order, where each group is one run of it and the runs follow each other.

    Args:
        placement: the plan's ops.
        who: who wants it, for the error.

    Raises:
        ExportError: the first op, in the model's order, at which a group begins a second time or out of turn.
    """
    group_of = _group_of(placement)
    runs: list[list[int]] = []
    for op in model_order(placement.graph):
        own = int(group_of[op])
        if runs and own == len(runs) - 1:
            runs[-1].append(op)
        elif own == len(runs):
            runs.append([op])
        else:
            behind = f"behind one of group {len(runs) - 1}" if runs else "first"
            problem = (
                f"{who} cuts a model into runs of modules, and group {own} is none: this op comes {behind}. {_FOR_LAYERS}; "
                f"torchrun takes stages in any order of the ops; {_TAKEN_BY}"
            )
            raise ExportError(problem, field=f"partition.groups.{own}", value=placement.graph.op_names[op])
    return runs


def as_equal_layers(plan: PlacementPlan, who: str) -> PlacementPlan:
    """Return a plan of ops as a pipeline of equal layers: the same ranks with coordinates, and the groups as stages.

    Args:
        plan: one of ops on devices; any other is returned as it is.
        who: who wants it, for the error.

    Raises:
        ExportError: groups that are no runs of the model, an unequal number of replicas, or of layers; the first op is named.
    """
    if plan.op_placement() is None:
        return plan
    result = placed_graph(plan)
    runs, names = check_runs(result, who), result.graph.op_names
    groups = result.partition.groups
    replicas = groups[0].replicas
    for number, group in enumerate(groups):
        if group.replicas != replicas:
            problem = (
                f"{who} has as many replicas of every stage, here {replicas}; group {number} begins with op {names[group.ops[0]]}"
            )
            raise ExportError(problem, field=f"partition.groups.{number}.replicas", value=group.replicas)
    _check_equal(runs, names, who)
    place = {rank: (stage, replica) for stage, group in enumerate(groups) for replica, rank in enumerate(group.ranks)}
    ranks = tuple(
        rank.model_copy(update={"coordinates": Coordinates(pp=place[rank.rank][0], dp=place[rank.rank][1], cp=0, ep=0, tp=0)})
        for rank in plan.ranks
    )
    return plan.model_copy(update={"partition": None, "ranks": ranks})


def _group_of(placement: PlacedGraph) -> NDArray[np.int64]:
    """Return the group of each op, ``(n,)``."""
    group_of = np.empty(placement.graph.num_ops, np.int64)
    for number, group in enumerate(placement.partition.groups):
        group_of[list(group.ops)] = number
    return group_of


def _check_equal(runs: Sequence[Sequence[int]], names: Sequence[str], who: str) -> None:
    held = [[layer for op in run if (layer := layer_of(names[op])) is not None] for run in runs]
    if not any(held):
        problem = (
            f"no op is named after a layer, so {who} cannot cut between layers; torchrun takes stages of any ops; {_TAKEN_BY}"
        )
        raise ExportError(problem, field="partition", value=names[0])
    counts = [len(set(layers)) for layers in held]
    target = len({layer for layers in held for layer in layers}) // len(runs)
    seen: set[int] = set()
    for number, run in enumerate(runs):
        own: set[int] = set()
        for op in run:
            layer = layer_of(names[op])
            if layer is None:
                continue
            if layer in seen:
                problem = f"{who} cuts between layers, and stage {number} begins inside layer {layer}"
                raise ExportError(problem, field=f"partition.groups.{number}", value=names[op])
            own.add(layer)
            if len(own) > target:
                problem = f"{who} gives every stage as many layers, here {target}; this op would be in another stage"
                raise ExportError(problem, field=f"partition.groups.{number}", value=names[op])
        if counts[number] < target:
            problem = (
                f"{who} gives every stage as many layers, here {target}, and stage {number} has {counts[number]}; its last op is"
            )
            raise ExportError(problem, field=f"partition.groups.{number}", value=names[run[-1]])
        seen |= own
