"""The tasks of jobs side by side in flat arrays: what the compiled kernel of `concurrent_jobs` reads and writes.

Legend: ``t`` tasks of all jobs, ``u`` holds of streams, ``c`` touches of streams (held, or only kept busy), ``S``
streams, ``p`` phases, ``f`` flows. A job that starts later than the first one has one task more, its last one, which
lasts until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..ragged import arrays_of, row_starts
from ..step.execution import ExecutionGraph
from ..step.kernel import _rank_of
from ..step.messages import Messages
from .placed_job import PlacedJob, offsets_s


class Work(NamedTuple):
    """The tasks of all jobs, as the kernel reads them.

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


class KernelState(NamedTuple):
    """The state of the kernel.

    Attributes:
        start_s, finish_s: of each task, NaN before, ``(t,)``.
        waiting_for: dependencies that have not finished, ``(t,)``.
        candidates: heap of tasks to be tried now, by their positions, ``(t,)``.
        hanging: per stream the heap of positions that hang on it, ``(S,)``; ``left``, ``right``, ``depth`` are its nodes.
        is_held: whether a task holds each stream, ``(S,)``.
        here, here_place, num_here: touches of each stream by running tasks, in its room.
        phase: phase in which each task is, -1 where it has none, ``(t,)``.
        open_flows: flows of that phase under way, ``(t,)``.
        left_s, since_s: work left when the pace last changed, and when that was, ``(t,)``.
        end_s: when that work ends at the present pace, ``(t,)``.
        timed, timed_place: heap of working tasks by ``end_s``, and the place of each, ``(t,)``.
        is_slow: whether the slowdown holds for each task, ``(t,)``.
        is_inexact: whether its end is more than a sum of a start and a duration, ``(t,)``.
        dirty, is_dirty: running tasks whose pace may have changed, ``(t,)``.
        ended, sent: tasks of the present moment, ``(t,)``.
        sizes: numbers of entries in ``candidates``, ``timed``, ``dirty``, ``ended``, ``sent``.
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


def work_of(jobs: Sequence[PlacedJob], sent: Sequence[Messages]) -> Work:
    """Return the tasks of all jobs, one job after another.

    Args:
        jobs: what runs.
        sent: the messages of each, as `placed_job.routed` says.
    """
    offset_s = offsets_s(jobs)
    priority, work_s, slowdown, holds, streams, touch_counts, touches, partner = ([] for _ in range(8))
    edges, phase_counts, phase_latency_s, flow_counts, flow_task = ([] for _ in range(5))
    tasks = num_streams = 0
    for job, messages, offset in zip(jobs, sent, offset_s, strict=True):
        execution = job.execution
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
        stream_start=row_starts(_joined(holds, np.int64)),
        streams=_joined(streams, np.int64),
        touch_start=row_starts(counts),
        touches=every_touch,
        touch_task=np.repeat(np.arange(tasks), counts),
        room_start=row_starts(np.bincount(every_touch, minlength=num_streams)),
        partner=_joined(partner, np.int64),
        successor_start=row_starts(np.bincount(every_edge[:, 0], minlength=tasks)),
        successors=np.ascontiguousarray(every_edge[np.argsort(every_edge[:, 0], kind="stable"), 1]),
        phase_start=row_starts(_joined(phase_counts, np.int64)),
        phase_latency_s=_joined(phase_latency_s, np.float64),
        flow_start=row_starts(_joined(flow_counts, np.int64)),
        flow_task=_joined(flow_task, np.int64),
    )


def _touches(execution: ExecutionGraph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the task and stream of each touch, by task: what it holds, and the communication streams of who takes part."""
    messages, tasks = execution.messages, np.arange(execution.num_tasks)
    task = np.append(
        np.repeat(tasks, np.diff(execution.stream_start)),
        np.repeat(tasks, np.diff(messages.member_start)),
    )
    stream = np.append(execution.streams, messages.members + execution.num_ranks)
    once = np.unique(np.stack([task, stream], axis=1), axis=0)
    return once[:, 0], once[:, 1]


def new_state(work: Work) -> KernelState:
    """Return arrays in which nothing has started."""
    t, num_streams, num_touches = len(work.rank), len(work.partner), len(work.touches)
    return arrays_of(
        KernelState,
        {
            "start_s finish_s candidates left right depth phase open_flows left_s since_s end_s timed timed_place": t,
            "is_slow is_inexact dirty is_dirty ended sent": t,
            "hanging is_held num_here": num_streams,
            "here here_place": num_touches,
            "sizes": 5,
        },
        {"start_s finish_s": np.nan, "hanging left right phase": -1, "depth": 1},
        waiting_for=np.bincount(work.successors, minlength=t).astype(np.int64),
    )


def _joined(parts: Sequence[NDArray[Any]], dtype: type[Any]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)
