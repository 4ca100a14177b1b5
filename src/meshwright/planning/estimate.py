"""`estimate`: one job under one layout on one cluster, its step time, utilisation and memory, and why.

The figures are analytic (`costs.training_step`). Each has a provenance and an uncertainty of one standard deviation; a whole is
estimated, of its parts the communications may be read from measurements. A transformer is cut layer by layer; of any other
job graph the ops are cut into stages (`job_work`). `explain` says what each co-design switch would change.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..clusters import load_cluster
from ..clusters.cluster import Cluster
from ..costs.collectives.libraries.system import UNCERTAINTY
from ..costs.collectives.prices import Provenance
from ..costs.network import RankNetwork
from ..costs.pipelines.waits import bubble_time_fraction
from ..costs.process_groups.group_network import HostNetwork
from ..costs.settings import LAYOUT_DEFAULTS, CostSettings
from ..costs.training_step.idle_keys import remarks
from ..costs.training_step.kernels import KernelModel, kernel_model, kernel_settings
from ..costs.training_step.step_figures import StepTime
from ..costs.training_step.uncertainty import interval
from ..costs.work.layer import head
from ..costs.work.memory import StageMemory
from ..costs.work.operations import ALIGNED_BYTES, Product
from ..errors import PlanError
from ..jobs.load import JobSource
from ..planners.free_devices import find_allocations
from ..planners.layouts.results import layout_text
from ..plans.compression import AnyCompression
from ..plans.document import Figure
from ..plans.frameworks.defaults import framework_defaults
from ..plans.frameworks.layout_words import strategies_of_layout
from ..plans.memory import MEMORY_UNCERTAINTY
from ..plans.partition import Layout
from ..plans.training import AnyTraining
from ..simulation.layouts.running import STEPS, num_tasks, run_layout
from ..simulation.layouts.steady import with_micro_batches
from .job_work import JobWork
from .op_graph_work import work_of
from .training import TrainingPrice, check_trained_on, price_training, strategies_of


class Part(NamedTuple):
    """A part of the step.

    Attributes:
        name: as in ``breakdown_s`` of the step.
        seconds: of the stage that ends last.
        share: of the step.
        provenance: of a communication that of its messages; all else is as sure as the kernels or ops.
        uncertainty: relative, one standard deviation.
    """

    name: str
    seconds: float
    share: float
    provenance: Provenance
    uncertainty: float


@dataclass(frozen=True)
class Estimate:
    """A layout as priced.

    Attributes:
        maker: the job on its cluster, with the choices of the cost model by which it was priced.
        work: what every rank does.
        step: the step.
        provenance: of the communications in the step's breakdown.
        remarks: what of the job or the layout does not count, and which figures are of other devices, for people.
        trained: the same layout trained by other strategies, as they were asked for.
    """

    maker: JobWork
    work: Any
    step: StepTime
    provenance: dict[str, Provenance]
    remarks: tuple[str, ...] = ()
    trained: tuple[TrainingPrice, ...] = ()

    @property
    def job(self) -> str:
        """The job's name."""
        return self.maker.name

    @property
    def cluster(self) -> Cluster:
        """The cluster on which it is priced."""
        return self.maker.cluster

    @property
    def costs(self) -> CostSettings:
        """Choices of the cost model."""
        return self.maker.costs

    @property
    def layout(self) -> Layout:
        """How the job is cut."""
        layout: Layout = self.work.layout
        return layout

    @property
    def what(self) -> str:
        """Describe the priced job for people: the batch, the layout and the size of the model."""
        return f"{self.maker.batch_text(self.layout.global_batch)}, {layout_text(self.layout)}, {self.maker.weights}"

    @cached_property
    def memory(self) -> tuple[StageMemory, ...]:
        """Memory of a rank of each stage."""
        return tuple(self.work.memory(stage) for stage in range(self.layout.pp))

    def repriced_s(self, layout: Layout, costs: CostSettings) -> float:
        """Return seconds of a step under another layout, cut where it is best for that, or by other choices of the cost model.

        Raises:
            MeshwrightError: the job cannot be cut so.
        """
        maker = replace(self.maker, costs=costs.of_layouts)
        return maker.pricer.step_s(maker.work(layout))

    def simulated_s(self, costs: CostSettings, num_micro_batches: int | None = None) -> float:
        """Return the seconds of a step of the same cut by the event path.

        Args:
            costs: choices of the cost model.
            num_micro_batches: of the step; by default those of the layout.

        Raises:
            MeshwrightError: it cannot be simulated by such choices.
        """
        maker = replace(self.maker, costs=costs.of_layouts)
        layout = with_micro_batches(self.layout, num_micro_batches or self.layout.num_micro_batches)
        step = maker.simulated(replace(self.work, layout=layout))
        return run_layout(step, self.cluster, maker.devices(self.layout.world), maker.costs).step_s

    def num_tasks(self, costs: CostSettings) -> int:
        """Return about how many tasks the event path would run, see `running.num_tasks`."""
        step = replace(self.maker, costs=costs.of_layouts).simulated(self.work)
        return num_tasks(step, RankNetwork(self.cluster, self.maker.devices(self.layout.world)), STEPS)

    @property
    def peak(self) -> StageMemory:
        """Memory of the fullest rank."""
        return max(self.memory, key=lambda one: one.total)

    @property
    def is_tight(self) -> bool:
        """Whether the layout may not fit after all, see `plans.memory.is_tight`."""
        return bool(self.maker.tight_text(self.work))

    @property
    def bubble_time_fraction(self) -> float:
        """Time that the pipeline's schedule leaves idle over ideal time, see `costs.pipelines.waits`."""
        return bubble_time_fraction(self.step.breakdown_s)

    def figures(self) -> list[tuple[Figure, float]]:
        """Return every figure with its relative uncertainty; a whole is estimated, whatever its parts are."""
        step = self.step
        spread = step.uncertainty
        values: list[tuple[str, float | None, str, float]] = [
            ("step_s", step.step_s, "s", spread),
            (*step.rate, "1/s", spread),
            ("mfu", step.mfu, "1", spread),
            ("hfu", step.hfu, "1", spread),
            ("memory_bytes", self.peak.total, "bytes", MEMORY_UNCERTAINTY),
        ]
        return [(Figure.predicted(n, v, u), s) for n, v, u, s in values if v is not None]

    def parts(self) -> list[Part]:
        """Return the parts of the step.

        A communication is at least as uncertain as kernels, behind which a part of it may hide.
        """
        result, step = [], self.step
        kernels = step.uncertainty_terms.get("kernels")
        if kernels is None:  # that of whole steps says nothing of their parts
            kernels = kernel_settings(self.cluster.device_types[0].name, self.costs.kernels).uncertainty
        for name, seconds in step.breakdown_s.items():
            source = self.provenance.get(name)
            spread = kernels if source is None else max(kernels, UNCERTAINTY[source])
            share = seconds / step.step_s if step.step_s else 0.0
            result.append(Part(name, seconds, share, source or self._own(name), spread))
        return result

    def to_data(self) -> dict[str, Any]:
        """Return the estimate as plain data."""
        return {
            "job": self.job,
            "cluster": self.cluster.name,
            "layout": self.layout.model_dump(mode="json"),
            "world": self.layout.world,
            "remarks": list(self.remarks),
            **self.maker.details(self.work),
            "costs": {key: getattr(self.costs, key) for key in LAYOUT_DEFAULTS}
            | ({} if self.costs.software is None else {"software": self.costs.software}),
            "figures": [
                figure.model_dump(mode="json") | {"uncertainty": spread, "interval_95": interval(figure.value, spread)}
                for figure, spread in self.figures()
            ],
            "uncertainty": dict(self.step.uncertainty_terms),
            "breakdown": [part._asdict() for part in self.parts()],
            "bubble_time_fraction": self.bubble_time_fraction,
            **({"trained": [one.to_data() for one in self.trained]} if self.trained else {}),
            "memory": [
                {"stage": stage, "total": one.total, "model_state": one.model_state, "allocated": one.allocated}
                | {key: part for key, part in one._asdict().items() if key != "idle"}
                | {"provenance": "estimated", "uncertainty": MEMORY_UNCERTAINTY}
                for stage, one in enumerate(self.memory)
            ],
            "is_tight": self.is_tight,
        }

    def _own(self, name: str) -> Provenance:
        return self.maker.compute_provenance(self.work) if name in ("compute", "recompute") else "estimated"


