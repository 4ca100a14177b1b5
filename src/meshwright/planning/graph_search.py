"""`plan --search` of any job graph: what `planners.layouts.graph_search` finds as rows, and the winner as a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..clusters.cluster import Cluster
from ..costs.process_groups.group_network import group_network
from ..costs.settings import CostSettings
from ..costs.training_step.graph_step_time import price_graph
from ..costs.training_step.idle_keys import remarks
from ..costs.work.graph_work import GraphWork
from ..errors import PlanError
from ..jobs.graph import JobGraph
from ..jobs.job import Job
from ..jobs.load import JobSource, load_graph
from ..planners.layouts.graph_search import GraphSearch
from ..planners.layouts.request import SearchRequest
from ..planners.layouts.results import RankedLayout
from ..plans import PlacementPlan, check, layout_plan, place
from ..plans.document import Rank, Stage
from .graph_estimate import timed_graph
from .search_table import LayoutRow, RankedLayouts


@dataclass(frozen=True)
class GraphLayoutsFound(RankedLayouts):
    """What a search over a job graph's layouts found.

    Attributes:
        graph: the job.
        search: what priced it.
    """

    graph: JobGraph
    search: GraphSearch

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.graph.name

    @property
    def batch_text(self) -> str:
        """Samples."""
        return f"{self.search.global_batch} samples"

    @property
    def batch(self) -> dict[str, int]:
        """Samples."""
        return {"global_batch": self.search.global_batch}

    @property
    def capacity_bytes(self) -> float:
        """Memory of a device."""
        return self.search.capacity_bytes

    @property
    def tried_orders(self) -> tuple[str, ...]:
        """Of the layouts of all sizes that were asked for."""
        return self.search.tried_orders

    def row(self, found: RankedLayout) -> LayoutRow:
        """A layout with its figures."""
        search, work = self.search, self.search.work(found.layout, found.order)
        step = price_graph(work, search.wires, self.device, search.costs.overlap_slowdown, found.order)
        return LayoutRow(found, step, ("samples_per_s", step.samples_per_s), found[:3] in self.front)

    def with_batch(self, batch: int) -> LayoutRow:
        """See `RankedLayouts.with_batch`; figures that are given hold for as many samples as before."""
        old, graph = self.search, self.graph
        if self.job.startswith("zoo:"):
            graph = load_graph(self.job, device=self.device, batch_size=batch)
        elif graph.samples_per_step is None:
            graph = dataclasses.replace(graph, samples_per_step=old.global_batch)
        search = GraphSearch(
            graph,
            batch,
            old.device,
            old.capacity_bytes,
            old.devices_per_host,
            old.wires,
            old.costs,
            dataclasses.replace(old.request, top=1, on_best=SearchRequest.on_best),
        )
        searched = search.run([self.best.devices])
        other = dataclasses.replace(self, searched=searched, graph=graph, search=search)
        return other.row(other.best)

    @cached_property
    def plan(self) -> PlacementPlan:
        """The plan of the best layout, its stages those that were priced."""
        found = self.best
        plan = layout_plan(
            Job(self.graph, self.num_steps),
            self.cluster,
            found.layout,
            place(self.cluster, np.arange(found.devices)),
            order=found.order,
            predicted=self.row(found).figures(),
            why=self.why,
        )
        made = plan.model_copy(update={"stages": stages(self.search.work(found.layout, found.order), plan.ranks)})
        check(made)
        return made


def stages(work: GraphWork, ranks: Sequence[Rank]) -> tuple[Stage, ...]:
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


def search_graph(
    source: JobSource, cluster: Cluster, device_counts: Sequence[int], costs: CostSettings, request: SearchRequest
) -> GraphLayoutsFound:
    """Search all layouts of a job graph on a cluster of equal devices.

    Raises:
        PlanError: no batch, or no layout is legal or fits.
        GraphError: the job is missing or wrong, or cannot be timed on the devices.
    """
    device = cluster.device_types[0]
    is_analytic = source.spec.startswith("zoo:")
    graph, left_out = timed_graph(source, cluster, request.batch if is_analytic else None)
    batch = request.batch or graph.samples_per_step
    if batch is None:
        problem = f"{graph.name} does not say how many samples its figures hold for, which is then taken for the batch of a step"
        raise PlanError(problem, field="--batch")
    search = GraphSearch(
        graph,
        batch,
        device,
        float(cluster.memory_bytes.min()),
        cluster.num_devices // cluster.num_hosts,
        group_network(cluster, costs),
        costs,
        request,
    )
    searched = search.run(device_counts)
    told = (*left_out, *remarks(searched.ranking[0].layout, has_layers=False, asked=request.kept))
    return GraphLayoutsFound(source.spec, request.num_steps, cluster, searched, graph, search, remarks=told)
