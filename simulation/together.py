"""Jobs side by side on one cluster: each with its own tasks, devices and start, all on the same links.

A job is run by the rules of its execution graph: its streams are its own. What jobs share are links, where their
contention is fair:

- A message with flows sends them phase by phase (see `costs.phases`). Rates are max-min fair over every link that the
  flows of all jobs cross and change whenever a flow starts or has sent its last byte. The latency of a phase passes
  after its last byte. A message without flows takes its duration.
- While a rank's compute and communication streams are both busy, what runs on them takes ``overlap_slowdown`` times as
  long: a computation makes that much less headway; a message, if one of its ranks computes, makes that much less use of
  the shares of the links that its flows have. What is left of a latency stretches in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..clusters.cluster import Cluster
from ..clusters.topology import Links
from ..errors import GraphError, PlanError
from . import fair_sharing, together_kernel
from .execution import ExecutionGraph
from .flows import Flows
from .kernel import _rank_of
from .messages import Messages

Times = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Start and finish of every task of a job in seconds since the job's own start, two arrays ``(t,)``."""


@dataclass(frozen=True, eq=False)
class PlacedJob:
    """One step of a job on its devices.

    Attributes:
        execution: what its ranks do.
        devices: device of each rank, in rank order.
        start_s: when it starts, on the clock that all jobs share.
        is_fair: whether its messages share links; otherwise each one takes its duration and disturbs nobody.
        overlap_slowdown: factor on what a rank does while it sends and computes at once.

    Raises:
        PlanError: fewer or more devices than ranks, a start that is not finite, a slowdown below 1.
    """

    execution: ExecutionGraph
    devices: NDArray[np.int64]
    start_s: float = 0.0
    is_fair: bool = True
    overlap_slowdown: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", np.array(self.devices, np.int64))
        if len(self.devices) != self.execution.num_ranks:
            raise PlanError(f"{self.execution.num_ranks} ranks for {len(self.devices)} devices", field="devices")
        if not math.isfinite(self.start_s):
            raise PlanError("must be finite", field="start_s", value=str(self.start_s))
        if not 1 <= self.overlap_slowdown < math.inf:
            raise PlanError("must be finite and at least 1", field="overlap_slowdown", value=str(self.overlap_slowdown))


class Work(NamedTuple):
    """The tasks of all jobs, as the kernel reads them.

    Legend: ``t`` tasks, ``u`` holds of streams, ``c`` touches of streams (held or only kept busy), ``S`` streams,
    ``p`` phases, ``f`` flows. A job that starts later than the first one has a task more, which lasts until then.

    Attributes:
        rank: position of each task in the order of priority, ``(t,)``.
        task_of: the task at each position, written by the kernel, ``(t,)``.
        work_s: time that each task without phases takes by itself, ``(t,)``.
        slowdown: factor where its rank sends and computes at once, ``(t,)``.
        has_slowdown: whether any factor is above 1.
        stream_start, streams: streams that each task holds, ``(t + 1,)`` and ``(u,)``.
        touch_start, touches: streams that each task keeps busy, ``(t + 1,)`` and ``(c,)``.
        touch_task: the task of each touch, ``(c,)``.
        room_start: room for the touches of each stream, ``(S + 1,)``.
        partner: the other stream of the same rank, ``(S,)``.
        successor_start, successors: as in `ExecutionGraph.successors`.
        phase_start, phase_latency_s, flow_start: as in `Messages`.
        flow_task: the task of each flow, ``(f,)``.
    """

    rank: NDArray[np.int64]
    task_of: NDArray[np.int64]
    work_s: NDArray[np.float64]
    slowdown: NDArray[np.float64]
    has_slowdown: bool
    stream_start: NDArray[np.int64]
    streams: NDArray[np.int64]
    touch_start: NDArray[np.int64]
    touches: NDArray[np.int64]
    touch_task: NDArray[np.int64]
    room_start: NDArray[np.int64]
    partner: NDArray[np.int64]
    successor_start: NDArray[np.int64]
    successors: NDArray[np.int64]
    phase_start: NDArray[np.int64]
    phase_latency_s: NDArray[np.float64]
    flow_start: NDArray[np.int64]
    flow_task: NDArray[np.int64]


