"""Micro-batches that follow each other through ops placed on devices: how long one takes once the pipeline is full.

Every micro-batch does the tasks of `lowering`. A device runs what is ready, of the oldest micro-batch first, so that in training
backward passes go before newer forward ones, as in 1F1B. No more micro-batches are under way than the devices can hold.

Legend: ``t`` tasks of a micro-batch, ``k`` micro-batches.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...errors import PlanError
from ...plans.document import PlacementPlan
from ..step import kernel
from ..step.execution import ExecutionGraph
from .lowering import run_plan

MOST_TASKS = 300_000
"""Of all micro-batches that are run; a second or less."""


def full_pipeline_s(plan: PlacementPlan) -> float:
    """Seconds from one micro-batch to the next in a full pipeline, by the event simulator.

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
    """Seconds from one micro-batch to the next in a full pipeline of ``groups`` devices; see `full_pipeline_s`.

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
    """Repeat a micro-batch ``count`` times with at most ``at_once`` under way; tasks of number ``k`` begin at ``k t``."""
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
