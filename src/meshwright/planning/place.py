"""`place`: the ops of one job on the devices of one cluster, by one planner or by the best of all.

Legend of shapes: ``n`` ops of the job graph, ``m`` devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..budget_clock import clock_s
from ..clusters import load_cluster
from ..clusters.cluster import Cluster
from ..errors import MeshwrightError, PlanError
from ..jobs.graph import JobGraph
from ..jobs.job import Job
from ..jobs.load import JobSource
from ..models.policy_files import decided
from ..planners.operators.place import PLACEMENT_PLANNERS
from ..planners.operators.place import place as place_by
from ..planners.operators.request import PlacementRequest
from ..plans import PlacementPlan, op_placement_plan
from ..plans.document import Figure
from ..plans.op_placement import OPTIMIZERS, STATE_COPIES, Optimizer
from ..quantities import counted
from ..simulation.operators.forms import full_pipeline_s
from ..simulation.operators.from_job import instance_of_job, whose_times
from ..simulation.operators.instance import OperatorInstance
from ..simulation.operators.lowering import run_plan
from ..simulation.operators.placement import OBJECTIVES, OperatorObjective, OperatorPlacement, held_bytes, loads_s, value
from ..simulation.step.timeline import Timeline
from ..worlds.operators.world import OperatorWorld
from .plan import check_steps

BEST = "best"
_WORTH_A_REMARK = 0.1
"""Share by which a simulated step is longer than the planned one when that is said."""

COUNTED_PER_S = {"placements": 1e6, "downsets": 5_000.0}
"""Rough speed of one core: placements that `exhaustive` visits in a second, and downsets whose pairs `ideals` visits, by the
square root of the seconds."""

NOT_COUNTED = {
    "latency": "one micro-batch; a device runs one op at a time, messages do not slow each other",
    "throughput": "the busiest device with a full pipeline: its ops, and each tensor once out and once in through its widest "
    "link; filling and draining are not in it. The simulated step is a full pipeline's, messages overlap computing",
}
"""The meaning of each objective's value and its omissions, for people."""


@dataclass(frozen=True)
class PlannerRun:
    """The result of one planner on an instance.

    Attributes:
        planner: its name.
        value_s: value of its placement; None where it found none.
        planning_s: seconds that it took; None where it was not started.
        problem: why there is no placement; empty where there is one.
        is_taken: whether its placement is the plan's.
    """

    planner: str
    value_s: float | None
    planning_s: float | None
    problem: str = ""
    is_taken: bool = False


@dataclass(frozen=True, eq=False)
class PlacedOps:
    """Ops on devices and what the placement was chosen from.

    Attributes:
        plan: the plan, with predicted figures and the reason.
        graph: the job.
        cluster: where.
        instance: job and cluster as the planners were given them.
        placement: the best placement.
        runs: what each planner made of the instance.
        among: device of each column of the instance, ``(m,)``.
        remarks: what the figures do not count, and what of the job does not, for people.
    """

    plan: PlacementPlan
    graph: JobGraph
    cluster: Cluster
    instance: OperatorInstance
    placement: OperatorPlacement
    runs: tuple[PlannerRun, ...]
    among: NDArray[np.int64]
    remarks: tuple[str, ...]

    def timeline(self) -> Timeline:
        """Return one micro-batch of the plan."""
        return run_plan(self.plan)

    def device_rows(self) -> list[dict[str, Any]]:
        """Return a row for each device with ops: name, type, number of ops, seconds of ops and of its load, bytes."""
        device_of = self.placement.device_of
        busy = np.zeros(self.instance.num_devices)
        np.add.at(busy, device_of, self.instance.times_s[np.arange(self.instance.num_ops), device_of])
        loads, held = loads_s(self.instance, device_of), held_bytes(self.instance, device_of)
        sent = sent_bytes(self.instance, device_of)
        forward = device_of[: self.graph.num_ops]
        column = {device: number for number, device in enumerate(self.among.tolist())}
        return [
            {
                "rank": rank.rank,
                "device": self.instance.device_names[at],
                "type": self.instance.device_types[at],
                "num_ops": int((forward == at).sum()),
                "ops_s": float(busy[at]),
                "load_s": float(loads[at]),
                "memory_bytes": float(held[at]),
                "capacity_bytes": float(self.instance.memory_bytes[at]),
                "sent_bytes": float(sent[at]),
            }
            for rank in self.plan.ranks
            for at in (column[rank.device],)
        ]