class State(NamedTuple):
    """What changes while the kernel runs.

    Attributes:
        start_s, finish_s: of each task, NaN before, ``(t,)``.
        waiting_for: dependencies that have not finished, ``(t,)``.
        candidates: heap of positions to be tried now, ``(t,)``.
        hanging: per stream the heap of positions that hang on it, ``(S,)``; ``left``, ``right``, ``depth`` are its nodes.
        is_held: whether a task holds each stream, ``(S,)``.
        here, here_place, num_here: touches of each stream by running tasks, in its room.
        phase: phase in which each task is, -1 where it has none, ``(t,)``.
        open_flows: flows of that phase under way, ``(t,)``.
        left_s, since_s: work left when the pace last changed, and when that was, ``(t,)``.
        end_s: when that work ends at the present pace, ``(t,)``.
        timed, timed_place: heap of working tasks by ``end_s``, and where each stands, ``(t,)``.
        is_slow: whether the slowdown holds for each task, ``(t,)``.
        is_inexact: whether its end is more than a sum of a start and a duration, ``(t,)``.
        dirty, is_dirty: running tasks whose pace may have changed, ``(t,)``.
        ended, sent: tasks of the present moment, ``(t,)``.
        sizes: how many stand in ``candidates``, ``timed``, ``dirty``, ``ended``, ``sent``.
    """

    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    waiting_for: NDArray[np.int64]
    candidates: NDArray[np.int64]
    hanging: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    depth: NDArray[np.int64]
    is_held: NDArray[np.bool_]
    here: NDArray[np.int64]
    here_place: NDArray[np.int64]
    num_here: NDArray[np.int64]
    phase: NDArray[np.int64]
    open_flows: NDArray[np.int64]
    left_s: NDArray[np.float64]
    since_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    timed: NDArray[np.int64]
    timed_place: NDArray[np.int64]
    is_slow: NDArray[np.bool_]
    is_inexact: NDArray[np.bool_]
    dirty: NDArray[np.int64]
    is_dirty: NDArray[np.bool_]
    ended: NDArray[np.int64]
    sent: NDArray[np.int64]
    sizes: NDArray[np.int64]


def schedule(jobs: Sequence[PlacedJob], cluster: Cluster) -> list[Times]:
    """Run one step of each job.

    Raises:
        PlanError: a device is absent, or two ranks have the same one.
        ClusterError: a link on the way has no positive bandwidth.
        GraphError: the dependencies of a job form a cycle, or its times are too large to be told.
    """
    check_devices(jobs, cluster)
    offset_s = offsets_s(jobs)
    work = _work(jobs, offset_s)
    state = _state(work, [job.execution.num_predecessors for job in jobs], offset_s)
    together_kernel.run(work, state, fair_sharing.new_sharing(*_traffic(jobs, cluster)))
    found, first = [], 0
    for number, (job, offset) in enumerate(zip(jobs, offset_s, strict=True)):
        rows = slice(first, first + job.execution.num_tasks)
        first = rows.stop + (offset > 0)
        start_s, finish_s = state.start_s[rows] - offset, state.finish_s[rows] - offset
        check_times(finish_s, f"jobs.{number}." if len(jobs) > 1 else "")
        found.append((start_s, finish_s))
    return found


def offsets_s(jobs: Sequence[PlacedJob]) -> list[float]:
    """Start of each job after the first one."""
    origin_s = min((job.start_s for job in jobs), default=0.0)
    return [job.start_s - origin_s for job in jobs]


