"""What `estimate` and `plan --search` ask of a job on a cluster: work under a layout, prices, memory, simulation, search, plan.

Transformers are cut layer by layer; of any other job graph ops stand in stages. `work_of` says which a job is, and nothing above
asks again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..clusters.cluster import Cluster
from ..costs.collectives.prices import Provenance
from ..costs.process_groups.device_kinds import DeviceKinds
from ..costs.process_groups.group_network import GroupNetwork, PlacedNetwork, group_network
from ..costs.settings import CostSettings
from ..costs.training_step.foreign_figures import foreign_figures
from ..costs.training_step.graph_step_time import GraphPricer
from ..costs.training_step.kernels import device_kinds, kernel_model
from ..costs.training_step.stage_crossings import Resharding
from ..costs.training_step.step_pricer import StepPricer
from ..costs.training_step.step_time import Pricer
from ..costs.work.graph_memory import graph_peak_memory, graph_stage_memory
from ..costs.work.graph_work import GraphWork
from ..costs.work.memory import StageMemory, peak_memory, stage_memory
from ..costs.work.work import LayoutWork, describe
from ..errors import GraphError, PlanError
from ..jobs.graph import JobGraph
from ..jobs.job import Job
from ..jobs.load import JobSource, load_graph
from ..jobs.transformer import TransformerShape
from ..planners.free_devices import Allocation
from ..planners.layouts.graph_search import GraphSearch
from ..planners.layouts.request import SearchRequest
from ..planners.layouts.search import LayoutSearch
from ..planners.layouts.space import LayoutSpace
from ..planners.layouts.stage_devices import StageDevices
from ..plans import PlacementPlan, check, layout_plan, place
from ..plans.document import Figure
from ..plans.partition import Layout
from ..plans.rank_order import DEFAULT_ORDER
from ..simulation.layouts.graph_step import GraphStep
from ..simulation.layouts.running import layout_step
from ..simulation.layouts.step_model import StepModel
from .graph_stages import cut, plan_stages

Devices = NDArray[np.int64] | None


@dataclass(frozen=True)
class JobWork(ABC):
    """A job on a cluster.

    Attributes:
        spec: how the job was named.
        cluster: where.
        costs: choices of the cost model.
        samples: samples of a step of the job itself; None where it does not say.
        left_out: what of its source does not count, for people.
        allocation: the devices on which it is priced and planned; None: the first ones of the cluster.
        has_layers: whether it is cut layer by layer.
        stage_memory: what a rank of a stage of its work holds.
        peak_memory: the stage whose ranks need most, and what they hold.
    """

    spec: str
    cluster: Cluster
    costs: CostSettings
    samples: int | None
    left_out: tuple[str, ...] = field(default=(), kw_only=True)
    allocation: Allocation | None = field(default=None, kw_only=True)
    has_layers: ClassVar[bool]
    stage_memory: ClassVar[staticmethod[[Any, int], StageMemory]]
    peak_memory: ClassVar[staticmethod[[Any], tuple[int, StageMemory]]]

    @property
    @abstractmethod
    def name(self) -> str:
        """The job's name."""

    @property
    def counted(self) -> str:
        """What a batch is made of, in words."""
        return "samples"

    @property
    def sizes(self) -> dict[str, int]:
        """What else there is to say of a batch, for JSON."""
        return {}

    @property
    def capacity_bytes(self) -> float:
        """Memory of a device; of the largest where there are several types."""
        return float(self.cluster.memory_bytes.max())

    @cached_property
    def stage_devices(self) -> StageDevices | None:
        """What ranks run on where devices differ in more than their name; None where they do not."""
        models, of_device = device_kinds(self.cluster, self.costs)
        devices = self.devices(self.cluster.num_devices)
        if len(set(self.cluster.memory_bytes.tolist())) == len(models) == 1:
            return None
        kinds = DeviceKinds(of_device, devices) if len(models) > 1 else None
        return StageDevices(models, kinds, self.cluster.memory_bytes[devices])

    @property
    def _types_of_ranks(self) -> NDArray[np.int64] | None:
        """The type of each rank's device, in rank order; None where devices do not differ."""
        return None if self.stage_devices is None else self.cluster.device_type[self.devices(self.cluster.num_devices)]

    def tightest(self, work: Any, order: str = DEFAULT_ORDER) -> tuple[int, StageMemory, float]:
        """The stage that lacks the most memory, or has the least left: which, what a rank holds and the room of its devices."""
        stage, held, room = *self.peak_memory(work), self.capacity_bytes
        if self.stage_devices is not None:
            missing, stage, held = self.stage_devices.missing_bytes(work, order)
            room = held.total - missing
        return stage, held, room

    @property
    def remarks(self) -> tuple[str, ...]:
        """What of its source does not count, and which figures of other devices it is priced by, for people."""
        return *self.left_out, *foreign_figures(self.cluster, self.costs, has_layers=self.has_layers)

    @property
    def wires(self) -> GroupNetwork:
        """What prices messages among its devices."""
        return group_network(self.cluster, self.costs) if self.allocation is None else self.allocation.wires

    @property
    def devices_per_host(self) -> int:
        """Of its devices, on each host."""
        return self.cluster.num_devices // self.cluster.num_hosts if self.allocation is None else self.allocation.devices_per_host

    def devices(self, count: int) -> NDArray[np.int64]:
        """The devices of so many ranks, in rank order."""
        return np.arange(count) if self.allocation is None else self.allocation.devices[:count]

    def on(self, devices: NDArray[np.int64]) -> Self:
        """The same job on devices in rank order, as many on each host as now."""
        wires = self.wires.on(devices) if isinstance(self.wires, PlacedNetwork) else self.wires
        return replace(self, allocation=Allocation(devices, self.devices_per_host, wires))

    @property
    @abstractmethod
    def pricer(self) -> StepPricer:
        """What prices its layouts."""

    @abstractmethod
    def work(self, layout: Layout) -> Any:
        """What every rank does under a layout, its pipeline cut where the step takes least.

        Raises:
            MeshwrightError: the job cannot be cut or timed so.
        """

    def compute_provenance(self, work: Any) -> Provenance:
        """Where the times of kernels or ops are from."""
        return "estimated"

    def details(self, work: Any) -> dict[str, Any]:
        """What there is to say of the job under a layout, for JSON."""
        return dict(self.sizes)

    @abstractmethod
    def simulated(self, work: Any) -> StepModel:
        """The step as the event path reads it."""

    @abstractmethod
    def search(self, request: SearchRequest) -> LayoutSearch | GraphSearch:
        """A search over its layouts.

        Raises:
            PlanError: no batch, or one or a sequence that the job cannot have.
        """

    @abstractmethod
    def plan(
        self, work: Any, order: str, num_steps: int, predicted: Sequence[Figure], why: str, devices: Devices = None
    ) -> PlacementPlan:
        """The plan of a layout, its stages those that were priced; on the first devices unless they are named in rank order."""

    def with_samples(self, batch: int, other: int) -> Self:
        """The same job for a search with another batch than the one that its figures were made or taken for."""
        return self


