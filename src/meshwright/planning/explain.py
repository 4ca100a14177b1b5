"""`estimate --explain`: what each co-design switch changes, one at a time, the others left as they are.

Switches of the layout and of the collective layer are priced as the estimate is, by the analytic path. It does not read the
choices of the task layer, nor the sharing of links and the paths of messages. These are simulated, with and without the switch.
Where a step has too many micro-batches for that, two of fewer are simulated and continued by the schedule's steady state
(`simulation.layouts.steady`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

from .. import settings
from ..clusters.topologies.optical import OpticalTopology
from ..costs.collectives import ALGORITHMS, UNTAKEN
from ..costs.settings import LAYOUT_DEFAULTS, CostSettings
from ..errors import MeshwrightError, PlanError
from ..plans.frameworks.names import build_of_plan
from ..plans.partition import Layout
from ..simulation.layouts.steady import SteadyRounds, rounds
from .estimate import Estimate

MOST_TASKS = 250_000
"""Largest number of tasks of the execution graph at which switches are simulated. All together then take some 5 s on one core,
25 s where computing and sending slow each other down."""

BUCKET_BYTES = 25 * 2**20
"""Gradient bucket that is tried: PyTorch's default (DistributedDataParallel, bucket_cap_mb)."""

CHUNK_BYTES = 32 * 2**20
"""Message chunk that is tried."""


@dataclass(frozen=True)
class Switch:
    """The effect of one co-design switch.

    Attributes:
        kind: the co-design, ``vertical``, ``horizontal``, ``collectives``, ``intra-inter``, ``host-net`` or ``network``;
            or ``flows``, the layer of flows and routes.
        name: the switch, as the layout or the cost settings spell it.
        provenance: ``estimated`` by the analytic path or ``simulated`` by the event path.
        base_s: step time of the comparison, by the same path; None where it does not apply.
        step_s: step time with the switch the other way; None where it does not apply.
        remark: what it does, or why it does not apply.
        micro_batches: of the steps that were simulated; empty where none was.
    """

    kind: str
    name: str
    provenance: Literal["estimated", "simulated"]
    base_s: float | None
    step_s: float | None
    remark: str = ""
    micro_batches: tuple[int, ...] = ()

    @property
    def change(self) -> float | None:
        """Relative change of the step time."""
        return None if self.base_s is None or self.step_s is None else self.step_s / self.base_s - 1

    def to_data(self) -> dict[str, Any]:
        """Return the switch as plain data."""
        data = asdict(self)
        return {"kind": data.pop("kind"), "switch": data.pop("name"), "change": self.change} | data


def explain(priced: Estimate, costs: CostSettings | None = None) -> list[Switch]:
    """Return the effect of each co-design switch.

    Args:
        priced: the layout as it is.
        costs: choices of the cost model; by default those by which it was priced.
    """
    layout_costs = priced.costs if costs is None else costs.of_layouts
    simulator = _Simulator(priced, layout_costs)
    return [
        *_layout_switches(priced, layout_costs),
        *_task_switches(simulator, layout_costs),
        *_flow_switches(priced, simulator, layout_costs),
        *_collective_switches(priced, layout_costs),
        _horizontal(priced),
    ]


def untaken(priced: Estimate) -> str | None:
    """Return why layouts do not take by default a named, faster algorithm; None where it is not faster, or not named."""
    usual = priced.costs.model_copy(update={"collectives": LAYOUT_DEFAULTS["collectives"], "collectives_table": None})
    if priced.costs.collectives == usual.collectives:
        return None
    usual_s, step_s = priced.repriced_s(priced.layout, usual), priced.step.step_s
    if step_s >= usual_s:
        return None
    name, why = priced.costs.collectives, UNTAKEN[priced.costs.collectives]
    return (
        f"collectives={name}: {1 - step_s / usual_s:.1%} less than the {1e3 * usual_s:.3f} ms of {usual.collectives}, "
        f"which is not exchanged for it because {why}"
    )