def estimate(
    job: str,
    cluster: str | Cluster,
    layout: str | Layout,
    *,
    is_free: NDArray[np.bool_] | None = None,
    sequence_length: int | None = None,
    costs: CostSettings | None = None,
    graphs_dir: str | Path | None = None,
    keep_input_ops: bool = False,
    profile_batch: int | None = None,
    training: str | None = None,
    compression: str | None = None,
    framework: str | None = None,
) -> Estimate:
    """Price one layout.

    Args:
        job: as `load_graph` reads it. A transformer (``zoo:NAME`` or the path of a ``config.json``) is cut by all keys of a
            layout, any other job graph by ``dp`` and ``pp``.
        cluster: ``preset:NAME``, a path, or a cluster.
        layout: a layout, or the keys of `Layout` as text or in a YAML file, see `Layout.parse`. Keys that are left out hide
            communication as `plans.frameworks.defaults.hidden_unrequested` says.
        is_free: which devices the job may have, ``(n,)``; by default all. It is priced on the fastest of `find_allocations`, in
            the fastest of `in_type_orders`.
        sequence_length: tokens of a transformer's sequence; by default the model's own, 2,048 at most.
        costs: choices of the cost model, with defaults of `CostSettings.of_layouts`. An analytic price reads ``collectives``
            and ``overlap_slowdown``, for a transformer also ``kernels`` and for a job graph ``compute``.
        graphs_dir: where bare names are looked up.
        keep_input_ops: whether the ``Input`` ops of a profile, which time the data loader, count.
        profile_batch: samples for which the figures of a profile hold; by default the global batch.
        training: strategies by which it is trained too, as `plans.training.parse_training` reads them.
        compression: codes of the gradients of synchronous training, as `plans.compression.parse_compression` reads them. Both
            default to these keys in the file of the layout.
        framework: the framework that runs the job, as the key ``framework`` of a layout in words
            (`plans.frameworks.defaults.FrameworkName`). It gives the keys that the layout leaves open.

    Raises:
        PlanError: the job cannot be cut so, the cluster has too few devices or free ones, or it does not fit their memory.
        MeshwrightError: job, cluster or a file that the costs name are missing or wrong.
    """
    where = load_cluster(cluster) if isinstance(cluster, str) else cluster
    source = JobSource(job, graphs_dir, keep_input_ops, profile_batch)
    maker = work_of(source, where, (costs or CostSettings()).of_layouts, sequence_length=sequence_length)
    if framework is not None:
        if not isinstance(layout, str):
            raise PlanError("goes with a layout in words; a Layout says its own", field="framework", value=framework)
        layout = f"{layout},framework={framework}"
    if isinstance(layout, str):
        training, compression = strategies_of_layout(layout, training, compression)
    cut, request = read_layout(layout, maker.samples)
    if cut.world > where.num_devices:
        raise PlanError(f"has {cut.world} ranks, {where.name} only {where.num_devices} devices", field="layout")
    makers = [maker] if is_free is None or is_free.all() else _allocated(maker, is_free, cut)
    maker = _fastest([one for made in makers for one in in_type_orders(made)], cut)
    work, prices = maker.work(cut), maker.pricer
    maker.check_fits(work)
    every_remark = (*maker.remarks, *remarks(cut, has_layers=maker.has_layers, request=request))
    if maker.has_layers:
        every_remark += unpadded_vocabulary(work, kernel_model(where.device_types[0], maker.costs.kernels))
    every_remark += (maker.hosts_in_order,) if maker.hosts_in_order else ()
    if kept := maker.offloaded_bytes(work):
        every_remark += (f"offload=optimizer keeps {kept / 1e9:.1f} GB in the memory of the fullest host",)
    asked_for = strategies_of(training, compression)
    if asked_for:
        check_trained_on(maker, asked_for)
    trained, refused = _trained(maker, work, asked_for)
    return Estimate(maker, work, prices.price_work(work), prices.provenance(work), (*every_remark, *refused), trained)