def place(
    job: str,
    cluster: str,
    *,
    objective: OperatorObjective = "latency",
    by: str = BEST,
    budget_s: float = 5.0,
    optimizer: Optimizer = "adam",
    forward_only: bool = False,
    in_flight: int | None = None,
    num_devices: int | None = None,
    batch_size: int | None = None,
    num_steps: int = 10_000,
    seed: int = 0,
    graphs_dir: str | Path | None = None,
    keep_input_ops: bool = False,
    profile_batch: int | None = None,
) -> PlacedOps:
    """Place the ops of one job on devices.

    Args:
        job: ``zoo:NAME``, a name in ``graphs_dir`` or a path (see `jobs.load.load_graph`).
        cluster: ``preset:NAME`` or a path; devices may be of several types.
        objective: ``latency``: the end of one step; ``throughput``: the largest load of a device in a full pipeline.
        by: a planner of `planners.operators.place.PLACEMENT_PLANNERS`; ``best``, the best of those that end in the budget; or a
            learned policy (see `models.graph.saved_graph_policy.load_graph_player`). ``network:`` in front of a policy takes
            its network also where a rule was better.
        budget_s: seconds; a search takes as many, and ``best`` starts no planner after them.
        optimizer: of the training.
        forward_only: whether only the forward pass runs.
        in_flight: micro-batches whose outputs a device holds at once. Default: 1; for a pipeline that trains the number of
            devices, which 1F1B never exceeds.
        num_devices: the first ones of the cluster; all by default.
        batch_size: samples of a step of an analytic graph; by default its own.
        num_steps: training steps of the job.
        seed: of planners that draw.
        graphs_dir: profiles by folder name.
        keep_input_ops: whether the ``Input`` ops of a profile count.
        profile_batch: samples for which the figures of a profile hold.

    Raises:
        PolicyError: no such planner, or not for this objective.
        PlanError: no legal placement was found.
        MeshwrightError: job or cluster are missing or wrong.
    """
    _check(objective, budget_s, optimizer, in_flight)
    check_steps(num_steps, None)
    where = load_cluster(cluster)
    count = where.num_devices if num_devices is None else num_devices
    if not 1 <= count <= where.num_devices:
        raise PlanError(f"cluster {where.name} has 1 to {where.num_devices} to use", field="--devices", value=count)
    among = np.arange(count)
    source = JobSource(job, graphs_dir, keep_input_ops, profile_batch)
    result, left_out = source.load(device=where.device_types[0], batch_size=batch_size, is_placed=True)
    trained = None if forward_only else optimizer
    held = in_flight or (len(among) if objective == "throughput" and trained is not None else 1)
    instance = instance_of_job(result, where, optimizer=trained, in_flight=held, among=among.tolist())
    request = PlacementRequest(objective, budget_s, seed)
    placement, runs = best_of(instance, request) if by == BEST else _place_instance(instance, by, request)
    source_of_times = whose_times(result, where)
    remarks = (f"{objective}: {_not_counted(objective, trained)}", *left_out, *filter(None, [source_of_times]))
    plan = op_placement_plan(
        Job(result, num_steps),
        where,
        among[placement.device_of[: result.num_ops]],
        placement.order,
        objective,
        optimizer=trained,
        in_flight=held,
        among=None if num_devices is None else among.tolist(),
        predicted=_figures(result, instance, placement),
        why="; ".join([_why(placement, runs, by), *([placement.note] if placement.note else []), *remarks]),
    )
    if objective == "throughput":
        plan, slower = _with_full_pipeline(plan)
        remarks += slower
    return PlacedOps(plan, result, where, instance, placement, runs, among, remarks)


