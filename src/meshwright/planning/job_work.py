"""The interface of a job on a cluster for `estimate` and `plan --search`: work, prices, memory, simulation, search, plan.

Transformers are cut layer by layer, any other job graph into stages of ops. `work_of` decides which a job is, and no caller
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
from ..clusters.host_order import chained_devices
from ..costs.collectives.prices import Provenance
from ..costs.host_update import HostProcessors, kept_bytes
from ..costs.process_groups.device_kinds import DeviceKinds
from ..costs.process_groups.group_network import GroupNetwork, PlacedNetwork, group_network, in_order
from ..costs.settings import CostSettings
from ..costs.training.replicas import Replicas
from ..costs.training_step.foreign_figures import foreign_figures
from ..costs.training_step.kernels import device_kinds
from ..costs.training_step.stage_crossings import Resharding
from ..costs.training_step.step_pricer import StepPricer
from ..costs.training_step.step_time import Pricer
from ..costs.work.memory import StageMemory
from ..costs.work.step_work import StepWork, check_fits
from ..costs.work.work import LayoutWork, describe
from ..errors import PlanError
from ..jobs.builder import ELEMENT_BYTES
from ..jobs.job import Job
from ..jobs.load import load_graph
from ..jobs.masked import Core, core_shape
from ..jobs.transformer import TransformerShape
from ..planners.free_devices import Allocation
from ..planners.layouts.graph_search import GraphSearch
from ..planners.layouts.request import SearchRequest
from ..planners.layouts.search import LayoutSearch
from ..planners.layouts.space import LayoutSpace
from ..planners.layouts.stage_devices import StageDevices
from ..plans import PlacementPlan, layout_plan, place
from ..plans.document import Figure
from ..plans.frameworks.limits import LayoutOfModel
from ..plans.memory import tight_text
from ..plans.partition import Layout
from ..plans.rank_order import DEFAULT_ORDER
from ..quantities import counted
from ..simulation.layouts.running import layout_step
from ..simulation.layouts.step_model import StepModel

Devices = NDArray[np.int64] | None

MOST_NAMED = 8
"""Hosts whose order is printed."""


@dataclass(frozen=True)
class JobWork(ABC):
    """A job on a cluster.

    Attributes:
        spec: how the job was named.
        cluster: where.
        costs: choices of the cost model.
        samples: samples of a step of the job itself; None where it does not say.
        left_out: what of its source does not count, for people.
        allocation: the devices on which it is priced and planned; None: the first ones of the cluster, or of `chained_devices`
            where hosts differ.
        has_layers: whether it is cut layer by layer.
    """

    spec: str
    cluster: Cluster
    costs: CostSettings
    samples: int | None
    left_out: tuple[str, ...] = field(default=(), kw_only=True)
    allocation: Allocation | None = field(default=None, kw_only=True)
    has_layers: ClassVar[bool]

    @property
    @abstractmethod
    def name(self) -> str:
        """The job's name."""

    def batch_text(self, number: int) -> str:
        """Return a batch of a number of samples, in words."""
        return counted(number, "sample")

    @property
    def sizes(self) -> dict[str, int]:
        """Further sizes of a batch, for JSON."""
        return {}

    @property
    def shorter_than_positions(self) -> str:
        """That sequences are shorter than the model's positions, and how to change that, in words; else empty."""
        return ""

    @property
    @abstractmethod
    def weights(self) -> str:
        """How many parameters it has, in words."""

    @property
    def capacity_bytes(self) -> float:
        """Memory of a device of the job; of the largest where there are several types."""
        return float(self.cluster.memory_bytes[self.devices(self.cluster.num_devices)].max())

    @cached_property
    def stage_devices(self) -> StageDevices | None:
        """Devices of the ranks where they differ in more than their name; None where they do not."""
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

    def tightest(self, work: StepWork, order: str = DEFAULT_ORDER) -> tuple[int, StageMemory, float]:
        """Return the stage that lacks the most memory, or has the least left: which, its rank's bytes and its devices' room."""
        stage, held, room = *work.peak_memory(), self.capacity_bytes
        if self.stage_devices is not None:
            missing, stage, held = self.stage_devices.missing_bytes(work, order)
            room = held.total - missing
        return stage, held, room

    def check_fits(self, work: Any, order: str = DEFAULT_ORDER) -> None:
        """Refuse a layout that does not fit the devices' memory, or with ``offload`` the hosts'.

        Raises:
            PlanError: with what is held, and what there is.
        """
        stage, held, room_bytes = self.tightest(work, order)
        check_fits((stage, held), room_bytes)
        self.offloaded_bytes(work, order)

    def offloaded_bytes(self, work: Any, order: str = DEFAULT_ORDER) -> float:
        """Return the bytes that ``offload`` of a layout keeps in the memory of the fullest host.

        Raises:
            PlanError: it has no room for them.
        """
        if kept := kept_bytes(work, order, self.hosts):
            HostProcessors.of(self.cluster, self.costs).check_fits(kept)
        return kept

    def tight_text(self, work: StepWork, order: str = DEFAULT_ORDER, extra_bytes: float = 0.0) -> str:
        """Say that what a rank holds is a tight fit; else empty, see `plans.memory.is_tight`.

        Args:
            work: of a layout.
            order: of its ranks.
            extra_bytes: what a strategy holds in addition.
        """
        _, held, room = self.tightest(work, order)
        return tight_text(held.total + extra_bytes, room)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The parts of its source that do not count, and the figures of other devices by which it is priced, for people."""
        return *self.left_out, *foreign_figures(self.cluster, self.costs, has_layers=self.has_layers)

    @property
    def wires(self) -> GroupNetwork:
        """Prices of messages among its devices."""
        return self.on(self._chained).wires if self.allocation is None else self.allocation.wires

    @property
    def devices_per_host(self) -> int:
        """Number of the job's devices on each host."""
        return self.cluster.num_devices // self.cluster.num_hosts if self.allocation is None else self.allocation.devices_per_host

    def devices(self, count: int) -> NDArray[np.int64]:
        """Return the devices of a number of ranks, in rank order."""
        return (self._chained if self.allocation is None else self.allocation.devices)[:count]

    @cached_property
    def _chained(self) -> NDArray[np.int64]:
        """All devices: as `chained_devices` orders them where each group has a price of its own, else the fastest type first."""
        if isinstance(group_network(self.cluster, self.costs), PlacedNetwork):
            return chained_devices(self.cluster)
        return np.argsort(np.argsort(self.cluster.types_by_speed)[self.cluster.device_type], kind="stable")

    @cached_property
    def hosts(self) -> list[int]:
        """The host of each rank."""
        return list(map(int, self.cluster.device_host[self.devices(self.cluster.num_devices)]))

    @cached_property
    def hosts_in_order(self) -> str:
        """The hosts of its devices in their order, for people; empty where it is that of their numbers."""
        hosts = list(dict.fromkeys(self.hosts))
        if hosts == sorted(hosts):
            return ""
        names = [self.cluster.host_names[host] for host in hosts[:MOST_NAMED]]
        rest = f" and {len(hosts) - MOST_NAMED} more" if len(hosts) > MOST_NAMED else ""
        return f"hosts in this order: {', '.join(names)}{rest}"

    def on(self, devices: NDArray[np.int64]) -> Self:
        """Return the job on other devices in rank order, as many on each host as now."""
        wires = group_network(self.cluster, self.costs) if self.allocation is None else self.allocation.wires
        return replace(self, allocation=Allocation(devices, self.devices_per_host, in_order(wires, self.cluster, devices)))

    @property
    @abstractmethod
    def pricer(self) -> StepPricer:
        """The pricer of its layouts."""

    def replicas(self, work: Any, order: str | None = None) -> Replicas:
        """Return the replicas of a layout, as training strategies are priced; ranks by default in the layout's own order."""
        return Replicas(work, self.pricer if order is None else self.pricer.in_order(order), self.costs.straggler_sigma)

    @abstractmethod
    def work(self, layout: Layout) -> Any:
        """Return the work of every rank under a layout, with the fastest cut of its pipeline.

        Raises:
            MeshwrightError: the job cannot be cut or timed so.
        """

    @abstractmethod
    def work_as(self, cut: Any) -> Any:
        """Return the work of every rank under the layout and the cuts of another job's work, such as its core."""

    def of_model(self, layout: Layout) -> LayoutOfModel:
        """Return a layout with what is known of the model, to be checked against the limits of frameworks."""
        return LayoutOfModel(layout)

    @abstractmethod
    def as_core(self, core: Core, request: SearchRequest) -> tuple[JobWork, SearchRequest]:
        """Return the core of a masked job as a job of its own, and what its search keeps.

        Raises:
            GraphError: the job has no such core.
        """

    def compute_provenance(self, work: Any) -> Provenance:
        """Return the provenance of the times of kernels or ops."""
        return "estimated"

    def details(self, work: Any) -> dict[str, Any]:
        """Return the job's details under a layout, for JSON."""
        return dict(self.sizes)

    @abstractmethod
    def simulated(self, work: Any) -> StepModel:
        """Return the step as the event path reads it."""

    @abstractmethod
    def search(self, request: SearchRequest) -> LayoutSearch | GraphSearch:
        """Return a search over its layouts.

        Raises:
            PlanError: no batch, or one or a sequence that the job cannot have.
        """

    @abstractmethod
    def plan(
        self, work: Any, order: str, num_steps: int, predicted: Sequence[Figure], why: str, devices: Devices = None
    ) -> PlacementPlan:
        """Return the plan of a layout, its stages those that were priced; on the first devices unless named in rank order."""

    def with_samples(self, batch: int, other: int) -> Self:
        """Return the job for a search with another batch than the one for which its figures hold."""
        return self