@dataclass(frozen=True)
class TransformerWork(JobWork):
    """A transformer.

    Attributes:
        shape: the model.
        sequence_length: tokens of a sequence.
    """

    shape: TransformerShape
    sequence_length: int
    has_layers = True
    stage_memory = staticmethod(stage_memory)
    peak_memory = staticmethod(peak_memory)

    @property
    def name(self) -> str:
        """See `JobWork.name`."""
        return self.shape.name

    @property
    def counted(self) -> str:
        """Sequences and their length."""
        return f"sequences of {self.sequence_length}"

    @property
    def sizes(self) -> dict[str, int]:
        """The length of a sequence."""
        return {"sequence_length": self.sequence_length}

    @property
    def pricer(self) -> Pricer:
        """See `JobWork.pricer`."""
        return Pricer.of(self.cluster, self.costs, self.wires, self.devices(self.cluster.num_devices))

    def work(self, layout: Layout) -> LayoutWork:
        """See `JobWork.work`."""
        return describe(self.shape, layout, self.sequence_length)

    def simulated(self, work: LayoutWork) -> StepModel:
        """See `JobWork.simulated`."""
        return layout_step(work, self.cluster, self.costs)

    def search(self, request: SearchRequest) -> LayoutSearch:
        """See `JobWork.search`."""
        shape, device = self.shape, self.cluster.device_types[0]
        if request.batch is None and not self.spec.startswith("zoo:"):
            raise PlanError("a config.json has no batch; say how many sequences a step has over all ranks", field="--batch")
        if shape.learned_positions and self.sequence_length > shape.max_positions:
            problem = f"{shape.name} has only {shape.max_positions} positions"
            raise PlanError(problem, field="--sequence-length", value=self.sequence_length)
        batch = request.batch or self.samples or 1  # a model that tells no samples was refused
        alike, types = self.stage_devices is None and not isinstance(self.wires, PlacedNetwork), self._types_of_ranks
        return LayoutSearch(
            LayoutSpace(shape, self.sequence_length, batch, self.devices_per_host, request, types, alike),
            device,
            self.capacity_bytes,
            self.wires,
            self.costs.overlap_slowdown,
            kernels=kernel_model(device, self.costs.kernels, self.costs.software),
            resharding=Resharding.of(self.costs),
            stage_devices=self.stage_devices,
        )

    def plan(
        self, work: LayoutWork, order: str, num_steps: int, predicted: Sequence[Figure], why: str, devices: Devices = None
    ) -> PlacementPlan:
        """See `JobWork.plan`."""
        layout, device = work.layout, self.cluster.device_types[0]
        graph = load_graph(self.spec, device=device, batch_size=layout.global_batch, sequence_length=self.sequence_length)
        return layout_plan(
            Job(graph, num_steps),
            self.cluster,
            Layout(**layout.model_dump()),
            place(self.cluster, self.devices(layout.world) if devices is None else devices),
            order=order,
            layers=[chunk.num_layers for chunk in work.chunks[: layout.pp * layout.virtual_stages]],
            predicted=predicted,
            why=why,
            shape=self.shape,
            sequence_length=self.sequence_length,
        )


