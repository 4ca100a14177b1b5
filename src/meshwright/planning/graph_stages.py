"""Where a job graph is cut into stages, and its stages as a plan names them."""

from __future__ import annotations

from collections.abc import Sequence

from ..clusters.cluster import Cluster
from ..costs.process_groups.group_network import GroupNetwork, group_network
from ..costs.settings import CostSettings
from ..costs.stage_cuts.graph_cuts import best_cuts
from ..costs.work.graph_work import GraphWork, describe_graph
from ..jobs.graph import JobGraph
from ..plans.document import Rank, Stage
from ..plans.partition import Layout


def cut(graph: JobGraph, cluster: Cluster, layout: Layout, costs: CostSettings, wires: GroupNetwork | None = None) -> GraphWork:
    """The work of a job graph whose pipeline is cut where its step takes least, see `costs.stage_cuts.graph_cuts`.

    Where no cut fits the devices it is that of devices without bounds, so that its memory can be told.

    Raises:
        PlanError, GraphError: the job cannot be cut or timed so.
    """
    device, capacity = cluster.device_types[0], float(cluster.memory_bytes.min())
    wires = wires or group_network(cluster, costs)
    cuts = best_cuts(graph, layout, device, wires, costs, capacity_bytes=capacity)
    return describe_graph(graph, layout, device, costs, cuts=cuts or best_cuts(graph, layout, device, wires, costs) or ())


def plan_stages(work: GraphWork, ranks: Sequence[Rank]) -> tuple[Stage, ...]:
    """The chunks of a pipeline as a plan names them."""
    found = []
    for chunk, ops in enumerate(work.chunks):
        stage = chunk % work.layout.pp
        found.append(
            Stage(
                stage=stage,
                chunk=chunk // work.layout.pp,
                ranks=tuple(rank.rank for rank in ranks if rank.coordinates is not None and rank.coordinates.pp == stage),
                num_ops=len(ops),
                ops=tuple(work.graph.op_names[op] for op in ops.tolist()),
            )
        )
    return tuple(found)
