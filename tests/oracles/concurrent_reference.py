"""The plain reference of `concurrent_jobs`: the rules of jobs side by side, spelled out without an eye on speed.

At zero and whenever a task or flow ends, it scans all ready tasks in order of priority, ties by number. Each one starts if
its streams are free. Then paces are set until the next end: flows have their max-min fair rates, and tasks on a rank that
sends and computes are slower.

Ends within `SAME_MOMENT` of the earliest one are one event at the latest of these times, if one of them follows a changed
pace: rounding separates simultaneous ends. The reference counts in the numbers that it gets. Rational times are exact.
Floating-point times are rounded as in the kernel, as long as nothing is shared and nothing slowed down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from meshwright.clusters.cluster import Cluster
from meshwright.simulation.contention.concurrent_kernel import SAME_MOMENT
from meshwright.simulation.contention.fair_sharing_kernel import SAME_BYTES
from meshwright.simulation.contention.placed_job import PlacedJob, Times, check_devices, check_times, offsets_s, routed
from meshwright.simulation.step.messages import Messages

from . import fair_sharing_reference

Traffic = tuple[Messages, list[tuple[int, ...]]]
"""See `placed_job.routed`."""


class _Task:
    """A task on its way through its phases.

    Attributes:
        left: seconds of its own work that were left at ``since``, at full pace; None while flows are under way.
        flows: bytes left of each flow under way, the bytes of all of it, and the links that it crosses.
        is_inexact: whether its end follows from a pace that changed, or from flows.
    """

    def __init__(self, job: PlacedJob, number: int, task: int, traffic: Traffic, num: Callable[[Any], Any]) -> None:
        execution, (messages, paths) = job.execution, traffic
        n = execution.num_ranks
        self.key = (number, task)
        self.order = (execution.priority[task], task)
        self.held = {(number, s) for s in execution.streams[slice(*execution.stream_start[task : task + 2])].tolist()}
        self.busy = self.held | {(number, n + rank) for rank in messages.ranks(task)}
        self.partners = {(number, (stream + n) % (2 * n)) for _, stream in self.busy}
        self.slowdown = num(job.overlap_slowdown)
        self.waiting_for = set(execution.edges[execution.edges[:, 1] == task, 0].tolist())
        self.to_come: list[tuple[list[tuple[Any, tuple[int, ...]]], Any]] = []
        if job.is_fair:
            for p in range(*messages.phase_start[task : task + 2].tolist()):
                flows = range(*messages.flow_start[p : p + 2].tolist())
                sent = [(num(messages.flow_bytes[f]), paths[f]) for f in flows if messages.flow_bytes[f] > 0 and paths[f]]
                self.to_come.append((sent, num(messages.phase_latency_s[p])))
        if not self.to_come:
            self.to_come = [([], num(execution.duration_s[task]))]
        self.pace = num(1)
        self.flows: list[tuple[Any, Any, tuple[int, ...]]] = []
        self.is_inexact = False
        self.left: Any = None
        self.end: Any = None

    def begin_phase(self, now: Any) -> None:
        sent, self.latency = self.to_come.pop(0)
        self.flows = [(size, size, path) for size, path in sent]
        self.left = None
        if not self.flows:
            self.work(self.latency, now)

    def work(self, seconds: Any, now: Any) -> None:
        self.left, self.since, self.end = seconds, now, now + seconds * self.pace

    def set_pace(self, pace: Any, now: Any) -> None:
        """Take ``pace`` times as long from now on."""
        if pace == self.pace:
            return
        left = None if self.left is None else self.left - (now - self.since) / self.pace
        self.pace, self.is_inexact = pace, True
        if left is not None:
            self.work(left, now)


def schedule(jobs: Sequence[PlacedJob], cluster: Cluster, number: Callable[[Any], Any] = Fraction) -> list[Times]:
    """Arguments, result and errors as in `concurrent_jobs.schedule`.

    Args:
        jobs: as there.
        cluster: as there.
        number: makes the numbers to count in from floating-point ones, `Fraction` or ``float``.
    """
    check_devices(jobs, cluster)
    bandwidth = [number(value) for value in cluster.links.bandwidth_bytes_per_s.tolist()]
    traffic = [routed(job, cluster) for job in jobs]
    start_of = [number(offset) for offset in offsets_s(jobs)]
    asleep = {j: [_Task(job, j, i, traffic[j], number) for i in range(job.execution.num_tasks)] for j, job in enumerate(jobs)}
    starts = [[None] * job.execution.num_tasks for job in jobs]
    finishes = [[None] * job.execution.num_tasks for job in jobs]
    waiting: list[_Task] = []
    running: list[_Task] = []
    held: set[tuple[int, int]] = set()
    now: Any = number(0)
    while True:
        for j in [j for j in asleep if start_of[j] <= now]:
            waiting += asleep.pop(j)
        for task in sorted((task for task in waiting if not task.waiting_for), key=lambda task: task.order):
            if held.isdisjoint(task.held):
                held |= task.held
                starts[task.key[0]][task.key[1]] = now
                waiting.remove(task)
                running.append(task)
                task.begin_phase(now)
        if not running and not asleep:
            break
        busy = set().union(*(task.busy for task in running))
        for task in running:
            task.set_pace(number(1) if busy.isdisjoint(task.partners) else task.slowdown, now)
        under_way = [(task, *flow) for task in running for flow in task.flows]
        rate = fair_sharing_reference.rates(bandwidth, {k: path for k, (*_, path) in enumerate(under_way)})
        ends: list[Any] = [task.end for task in running if task.left is not None] + [start_of[j] for j in asleep]
        sent = [now + left * task.pace / rate[k] for k, (task, left, _, _) in enumerate(under_way)]
        first = min(ends + sent)
        latest = first + number(SAME_MOMENT) * first
        is_sent = [
            sent[k] <= latest or rate[k] * (sent[k] - first) / task.pace <= number(SAME_BYTES) * size
            for k, (task, _, size, _) in enumerate(under_way)
        ]
        if any(is_sent) or any(task.is_inexact and task.left is not None and task.end <= latest for task in running):
            then = max(time for time in [*ends, *sent] if time <= latest)
        else:
            then = first
        for task in running:
            task.flows = []
        for k, (task, left, size, path) in enumerate(under_way):
            if not is_sent[k]:
                task.flows.append((left - rate[k] * (then - now) / task.pace, size, path))
        for task in list(running):
            if task.left is None:
                if task.flows:
                    continue
                task.is_inexact = True
                task.work(task.latency, then)
                if task.latency > 0:
                    continue
            if task.end > then:
                continue
            if task.to_come:
                task.begin_phase(then)
                continue
            running.remove(task)
            held -= task.held
            finishes[task.key[0]][task.key[1]] = then
            for other in waiting:
                if other.key[0] == task.key[0]:
                    other.waiting_for.discard(task.key[1])
        now = then
    result = []
    for j, offset in enumerate(start_of):
        start_s, finish_s = (
            np.array([np.nan if time is None else float(time - offset) for time in times[j]], np.float64)
            for times in (starts, finishes)
        )
        check_times(finish_s, f"jobs.{j}." if len(jobs) > 1 else "")
        result.append((start_s, finish_s))
    return result