@dataclass(frozen=True)
class TransformerWork(JobWork):
    """The work of a transformer.

    Attributes:
        shape: the model.
        sequence_length: tokens of a sequence.
    """

    shape: TransformerShape
    sequence_length: int
    has_layers = True

    @property
    def name(self) -> str:
        """See `JobWork.name`."""
        return self.shape.name

    def batch_text(self, number: int) -> str:
        """Return a number of sequences and their length."""
        return f"{counted(number, 'sequence')} of {self.sequence_length}"

    @property
    def sizes(self) -> dict[str, int]:
        """The length of a sequence."""
        return {"sequence_length": self.sequence_length}

    @property
    def shorter_than_positions(self) -> str:
        """See `JobWork.shorter_than_positions`."""
        length, most = self.sequence_length, self.shape.max_positions
        remark = f"a sequence has {length:,} tokens by default, the model has {most:,} positions"
        return f"{remark}: --sequence-length {most}" if most > length else ""

    @property
    def weights(self) -> str:
        """See `JobWork.weights`; a tied head counts once."""
        return f"{self.shape.graph(1, 1).parameter_bytes.sum() / ELEMENT_BYTES:,.0f} parameters"

    @property
    def pricer(self) -> Pricer:
        """See `JobWork.pricer`."""
        return Pricer.from_cluster(self.cluster, self.costs, self.wires, self.devices(self.cluster.num_devices))

    def work(self, layout: Layout) -> LayoutWork:
        """See `JobWork.work`."""
        return describe(self.shape, layout, self.sequence_length)

    def replicas(self, work: LayoutWork, order: str | None = None) -> Replicas:
        """See `JobWork.replicas`; on devices of several kinds each also by itself."""
        pricer = self.pricer if order is None else self.pricer.in_order(order)
        made = replace(super().replicas(work, order), pricer=pricer)
        if pricer.kinds is None or work.layout.is_meshed:
            return made
        of_replica, layout = pricer.kinds.of_replica, work.layout
        alone = (replace(pricer, kinds=of_replica(layout, pricer.order, one)) for one in range(layout.dp))
        return replace(made, alone=tuple((work, one) for one in alone))

    def work_as(self, cut: LayoutWork) -> LayoutWork:
        """Return the work under its layout, which says the cuts, see `JobWork.work_as`."""
        return self.work(cut.layout)

    def of_model(self, layout: Layout) -> LayoutOfModel:
        """See `JobWork.of_model`."""
        return LayoutOfModel(layout, self.shape, self.sequence_length)

    def as_core(self, core: Core, request: SearchRequest) -> tuple[JobWork, SearchRequest]:
        """Return a narrow transformer; with thin matrices the same, whose weights stay where they are, see `JobWork.as_core`."""
        if core.width is not None:
            return replace(self, shape=core_shape(self.shape, core.width)), request
        keep = ",".join(filter(None, [request.keep, "zero=0|1" if "zero" not in request.kept_values else ""]))
        return self, replace(request, keep=keep)

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
        return LayoutSearch(
            LayoutSpace(shape, self.sequence_length, batch, self.devices_per_host, request, self._types_of_ranks),
            device,
            self.capacity_bytes,
            self.wires,
            self.costs.overlap_slowdown,
            kernels=self.pricer.model,
            resharding=Resharding.from_settings(self.costs),
            stage_devices=self.stage_devices,
            hosts=None if self.cluster.settings.host_memory_gib is None else self.hosts,
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
