"""`estimate`: one transformer under one layout on one cluster, its step time, utilisation and memory, and why.

The figures are analytic (`costs.layouts`). Each has a provenance and an uncertainty of one standard deviation. `explain`
tells what each co-design of the literature changes: switches of the layout, and those of the collective layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..clusters import load_cluster
from ..clusters.cluster import Cluster
from ..costs.layouts.memory import StageMemory, check_fits, stage_memory
from ..costs.layouts.step_time import Pricer, StepTime
from ..costs.layouts.wires import wiring
from ..costs.layouts.work import LayoutWork, describe
from ..costs.model import CostSettings
from ..errors import MeshwrightError, PlanError
from ..jobs.load import load_shape
from ..plans.document import Figure
from ..plans.partition import Layout

MEMORY_UNCERTAINTY = 0.06
"""Relative: the larger of the two errors that the memory of published runs leaves (parameters and optimizer)."""


@dataclass(frozen=True)
class Switch:
    """What one co-design changes.

    Attributes:
        kind: ``vertical``, ``horizontal``, ``intra-inter`` or ``host-net``.
        name: the switch, as the layout or the cost settings spell it.
        step_s: step time with the switch the other way.
        change: relative change of the step time; None where it does not apply, with the reason in ``remark``.
        remark: what it does, or why it does not apply.
    """

    kind: str
    name: str
    step_s: float | None
    change: float | None
    remark: str

    def to_data(self) -> dict[str, Any]:
        """Plain data."""
        return {"kind": self.kind, "switch": self.name, "step_s": self.step_s, "change": self.change, "remark": self.remark}


@dataclass(frozen=True)
class Estimate:
    """A layout as priced.

    Attributes:
        job: name of the model.
        cluster: where.
        work: what every rank does.
        step: the step.
        memory: of a rank of each stage.
    """

    job: str
    cluster: Cluster
    work: LayoutWork
    step: StepTime
    memory: tuple[StageMemory, ...]

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

    def to_data(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "job": self.job,
            "cluster": self.cluster.name,
            "layout": self.work.layout.model_dump(mode="json"),
            "world": self.work.layout.world,
            "sequence_length": self.work.sequence_length,
            "figures": [figure.model_dump(mode="json") | {"uncertainty": spread} for figure, spread in self.figures()],
            "breakdown": [
                {"name": name, "seconds": seconds, "share": seconds / self.step.step_s, "provenance": "estimated"}
                for name, seconds in self.step.breakdown_s.items()
            ],
            "memory": [
                {"stage": stage, "total": one.total, "model_state": one.model_state} | one.__dict__
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
    step = _pricer(place, costs or CostSettings()).price_work(work)
    return Estimate(shape.name, place, work, step, tuple(stage_memory(work, stage) for stage in range(cut.pp)))


def explain(priced: Estimate, costs: CostSettings | None = None) -> list[Switch]:
    """What each co-design switch changes, one at a time, the others left as they are."""
    chosen = costs or CostSettings()
    layout, base_s = priced.work.layout, priced.step.step_s
    found = []
    for name, applies, why in (
        ("overlap_tp", layout.tp > 1, "tp is 1"),
        ("overlap_pp", layout.pp > 1, "pp is 1"),
        ("overlap_dp", layout.dp * layout.cp > 1, "dp x cp is 1"),
        ("async_gradients", layout.tp > 1, "tp is 1"),
        ("sequence_parallel", layout.tp > 1, "tp is 1"),
    ):
        other = not getattr(layout, name)
        label = f"{name}={str(other).lower()}"
        if not applies:
            found.append(Switch("vertical", label, None, None, f"changes nothing: {why}"))
            continue
        changed = Layout(**(layout.model_dump() | {name: other}))
        found.append(_switch("vertical", label, base_s, lambda changed=changed: _step_s(priced, changed, chosen)))
    # Algorithms are told against a ring, both at the links' nominal figures; ``auto`` takes measured ones.
    ring = CostSettings(**(chosen.model_dump() | {"collectives": "ring", "collectives_table": None}))
    ring_s = _step_s(priced, layout, ring)
    field = CostSettings.model_fields["collectives"]
    names = [name for name in getattr(field.annotation, "__args__", ()) if name != chosen.collectives]
    kinds = {"hierarchical": "intra-inter", "joint": "intra-inter", "rail": "intra-inter", "in-network": "host-net"}
    for name in names:
        if name in kinds:
            other_costs = CostSettings(**(chosen.model_dump() | {"collectives": name, "collectives_table": None}))
            found.append(
                _switch(kinds[name], f"collectives={name}, not ring", ring_s, lambda c=other_costs: _step_s(priced, layout, c))
            )
    found.append(_horizontal(priced))
    return found


def _horizontal(priced: Estimate) -> Switch:
    """Two such jobs whose messages between hosts share every card: at once, or shifted so that their bursts take turns.

    With ``n`` seconds on the cards in a step of ``T``, both at once wait for each other's share, ``T + n``; shifted, they
    disturb each other only where the cards would be busy for more than a step, ``max(T, 2 n)``.

    Source:
        Rajasekaran et al., "CASSINI: network-aware job scheduling in machine learning clusters", 2024, section 3; the two
        ends of its compatibility.
    """
    parts = priced.step.breakdown_s
    crossing = ("gradient sync", "parameter gather", "pipeline transfers", "exposed shard", "exposed ep", "exposed cp")
    if priced.work.layout.world <= priced.cluster.num_devices // priced.cluster.num_hosts:
        return Switch("horizontal", "jobs interleaved", None, None, "changes nothing: the job stays within one host")
    busy_s, step_s = sum(parts.get(name, 0.0) for name in crossing), priced.step.step_s
    together_s, shifted_s = step_s + busy_s, max(step_s, 2 * busy_s)
    remark = f"beside an equal job on the same cards, {1e3 * together_s:.1f} ms where their bursts meet"
    return Switch("horizontal", "jobs interleaved", shifted_s, shifted_s / together_s - 1, remark)


def _switch(kind: str, name: str, base_s: float, priced: Any) -> Switch:
    try:
        step_s = float(priced())
    except MeshwrightError as problem:
        return Switch(kind, name, None, None, str(problem))
    return Switch(kind, name, step_s, step_s / base_s - 1, "")


def _step_s(priced: Estimate, layout: Layout, costs: CostSettings) -> float:
    work = describe(priced.work.shape, layout, priced.work.sequence_length)
    return _pricer(priced.cluster, costs).step_s(work)


def _pricer(cluster: Cluster, costs: CostSettings) -> Pricer:
    return Pricer(cluster.device_types[0], wiring(cluster, costs), costs.overlap_slowdown)
