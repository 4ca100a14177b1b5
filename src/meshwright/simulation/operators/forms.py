"""Forms of the value of a placement: what planners make small, and what else the same placement can be valued by.

An objective has a form that planners and learned policies optimise, its first one here. The others value what was found: with
messages that share links, or a pipeline that really runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...clusters.topologies.matrix import MatrixTopology
from ...errors import PlanError
from ...jobs.graph import JobGraph
from ...plans.document import PlacementPlan
from ..contention.concurrent_jobs import schedule as schedule_together
from ..contention.placed_job import PlacedJob
from ..step import kernel
from ..step.execution import ExecutionGraph
from .instance import OperatorInstance
from .lowering import Contention, lower, run_plan
from .placement import OperatorObjective, OperatorPlacement

ValueForm = Literal["independent", "fair", "max-load", "simulated"]

FORMS: dict[OperatorObjective, tuple[ValueForm, ...]] = {
    "latency": ("independent", "fair"),
    "throughput": ("max-load", "simulated"),
}
"""The first of an objective is its default, which planners and learned policies optimise."""

_WIDEST_BYTES_PER_S = 1e18


def form_value_s(instance: OperatorInstance, made: OperatorPlacement, form: ValueForm) -> float:
    """Return the seconds of a legal placement under a form of its objective.

    Args:
        instance: what is placed.
        made: where, and in which order devices run their ops.
        form: one of `FORMS` of the placement's objective. ``fair``: messages of an ordered pair of devices share its bandwidth.
            ``simulated``: see `full_pipeline_s`; as many micro-batches are under way as devices have ops, and a device sends or
            gets one message at a time.

    Returns:
        The placement's own value for the default form.

    Raises:
        PlanError: the placement has no value of this form, as it is a pipeline of too many tasks.
    """
    if form == FORMS[made.objective][0]:
        return made.value_s
    columns = np.unique(made.device_of)
    if form == "simulated":
        return followed_s(_lowered(instance, made, "serialised"), len(columns), at_once=len(columns))
    job = PlacedJob(_lowered(instance, made, "fair"), columns)
    return float(schedule_together([job], _pairs(instance))[0][1].max())


def _lowered(instance: OperatorInstance, made: OperatorPlacement, contention: Contention) -> ExecutionGraph:
    columns, rank_of = np.unique(made.device_of, return_inverse=True)
    return lower(instance, rank_of.reshape(-1), columns, made.order, contention=contention)


def _pairs(instance: OperatorInstance) -> Cluster:
    """Return the instance's devices, with a channel for each ordered pair; types of devices do not matter to messages."""
    m = instance.num_devices
    rows = [[1.0] * m] * m
    network = {"kind": "matrix", "bandwidth_gbytes_per_s": rows, "latency_us": rows}
    whole = Cluster.from_data({"name": "pairs", "device": "a100", "topology": network})
    widths = np.minimum(instance.bandwidth_bytes_per_s, _WIDEST_BYTES_PER_S)
    return replace(whole, topology=MatrixTopology(widths, instance.latency_s))


StageOps = tuple[NDArray[np.bool_], int]
"""Whether each op of ``n`` is in a stage, ``(n,)``, and its replicas."""


def pipedream_stages_s(graph: JobGraph, stages: Sequence[StageOps], bandwidth_bytes_per_s: float) -> float:
    """Return the seconds between two minibatches of given stages of a profile, on machines of one level, by PipeDream's form.

    A stage has c seconds of ops, p bytes of parameters, m replicas, and o bytes that cross its begin or end. It takes the largest
    of ``(c + 4 (m - 1) p / (B m)) / m`` and, unless it is the first, ``2 o / (B m)`` of both its ends.

    Args:
        graph: the profile.
        stages: in order.
        bandwidth_bytes_per_s: B, between machines.

    Raises:
        PlanError: the stages do not hold each op once, or an edge leads back.

    Source:
        Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019, section 3.1.
    """
    stage_of = _stage_of(stages, graph.num_ops)
    check_stages(stages, graph.edges, graph.op_names)
    value_s, last = 0.0, len(stages) - 1
    for number, (ops, replicas) in enumerate(stages):
        seconds = float((graph.forward_s + graph.backward_s)[ops].sum())
        parameters = float(graph.parameter_bytes[ops].sum())
        exchanged_s = 4.0 * (replicas - 1) * parameters / (bandwidth_bytes_per_s * replicas)
        value_s = max(value_s, (seconds + exchanged_s) / replicas)
        for at in (number, number + 1) if 0 < number < last else (number,) if number else ():
            crossing = (stage_of[graph.edges[:, 0]] < at) & (stage_of[graph.edges[:, 1]] >= at)
            sent = float(graph.activation_bytes[np.unique(graph.edges[crossing, 0])].sum())
            value_s = max(value_s, 2.0 * sent / (bandwidth_bytes_per_s * replicas))
    return value_s


