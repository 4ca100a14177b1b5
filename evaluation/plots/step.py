"""One job's training step as a picture: what each rank computes and which messages it takes part in, over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...jobs.graph import JobGraph
from ...quantities import counted
from ...simulation.step.execution import ExecutionGraph, TaskKind
from ...simulation.step.timeline import Timeline
from . import gantt
from .figure import Figure
from .style import ALL_REDUCE, COMPUTE_BACKWARD, COMPUTE_FORWARD, TRANSFER

FORWARD, BACKWARD = "compute, forward", "compute, backward"
MOVED, REDUCED = "transfer of activations or their gradients", "all-reduce of gradients"
LOOKS = {FORWARD: (COMPUTE_FORWARD, ""), BACKWARD: (COMPUTE_BACKWARD, ""), MOVED: (TRANSFER, ""), REDUCED: (ALL_REDUCE, "")}


class Stretch(NamedTuple):
    """A stretch of one lane.

    Attributes:
        begin_s: from here.
        end_s: to here.
        kind: of `LOOKS`: what the rank does.
        op: op of the job graph, -1 where several short tasks were joined.
    """

    begin_s: float
    end_s: float
    kind: str
    op: int


def step_figure(timeline: Timeline, graph: JobGraph, device_names: Sequence[str] = ()) -> Figure:
    """Return one step of one job: for each rank a lane of compute above a lane of communication.

    Args:
        timeline: the simulated step.
        graph: the job.
        device_names: the device of each rank; none if not given.
    """
    result, shortest_s = lanes(timeline), timeline.step_s / 1e5
    while sum(map(len, result)) > gantt.MOST_BARS and shortest_s < timeline.step_s / 100:
        result, shortest_s = lanes(timeline, shortest_s=shortest_s), 4 * shortest_s
    n = timeline.execution.num_ranks
    ends = np.cumsum([len(result[2 * rank]) + len(result[2 * rank + 1]) for rank in range(n)])
    drawn = max(1, int(np.searchsorted(ends, gantt.MOST_BARS, side="right")))
    names = [f"rank {rank}" + (f" {device_names[rank]}" if rank < len(device_names) else "") for rank in range(drawn)]
    bars = []
    for lane, stretches in enumerate(result[: 2 * drawn]):
        for begin_s, end_s, kind, op in stretches:
            name = "several" if op < 0 else graph.op_names[op]
            bars.append(gantt.Bar(begin_s, end_s, lane, 1, kind, (name, names[lane // 2]), name))
    title = f"{graph.name} on {counted(n, 'rank')}: {timeline.step_s * 1e3:.4g} ms a step, "
    title += f"{100 * timeline.communication_share:.0f} % of it communication"
    title += f"; the first {drawn} ranks" * (drawn < n)
    panel = gantt.Lanes(title, bars, [(name, 2 * rank, 2) for rank, name in enumerate(names)])
    return gantt.gantt_figure(title, [panel], LOOKS, (0.0, timeline.step_s or 1.0), since="the step began")


def lanes(timeline: Timeline, *, shortest_s: float = 0.0) -> list[list[Stretch]]:
    """Return the activity of each rank: lane ``2 r`` is the compute of rank ``r``, lane ``2 r + 1`` its communication.

    Args:
        timeline: the simulated step.
        shortest_s: neighbours of one kind that are shorter than this are joined where less than a sixth of it lies
            between them.
    """
    execution = timeline.execution
    result: list[list[Stretch]] = [[] for _ in range(2 * execution.num_ranks)]
    takes_part = _takes_part(execution)
    for task in np.argsort(timeline.start_s, kind="stable").tolist():
        begin_s, end_s = float(timeline.start_s[task]), float(timeline.finish_s[task])
        if end_s <= begin_s:
            continue
        of = TaskKind(int(execution.kind[task]))
        if of is TaskKind.COMPUTE:
            kind = BACKWARD if execution.is_backward[task] else FORWARD
        else:
            kind = MOVED if of is TaskKind.TRANSFER else REDUCED
        for rank in takes_part[task]:
            lane = result[2 * rank + (of is not TaskKind.COMPUTE)]
            stretch = Stretch(begin_s, end_s, kind, int(execution.op[task]))
            last = lane[-1] if lane else None
            if last and last.kind == kind and _joins(last, stretch, shortest_s):
                lane[-1] = Stretch(last.begin_s, max(last.end_s, end_s), kind, -1)
            else:
                lane.append(stretch)
    return result


def _joins(last: Stretch, stretch: Stretch, shortest_s: float) -> bool:
    is_short = stretch.end_s - stretch.begin_s < shortest_s and (last.op < 0 or last.end_s - last.begin_s < shortest_s)
    return is_short and stretch.begin_s - last.end_s < shortest_s / 6


def _takes_part(execution: ExecutionGraph) -> list[list[int]]:
    """Return the ranks of each task: its own, those whose streams it occupies, and those of compute around a message."""
    ranks = [{int(rank)} for rank in execution.rank]
    is_compute = execution.kind == TaskKind.COMPUTE
    for task in range(execution.num_tasks):
        streams = execution.streams[execution.stream_start[task] : execution.stream_start[task + 1]]
        ranks[task] |= {int(stream) % execution.num_ranks for stream in streams}
    for before, after in execution.edges.tolist():
        if is_compute[before] and not is_compute[after]:
            ranks[after].add(int(execution.rank[before]))
        elif is_compute[after] and not is_compute[before]:
            ranks[before].add(int(execution.rank[after]))
    return [sorted(rank) for rank in ranks]
