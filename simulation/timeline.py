"""The timeline of one step: when each task starts and finishes, and what follows from that.

Legend: ``t`` tasks, ``n`` ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..clusters.cluster import Cluster
from ..costs.model import CostSettings
from ..costs.network import RankNetwork
from ..errors import PlanError
from ..jobs.graph import JobGraph
from ..plans.partition import OpSplits
from . import kernel
from .execution import ExecutionGraph, TaskKind
from .lowering import lower


@dataclass(frozen=True, eq=False)
class Timeline:
    """One simulated step.

    Attributes:
        execution: the tasks.
        start_s: start of each task, ``(t,)``.
        finish_s: finish of each task, ``(t,)``.
    """

    execution: ExecutionGraph
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]

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
    def exposed_communication_s(self) -> float:
        """Seconds of the step in which messages are under way and no rank computes."""
        is_compute = self.execution.kind == TaskKind.COMPUTE
        computing = _union(self.start_s[is_compute], self.finish_s[is_compute])
        both = _union(self.start_s, self.finish_s)
        return max(0.0, both - computing)

    @cached_property
    def communication_share(self) -> float:
        """Share of the step that the busiest rank does not compute."""
        return 0.0 if self.step_s == 0 else max(0.0, 1.0 - float(self.compute_busy_s.max()) / self.step_s)

    def to_chrome_trace(self, graph: JobGraph) -> dict[str, Any]:
        """The timeline in the Trace Event Format that Perfetto and chrome://tracing open; times in microseconds.

        One process per rank, thread 0 computes, thread 1 communicates. A transfer stands at its sender, an all-reduce
        at its first rank.
        """
        events: list[dict[str, Any]] = []
        for rank in range(self.execution.num_ranks):
            events.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}})
            for thread, name in enumerate(("compute", "communication")):
                events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": thread, "args": {"name": name}})
        words = {TaskKind.COMPUTE: "compute", TaskKind.TRANSFER: "transfer", TaskKind.COLLECTIVE: "all-reduce"}
        for i in np.lexsort((self.execution.rank, self.start_s)).tolist():
            kind = TaskKind(int(self.execution.kind[i]))
            direction = "backward" if self.execution.is_backward[i] else "forward"
            events.append(
                {
                    "ph": "X",
                    "name": f"{graph.op_names[int(self.execution.op[i])]} {direction}",
                    "cat": words[kind],
                    "pid": int(self.execution.rank[i]),
                    "tid": int(kind != TaskKind.COMPUTE),
                    "ts": float(self.start_s[i] * 1e6),
                    "dur": float((self.finish_s[i] - self.start_s[i]) * 1e6),
                    "args": {"bytes": float(self.execution.payload_bytes[i])},
                }
            )
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def simulate(
    graph: JobGraph, cluster: Cluster, splits: OpSplits, devices: ArrayLike, costs: CostSettings | None = None
) -> Timeline:
    """Lower an op-split partition on its placement and run one step of it.

    Args:
        graph: the job, ``n`` ops.
        cluster: where.
        splits: split degree of each op.
        devices: device of each rank, in rank order, at least as many as the largest split.
        costs: one choice per layer of the cost model.

    Raises:
        ConfigError: the all-reduce does not run on the cluster.
        GraphError: the graph cannot be timed on a device of the placement.
        PlanError: the splits are of another graph, fewer devices than ranks, or a device is absent or named twice.
    """
    placed = np.asarray(devices, np.int64)
    if splits.num_ops != graph.num_ops:
        raise PlanError(f"{splits.num_ops} split degrees for a graph of {graph.num_ops} ops", field="splits", value=graph.name)
    if len(placed) < splits.degree:
        raise PlanError(f"{splits.degree} ranks for {len(placed)} devices", field="devices")
    for device in placed[(placed < 0) | (placed >= cluster.num_devices)][:1].tolist():
        raise PlanError(f"{cluster.name} has devices 0..{cluster.num_devices - 1}", field="devices", value=device)
    if len(np.unique(placed)) < len(placed):
        raise PlanError("a device is named twice", field="devices", value=placed.tolist())
    execution = lower(graph, splits, RankNetwork(cluster, placed), costs or CostSettings())
    return Timeline(execution, *kernel.schedule(execution))


def _union(start_s: NDArray[np.float64], finish_s: NDArray[np.float64]) -> float:
    """Length of the union of intervals."""
    if len(start_s) == 0:
        return 0.0
    order = np.argsort(start_s, kind="stable")
    reach = np.maximum.accumulate(finish_s[order])
    gaps = np.maximum(0.0, start_s[order][1:] - reach[:-1]).sum()
    return float(reach[-1] - start_s[order][0] - gaps)