def best_of(instance: OperatorInstance, request: PlacementRequest) -> tuple[OperatorPlacement, tuple[PlannerRun, ...]]:
    """Return the best placement of the planners that end within the budget, and the result of each.

    Rules run first, then planners with a proof, then searches; each of these may take an equal part of the rest of the budget.
    Planners that count placements or downsets in advance refuse more than `COUNTED_PER_S` allows in their part. No planner is
    started after the budget.

    Args:
        instance: what is placed.
        request: objective, budget, seed; without a budget every planner continues until it stops by itself.

    Raises:
        PlanError: none of them found a legal placement; the reason of the first one.
    """
    able = {name: each for name, each in PLACEMENT_PLANNERS.items() if request.objective in each.objectives}
    names = [name for name, each in able.items() if not each.is_published]
    names.sort(key=lambda name: (PLACEMENT_PLANNERS[name].is_search, PLACEMENT_PLANNERS[name].is_exact))
    for name in names:
        _load_compiled_code(name, request.objective)
    begin_s = clock_s()
    runs: list[PlannerRun] = []
    best: OperatorPlacement | None = None
    taken = ""
    for number, name in enumerate(names):
        left_s = None if request.budget_s is None else request.budget_s - (clock_s() - begin_s)
        if left_s is not None and left_s <= 0:
            runs.append(PlannerRun(name, None, None, "not started: the budget was over"))
            continue
        started_s = clock_s()
        try:
            placement = place_by(instance, name, request if left_s is None else _within(request, left_s / (len(names) - number)))
        except MeshwrightError as error:
            runs.append(PlannerRun(name, None, clock_s() - started_s, str(error)))
            continue
        runs.append(PlannerRun(name, placement.value_s, clock_s() - started_s))
        # Of two that are as good, one that is proved says more.
        if best is None or (placement.value_s, not placement.is_optimal) < (best.value_s, not best.is_optimal):
            best, taken = placement, name
    if best is None:
        reason = runs[0].problem if runs else f"no planner plans for {request.objective}"
        raise PlanError(f"no planner found a legal placement; {runs[0].planner if runs else 'best'}: {reason}", field="--policy")
    return best, tuple(replace(run, is_taken=run.planner == taken) for run in runs)


