"""A job graph on a cluster, cut by data parallelism and a pipeline of its ops; and which of the two a job is, `work_of`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ..clusters.cluster import Cluster
from ..costs.collectives.prices import Provenance
from ..costs.process_groups.group_network import GroupNetwork, group_network
from ..costs.settings import CostSettings
from ..costs.stage_cuts.graph_cuts import find_cuts
from ..costs.stage_cuts.mixed_cuts import MixedDevices
from ..costs.training.replicas import Replicas
from ..costs.training_step.graph_step_time import GraphPricer
from ..costs.work.graph_work import GraphWork, describe_graph
from ..errors import GraphError, PlanError
from ..jobs.graph import JobGraph
from ..jobs.job import Job
from ..jobs.load import JobSource, load_graph
from ..jobs.masked import Core, core_graph
from ..planners.layouts.graph_search import GraphSearch
from ..planners.layouts.request import SearchRequest
from ..plans import PlacementPlan, check, layout_plan, place
from ..plans.document import Figure, Rank, Stage
from ..plans.partition import Layout
from ..plans.rank_order import DEFAULT_ORDER
from ..simulation.layouts.step_model import GraphStep, StepModel
from .job_work import Devices, JobWork, TransformerWork


@dataclass(frozen=True)
class OpGraphWork(JobWork):
    """Any other job graph, by data parallelism and a pipeline of its ops.

    Attributes:
        graph: the job.
    """

    graph: JobGraph
    has_layers = False

    @property
    def name(self) -> str:
        """See `JobWork.name`."""
        return self.graph.name

    @cached_property
    def mixed(self) -> MixedDevices | None:
        """Devices of the ranks where they are of several types."""
        types = self._types_of_ranks
        return None if types is None else MixedDevices(self.cluster.device_types, types)

    @property
    def weights(self) -> str:
        """See `JobWork.weights`; a graph gives bytes."""
        return f"{self.graph.parameter_bytes.sum() / 1e6:,.1f} MB of parameters"

    @property
    def pricer(self) -> GraphPricer:
        """See `JobWork.pricer`."""
        made = GraphPricer.from_cluster(self.cluster, self.costs, self.wires)
        if self.mixed is None:
            return made
        return replace(made, device=self.mixed.slowest, peaks_flops_per_s=self.mixed.peaks_flops_per_s)

    def work(self, layout: Layout) -> GraphWork:
        """See `JobWork.work`."""
        if self.mixed is not None:
            return self.mixed.work(self.graph, layout, self.wires, self.costs)
        return cut(self.graph, self.cluster, layout, self.costs, self.wires)

    def work_as(self, cut: GraphWork) -> GraphWork:
        """See `JobWork.work_as`."""
        ends = np.cumsum([0, *cut.op_cuts]).tolist()
        return describe_graph(self.graph, cut.layout, self.cluster.device_types[0], self.costs, cuts=ends)

    def as_core(self, core: Core, request: SearchRequest) -> tuple[JobWork, SearchRequest]:
        """Return each op with its share of the time, see `JobWork.as_core`."""
        launch_s = self.cluster.device_types[0].kernel_launch_s
        return replace(self, graph=core_graph(self.graph, core, launch_s)), request

    def replicas(self, work: GraphWork, order: str | None = None) -> Replicas:
        """See `JobWork.replicas`; on devices of several types each also by itself."""
        made = super().replicas(work, order)
        if self.mixed is None or work.layout.sp > 1:
            return made
        where = DEFAULT_ORDER if order is None else order
        alone = (self.mixed.of_replica(work, self.costs, replica, where) for replica in range(work.layout.dp))
        return replace(made, alone=tuple((one, made.pricer) for one in alone))

    def compute_provenance(self, work: GraphWork) -> Provenance:
        """Return that ops are measured where a profile is run as it was profiled."""
        return "measured" if work.is_profiled and work.share == 1 else "estimated"

    def details(self, work: GraphWork) -> dict[str, Any]:
        """Return the ops at both ends of each chunk of the pipeline."""
        names, pp = work.graph.op_names, work.layout.pp
        chunks = enumerate(work.chunks)
        return {
            "stages": [{"stage": k % pp, "num_ops": len(o), "first": names[o[0]], "last": names[o[-1]]} for k, o in chunks],
        }

    def simulated(self, work: GraphWork) -> StepModel:
        """See `JobWork.simulated`."""
        return GraphStep(work, self.pricer)

    def search(self, request: SearchRequest) -> GraphSearch:
        """See `JobWork.search`."""
        batch, cluster = request.batch or self.samples, self.cluster
        if batch is None:
            problem = (
                f"{self.name} does not say how many samples its figures hold for, which is then taken for the batch of a step"
            )
            raise PlanError(problem, field="--batch")
        return GraphSearch(
            self.graph,
            batch,
            cluster.device_types[0] if self.mixed is None else self.mixed.slowest,
            self.capacity_bytes,
            self.devices_per_host,
            self.wires,
            self.costs,
            request,
            mixed=self.mixed,
        )

    def plan(
        self, work: GraphWork, order: str, num_steps: int, predicted: Sequence[Figure], why: str, devices: Devices = None
    ) -> PlacementPlan:
        """See `JobWork.plan`."""
        placement = place(self.cluster, self.devices(work.layout.world) if devices is None else devices)
        job = Job(self.graph, num_steps)
        plan = layout_plan(job, self.cluster, work.layout, placement, order=order, predicted=predicted, why=why)
        made = plan.model_copy(update={"stages": plan_stages(work, plan.ranks)})
        check(made)
        return made

    def with_samples(self, batch: int, other: int) -> Self:
        """Return the zoo's graph of another batch; figures from a file hold for as many samples as before."""
        if self.spec.startswith("zoo:"):
            graph = load_graph(self.spec, device=self.cluster.device_types[0], batch_size=other)
        else:
            graph = replace(self.graph, samples_per_step=self.graph.samples_per_step or batch)
        return replace(self, graph=graph)


