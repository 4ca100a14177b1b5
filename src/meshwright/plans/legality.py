"""Whether the parts of a plan fit together. Errors name the rank.

A plan may come from a user's editor, so nothing is taken for granted that the form itself (`document`) cannot say.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TypeVar

import numpy as np

from ..clusters.cluster import Cluster
from ..errors import ClusterError, ConfigError, GraphError, PlanError
from ..jobs.graph import JobGraph
from .document import PlacementPlan, Rank
from .op_placement import OpPlacementPartition, check_op_placement
from .partition import Coordinates, Layout
from .training import Masked

_AXES = ("pp", "dp", "cp", "ep", "tp", "sp")

_Malformed = TypeVar("_Malformed", bound=GraphError | ClusterError | ConfigError | PlanError)


def check(plan: PlacementPlan, *, file: str | Path | None = None) -> None:
    """Refuse a plan that contradicts itself.

    - Each rank occurs once, in order; no device has two ranks; no host has two spellings.
    - Hosts and devices exist in the embedded cluster and agree; the host order is that of the lowest ranks.
    - Coordinates form a full grid: ``world = tp x cp x pp x dp``, and ``ep`` divides ``tp x cp x dp / etp``.
    - Op splits have no coordinates and as many ranks as their degree.
    - Ops on devices are as `op_placement.check_op_placement` requires, and the stages of their pipeline are their groups.
    - Stages name ranks, and ops of the embedded job graph, that exist; the shape of a transformer gives that graph.
    - The phases of a masked job are legal plans on the same devices, with the steps of its cycle.

    Args:
        plan: the plan.
        file: where it was read, for the message.

    Raises:
        PlanError: the first contradiction, with the rank.
        GraphError: the embedded job graph is invalid.
        ClusterError or ConfigError: the embedded cluster is invalid.
    """
    try:
        _check_ranks(plan)
        cluster = _embedded_cluster(plan)
        if cluster is not None:
            hosts = frozenset(cluster.host_names)
            for rank in plan.ranks:
                _check_device(rank, cluster, hosts)
        graph = _embedded_graph(plan)
        _check_partition(plan, graph)
        placed = plan.op_placement()
        if placed is not None:
            check_op_placement(placed, [rank.device for rank in plan.ranks], graph, cluster)
        _check_stages(plan, graph)
        _check_phases(plan)
    except (PlanError, GraphError, ClusterError, ConfigError) as error:
        raise error.at(file=file) from None


def check_cluster(plan: PlacementPlan, cluster: Cluster, *, file: str | Path | None = None) -> None:
    """Refuse a plan for another cluster: each rank's host is there and has the rank's device.

    A plan by hand may number its devices as it likes; where it embeds a cluster they are checked against that one.

    Raises:
        PlanError: the first rank whose place the cluster does not have.
    """
    hosts = {name: number for number, name in enumerate(cluster.host_names)}
    sizes = np.bincount(cluster.device_host, minlength=cluster.num_hosts)
    for rank in plan.ranks:
        field = f"rank {rank.rank}"
        if rank.host not in hosts:
            problem = f"cluster {cluster.name} has no such host"
            raise PlanError(problem, file=file, field=field, value=rank.host, choices=cluster.host_names)
        if rank.local_rank >= sizes[hosts[rank.host]]:
            problem = f"host {rank.host} of cluster {cluster.name} has devices 0..{sizes[hosts[rank.host]] - 1}"
            raise PlanError(problem, file=file, field=field, value=rank.local_rank)


def _check_ranks(plan: PlacementPlan) -> None:
    if not plan.ranks:
        raise PlanError("a plan has at least one rank", field="ranks")
    places: dict[tuple[str, int], int] = {}
    devices: dict[tuple[str, int], int] = {}
    spellings: dict[str, str] = {}
    numbers: set[int] = set()
    for number in (rank.rank for rank in plan.ranks):
        if number in numbers:
            raise PlanError("the rank appears twice", field=f"rank {number}")
        numbers.add(number)
        if number >= plan.num_ranks:
            raise PlanError(f"{plan.num_ranks} ranks count from 0 to {plan.num_ranks - 1}", field=f"rank {number}")
    for position, rank in enumerate(plan.ranks):
        if rank.rank != position:
            raise PlanError(f"is at place {position}; ranks are in order", field=f"rank {rank.rank}")
        known = spellings.setdefault(rank.host.lower(), rank.host)
        if known != rank.host:
            problem = f"is host {known} in other letters; names of hosts ignore capitals"
            raise PlanError(problem, field=f"rank {position}", value=rank.host)
        for seen, key in ((places, (rank.host, rank.local_rank)), (devices, (rank.host, rank.device))):
            first = seen.setdefault(key, position)
            if first != position:
                problem = f"rank {first} has this device of host {rank.host} already"
                raise PlanError(problem, field=f"rank {position}", value=key[1])
    order = list(dict.fromkeys(rank.host for rank in plan.ranks))
    for position, (host, expected) in enumerate(zip(plan.host_order, order, strict=False)):
        if host != expected:
            first = next(rank.rank for rank in plan.ranks if rank.host == expected)
            problem = f"the next host is that of rank {first}, {expected}: hosts are ordered by their lowest rank"
            raise PlanError(problem, field=f"host_order.{position}", value=host)
    if len(plan.host_order) != len(order):
        raise PlanError(f"names {len(plan.host_order)} hosts where the ranks use {len(order)}", field="host_order")


def _embedded_cluster(plan: PlacementPlan) -> Cluster | None:
    try:
        return plan.embedded_cluster()
    except (ClusterError, ConfigError) as error:
        raise _below("cluster.data", error) from None


def _below(part: str, error: _Malformed) -> _Malformed:
    """Return the error of an embedded part, with its field as the plan has it."""
    field = f"{part}.{error.field}" if error.field else part
    return type(error)(error.problem, field=field, value=error.value, choices=error.choices)


def _embedded_graph(plan: PlacementPlan) -> JobGraph | None:
    try:
        return plan.job_graph()
    except GraphError as error:
        raise _below("job.graph", error) from None


def _check_device(rank: Rank, cluster: Cluster, hosts: frozenset[str]) -> None:
    field = f"rank {rank.rank}"
    if rank.host not in hosts:
        raise PlanError(f"cluster {cluster.name} has no such host", field=field, value=rank.host, choices=cluster.host_names)
    if rank.device >= cluster.num_devices:
        raise PlanError(f"cluster {cluster.name} has devices 0..{cluster.num_devices - 1}", field=field, value=rank.device)
    name = cluster.device_name(rank.device)
    if name != f"{rank.host}/{rank.local_rank}":
        raise PlanError(f"device {rank.device} is {name}, not {rank.host}/{rank.local_rank}", field=field)


def _check_partition(plan: PlacementPlan, graph: JobGraph | None) -> None:
    splits, layout = plan.op_splits(), plan.layout()
    with_coordinates = [rank.rank for rank in plan.ranks if rank.coordinates is not None]
    if graph is not None and plan.job.transformer is not None:
        plan.job.transformer.check(graph)
    if plan.op_placement() is not None and with_coordinates:
        raise PlanError("ranks of ops on devices have no coordinates", field=f"rank {with_coordinates[0]}")
    if splits is not None:
        if graph is not None and graph.num_ops != splits.num_ops:
            raise PlanError(f"{splits.num_ops} split degrees for a graph of {graph.num_ops} ops", field="partition.splits")
        if splits.degree != plan.num_ranks:
            message = "is one too many" if plan.num_ranks > splits.degree else "is missing"
            problem = f"{message}: splits up to {splits.degree} ways need as many ranks"
            raise PlanError(problem, field=f"rank {min(splits.degree, plan.num_ranks)}", value=plan.num_ranks)
        if with_coordinates:
            raise PlanError("ranks of op splits have no coordinates", field=f"rank {with_coordinates[0]}")
    if layout is not None:
        if layout.world != plan.num_ranks:
            message = "is one too many" if plan.num_ranks > layout.world else "is missing"
            counted = (
                f"tp x cp x pp x dp{' x sp' * (layout.sp > 1)}" if layout.has_equal_stages else "tp x cp x dp of every stage"
            )
            problem = f"{message}: {counted} = {layout.world} ranks are wanted"
            raise PlanError(problem, field=f"rank {min(layout.world, plan.num_ranks)}", value=plan.num_ranks)
        if plan.micro_batches not in (None, layout.num_micro_batches):
            raise PlanError(f"the layout has {layout.num_micro_batches}", field="micro_batches", value=plan.micro_batches)
    if with_coordinates or layout is not None:
        _check_grid(plan, layout)


def _check_grid(plan: PlacementPlan, layout: Layout | None) -> None:
    """Check every place of the grid once; without a layout the largest coordinates give its size."""
    for rank in plan.ranks:
        if rank.coordinates is None:
            raise PlanError("has no coordinates", field=f"rank {rank.rank}")
        for axis in _AXES if layout is None else ():  # a coordinate typed wrongly must not make a grid that fills the memory
            if (at := getattr(rank.coordinates, axis)) >= plan.num_ranks:
                problem = f"{axis} counts from 0, and {plan.num_ranks} ranks have no such place"
                raise PlanError(problem, field=f"rank {rank.rank}", value=at)
    if layout is not None and layout.is_meshed:
        _check_meshes(plan, layout)
        return
    values = np.array([[getattr(rank.coordinates, axis) for axis in _AXES] for rank in plan.ranks])
    sizes = values.max(axis=0) + 1 if layout is None else np.array([getattr(layout, axis) for axis in _AXES])
    for rank, axis in np.argwhere(values >= sizes)[:1].tolist():
        raise PlanError(f"{_AXES[axis]} counts from 0 to {sizes[axis] - 1}", field=f"rank {rank}", value=int(values[rank, axis]))
    pp, dp, cp, ep, tp, sp = sizes.tolist()
    cut = tp if layout is None else layout.expert_tp
    copies, left = divmod(tp * dp * cp * sp, cut * ep)
    if left:
        problem = f"ep counts to {ep - 1}, and {ep} does not divide tp x cp x dp / etp = {tp * dp * cp * sp // cut}"
        raise PlanError(problem, field=f"rank {int(values[:, _AXES.index('ep')].argmax())}")
    seen: dict[tuple[int, ...], int] = {}
    experts: dict[tuple[int, int, int], int] = {}
    for number, (stage, replica, part, expert, slice_, piece) in enumerate(values.tolist()):
        first = seen.setdefault((stage, replica, part, slice_, piece), number)
        if first != number:
            raise PlanError(f"rank {first} has the same coordinates", field=f"rank {number}")
        group = (stage, expert, slice_ % cut)
        experts[group] = experts.get(group, 0) + 1
        if experts[group] > copies:
            problem = f"more than {copies} ranks of stage {stage} and tp {slice_} hold these experts"
            raise PlanError(problem, field=f"rank {number}", value=expert)
    axes = ("pp", "dp", "cp", "tp", "sp")
    for place in np.ndindex(pp, dp, cp, tp, sp):
        if place not in seen:
            absent = " ".join(f"{axis}={at}" for axis, at in zip(axes, place, strict=True) if axis != "sp" or sp > 1)
            counted = "tp x cp x pp x dp" + " x sp" * (sp > 1)
            problem = f"is missing, none is at {absent}: {counted} = {pp * dp * cp * tp * sp} ranks are wanted"
            raise PlanError(problem, field=f"rank {len(values)}", value=len(values))


def _check_meshes(plan: PlacementPlan, layout: Layout) -> None:
    """Check every place of the mesh of every stage once."""
    expected, known = {layout.coordinates(rank) for rank in range(layout.world)}, dict[Coordinates, int]()
    for rank in plan.ranks:
        assert rank.coordinates is not None
        if rank.coordinates not in expected:
            raise PlanError(
                "has coordinates that the mesh of no stage has", field=f"rank {rank.rank}", value=str(rank.coordinates)
            )
        first = known.setdefault(rank.coordinates, rank.rank)
        if first != rank.rank:
            raise PlanError(f"rank {first} has the same coordinates", field=f"rank {rank.rank}")


def _check_stages(plan: PlacementPlan, graph: JobGraph | None) -> None:
    holder: dict[tuple[str, int], int] = {}
    layout = plan.layout()
    known = None if graph is None else frozenset(graph.op_names)
    placed = plan.op_placement()
    has_ops = placed is not None or any(rank.coordinates is not None for rank in plan.ranks)
    if placed is not None and placed.pipeline and graph is not None:
        _check_groups_are_stages(plan, placed, graph)
    for position, stage in enumerate(plan.stages):
        field = f"stages.{position}"
        for rank, count in Counter(stage.ranks).items():
            if count > 1:
                raise PlanError(f"names rank {rank} twice", field=f"{field}.ranks", value=rank)
        copy = stage.chunk if layout is not None and layout.has_mirrored_stages else 0
        for op in stage.ops if has_ops else ():
            if (op, copy) in holder:
                raise PlanError(f"holds an op that is in stages.{holder[op, copy]} already", field=f"{field}.ops", value=op)
            holder[op, copy] = position
            if known is not None and op not in known:
                raise PlanError("the job graph has no such op", field=f"{field}.ops", value=op, choices=known)
        for rank in stage.ranks:
            if rank >= plan.num_ranks:
                raise PlanError(f"there is no rank {rank}; ranks count from 0 to {plan.num_ranks - 1}", field=field)
            coordinates = plan.ranks[rank].coordinates
            if coordinates is not None and coordinates.pp != stage.stage:
                raise PlanError(f"rank {rank} is of pipeline stage {coordinates.pp}", field=field, value=stage.stage)
        if stage.ops and len(stage.ops) != stage.num_ops:
            raise PlanError(f"names {len(stage.ops)} ops", field=f"{field}.num_ops", value=stage.num_ops)


def _check_phases(plan: PlacementPlan) -> None:
    if plan.phases is None:
        return
    if not isinstance(plan.training, Masked):
        raise PlanError("go with training of kind masked", field="phases")
    expected = {"core": plan.training.core_steps, "full": plan.training.full_steps}
    names = [phase.name for phase in plan.phases]
    if names != list(expected):
        raise PlanError("are core and full, in this order", field="phases", value=" ".join(names))
    devices = {(rank.host, rank.device) for rank in plan.ranks}
    for number, phase in enumerate(plan.phases):
        field = f"phases.{number}"
        if phase.steps != expected[phase.name]:
            raise PlanError(f"has {expected[phase.name]} steps in a cycle", field=f"{field}.steps", value=phase.steps)
        try:
            check(plan.of_phase(phase))
        except PlanError as error:
            raise _below(field, error) from None
        if {(rank.host, rank.device) for rank in phase.ranks} != devices:
            raise PlanError("runs on other devices than the plan", field=f"{field}.ranks")


def _check_groups_are_stages(plan: PlacementPlan, placed: OpPlacementPartition, graph: JobGraph) -> None:
    """Check that the groups of a pipeline are its stages, one each and in order, and that no op reads from a later group."""
    group_of = np.empty(graph.num_ops, np.int64)
    for number, group in enumerate(placed.groups):
        group_of[list(group.ops)] = number
    backward_edges = np.flatnonzero(group_of[graph.edges[:, 0]] > group_of[graph.edges[:, 1]])
    if backward_edges.size:
        source, target = graph.edges[backward_edges[0]].tolist()
        problem = f"gets something from group {group_of[source]}, a later stage of the pipeline, with op {graph.op_names[source]}"
        raise PlanError(problem, field=f"partition.groups.{group_of[target]}", value=graph.op_names[target])
    if not plan.stages:
        return
    if len(plan.stages) != len(placed.groups):
        raise PlanError(f"{len(placed.groups)} groups are as many stages", field="stages", value=len(plan.stages))
    for number, (stage, group) in enumerate(zip(plan.stages, placed.groups, strict=True)):
        names = {graph.op_names[op] for op in group.ops}
        if (stage.stage, stage.chunk, stage.ranks) != (number, 0, group.ranks) or set(stage.ops) != names:
            raise PlanError(f"is not partition.groups.{number}", field=f"stages.{number}")
