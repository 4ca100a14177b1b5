"""Types of jobs as a menu prices them: transformers cut along all axes, any other job graph by data parallelism."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ... import files
from ...costs.process_groups.group_network import GroupNetwork, PlacedNetwork
from ...costs.settings import CostSettings
from ...costs.training_step.graph_step_time import GraphPricer
from ...costs.training_step.kernels import KernelModel, kernel_model
from ...costs.training_step.step_figures import StepTime
from ...costs.training_step.step_pricer import StepPricer
from ...costs.training_step.step_time import Pricer
from ...costs.work.graph_work import GraphWork, describe_graph
from ...costs.work.work import LayoutWork, describe
from ...devices import DeviceType, device_type
from ...errors import GraphError, PlanError
from ...jobs.graph import JobGraph
from ...jobs.load import JobSource
from ...jobs.transformer import TransformerShape
from ...jobs.zoo.catalogue import DEFAULT_DEVICE
from ...plans.memory import STATE_BYTES_PER_WEIGHT_BYTE
from ...plans.partition import Layout
from ...plans.transformer import PlannedTransformer
from ..layouts.graph_search import GraphSearch
from ..layouts.request import SearchRequest, parse_keep
from ..layouts.results import RankedLayout
from ..layouts.search import LayoutSearch
from ..layouts.space import LayoutSpace
from .named_entry import WHOLE_GRAPHS, WHOLE_REPLICAS, NamedEntrySettings, OwnStrategy
from .settings import JobTypeSettings, MenuSettings

STATE_BYTES = 14.0
"""Of a transformer's parameter in 16 bits, its float32 copy and both moments, as `costs.work.memory` counts them."""

WITHIN = 1.5
"""Times the fastest layout's time beyond which a layout is of no use on a menu, whatever memory it saves."""


@dataclass(frozen=True)
class MenuRequest(SearchRequest):
    """The request of a menu to a search.

    Attributes:
        values: by key of a layout, those that are tried.
        tried: rank orders.
    """

    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    tried: tuple[str, ...] = ()

    @cached_property
    def kept_values(self) -> dict[str, tuple[Any, ...]]:
        """See `SearchRequest.kept_values`."""
        return dict(self.values)

    @property
    def tries_some_layers(self) -> bool:
        """See `SearchRequest.tries_some_layers`; where values are given, all layers are computed again, or none."""
        return not self.values

    @property
    def orders(self) -> tuple[str, ...]:
        """See `SearchRequest.orders`."""
        return self.tried


@dataclass(frozen=True, eq=False)
class Where:
    """The place at which a job is priced.

    Attributes:
        device: the type of its devices.
        wires: price messages.
        devices_per_host: of the job.
        costs: choices of the cost model, as layouts are priced.
        server_cards: cards of a host over those of the job on one.
    """

    device: DeviceType
    wires: GroupNetwork
    devices_per_host: int
    costs: CostSettings
    server_cards: float = 1.0


@dataclass(frozen=True, eq=False)
class JobType(ABC):
    """A type of jobs.

    Attributes:
        name: for tables.
        global_batch: samples of a step.
        own: how they are trained, if otherwise than synchronously.
    """

    name: str
    global_batch: int
    own: OwnStrategy | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def digest(self) -> str:
        """A hash of all that its figures depend on."""

    @property
    @abstractmethod
    def state_bytes(self) -> float:
        """Parameters and optimizer, which a restart writes and reads."""

    @abstractmethod
    def job_graph(self) -> JobGraph:
        """Return a step as a graph of ops; what is analytic is timed on `DEFAULT_DEVICE`, as `jobs.load.load_graph` does."""

    @abstractmethod
    def front(
        self, degree: int, where: Where, menu: MenuSettings, named: NamedEntrySettings | None = None
    ) -> Sequence[RankedLayout]:
        """Return the layouts on a number of devices that no other one beats in time and memory, the fastest first.

        Args:
            degree: devices.
            where: they are.
            menu: what is tried.
            named: an entry that tries values of its own; what is not exact tries whole replicas alone.

        Raises:
            PlanError: none is legal or fits.
        """

    @abstractmethod
    def work(self, layout: Layout, device: DeviceType, costs: CostSettings) -> LayoutWork | GraphWork:
        """Return the work of a layout's ranks in a step."""

    @abstractmethod
    def pricer(self, order: str, where: Where) -> StepPricer:
        """Return the pricer of layouts in a rank order."""

    def step_s(self, layout: Layout, order: str, where: Where) -> float:
        """Return the seconds of a step of a layout."""
        return self.pricer(order, where).step_s(self.work(layout, where.device, where.costs))

    def step(self, layout: Layout, order: str, where: Where) -> StepTime:
        """Return a step of a layout, with what it consists of."""
        return self.pricer(order, where).price_work(self.work(layout, where.device, where.costs))