def check_devices(jobs: Sequence[PlacedJob], cluster: Cluster) -> None:
    """Refuse devices that are absent or taken.

    Raises:
        PlanError: either.
    """
    owner: dict[int, int] = {}
    for number, job in enumerate(jobs):
        for device in job.devices.tolist():
            if not 0 <= device < cluster.num_devices:
                raise PlanError(f"{cluster.name} has devices 0..{cluster.num_devices - 1}", field="devices", value=device)
            if owner.setdefault(device, number) != number:
                raise PlanError(f"jobs {owner[device]} and {number} both own a device", field="devices", value=device)
        if len(set(job.devices.tolist())) < len(job.devices):
            raise PlanError("a device is named twice", field="devices", value=job.devices.tolist())


def check_times(finish_s: NDArray[np.float64], where: str = "") -> None:
    """Refuse a schedule in which a task never ends.

    Raises:
        GraphError: a cycle, or times beyond `fair_sharing.LATEST_S`.
    """
    never = int(np.isnan(finish_s).sum())
    if never:
        raise GraphError("the tasks form a cycle", field=f"{where}edges", value=f"{never} tasks never start")
    if not (finish_s < fair_sharing.LATEST_S).all():
        raise GraphError("its times are too large to be told", field=f"{where}tasks")


def flow_paths(messages: Messages, devices: NDArray[np.int64], cluster: Cluster) -> list[tuple[int, ...]]:
    """Links that each flow of a job crosses if its ranks stand on these devices."""
    pairs = list(zip(messages.sender.tolist(), messages.receiver.tolist(), strict=True))
    path = {(a, b): cluster.path(int(devices[a]), int(devices[b])) for a, b in set(pairs)}
    return [path[pair] for pair in pairs]


def _work(jobs: Sequence[PlacedJob], offset_s: Sequence[float]) -> Work:
    priority, work_s, slowdown, holds, streams, touch_counts, touches, partner = ([] for _ in range(8))
    edges, phase_counts, phase_latency_s, flow_counts, flow_task = ([] for _ in range(5))
    tasks = num_streams = 0
    for job, offset in zip(jobs, offset_s, strict=True):
        execution, messages = job.execution, job.execution.messages
        t, late = execution.num_tasks, int(offset > 0)
        priority.append(np.append(execution.priority, [0.0] * late))
        work_s.append(np.append(execution.duration_s, [offset] * late))
        slowdown.append(np.full(t + late, job.overlap_slowdown))
        holds.append(np.append(np.diff(execution.stream_start), [0] * late))
        streams.append(execution.streams + num_streams)
        task, touched = _touches(execution)
        touch_counts.append(np.bincount(task, minlength=t + late))
        touches.append(touched + num_streams)
        partner.append(np.roll(np.arange(execution.num_streams), execution.num_ranks) + num_streams)
        edges.append(execution.edges + tasks)
        if late:
            first = np.flatnonzero(execution.num_predecessors == 0) + tasks
            edges.append(np.stack([np.full(len(first), tasks + t), first], axis=1))
        if job.is_fair:
            phase_counts.append(np.append(np.diff(messages.phase_start), [0] * late))
            phase_latency_s.append(messages.phase_latency_s)
            flow_counts.append(np.diff(messages.flow_start))
            flow_task.append(messages.flow_task + tasks)
        else:
            phase_counts.append(np.zeros(t + late, np.int64))
        tasks += t + late
        num_streams += execution.num_streams
    counts = _joined(touch_counts, np.int64)
    every_touch, every_edge = _joined(touches, np.int64), np.concatenate([np.zeros((0, 2), np.int64), *edges])
    slow = _joined(slowdown, np.float64)
    return Work(
        rank=_rank_of(_joined(priority, np.float64)),
        task_of=np.zeros(tasks, np.int64),
        work_s=_joined(work_s, np.float64),
        slowdown=slow,
        has_slowdown=bool((slow > 1).any()),
        stream_start=_starts(_joined(holds, np.int64)),
        streams=_joined(streams, np.int64),
        touch_start=_starts(counts),
        touches=every_touch,
        touch_task=np.repeat(np.arange(tasks), counts),
        room_start=_starts(np.bincount(every_touch, minlength=num_streams)),
        partner=_joined(partner, np.int64),
        successor_start=_starts(np.bincount(every_edge[:, 0], minlength=tasks)),
        successors=np.ascontiguousarray(every_edge[np.argsort(every_edge[:, 0], kind="stable"), 1]),
        phase_start=_starts(_joined(phase_counts, np.int64)),
        phase_latency_s=_joined(phase_latency_s, np.float64),
        flow_start=_starts(_joined(flow_counts, np.int64)),
        flow_task=_joined(flow_task, np.int64),
    )