def sent_bytes(instance: OperatorInstance, device_of: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the bytes that each device sends for a micro-batch, each tensor once to each device that reads it, ``(m,)``."""
    source, target = instance.edges[:, 0], device_of[instance.edges[:, 1]]
    crossing = device_of[source] != target
    pairs = np.unique(np.stack([instance.edge_tensor[crossing], target[crossing]], axis=1).reshape(-1, 2), axis=0)
    sent = np.zeros(instance.num_devices)
    np.add.at(sent, device_of[instance.tensor_source[pairs[:, 0]]], instance.tensor_bytes[pairs[:, 0]])
    return sent


def _within(request: PlacementRequest, share_s: float) -> PlacementRequest:
    """Return the request for a planner that may take so long."""
    placements, ideals = COUNTED_PER_S["placements"] * share_s, COUNTED_PER_S["downsets"] * share_s**0.5
    return replace(
        request,
        budget_s=share_s,
        max_placements=min(request.max_placements, max(1, int(placements))),
        max_ideals=min(request.max_ideals, max(1, int(ideals))),
    )


@cache
def _load_compiled_code(planner: str, objective: OperatorObjective) -> None:
    """Load what a planner needs, or compile it, before the clock of the first budget of a process begins."""
    tiny = OperatorInstance.of_outputs("tiny", np.ones((2, 2)), [(0, 1)], [1.0, 1.0])
    with suppress(MeshwrightError):  # of the instance itself it will be said again
        place_by(tiny, planner, PlacementRequest(objective, budget_s=0.01))


def _place_instance(
    instance: OperatorInstance, by: str, request: PlacementRequest
) -> tuple[OperatorPlacement, tuple[PlannerRun, ...]]:
    def placer(name: str) -> Callable[[], OperatorPlacement]:
        if name in PLACEMENT_PLANNERS:
            _load_compiled_code(name, request.objective)
            return partial(place_by, instance, name, request)
        if name in OperatorWorld.rules:
            return partial(OperatorWorld(request.objective).solver(name), instance, request.seed)
        return _learned(instance, name, request)

    placed, remarks = (placer(by), ()) if by in OperatorWorld.rules else decided(by, placer)[1:]
    begin_s = clock_s()
    placement = placed()
    placement = replace(placement, note="; ".join(filter(None, (*remarks, placement.note))))
    return placement, (PlannerRun(by, placement.value_s, clock_s() - begin_s, is_taken=True),)


def _learned(instance: OperatorInstance, by: str, request: PlacementRequest) -> Callable[[], OperatorPlacement]:
    """Return a learned policy that is loaded and asked for its placement when called."""
    from ..models.graph.saved_graph_policy import load_graph_player  # takes a while, and most need no network

    player, mode = load_graph_player(by, OperatorWorld(request.objective), (BEST, *PLACEMENT_PLANNERS), "--policy")
    player.load()
    return partial(player.place, instance, mode, request.seed)


def _figures(graph: JobGraph, instance: OperatorInstance, placement: OperatorPlacement) -> list[Figure]:
    step_s, device_of = placement.value_s, placement.device_of
    makespan_s = step_s if placement.objective == "latency" else value(instance, device_of, "latency", placement.order)
    figures = [("step_s", step_s, "s"), ("makespan_s", makespan_s, "s")]
    if graph.samples_per_step is not None and step_s > 0:
        figures.append(("samples_per_s", graph.samples_per_step / step_s, "1/s"))
    figures += [
        ("memory_bytes", float(held_bytes(instance, device_of).max()), "bytes"),
        ("cut_bytes", float(sent_bytes(instance, device_of).sum()), "bytes"),
        ("lower_bound_s", placement.lower_bound_s, "s"),
        ("optimality_gap", placement.optimality_gap, "1"),
    ]
    return [Figure.predicted(name, figure, unit) for name, figure, unit in figures]


def _with_full_pipeline(plan: PlacementPlan) -> tuple[PlacementPlan, tuple[str, ...]]:
    """Return the plan with what the event simulator says of it, where it has few enough tasks, and a remark where that is longer.

    Samples a second are then those of the simulated step.
    """
    try:
        simulated_s = full_pipeline_s(plan)
    except PlanError:
        return plan, ()
    values = {figure.name: figure.value for figure in plan.predicted}
    figures = [
        Figure.predicted(each.name, each.value * values["step_s"] / simulated_s, each.unit)
        if each.name == "samples_per_s"
        else each
        for each in plan.predicted
    ]
    figures.insert(1, Figure.predicted("simulated_step_s", simulated_s, "s"))
    beyond = simulated_s / values["step_s"] - 1.0
    remark = (
        f"the simulated step is {100 * beyond:.0f} % longer than the planned one, which takes every link to be as wide as the "
        "widest of its device; compare the simulated steps of other planners and of fewer devices"
    )
    return plan.model_copy(update={"predicted": tuple(figures)}), (remark,) if beyond > _WORTH_A_REMARK else ()


def _not_counted(objective: OperatorObjective, trained: Optimizer | None) -> str:
    update = "" if trained is None else f"; the optimizer's update takes no time, {trained} holds {STATE_COPIES[trained]:g} "
    return NOT_COUNTED[objective] + (update and update + "bytes for each byte of parameters")


def _why(placement: OperatorPlacement, runs: Sequence[PlannerRun], by: str) -> str:
    if by != BEST:
        return f"{placement.planner} placed the ops"
    ended = sum(run.value_s is not None for run in runs)
    return f"{placement.planner} was the best of {counted(ended, 'planner')} that ended within the budget"


def _check(objective: str, budget_s: float, optimizer: str, in_flight: int | None) -> None:
    if objective == "tasklets":
        problem = "meshwright plan --stages puts tasklets, stages on distant devices, in their places; here ops get devices"
        raise PlanError(problem, field="--objective", value=objective, choices=OBJECTIVES)
    if objective not in OBJECTIVES:
        raise PlanError("no such objective", field="--objective", value=objective, choices=OBJECTIVES)
    if not (np.isfinite(budget_s) and budget_s > 0):
        raise PlanError("must be finite and positive", field="--budget-s", value=f"{budget_s:g}")
    if optimizer not in OPTIMIZERS:
        raise PlanError("no such optimizer", field="--set optimizer", value=optimizer, choices=OPTIMIZERS)
    if in_flight is not None and in_flight < 1:
        raise PlanError("must be at least 1", field="--set in_flight", value=in_flight)