@dataclass(frozen=True, eq=False)
class TransformerType(JobType):
    """Jobs that train a transformer.

    Attributes:
        shape: the model.
        sequence_length: tokens of a sequence.
    """

    shape: TransformerShape
    sequence_length: int
    _kernels: dict[DeviceType, KernelModel] = field(default_factory=dict, repr=False)
    _pricers: dict[tuple[DeviceType, int, str], Pricer] = field(default_factory=dict, repr=False)

    @property
    def digest(self) -> str:
        """See `JobType.digest`."""
        shape = PlannedTransformer.from_shape(self.shape, self.sequence_length)
        return files.digest("transformer", shape.model_dump(), self.global_batch)

    @property
    def state_bytes(self) -> float:
        """See `JobType.state_bytes`."""
        parameters = self.work(Layout(micro_batch=1, global_batch=1)).stages[0].parameters
        return STATE_BYTES * parameters

    def job_graph(self) -> JobGraph:
        """See `JobType.job_graph`."""
        return self.shape.graph(self.global_batch, self.sequence_length).timed_on(device_type(DEFAULT_DEVICE))

    def front(
        self, degree: int, where: Where, menu: MenuSettings, named: NamedEntrySettings | None = None
    ) -> Sequence[RankedLayout]:
        """See `JobType.front`; activations are computed again only where no layout fits otherwise, unless the menu says."""
        kept_values: dict[str, tuple[Any, ...]] = {**menu.kept_values, **_own_values(named, WHOLE_REPLICAS)}
        orders = named.orders if named is not None and named.orders else menu.orders
        request = MenuRequest(top=1, values=kept_values, tried=orders, launcher=menu.framework)
        with suppress(PlanError):
            if not menu.is_whole:
                return self._front(degree, where, replace(request, values={"recompute": ("none",), **kept_values}))
        return self._front(degree, where, request)

    def _front(self, degree: int, where: Where, request: MenuRequest) -> Sequence[RankedLayout]:
        per_host = where.devices_per_host
        is_uniform = not isinstance(where.wires, PlacedNetwork)
        space = LayoutSpace(self.shape, self.sequence_length, self.global_batch, per_host, request, goes_both_ways=is_uniform)
        search = LayoutSearch(
            space,
            where.device,
            where.device.memory_bytes,
            where.wires,
            where.costs.overlap_slowdown,
            kernels=self._model(where),
            within=WITHIN,
        )
        return search.run([degree]).front

    def work(self, layout: Layout, device: DeviceType | None = None, costs: CostSettings | None = None) -> LayoutWork:
        """See `JobType.work`; it is the same on all devices."""
        return describe(self.shape, layout, self.sequence_length, checks=False)

    def pricer(self, order: str, where: Where) -> Pricer:
        """See `JobType.pricer`."""
        key = where.device, id(where.wires), order  # the pricer holds the wires, so that the id stays theirs
        if key not in self._pricers:
            self._pricers[key] = Pricer(
                device=where.device,
                wires=where.wires,
                slowdown=where.costs.overlap_slowdown,
                kernels=self._model(where),
                order=order,
            )
        return self._pricers[key]

    def _model(self, where: Where) -> KernelModel:
        if where.device not in self._kernels:
            self._kernels[where.device] = kernel_model(where.device, where.costs.kernels, where.costs.software)
        return self._kernels[where.device]


@dataclass(frozen=True, eq=False)
class GraphType(JobType):
    """Jobs that train any other model with known ops.

    Attributes:
        graph: of a step.
    """

    graph: JobGraph

    @property
    def digest(self) -> str:
        """See `JobType.digest`."""
        return files.digest("graph", self.graph.digest, self.graph.source, self.global_batch)

    @property
    def state_bytes(self) -> float:
        """See `JobType.state_bytes`; gradients are left out of it."""
        return (STATE_BYTES_PER_WEIGHT_BYTE - 1.0) * float(self.graph.parameter_bytes.sum())

    def job_graph(self) -> JobGraph:
        """See `JobType.job_graph`."""
        return self.graph

    def front(
        self, degree: int, where: Where, menu: MenuSettings, named: NamedEntrySettings | None = None
    ) -> Sequence[RankedLayout]:
        """See `JobType.front`."""
        search = GraphSearch(
            self.graph,
            self.global_batch,
            where.device,
            where.device.memory_bytes,
            where.devices_per_host,
            where.wires,
            where.costs,
            MenuRequest(
                top=1,
                values={"pp": (1,), **_own_values(named, WHOLE_GRAPHS)},
                tried=menu.orders[:1],
                launcher=menu.framework,
            ),
        )
        return search.run([degree]).front

    def work(self, layout: Layout, device: DeviceType, costs: CostSettings) -> GraphWork:
        """See `JobType.work`."""
        return describe_graph(self.graph, layout, device, costs)

    def pricer(self, order: str, where: Where) -> GraphPricer:
        """See `JobType.pricer`."""
        return GraphPricer(device=where.device, wires=where.wires, slowdown=where.costs.overlap_slowdown, order=order)


def _own_values(named: NamedEntrySettings | None, whole: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Return values of a layout's keys that a named entry tries; of whole replicas, which it needs, where inexact."""
    if named is None:
        return {}
    return parse_keep(named.partition) | ({} if named.is_layout_alone else dict(whole))


def job_type(settings: JobTypeSettings) -> JobType:
    """Return a type of jobs as its settings name it.

    Raises:
        InputFileError, GraphError: the job is missing or wrong, or sequences do not go with it.
    """
    if settings.transformer is not None:
        shape, length = settings.transformer.shape(settings.name), settings.transformer.sequence_length
        return _transformer(settings, shape, length)
    assert settings.job is not None, "settings have one of the two"
    known = JobSource(settings.job).shape()
    if known is not None:
        shape = known[0]
        length = shape.default_sequence_length if settings.sequence_length is None else settings.sequence_length
        return _transformer(settings, shape, length)
    if settings.sequence_length is not None:
        raise GraphError("the job has no sequences", field=f"{settings.name}.sequence_length", value=settings.sequence_length)
    batch = settings.global_batch if settings.job.startswith("zoo:") else None
    return GraphType(settings.name, settings.global_batch, JobSource(settings.job).load(batch_size=batch).graph, own=settings.own)


def _transformer(settings: JobTypeSettings, shape: TransformerShape, length: int) -> TransformerType:
    if shape.learned_positions and length > shape.max_positions:
        raise GraphError(f"has only {shape.max_positions} positions", field=f"{settings.name}.sequence_length", value=length)
    return TransformerType(settings.name, settings.global_batch, shape, length, own=settings.own)