def _trained(
    maker: JobWork, work: Any, request: list[tuple[AnyTraining, AnyCompression | None]]
) -> tuple[tuple[TrainingPrice, ...], tuple[str, ...]]:
    """Return the strategies as priced, and of several those that are refused, for people.

    Raises:
        PlanError: the only one is refused.
    """
    trained, refused = [], []
    for training, code in request:
        try:
            price = price_training(maker, work, training, code)
            held = work.peak_memory()[1].total + price.extra_bytes
            if held > maker.capacity_bytes:
                problem = f"{price.text} holds {price.extra_bytes / 1e9:.1f} GB in addition, {held / 1e9:.1f} GB in all"
                raise PlanError(f"{problem}, a device has {maker.capacity_bytes / 1e9:.1f} GB", field="training")
        except PlanError as error:
            if len(request) == 1:
                raise
            refused.append(f"{training.text if code is None else code.text} is left out: {error}")
        else:
            trained.append(price)
    return tuple(trained), tuple(refused)


def in_type_orders(maker: JobWork) -> list[JobWork]:
    """Return a job on its devices as they are, by type, fastest first or last, and leaf by leaf where that has wider uplinks."""
    if maker.stage_devices is None:
        return [maker]
    cluster, own = maker.cluster, maker.devices(maker.cluster.num_devices)
    ranked = np.argsort(cluster.types_by_speed)[cluster.device_type[own]]
    orders = [own, *(own[np.argsort(one, kind="stable")] for one in (ranked, -ranked))]
    if maker.allocation is None and isinstance(maker.wires, HostNetwork) and maker.wires.uplinks.oversubscription > 1:
        orders.append(np.sort(own))
    unlike = {one.tobytes(): one for one in orders}
    return [maker] if len(unlike) < 2 else [maker.on(one) for one in unlike.values()]