def side_by_side_s(step_s: float, busy_s: float) -> tuple[float, float]:
    """Return the step time of two equal jobs that share every network card: with bursts that meet, and in turns.

    With ``n`` seconds on the cards in a step of ``T``, jobs at once wait for each other's share, ``T + n``. Shifted jobs
    disturb each other only if the cards are busy for more than a step, ``max(T, 2 n)``.

    Args:
        step_s: of one job alone.
        busy_s: of those, seconds on the cards, in one burst.

    Source:
        Rajasekaran et al., "CASSINI: network-aware job scheduling in machine learning clusters", 2024, section 3; the two
        ends of its compatibility.
    """
    return step_s + busy_s, max(step_s, 2 * busy_s)


def _layout_switches(priced: Estimate, costs: CostSettings) -> list[Switch]:
    layout, result = priced.layout, []
    meshes = [layout.at(stage) for stage in range(layout.pp)]
    cuts_layers, has_copies = any(mesh.tp > 1 for mesh in meshes), any(mesh.copies > 1 for mesh in meshes)
    for name in ("send-recv", "all-gather", "broadcast") if layout.is_meshed else ():
        if name != costs.resharding:
            other_costs = costs.model_copy(update={"resharding": name})
            result.append(_estimated("collectives", f"resharding={name}", priced, layout, other_costs, priced.step.step_s))
    for name, applies, why in (
        ("overlap_tp", cuts_layers, "tp is 1"),
        ("overlap_pp", layout.pp > 1, "pp is 1"),
        ("overlap_dp", has_copies, "dp x cp is 1"),
        ("async_gradients", cuts_layers, "tp is 1"),
        ("sequence_parallel", cuts_layers, "tp is 1"),
    ):
        other = not getattr(layout, name)
        label = f"{name}={str(other).lower()}"
        if not applies:
            result.append(Switch("vertical", label, "estimated", None, None, f"changes nothing: {why}"))
            continue
        try:
            changed = build_of_plan(Layout, layout.model_dump() | {name: other})
        except PlanError as problem:
            result.append(Switch("vertical", label, "estimated", None, None, f"does not go here: {problem.problem}"))
            continue
        result.append(_estimated("vertical", label, priced, changed, costs, priced.step.step_s))
    return result


class _Simulator:
    """The event path of a layout, run once for each choice of the cost model.

    Attributes:
        problem: why the layout is not simulated; empty where it is.
        micro_batches: of the steps that are simulated for one choice.
    """

    def __init__(self, priced: Estimate, costs: CostSettings) -> None:
        self._priced, self._known, self.problem = priced, dict[str, float](), ""
        self._rounds: SteadyRounds | None = None
        self.micro_batches: tuple[int, ...] = (priced.layout.num_micro_batches,)
        try:
            tasks = priced.num_tasks(costs)
        except MeshwrightError as problem:
            self.problem = f"not simulated: {problem}"
            return
        if tasks <= MOST_TASKS:
            return
        self._rounds = rounds(priced.layout, priced.layout.num_micro_batches * MOST_TASKS / tasks)
        if self._rounds is None:
            self.problem = f"not simulated: about {tasks:,} tasks, {MOST_TASKS:,} at most, and no micro-batches to leave out"
        else:
            self.micro_batches = (self._rounds.fewer, self._rounds.longer)

    def seconds(self, costs: CostSettings, **changed: Any) -> float:
        """Return a step by some choices, a few of them changed.

        Raises:
            MeshwrightError: they do not go together, or the layout cannot be simulated by them.
        """
        config = settings.build_settings(CostSettings, costs.model_dump() | changed)
        if config.digest not in self._known:
            simulated_s = partial(self._priced.simulated_s, config)
            self._known[config.digest] = simulated_s() if self._rounds is None else self._rounds.step_s(simulated_s)
        return self._known[config.digest]

    def switches(self, kind: str, base: CostSettings, changes: list[tuple[str, Any]], remark: str = "") -> list[Switch]:
        """Return the effects of some choices, each by itself."""
        labels = [f"{name}={'none' if value is None else value}" for name, value in changes]
        problem = self.problem
        if not problem:
            try:
                self.seconds(base)
            except MeshwrightError as error:
                problem = f"not simulated: {error}"
        if problem:
            return [Switch(kind, label, "simulated", None, None, problem) for label in labels]
        return [
            replace(
                _switch(kind, label, "simulated", self.seconds(base), partial(self.seconds, base, **{name: value}), remark),
                micro_batches=self.micro_batches,
            )
            for label, (name, value) in zip(labels, changes, strict=True)
        ]


