"""`estimate`: one transformer under one layout on one cluster, its step time, utilisation and memory, and why.

The figures are analytic (`costs.layouts`). Each has a provenance and an uncertainty of one standard deviation; a whole is
estimated, of its parts the communications may be read from measurements. What each
co-design switch would change is told by `explaining`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..clusters import load_cluster
from ..clusters.cluster import Cluster
from ..costs.collectives.prices import Provenance
from ..costs.collectives.system import UNCERTAINTY
from ..costs.layouts.memory import StageMemory, check_fits, stage_memory
from ..costs.layouts.step_time import Pricer, StepTime
from ..costs.layouts.wires import wiring
from ..costs.layouts.work import LayoutWork, describe
from ..costs.model import CostSettings
from ..errors import PlanError
from ..jobs.load import load_shape
from ..plans.document import Figure
from ..plans.partition import Layout

MEMORY_UNCERTAINTY = 0.06
"""Relative: the larger of the two errors that the memory of published runs leaves (parameters and optimizer)."""


class Part(NamedTuple):
    """A part of the step.

    Attributes:
        name: as in `StepTime.breakdown_s`.
        seconds: of the stage that ends last.
        share: of the step.
        provenance: of a communication that of its messages, see `Pricer.provenance`; all else is estimated.
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
        job: name of the model.
        cluster: where.
        work: what every rank does.
        step: the step.
        memory: of a rank of each stage.
        provenance: of the communications in the step's breakdown; the rest of it is estimated.
        compute_uncertainty: relative, of what kernels take.
    """

    job: str
    cluster: Cluster
    work: LayoutWork
    step: StepTime
    memory: tuple[StageMemory, ...]
    provenance: dict[str, Provenance]
    compute_uncertainty: float

    @property
    def peak(self) -> StageMemory:
        """What the fullest rank holds."""
        return max(self.memory, key=lambda one: one.total)

    def figures(self) -> list[tuple[Figure, float]]:
        """Every figure with its relative uncertainty; time's provenance is that of an estimate."""
        step = self.step
        spread = step.uncertainty
        values = [
            ("step_s", step.step_s, "s", spread),
            ("tokens_per_s", step.tokens_per_s, "1/s", spread),
            ("mfu", step.mfu, "1", spread),
            ("hfu", step.hfu, "1", spread),
            ("memory_bytes", self.peak.total, "bytes", MEMORY_UNCERTAINTY),
        ]
        return [(Figure(name=n, value=v, unit=u, provenance="estimated"), s) for n, v, u, s in values]

    def parts(self) -> list[Part]:
        """What the step is made of.

        A communication is at least as uncertain as kernels, behind which a part of it may hide.
        """
        found = []
        for name, seconds in self.step.breakdown_s.items():
            told = self.provenance.get(name)
            spread = self.compute_uncertainty if told is None else max(self.compute_uncertainty, UNCERTAINTY[told])
            found.append(Part(name, seconds, seconds / self.step.step_s, told or "estimated", spread))
        return found

    def to_data(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "job": self.job,
            "cluster": self.cluster.name,
            "layout": self.work.layout.model_dump(mode="json"),
            "world": self.work.layout.world,
            "sequence_length": self.work.sequence_length,
            "figures": [figure.model_dump(mode="json") | {"uncertainty": spread} for figure, spread in self.figures()],
            "breakdown": [part._asdict() for part in self.parts()],
            "memory": [
                {"stage": stage, "total": one.total, "model_state": one.model_state}
                | one.__dict__
                | {"provenance": "estimated", "uncertainty": MEMORY_UNCERTAINTY}
                for stage, one in enumerate(self.memory)
            ],
        }


def estimate(
    job: str,
    cluster: str | Cluster,
    layout: str | Layout,
    *,
    sequence_length: int | None = None,
    costs: CostSettings | None = None,
) -> Estimate:
    """Price one layout.

    Args:
        job: ``zoo:NAME`` of a transformer or the path of a ``config.json``.
        cluster: ``preset:NAME``, a path, or a cluster.
        layout: the keys of `Layout` as text, or a layout.
        sequence_length: tokens of a sequence; by default the model's own, 2,048 at most.
        costs: choices of the cost model; the layers that an analytic price reads are ``collectives`` and
            ``overlap_slowdown``.

    Raises:
        PlanError: the model cannot be cut so, the cluster has too few devices, or it does not fit their memory.
        MeshwrightError: job or cluster are missing or wrong.
    """
    shape, batch = load_shape(job)
    place = load_cluster(cluster) if isinstance(cluster, str) else cluster
    cut = Layout.parse(layout, samples_per_step=batch) if isinstance(layout, str) else layout
    work = describe(shape, cut, sequence_length)
    if cut.world > place.num_devices:
        raise PlanError(f"has {cut.world} ranks, {place.name} only {place.num_devices} devices", field="layout")
    if len(place.device_types) > 1:
        names = ", ".join(kind.name for kind in place.device_types)
        raise PlanError(f"an analytic price wants devices of one type, {place.name} has {names}", field="cluster")
    check_fits(work, float(place.memory_bytes.min()))
    prices = pricer(place, costs or CostSettings())
    memory = tuple(stage_memory(work, stage) for stage in range(cut.pp))
    spread = prices.model.constants.uncertainty
    return Estimate(shape.name, place, work, prices.price_work(work), memory, prices.provenance(work), spread)


def pricer(cluster: Cluster, costs: CostSettings) -> Pricer:
    """What prices layouts on a cluster of equal devices."""
    return Pricer(cluster.device_types[0], wiring(cluster, costs), costs.overlap_slowdown)
