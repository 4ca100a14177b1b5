"""The timeline of one step: when each task starts and finishes, and what follows from that.

Legend: ``t`` tasks, ``n`` ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...clusters.cluster import Cluster
from ...costs.network import RankNetwork
from ...costs.routing import Routing
from ...costs.settings import CostSettings
from ...errors import GraphError, PlanError
from ...jobs.graph import JobGraph
from ...plans.memory import STATE_BYTES_PER_WEIGHT_BYTE, check_memory, op_split_memory_bytes
from ...plans.placement import Placement
from ...plans.splitting.op_splits import OpSplits
from ..contention.concurrent_jobs import schedule as schedule_together
from ..contention.placed_job import PlacedJob
from . import kernel
from .chrome_trace import chrome_trace
from .execution import ExecutionGraph, TaskKind
from .lowering import lower, reduced_bytes
from .memory_over_time import MemoryOverTime, memory_over_time


@dataclass(frozen=True, eq=False)
class Timeline:
    """One simulated step.

    Attributes:
        execution: the tasks.
        start_s: start of each task, ``(t,)``.
        finish_s: finish of each task, ``(t,)``.
        state_copies: bytes held for each byte of parameters.
    """

    execution: ExecutionGraph
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    state_copies: float = STATE_BYTES_PER_WEIGHT_BYTE

    @cached_property
    def step_s(self) -> float:
        """Seconds until the last task has finished."""
        return float(self.finish_s.max(initial=0.0))

    @cached_property
    def compute_busy_s(self) -> NDArray[np.float64]:
        """Seconds for which each rank computes, ``(n,)``."""
        busy = np.zeros(self.execution.num_ranks)
        is_compute = self.execution.kind == TaskKind.COMPUTE
        np.add.at(busy, self.execution.rank[is_compute], (self.finish_s - self.start_s)[is_compute])
        return busy

    @cached_property
    def communication_share(self) -> float:
        """Share of the step that the busiest rank does not compute."""
        return 0.0 if self.step_s == 0 else max(0.0, 1.0 - float(self.compute_busy_s.max()) / self.step_s)

    def memory(self, graph: JobGraph) -> MemoryOverTime:
        """Return the memory of each rank over time; ``graph`` is the job that was simulated."""
        return memory_over_time(self.execution, graph, self.start_s, self.finish_s, self.state_copies)

    def to_chrome_trace(self, graph: JobGraph) -> dict[str, Any]:
        """Return the timeline for Perfetto and chrome://tracing (see `chrome_trace`); ``graph`` is the job that was simulated."""
        return chrome_trace(self.execution, graph, self.start_s, self.finish_s, self.memory(graph))


@dataclass(frozen=True, eq=False)
class JobStep:
    """One step of a job, or several one after another, to be simulated with others.

    Attributes:
        graph: the job, ``n`` ops.
        splits: split degree of each op.
        devices: device of each rank, in rank order, at least as many as the largest split.
        start_s: when the step starts, on the clock that all jobs share.
        costs: one choice per layer; links are shared fairly unless it says otherwise.
        num_steps: steps; its timeline holds all of them as one (see `repeated`).
    """

    graph: JobGraph
    splits: OpSplits
    devices: ArrayLike
    start_s: float = 0.0
    costs: CostSettings = field(default_factory=lambda: CostSettings(contention="fair"))
    num_steps: int = 1


def simulate(
    graph: JobGraph,
    cluster: Cluster,
    splits: OpSplits,
    devices: ArrayLike,
    costs: CostSettings | None = None,
    *,
    within_memory: bool = False,
) -> Timeline:
    """Lower an op-split partition on its placement and run one step of it.

    Args:
        graph: the job, ``n`` ops.
        cluster: where.
        splits: split degree of each op.
        devices: device of each rank, in rank order, at least as many as the largest split.
        costs: one choice per layer of the cost model.
        within_memory: whether to refuse what does not fit the devices' memory.

    Raises:
        ConfigError: the all-reduce does not run on the cluster.
        GraphError: the graph cannot be timed on a device of the placement.
        PlanError: the splits are of another graph, fewer devices than ranks, a device is absent or named twice, or too little
            memory.
    """
    job = _placed_job(JobStep(graph, splits, devices, costs=costs or CostSettings()), cluster, within_memory=within_memory)
    is_plain = not job.is_fair and job.overlap_slowdown == 1
    times = kernel.schedule(job.execution) if is_plain else schedule_together([job], cluster)[0]
    return Timeline(job.execution, *times)


