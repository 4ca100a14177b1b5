"""`estimate` of any job graph: data parallelism, and a pipeline whose stages are runs of ops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..clusters.cluster import Cluster
from ..costs.collectives.prices import Provenance
from ..costs.network import RankNetwork
from ..costs.process_groups.group_network import group_network
from ..costs.settings import CostSettings
from ..costs.stage_cuts.graph_cuts import best_cuts
from ..costs.training_step.graph_step_time import graph_provenance, graph_step_s, price_graph
from ..costs.training_step.idle_keys import remarks
from ..costs.training_step.step_figures import GraphStepTime
from ..costs.work.graph_memory import check_graph_fits, graph_stage_memory
from ..costs.work.graph_work import GraphWork, describe_graph
from ..errors import GraphError
from ..jobs.graph import JobGraph
from ..jobs.load import JobSource, LoadedJob
from ..plans.partition import Layout
from ..simulation.layouts.graph_step import GraphStep
from ..simulation.layouts.running import STEPS, num_tasks, run_layout
from ..simulation.layouts.steady import with_micro_batches
from .priced import Priced, check_place, read_layout


@dataclass(frozen=True)
class GraphEstimate(Priced):
    """A job graph's layout as priced.

    Attributes:
        step: the step.
        work: what every stage does.
    """

    step: GraphStepTime
    work: GraphWork

    @property
    def layout(self) -> Layout:
        """How the job is cut."""
        return self.work.layout

    @property
    def rate(self) -> tuple[str, float, str]:
        """Samples in a second."""
        return "samples_per_s", self.step.samples_per_s, "1/s"

    @property
    def details(self) -> dict[str, Any]:
        """The ops at both ends of each chunk of the pipeline."""
        names = self.work.graph.op_names
        return {
            "stages": [
                {"stage": k % self.layout.pp, "num_ops": len(ops), "first": names[ops[0]], "last": names[ops[-1]]}
                for k, ops in enumerate(self.work.chunks)
            ]
        }

    def repriced_s(self, layout: Layout, costs: CostSettings) -> float:
        """With the cut that is best for it."""
        costs = costs.of_layouts
        work = cut(self.work.graph, self.cluster, layout, costs)
        return graph_step_s(work, group_network(self.cluster, costs), costs.overlap_slowdown)

    def simulated_s(self, costs: CostSettings, num_micro_batches: int | None = None) -> float:
        """Of the same cut."""
        costs = costs.of_layouts
        layout = with_micro_batches(self.layout, num_micro_batches or self.layout.num_micro_batches)
        step = GraphStep(replace(self.work, layout=layout), group_network(self.cluster, costs))
        return run_layout(step, self.cluster, costs=costs).step_s

    def num_tasks(self, costs: CostSettings) -> int:
        """See `running.num_tasks`."""
        return num_tasks(
            GraphStep(self.work, group_network(self.cluster, costs)),
            RankNetwork(self.cluster, np.arange(self.layout.world)),
            STEPS,
        )


def estimate_graph(source: JobSource, cluster: Cluster, layout: str | Layout, costs: CostSettings) -> GraphEstimate:
    """Price one layout of a job graph; see `estimate.estimate`.

    Raises:
        MeshwrightError: as there.
    """
    graph, left_out = timed_graph(source, cluster)
    parsed, asked = read_layout(layout, graph.samples_per_step)
    check_place(cluster, parsed)
    work = cut(graph, cluster, parsed, costs)
    check_graph_fits(work, float(cluster.memory_bytes.min()))
    wires = group_network(cluster, costs)
    step = price_graph(work, wires, cluster.device_types[0], costs.overlap_slowdown)
    memory = tuple(graph_stage_memory(work, stage) for stage in range(parsed.pp))
    compute: Provenance = "measured" if work.is_profiled and work.share == 1 else "estimated"
    told, provenance = (*left_out, *remarks(parsed, has_layers=False, asked=asked)), graph_provenance(work, wires)
    return GraphEstimate(graph.name, cluster, memory, provenance, compute, step, work, remarks=told, costs=costs)


def timed_graph(source: JobSource, cluster: Cluster, batch_size: int | None = None) -> LoadedJob:
    """The job graph that is meant, timed on a cluster of equal devices; see `jobs.load.load_graph`.

    Raises:
        MeshwrightError: it is missing or wrong, or its ops take no time.
    """
    loaded = source.load(device=cluster.device_types[0], batch_size=batch_size)
    if loaded.graph.step_s <= 0:
        raise GraphError("its ops take no time, so that there is nothing to price", value=loaded.graph.name)
    return loaded


def cut(graph: JobGraph, cluster: Cluster, layout: Layout, costs: CostSettings) -> GraphWork:
    """The work of a job graph whose pipeline is cut where its step takes least, see `costs.stage_cuts.graph_cuts`.

    Where no cut fits the devices it is that of devices without bounds, so that its memory can be told.

    Raises:
        PlanError, GraphError: the job cannot be cut or timed so.
    """
    device, wires, capacity = cluster.device_types[0], group_network(cluster, costs), float(cluster.memory_bytes.min())
    cuts = best_cuts(graph, layout, device, wires, costs, capacity_bytes=capacity)
    return describe_graph(graph, layout, device, costs, cuts=cuts or best_cuts(graph, layout, device, wires, costs) or ())