def _task_switches(simulator: _Simulator, costs: CostSettings) -> list[Switch]:
    """Return the task layer, and how messages that meet share a rank or a link."""
    changes: list[tuple[str, Any]] = [
        ("priority", name) for name in ("fifo", "first-consumer", "shortest-first", "deadline") if name != costs.priority
    ]
    changes.append(("gradient_bucket_bytes", BUCKET_BYTES if costs.gradient_bucket_bytes is None else None))
    changes.append(("message_chunk_bytes", CHUNK_BYTES if costs.message_chunk_bytes is None else None))
    changes += [("contention", name) for name in ("independent", "serialised", "fair") if name != costs.contention]
    return simulator.switches("vertical", costs, changes)


def _flow_switches(priced: Estimate, simulator: _Simulator, costs: CostSettings) -> list[Switch]:
    """Return which flows go first on links that are shared fairly, and other paths of equal cost.

    Only where links are shared do flows that meet slow each other down.
    """
    order = [("flows_priority", name) for name in ("fair", "priority", "edf") if name != costs.flows_priority]
    paths = [("routing", name) for name in ("shortest-path", "ecmp", "spread") if name != costs.routing]
    problem, result, fair = "", list[Switch](), costs
    try:
        fair = settings.build_settings(CostSettings, costs.model_dump() | {"contention": "fair"})
    except MeshwrightError as error:
        problem = str(error)
    one_path = "" if priced.cluster.topology.has_equal_paths else "changes nothing: one path joins any two devices"
    bases = (order, f"flows_priority={costs.flows_priority}", problem), (paths, costs.routing, one_path or problem)
    for changes, base, problem in bases:
        if problem:
            result += [Switch("flows", f"{name}={value}", "simulated", None, None, problem) for name, value in changes]
        else:
            result += simulator.switches("flows", fair, changes, f"base: contention=fair, {base}")
    return result


def _collective_switches(priced: Estimate, costs: CostSettings) -> list[Switch]:
    """Return the circuits on an optical cluster; elsewhere algorithms against a ring; ``calibrated`` takes measured rates."""
    layout, nominal = priced.layout, costs.model_dump() | {"collectives_table": None}
    if isinstance(priced.cluster.topology, OpticalTopology):  # other algorithms know nothing of partners that change
        once, per_phase = (
            CostSettings(**(nominal | {"collectives": "circuits", "circuits": name})) for name in ("once", "per-phase")
        )
        base_s, remark = priced.repriced_s(layout, once), "base: circuits=once"
        return [_estimated("network", "circuits=per-phase", priced, layout, per_phase, base_s, remark)]
    ring_s = priced.repriced_s(layout, CostSettings(**(nominal | {"collectives": "ring"})))
    return [
        _estimated(
            model.co_design,
            f"collectives={name}",
            priced,
            layout,
            CostSettings(**(nominal | {"collectives": name})),
            ring_s,
            "base: a ring",
        )
        for name, model in ALGORITHMS.items()
        if model.co_design
    ]


def _horizontal(priced: Estimate) -> Switch:
    """Return two such jobs whose messages between hosts share every card: at once, or shifted so that their bursts take turns."""
    parts = priced.step.breakdown_s
    crossing = ("gradient sync", "parameter gather", "pipeline transfers", "exposed shard", "exposed ep", "exposed cp")
    name = "jobs interleaved"
    if priced.layout.world <= priced.cluster.num_devices // priced.cluster.num_hosts:
        return Switch("horizontal", name, "estimated", None, None, "changes nothing: the job stays within one host")
    busy_s = sum(parts.get(part, 0.0) for part in crossing)
    together_s, shifted_s = side_by_side_s(priced.step.step_s, busy_s)
    return Switch("horizontal", name, "estimated", together_s, shifted_s, "base: their bursts meet")


def _estimated(
    kind: str, name: str, priced: Estimate, layout: Layout, costs: CostSettings, base_s: float, remark: str = ""
) -> Switch:
    return _switch(kind, name, "estimated", base_s, lambda: priced.repriced_s(layout, costs), remark)


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