def simulate_together(steps: Sequence[JobStep], cluster: Cluster, *, within_memory: bool = False) -> tuple[Timeline, ...]:
    """Run one step of each of several jobs at the same time on one cluster (see `concurrent_jobs`).

    Where switches reduce (``collectives: in-network``), the jobs share their trees: each takes as many as its settings
    allow and the jobs before it have left.

    Args:
        steps: the jobs; each has devices of its own.
        cluster: where.
        within_memory: as in `simulate`.

    Returns:
        A timeline for each job, whose times count from the job's own start.

    Raises:
        ConfigError, GraphError: as in `simulate`.
        PlanError: as in `simulate`, or two jobs own one device.
    """
    jobs, num_trees = [], 0
    for step in steps:
        left = max(0, step.costs.in_network_trees - num_trees)
        allotted = replace(step, costs=step.costs.model_copy(update={"in_network_trees": left}))
        jobs.append(_placed_job(allotted, cluster, within_memory=within_memory))
        if step.costs.collectives == "in-network":
            num_trees += min(left, len(reduced_bytes(step.graph, step.splits.splits, step.costs)))
    return tuple(Timeline(job.execution, *times) for job, times in zip(jobs, schedule_together(jobs, cluster), strict=True))


def _placed_job(step: JobStep, cluster: Cluster, *, within_memory: bool) -> PlacedJob:
    graph, splits, placed = step.graph, step.splits, np.array(step.devices, np.int64)
    if splits.num_ops != graph.num_ops:
        raise PlanError(f"{splits.num_ops} split degrees for a graph of {graph.num_ops} ops", field="splits", value=graph.name)
    if len(placed) < splits.degree:
        raise PlanError(f"{splits.degree} ranks for {len(placed)} devices", field="devices")
    for device in placed[(placed < 0) | (placed >= cluster.num_devices)][:1].tolist():
        raise PlanError(f"{cluster.name} has devices 0..{cluster.num_devices - 1}", field="devices", value=device)
    if len(np.unique(placed)) < len(placed):
        raise PlanError("a device is named twice", field="devices", value=placed.tolist())
    placed = placed[: splits.degree]
    if within_memory:
        check_memory(op_split_memory_bytes(graph, splits), Placement(placed), cluster)
    routing = Routing.from_settings(step.costs)
    network = RankNetwork(cluster, placed, routing=routing)
    execution = repeated(lower(graph, splits, network, step.costs), step.num_steps)
    return PlacedJob(
        execution,
        placed,
        step.start_s,
        step.costs.contention == "fair",
        step.costs.overlap_slowdown,
        routing,
        step.costs.flows_priority,
    )


def repeated(execution: ExecutionGraph, num_steps: int) -> ExecutionGraph:
    """Repeat the tasks ``num_steps`` times; a step begins when all of the step before has ended.

    Between two steps is one task without duration and streams. Tasks of step ``k`` are numbered from ``k (t + 1)`` on.

    Raises:
        GraphError: less than one step.
    """
    if num_steps < 1:
        raise GraphError("must be at least 1", field="num_steps", value=num_steps)
    if num_steps == 1:
        return execution
    t = execution.num_tasks
    is_sink = np.ones(t, np.bool_)
    is_sink[execution.edges[:, 0]] = False
    sinks, sources = np.flatnonzero(is_sink), np.flatnonzero(execution.num_predecessors == 0)
    firsts = np.arange(num_steps) * (t + 1)
    edges = [execution.edges + first for first in firsts]
    for first in firsts[:-1]:
        barrier = first + t
        edges.append(np.stack([sinks + first, np.full(len(sinks), barrier)], axis=1))
        edges.append(np.stack([np.full(len(sources), barrier), sources + barrier + 1], axis=1))
    parts = [execution, *[_barrier(execution.num_ranks), execution] * (num_steps - 1)]
    return ExecutionGraph.joined(parts, np.concatenate(edges).astype(np.int64))


def _barrier(num_ranks: int) -> ExecutionGraph:
    """Return a task that takes no time and uses nothing."""
    return ExecutionGraph(
        num_ranks=num_ranks,
        kind=np.array([TaskKind.COMPUTE], np.int8),
        duration_s=np.zeros(1),
        priority=np.zeros(1),
        stream_start=np.zeros(2, np.int64),
        streams=np.zeros(0, np.int64),
        edges=np.zeros((0, 2), np.int64),
        op=np.zeros(1, np.int64),
        rank=np.zeros(1, np.int64),
        is_backward=np.zeros(1, np.bool_),
        payload_bytes=np.zeros(1),
    )
