"""`estimate --explain`: what each co-design switch changes, one at a time, the others left as they are.

Switches of the layout and of the collective layer are priced as the estimate is, by the analytic path. It does not read the
choices of the task layer, nor how messages share links; these are simulated, with and without the switch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from .. import settings
from ..costs.layouts.work import describe
from ..costs.model import CostSettings
from ..costs.network import RankNetwork
from ..errors import MeshwrightError
from ..plans.partition import Layout
from ..simulation.layouts.running import STEPS, layout_step, num_tasks, simulated_step_s
from .estimating import Estimate, pricer

MOST_TASKS = 250_000
"""Tasks of the execution graph up to which switches are simulated: all together then take some 5 s on one core, 25 s where
computing and sending slow each other down."""

BUCKET_BYTES = 25 * 2**20
"""Gradient bucket that is tried: PyTorch's default (DistributedDataParallel, bucket_cap_mb)."""

CHUNK_BYTES = 32 * 2**20
"""Message chunk that is tried."""


@dataclass(frozen=True)
class Switch:
    """What one co-design changes.

    Attributes:
        kind: ``vertical``, ``horizontal``, ``intra-inter`` or ``host-net``.
        name: the switch, as the layout or the cost settings spell it.
        provenance: ``estimated`` by the analytic path or ``simulated`` by the event path.
        base_s: step time that it is compared with, by the same path; None where it does not apply.
        step_s: step time with the switch the other way; None where it does not apply.
        remark: what it does, or why it does not apply.
    """

    kind: str
    name: str
    provenance: Literal["estimated", "simulated"]
    base_s: float | None
    step_s: float | None
    remark: str = ""

    @property
    def change(self) -> float | None:
        """Relative change of the step time."""
        return None if self.base_s is None or self.step_s is None else self.step_s / self.base_s - 1

    def to_data(self) -> dict[str, Any]:
        """Plain data."""
        data = asdict(self)
        return {"kind": data.pop("kind"), "switch": data.pop("name"), "change": self.change} | data


def explain(priced: Estimate, costs: CostSettings | None = None) -> list[Switch]:
    """What each co-design switch changes.

    Args:
        priced: the layout as it is.
        costs: choices of the cost model by which it was priced.
    """
    chosen = costs or CostSettings()
    return [
        *_layout_switches(priced, chosen),
        *_task_switches(priced, chosen),
        *_collective_switches(priced, chosen),
        _horizontal(priced),
    ]


def side_by_side_s(step_s: float, busy_s: float) -> tuple[float, float]:
    """A step of each of two equal jobs that share every network card: where their bursts meet, and where they take turns.

    With ``n`` seconds on the cards in a step of ``T``, both at once wait for each other's share, ``T + n``; shifted, they
    disturb each other only where the cards would be busy for more than a step, ``max(T, 2 n)``.

    Args:
        step_s: of one job alone.
        busy_s: of them, on the cards, in one burst.

    Source:
        Rajasekaran et al., "CASSINI: network-aware job scheduling in machine learning clusters", 2024, section 3; the two
        ends of its compatibility.
    """
    return step_s + busy_s, max(step_s, 2 * busy_s)


def _layout_switches(priced: Estimate, costs: CostSettings) -> list[Switch]:
    layout, found = priced.work.layout, []
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
            found.append(Switch("vertical", label, "estimated", None, None, f"changes nothing: {why}"))
            continue
        changed = Layout(**(layout.model_dump() | {name: other}))
        found.append(_estimated("vertical", label, priced, changed, costs, priced.step.step_s))
    return found