def _fastest(makers: list[JobWork], layout: Layout) -> JobWork:
    """Return the job on those devices on which a layout fits and takes least; on the first where it fits none."""
    taken_s: dict[int, float] = {}
    for place, maker in enumerate(makers if len(makers) > 1 else []):
        with suppress(PlanError):
            maker.check_fits(work := maker.work(layout))
            taken_s[place] = maker.pricer.price_work(work).step_s
    return makers[min(taken_s, key=taken_s.__getitem__, default=0)]


def _allocated(maker: JobWork, is_free: NDArray[np.bool_], layout: Layout) -> list[JobWork]:
    result = [replace(maker, allocation=one) for one in find_allocations(maker.cluster, maker.costs, is_free, layout.world)]
    if not result:
        where = f"{int(is_free.sum())} of {len(is_free)} devices of {maker.cluster.name} are free"
        raise PlanError(f"has {layout.world} ranks, but only {where} as equally many on each host", field="layout")
    return result


def unpadded_vocabulary(work: Any, kernels: KernelModel) -> tuple[str, ...]:
    """Describe a transformer's loss where rows of logits begin off multiples of 16 bytes, for people; empty where they do not."""
    layout, shape, step = work.layout, work.shape, ALIGNED_BYTES // 2
    if layout.number_bytes != 2:  # only products in 16 bits were measured so
        return ()
    padded = -(-shape.vocabulary // (step * layout.tp)) * step * layout.tp
    taken_s: list[float] = []
    for vocabulary in (shape.vocabulary, padded):
        made = head(shape.model_copy(update={"vocabulary": vocabulary}), layout, work.sequence_length, has_own_table=False)
        products = [item for item in (*made.forward, *made.backward) if isinstance(item, Product)]
        if all(product.row_bytes == ALIGNED_BYTES for product in products) and not taken_s:
            return ()
        taken_s.append(sum(kernels.product_s(product) for product in products))
    why = f"rows of logits of a vocabulary of {shape.vocabulary:,} begin off multiples of 16 bytes"
    if kernels.constants.unaligned_product_efficiency is None:
        return (f"{why}: their products may take several times as long as priced; pad it to {padded:,}",)
    now, then = (f"{1e3 * seconds:.1f} ms" for seconds in taken_s)
    return (f"{why}: their products take {now} of a micro-batch, and {then} if it is padded to {padded:,}",)


def priced_with(costs: CostSettings) -> str:
    """Return the choices of the cost model that decide what messages cost, for people."""
    software = "" if costs.software is None else f" software={costs.software}"
    return f"priced with collectives={costs.collectives} overlap_slowdown={costs.overlap_slowdown:g}{software}"


def read_layout(layout: str | Layout, samples_per_step: int | None) -> tuple[Layout, frozenset[str]]:
    """Return a layout, and the keys that were given; what a text leaves out hides as
    `plans.frameworks.defaults.hidden_unrequested` says.

    Raises:
        PlanError: a key that is unknown, absent or twice, or values that do not go together.
    """
    if isinstance(layout, Layout):
        return layout, frozenset(layout.model_fields_set)
    set_keys = Layout.parse(layout, samples_per_step=samples_per_step).model_fields_set
    return Layout.parse(layout, samples_per_step=samples_per_step, hides_unasked=True), frozenset(set_keys)


def of_framework(layout: Layout) -> str:
    """Return how the framework of a layout runs by default, as far as the layout agrees, for people; else empty."""
    result = framework_defaults(layout.framework, layout.model_dump())
    same = {key: value for key, value in result.items() if getattr(layout, key) == value}
    words = " ".join(f"{key}={str(value).lower()}" for key, value in same.items())
    return f"as {layout.framework} does by default: {words}" if words else ""
