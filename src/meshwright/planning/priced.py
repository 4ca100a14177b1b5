"""A layout as priced, whatever the job is: figures with provenance and uncertainty, parts of the step, memory by stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ..clusters.cluster import Cluster
from ..costs.collectives.libraries.system import UNCERTAINTY
from ..costs.collectives.prices import Provenance
from ..costs.pipelines.waits import bubble_time_fraction
from ..costs.settings import LAYOUT_DEFAULTS, CostSettings
from ..costs.training_step.kernels import kernel_settings
from ..costs.training_step.uncertainty import interval
from ..costs.work.memory import StageMemory
from ..errors import PlanError
from ..plans.document import Figure
from ..plans.partition import Layout

MEMORY_UNCERTAINTY = 0.06
"""Relative: the larger of the two errors that the memory of published runs leaves (parameters and optimizer)."""


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


class PricedStep(Protocol):
    """What the analytic path says of a step; see `StepTime` and `GraphStepTime`."""

    @property
    def step_s(self) -> float:
        """The whole."""
        ...

    @property
    def breakdown_s(self) -> dict[str, float]:
        """What the stage that ends last does."""
        ...

    @property
    def uncertainty_terms(self) -> dict[str, float]:
        """What the uncertainty is made of."""
        ...

    @property
    def uncertainty(self) -> float:
        """Relative, one standard deviation."""
        ...

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation, where operations are known."""
        ...

    @property
    def hfu(self) -> float | None:
        """Hardware FLOPs utilisation, where operations are known."""
        ...


@dataclass(frozen=True)
class Priced(ABC):
    """A layout as priced.

    Attributes:
        job: its name.
        cluster: where.
        memory: of a rank of each stage.
        provenance: of the communications in the step's breakdown.
        compute_provenance: of the rest of it.
        step: the step.
        remarks: what of the job or the layout does not count, for people.
        costs: choices of the cost model by which it was priced.
    """

    job: str
    cluster: Cluster
    memory: tuple[StageMemory, ...]
    provenance: dict[str, Provenance]
    compute_provenance: Provenance
    step: PricedStep
    remarks: tuple[str, ...] = field(default=(), kw_only=True)
    costs: CostSettings = field(kw_only=True)

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """How the job is cut."""

    @property
    @abstractmethod
    def rate(self) -> tuple[str, float, str]:
        """Name, value and unit of what a second brings."""

    @property
    @abstractmethod
    def details(self) -> dict[str, Any]:
        """What else there is to say of the job, for JSON."""

    @abstractmethod
    def repriced_s(self, layout: Layout, costs: CostSettings) -> float:
        """Seconds of a step under another layout, or by other choices of the cost model.

        Raises:
            MeshwrightError: the job cannot be cut so.
        """

    @abstractmethod
    def simulated_s(self, costs: CostSettings, num_micro_batches: int | None = None) -> float:
        """Seconds of a step by the event path.

        Args:
            costs: choices of the cost model.
            num_micro_batches: of the step; by default those of the layout.

        Raises:
            MeshwrightError: it cannot be simulated by such choices.
        """

    @abstractmethod
    def num_tasks(self, costs: CostSettings) -> int:
        """About how many tasks the event path would run."""

    @property
    def peak(self) -> StageMemory:
        """What the fullest rank holds."""
        return max(self.memory, key=lambda one: one.total)

    @property
    def bubble_time_fraction(self) -> float:
        """Time that the pipeline's schedule leaves idle over ideal time, see `costs.pipelines.waits`."""
        return bubble_time_fraction(self.step.breakdown_s)

    def figures(self) -> list[tuple[Figure, float]]:
        """Every figure with its relative uncertainty; a whole is estimated, whatever its parts are."""
        step = self.step
        spread = step.uncertainty
        values: list[tuple[str, float | None, str, float]] = [
            ("step_s", step.step_s, "s", spread),
            (*self.rate, spread),
            ("mfu", step.mfu, "1", spread),
            ("hfu", step.hfu, "1", spread),
            ("memory_bytes", self.peak.total, "bytes", MEMORY_UNCERTAINTY),
        ]
        return [(Figure.predicted(n, v, u), s) for n, v, u, s in values if v is not None]

    def parts(self) -> list[Part]:
        """What the step is made of.

        A communication is at least as uncertain as kernels, behind which a part of it may hide.
        """
        found, step = [], self.step
        kernels = step.uncertainty_terms.get("kernels")
        if kernels is None:  # that of whole steps says nothing of their parts
            kernels = kernel_settings(self.cluster.device_types[0].name, self.costs.kernels).uncertainty
        for name, seconds in step.breakdown_s.items():
            told = self.provenance.get(name)
            spread = kernels if told is None else max(kernels, UNCERTAINTY[told])
            share = seconds / step.step_s if step.step_s else 0.0
            found.append(Part(name, seconds, share, told or self._own(name), spread))
        return found

    def to_data(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "job": self.job,
            "cluster": self.cluster.name,
            "layout": self.layout.model_dump(mode="json"),
            "world": self.layout.world,
            "remarks": list(self.remarks),
            **self.details,
            "costs": {key: getattr(self.costs, key) for key in LAYOUT_DEFAULTS}
            | ({} if self.costs.software is None else {"software": self.costs.software}),
            "figures": [
                figure.model_dump(mode="json") | {"uncertainty": spread, "interval_95": interval(figure.value, spread)}
                for figure, spread in self.figures()
            ],
            "uncertainty": dict(self.step.uncertainty_terms),
            "breakdown": [part._asdict() for part in self.parts()],
            "bubble_time_fraction": self.bubble_time_fraction,
            "memory": [
                {"stage": stage, "total": one.total, "model_state": one.model_state}
                | one.__dict__
                | {"provenance": "estimated", "uncertainty": MEMORY_UNCERTAINTY}
                for stage, one in enumerate(self.memory)
            ],
        }

    def _own(self, name: str) -> Provenance:
        return self.compute_provenance if name in ("compute", "recompute") else "estimated"