def _task_switches(priced: Estimate, costs: CostSettings) -> list[Switch]:
    """The task layer, and how messages that meet share a rank or a link."""
    changes: list[tuple[str, Any]] = [
        ("priority", name) for name in ("fifo", "first-consumer", "shortest-first") if name != costs.priority
    ]
    changes.append(("gradient_bucket_bytes", BUCKET_BYTES if costs.gradient_bucket_bytes is None else None))
    changes.append(("message_chunk_bytes", CHUNK_BYTES if costs.message_chunk_bytes is None else None))
    changes += [("contention", name) for name in ("independent", "serialised", "fair") if name != costs.contention]
    labels = [f"{name}={'none' if value is None else value}" for name, value in changes]
    problem, base_s = _simulation(priced, costs)
    if base_s is None:
        return [Switch("vertical", label, "simulated", None, None, problem) for label in labels]

    def simulated(name: str, value: Any) -> float:
        return simulated_step_s(priced.work, priced.cluster, settings.build(CostSettings, costs.model_dump() | {name: value}))

    return [
        _switch("vertical", label, "simulated", base_s, partial(simulated, name, value))
        for label, (name, value) in zip(labels, changes, strict=True)
    ]


def _simulation(priced: Estimate, costs: CostSettings) -> tuple[str, float | None]:
    """Step time as simulated, or why it is not."""
    try:
        step = layout_step(priced.work, priced.cluster, costs)
        tasks = num_tasks(step, RankNetwork(priced.cluster, np.arange(step.layout.world)), STEPS)
        if tasks > MOST_TASKS:
            return f"not simulated: about {tasks:,} tasks, {MOST_TASKS:,} at most", None
        return "", simulated_step_s(priced.work, priced.cluster, costs)
    except MeshwrightError as problem:
        return f"not simulated: {problem}", None


def _collective_switches(priced: Estimate, costs: CostSettings) -> list[Switch]:
    """Algorithms are told against a ring, both at the links' nominal figures; ``auto`` takes measured ones."""
    layout, nominal = priced.work.layout, costs.model_dump() | {"collectives_table": None}
    ring_s = _step_s(priced, layout, CostSettings(**(nominal | {"collectives": "ring"})))
    kinds = {"hierarchical": "intra-inter", "joint": "intra-inter", "rail": "intra-inter", "in-network": "host-net"}
    return [
        _estimated(
            kind,
            f"collectives={name}",
            priced,
            layout,
            CostSettings(**(nominal | {"collectives": name})),
            ring_s,
            "base: a ring",
        )
        for name, kind in kinds.items()
    ]


def _horizontal(priced: Estimate) -> Switch:
    """Two such jobs whose messages between hosts share every card: at once, or shifted so that their bursts take turns."""
    parts = priced.step.breakdown_s
    crossing = ("gradient sync", "parameter gather", "pipeline transfers", "exposed shard", "exposed ep", "exposed cp")
    name = "jobs interleaved"
    if priced.work.layout.world <= priced.cluster.num_devices // priced.cluster.num_hosts:
        return Switch("horizontal", name, "estimated", None, None, "changes nothing: the job stays within one host")
    busy_s = sum(parts.get(part, 0.0) for part in crossing)
    together_s, shifted_s = side_by_side_s(priced.step.step_s, busy_s)
    return Switch("horizontal", name, "estimated", together_s, shifted_s, "base: their bursts meet")


def _estimated(
    kind: str, name: str, priced: Estimate, layout: Layout, costs: CostSettings, base_s: float, remark: str = ""
) -> Switch:
    return _switch(kind, name, "estimated", base_s, lambda: _step_s(priced, layout, costs), remark)


def _switch(
    kind: str,
    name: str,
    provenance: Literal["estimated", "simulated"],
    base_s: float,
    step_s: Callable[[], float],
    remark: str = "",
) -> Switch:
    try:
        return Switch(kind, name, provenance, base_s, step_s(), remark)
    except MeshwrightError as problem:
        return Switch(kind, name, provenance, None, None, str(problem))


def _step_s(priced: Estimate, layout: Layout, costs: CostSettings) -> float:
    work = describe(priced.work.shape, layout, priced.work.sequence_length)
    return pricer(priced.cluster, costs).step_s(work)