def work_of(
    source: JobSource,
    cluster: Cluster,
    costs: CostSettings,
    *,
    sequence_length: int | None = None,
    batch_size: int | None = None,
) -> JobWork:
    """Return a job on a cluster.

    Args:
        source: which job is meant.
        cluster: where.
        costs: choices of the cost model, see `CostSettings.of_layouts`.
        sequence_length: tokens of a transformer's sequence; by default the model's own, 2,048 at most.
        batch_size: samples of a graph of the zoo; by default its own.

    Raises:
        PlanError: a sequence length, or constants of kernels, for a job that reads none.
        MeshwrightError: the job is missing or wrong, or its ops take no time.
    """
    result = source.shape()
    if result is not None:
        shape, batch = result
        length = shape.default_sequence_length if sequence_length is None else sequence_length
        return TransformerWork(source.spec, cluster, costs, batch, shape, length, left_out=source.left_out)
    if sequence_length is not None:
        raise PlanError("the job has no sequences", field="--sequence-length", value=sequence_length)
    for key in ("kernels", "software"):
        if (value := getattr(costs, key)) is not None:
            problem = "is read for transformers only; ops of another job are timed by their profile or the roofline"
            raise PlanError(problem, field=key, value=value)
    is_analytic = source.spec.startswith("zoo:")
    graph, left_out = source.load(device=cluster.device_types[0], batch_size=batch_size if is_analytic else None)
    if graph.step_s <= 0:
        raise GraphError("its ops take no time, so that there is nothing to price", value=graph.name)
    return OpGraphWork(source.spec, cluster, costs, graph.samples_per_step, graph, left_out=left_out)


def cut(graph: JobGraph, cluster: Cluster, layout: Layout, costs: CostSettings, wires: GroupNetwork | None = None) -> GraphWork:
    """Return the work of a job graph whose pipeline is cut where its step takes least, see `costs.stage_cuts.graph_cuts`.

    Where no cut fits the devices it is that of devices without bounds, so that its memory can be reported.

    Raises:
        PlanError, GraphError: the job cannot be cut or timed so.
    """
    device, capacity = cluster.device_types[0], float(cluster.memory_bytes.min())
    wires = wires or group_network(cluster, costs)
    cuts = find_cuts(graph, layout, device, wires, costs, capacity_bytes=capacity).places
    return describe_graph(graph, layout, device, costs, cuts=cuts or find_cuts(graph, layout, device, wires, costs).places or ())


def plan_stages(work: GraphWork, ranks: Sequence[Rank]) -> tuple[Stage, ...]:
    """Return the chunks of a pipeline as a plan names them."""
    results = []
    for chunk, ops in enumerate(work.chunks):
        stage = chunk % work.layout.pp
        results.append(
            Stage(
                stage=stage,
                chunk=chunk // work.layout.pp,
                ranks=tuple(rank.rank for rank in ranks if rank.coordinates is not None and rank.coordinates.pp == stage),
                num_ops=len(ops),
                ops=tuple(work.graph.op_names[op] for op in ops.tolist()),
            )
        )
    return tuple(results)