@dataclass(frozen=True)
class OpGraphWork(JobWork):
    """Any other job graph, by data parallelism and a pipeline of its ops.

    Attributes:
        graph: the job.
    """

    graph: JobGraph
    has_layers = False
    stage_memory = staticmethod(graph_stage_memory)
    peak_memory = staticmethod(graph_peak_memory)

    @property
    def name(self) -> str:
        """See `JobWork.name`."""
        return self.graph.name

    @property
    def pricer(self) -> GraphPricer:
        """See `JobWork.pricer`."""
        return GraphPricer.of(self.cluster, self.costs, self.wires)

    def work(self, layout: Layout) -> GraphWork:
        """See `JobWork.work`."""
        return cut(self.graph, self.cluster, layout, self.costs, self.wires)

    def compute_provenance(self, work: GraphWork) -> Provenance:
        """Ops are measured where a profile is run as it was profiled."""
        return "measured" if work.is_profiled and work.share == 1 else "estimated"

    def details(self, work: GraphWork) -> dict[str, Any]:
        """The ops at both ends of each chunk of the pipeline."""
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
            cluster.device_types[0],
            self.capacity_bytes,
            self.devices_per_host,
            self.wires,
            self.costs,
            request,
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
        """Of the zoo the graph of the other batch; figures that are given hold for as many samples as before."""
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
    """A job on a cluster.

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
    found = source.shape()
    if found is not None:
        shape, batch = found
        length = shape.default_sequence_length if sequence_length is None else sequence_length
        return TransformerWork(source.spec, cluster, costs, batch, shape, length)
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
    made = OpGraphWork(source.spec, cluster, costs, graph.samples_per_step, graph, left_out=left_out)
    if made.stage_devices is not None:
        names = ", ".join(kind.name for kind in cluster.device_types)
        problem = f"a graph of ops is cut into stages on devices of one type, {cluster.name} has {names}"
        raise PlanError(f"{problem}; `meshwright place` puts its ops on devices of several types", field="cluster")
    return made