def _touches(execution: ExecutionGraph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Task and stream of each touch, by task: what it holds, and the communication streams of who takes part."""
    messages, tasks = execution.messages, np.arange(execution.num_tasks)
    task = np.append(
        np.repeat(tasks, np.diff(execution.stream_start)),
        np.repeat(tasks, np.diff(messages.member_start)),
    )
    stream = np.append(execution.streams, messages.members + execution.num_ranks)
    once = np.unique(np.stack([task, stream], axis=1), axis=0)
    return once[:, 0], once[:, 1]


def _state(work: Work, waiting_for: Sequence[NDArray[np.int64]], offset_s: Sequence[float]) -> State:
    rows = [
        np.append(counts + (counts == 0), 0) if offset > 0 else counts
        for counts, offset in zip(waiting_for, offset_s, strict=True)
    ]
    t, num_streams, num_touches = len(work.rank), len(work.partner), len(work.touches)
    return State(
        start_s=np.full(t, np.nan),
        finish_s=np.full(t, np.nan),
        waiting_for=_joined(rows, np.int64),
        candidates=np.zeros(t, np.int64),
        hanging=np.full(num_streams, -1, np.int64),
        left=np.full(t, -1, np.int64),
        right=np.full(t, -1, np.int64),
        depth=np.ones(t, np.int64),
        is_held=np.zeros(num_streams, np.bool_),
        here=np.zeros(num_touches, np.int64),
        here_place=np.zeros(num_touches, np.int64),
        num_here=np.zeros(num_streams, np.int64),
        phase=np.full(t, -1, np.int64),
        open_flows=np.zeros(t, np.int64),
        left_s=np.zeros(t),
        since_s=np.zeros(t),
        end_s=np.zeros(t),
        timed=np.zeros(t, np.int64),
        timed_place=np.zeros(t, np.int64),
        is_slow=np.zeros(t, np.bool_),
        is_inexact=np.zeros(t, np.bool_),
        dirty=np.zeros(t, np.int64),
        is_dirty=np.zeros(t, np.bool_),
        ended=np.zeros(t, np.int64),
        sent=np.zeros(t, np.int64),
        sizes=np.zeros(5, np.int64),
    )


def _traffic(jobs: Sequence[PlacedJob], cluster: Cluster) -> tuple[Links, Flows]:
    """The flows of all jobs that share links, and the links that they cross."""
    fair = [job for job in jobs if job.is_fair]
    paths = [path for job in fair for path in flow_paths(job.execution.messages, job.devices, cluster)]
    payload_bytes = _joined([job.execution.messages.flow_bytes for job in fair], np.float64)
    flows = Flows.of(paths, payload_bytes, np.zeros(len(paths)))
    used = np.unique(flows.path_links)
    names = tuple(cluster.links.names[link] for link in used.tolist())
    links = Links(names, cluster.links.bandwidth_bytes_per_s[used], cluster.links.latency_s[used])
    return links, replace(flows, path_links=np.searchsorted(used, flows.path_links))


def _joined(parts: Sequence[NDArray[Any]], dtype: type[Any]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)


def _starts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    start = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=start[1:])
    return start