def priced_with(costs: CostSettings) -> str:
    """The choices of the cost model that decide what messages cost, for people."""
    software = "" if costs.software is None else f" software={costs.software}"
    return f"priced with collectives={costs.collectives} overlap_slowdown={costs.overlap_slowdown:g}{software}"


def read_layout(layout: str | Layout, samples_per_step: int | None) -> tuple[Layout, frozenset[str]]:
    """A layout, and the keys that were given; what is left out of a text hides as `plans.partition.hidden_unasked` says.

    Raises:
        PlanError: a key that is unknown, absent or twice, or values that do not go together.
    """
    if isinstance(layout, Layout):
        return layout, frozenset(layout.model_fields_set)
    given = Layout.parse(layout, samples_per_step=samples_per_step).model_fields_set
    return Layout.parse(layout, samples_per_step=samples_per_step, hides_unasked=True), frozenset(given)


def check_place(cluster: Cluster, layout: Layout) -> None:
    """Refuse a cluster on which a layout cannot be priced.

    Raises:
        PlanError: too few devices, or devices of several types.
    """
    if layout.world > cluster.num_devices:
        raise PlanError(f"has {layout.world} ranks, {cluster.name} only {cluster.num_devices} devices", field="layout")
    if len(cluster.device_types) > 1:
        names = ", ".join(kind.name for kind in cluster.device_types)
        raise PlanError(f"an analytic price wants devices of one type, {cluster.name} has {names}", field="cluster")


def check_kernels(costs: CostSettings) -> None:
    """Refuse constants of kernels, and software, for a job that is no transformer: nothing would read them.

    Raises:
        PlanError: there are some.
    """
    for key in ("kernels", "software"):
        if (value := getattr(costs, key)) is not None:
            problem = "is read for transformers only; ops of another job are timed by their profile or the roofline"
            raise PlanError(problem, field=key, value=value)