def check_stages(stages: Sequence[StageOps], edges: NDArray[np.int64], op_names: Sequence[str]) -> None:
    """Refuse stages that lack an op or have one twice, or between which one of ``e`` edges ``(e, 2)`` leads backwards.

    Raises:
        PlanError: with the first op for which it does not hold.
    """
    times = np.array([ops for ops, _ in stages]).sum(axis=0)
    if (times != 1).any():
        op = int(np.flatnonzero(times != 1)[0])
        raise PlanError("each op is in one stage", field="stages", value=f"{op_names[op]} is in {times[op]}")
    stage_of = _stage_of(stages, len(op_names))
    backward_edges = np.flatnonzero(stage_of[edges[:, 0]] > stage_of[edges[:, 1]]) if len(edges) else np.zeros(0, np.int64)
    if backward_edges.size:
        source, reader = (op_names[op] for op in edges[backward_edges[0]].tolist())
        raise PlanError(f"{reader} is in an earlier stage than {source}, whose output it reads", field="stages")


def _stage_of(stages: Sequence[StageOps], n: int) -> NDArray[np.int64]:
    stage_of = np.full(n, -1, np.int64)
    for number, (ops, _) in enumerate(stages):
        stage_of[ops] = number
    return stage_of


MOST_TASKS = 300_000
"""Of all micro-batches that are run; a second or less."""


def full_pipeline_s(plan: PlacementPlan) -> float:
    """Return the seconds from one micro-batch to the next in a full pipeline, by the event simulator.

    Every micro-batch does the tasks of `lowering`. A device runs what is ready, of the oldest micro-batch first, so that in
    training backward passes go before newer forward ones, as in 1F1B. No more micro-batches are under way than the devices can
    hold.

    Computations overlap messages, and a rank sends or gets one message at a time. Without training each device holds
    ``in_flight`` micro-batches, so that ``in_flight`` times the number of devices are under way. In training ``in_flight`` are
    under way in all, since the first device holds every one of them. The result is the mean over the second half of the
    micro-batches, and at least the work of the busiest stream in each.

    Args:
        plan: one of ops on devices.

    Raises:
        PlanError: as `run_plan`, or more tasks than `MOST_TASKS`.
    """
    once = run_plan(plan, contention="serialised").execution
    partition = plan.op_placement()
    assert partition is not None
    groups = len(partition.groups)
    at_once = partition.in_flight * (groups if partition.optimizer is None else 1)
    return followed_s(once, groups, at_once)


def followed_s(once: ExecutionGraph, groups: int, at_once: int) -> float:
    """Return the seconds from one micro-batch to the next in a full pipeline of ``groups`` devices; see `full_pipeline_s`.

    Args:
        once: what a micro-batch does.
        groups: devices that have ops.
        at_once: micro-batches that may be under way.

    Raises:
        PlanError: more tasks than `MOST_TASKS`.
    """
    count = 4 * groups + 2 * at_once + 8
    if count * once.num_tasks > MOST_TASKS:
        problem = f"{count} micro-batches of {once.num_tasks:,} tasks are more than {MOST_TASKS:,} tasks"
        raise PlanError(problem, field="partition", value=count * once.num_tasks)
    _, finish_s = kernel.schedule(followed(once, count, at_once))
    ends = finish_s.reshape(count, once.num_tasks).max(axis=1)
    half = count // 2
    # A window that is no whole number of the schedule's periods may show less than a stream takes that runs one task at a time.
    busy_s = np.bincount(once.streams, np.repeat(once.duration_s, np.diff(once.stream_start)))
    return max(float(ends[-1] - ends[half - 1]) / (count - half), float(busy_s.max(initial=0.0)))


def followed(once: ExecutionGraph, count: int, at_once: int) -> ExecutionGraph:
    """Repeat the ``t`` tasks of a micro-batch ``count`` times, at most ``at_once`` at a time; number ``k`` begins at ``k t``."""
    t, firsts = once.num_tasks, np.arange(count) * once.num_tasks
    has_next = np.zeros(t, np.bool_)
    has_next[once.edges[:, 0]] = True
    sources, sinks = np.flatnonzero(once.num_predecessors == 0), np.flatnonzero(~has_next)
    edges = [once.edges + first for first in firsts]
    for first in firsts[: max(0, count - at_once)]:
        later = np.repeat(sources + first + at_once * t, len(sinks))
        edges.append(np.stack([np.tile(sinks + first, len(sources)), later], axis=1))
    made = ExecutionGraph.joined([once] * count, np.concatenate(edges).astype(np.int64))
    age = np.repeat(np.arange(count) * (float(once.priority.max()) + 1.0), t)
    return replace(made, priority=made.priority + age)
