"""Rounds of workers as an execution graph: a step of a worker is one task, and so is a message of a group.

Steps of a worker follow each other; a message begins when all of its members are there, and what waits for it says so. This is
how gossip, overlapped averages and parameter servers are lowered, where a worker's steps do not wait for those of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...costs.training.gossip import Round
from ...costs.training.local_update import error_sender
from ..ragged import row_starts
from ..step import kernel
from ..step.execution import ExecutionGraph, TaskKind
from ..step.messages import Messages


class Task(NamedTuple):
    """A step of a worker, or a message.

    Attributes:
        kind: which.
        seconds: it takes.
        members: workers that take part.
        stream_numbers: that it holds: a worker's own for its steps, another one for its messages.
        payload_bytes: of a message.
        op: number of its op.
    """

    kind: TaskKind
    seconds: float
    members: Sequence[int]
    stream_numbers: Sequence[int]
    payload_bytes: float = 0.0
    op: int = 0


class WorkerRounds:
    """The tasks so far, of ``n`` workers.

    Attributes:
        num_workers: ``n``.
    """

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self._tasks: list[Task] = []
        self._edges: list[tuple[int, int]] = []

    def step(self, worker: int, seconds: float, after: Iterable[int]) -> int:
        """Add a step of a worker; returns its task."""
        return self.put(Task(TaskKind.COMPUTE, seconds, [worker], [worker]), after)

    def message(self, members: Sequence[int], seconds: float, payload_bytes: float, after: Iterable[int], op: int = 0) -> int:
        """Add a message of some workers, who handle one at a time; return its task."""
        held = [self.num_workers + member for member in members]
        return self.put(Task(TaskKind.COLLECTIVE, seconds, members, held, payload_bytes, op), after)

    def sent(self, pair: Sequence[int], seconds: float, payload_bytes: float, after: Iterable[int], op: int = 0) -> int:
        """Add a message from one worker to another, or to the server; returns its task."""
        return self.put(Task(TaskKind.TRANSFER, seconds, pair, [self.num_workers + pair[0]], payload_bytes, op), after)

    def put(self, task: Task, after: Iterable[int]) -> int:
        """Add a task behind others; returns its number."""
        self._edges += [(before, len(self._tasks)) for before in set(after)]
        self._tasks.append(task)
        return len(self._tasks) - 1

    def execution(self) -> ExecutionGraph:
        """Return the execution graph of everything that was added."""
        kind, seconds, members, streams, payload, op = zip(*self._tasks, strict=True)
        return ExecutionGraph(
            num_ranks=self.num_workers,
            kind=np.array(kind, np.int8),
            duration_s=np.array(seconds, np.float64),
            priority=np.arange(len(kind), dtype=np.float64),
            stream_start=row_starts([len(stream) for stream in streams]),
            streams=np.concatenate(streams).astype(np.int64),
            edges=np.array(self._edges, np.int64).reshape(-1, 2),
            op=np.array(op, np.int64),
            rank=np.array([member[0] for member in members], np.int64),
            is_backward=np.zeros(len(kind), np.bool_),
            payload_bytes=np.array(payload, np.float64),
            describe_messages=self._messages,
        )

    def finish_s(self) -> NDArray[np.float64]:
        """End of each task, in seconds."""
        finish: NDArray[np.float64] = kernel.schedule(self.execution())[1]
        return finish

    def _messages(self) -> Messages:
        """Return who takes part in each message; it takes its duration."""
        members = [list(task.members) if task.kind != TaskKind.COMPUTE else [] for task in self._tasks]
        return Messages.from_members(members, [()] * len(members))


def gossip_rounds_s(times_s: ArrayLike, rounds: Sequence[Round], rounds_s: Sequence[float], payload_bytes: float = 0.0) -> float:
    """Return the mean seconds of a step of gossip; the second half of the steps counts.

    Args:
        times_s, rounds, rounds_s, payload_bytes: as of `gossip_rounds`.
    """
    return _mean_step_s(*gossip_rounds(times_s, rounds, rounds_s, payload_bytes), len(rounds))


def gossip_rounds(
    times_s: ArrayLike, rounds: Sequence[Round], rounds_s: Sequence[float], payload_bytes: float = 0.0
) -> tuple[WorkerRounds, list[list[int]]]:
    """Return steps of gossip, whose averaging of one step is hidden behind the next, and the last tasks of each step.

    A group begins to average when all of its members begin a step. A member begins its next one when its step and the averaging
    are done. A message of a round has the round's number as its op, counted from 1.

    Args:
        times_s: seconds of each step of each worker, ``(steps, n)``.
        rounds: the rounds, which repeat.
        rounds_s: seconds of each.
        payload_bytes: of a message.
    """
    times = np.asarray(times_s, np.float64)
    num_steps, n = times.shape
    put = WorkerRounds(n)
    waits: list[list[int]] = [[] for _ in range(n)]
    lasts = []
    for step in range(num_steps):
        place = step % len(rounds)
        later: list[list[int]] = [[] for _ in range(n)]
        one = rounds[place]
        is_directed = one.is_exchange and len(one.groups) == n
        for members in one.groups.tolist():
            ready = [task for member in members for task in waits[member]]
            task = (put.sent if is_directed else put.message)(members, rounds_s[place], payload_bytes, ready, place + 1)
            for member in members:
                later[member].append(task)
        ends = [put.step(worker, float(times[step, worker]), waits[worker]) for worker in range(n)]
        waits = [[*later[worker], ends[worker]] for worker in range(n)]
        lasts.append([task for tasks in waits for task in tasks])
    return put, lasts


def periodic_rounds_s(
    times_s: ArrayLike, every: int, sent_s: float, fragments: int = 1, *, overlap: bool = False, payload_bytes: float = 0.0
) -> float:
    """Return the mean seconds of a step with averages over all workers now and then, of fragments at times of their own.

    Args:
        times_s: seconds of each step of each worker, ``(steps, n)``.
        every: steps from one average of a fragment to its next.
        sent_s: seconds of the average of one fragment.
        fragments: parts of the parameters.
        overlap: whether steps go on until the next fragment is to be sent.
        payload_bytes: of a message.
    """
    times = np.asarray(times_s, np.float64)
    num_steps, n = times.shape
    put = WorkerRounds(n)
    waits: list[list[int]] = [[] for _ in range(n)]
    due = {(part + 1) * every // fragments for part in range(fragments)}
    flying: list[int] = []
    lasts = []
    for step in range(num_steps):
        ends = [put.step(worker, float(times[step, worker]), waits[worker]) for worker in range(n)]
        waits = [[end] for end in ends]
        if step % every + 1 in due:
            task = put.message(range(n), sent_s, payload_bytes, [*ends, *flying])
            waits = [[*wait, *(flying if overlap else [task])] for wait in waits]
            flying = [task] if overlap else []
        lasts.append([task for tasks in waits for task in tasks])
    return _mean_step_s(put, lasts, every)


def server_rounds_rate(times_s: ArrayLike, round_s: float, staleness: int | None) -> float:
    """Return steps a second of all workers with a parameter server that is no bottleneck, by an execution graph over rounds.

    Args:
        times_s: seconds of each step of each worker, ``(rounds, n)``; the second half counts.
        round_s: seconds of the way to the server and back.
        staleness: steps that a worker may be ahead of the slowest; None is no bound.
    """
    times = np.asarray(times_s, np.float64)
    num_rounds, n = times.shape
    put = WorkerRounds(n)
    steps: list[list[int]] = []
    ways: list[int] = []
    for k in range(num_rounds):
        slowest = steps[k - 1 - staleness] if staleness is not None and k - 1 - staleness >= 0 else []
        own = [[ways[worker]] if k else [] for worker in range(n)]
        steps.append([put.step(worker, float(times[k, worker]), [*own[worker], *slowest]) for worker in range(n)])
        ways = [put.sent([worker], round_s, 0.0, [steps[k][worker]]) for worker in range(n)]
    finish, half = put.finish_s(), num_rounds // 2
    ends = finish[np.array(steps)]
    return float((half / (ends[-1] - ends[-1 - half])).sum())


def subnet_rounds_s(spans_s: ArrayLike, way_s: float, *, is_central: bool, payload_bytes: float = 0.0) -> float:
    """Return the mean seconds of a round of workers that train subnets, dealt again when all have returned.

    A central server gets and sends one subnet after the other over its card; a worker continues when its own has come. Servers on
    all workers get and send at the same time.

    Args:
        spans_s: seconds of the local steps of each round of each worker, ``(rounds, n)``; the second half counts.
        way_s: of a subnet from a worker to a server of one card, or back.
        is_central: whether there is one server.
        payload_bytes: of a subnet.
    """
    spans = np.asarray(spans_s, np.float64)
    num_rounds, n = spans.shape
    put = WorkerRounds(n + 1)  # the last one is the server

    def way(worker: int, after: Iterable[int]) -> int:
        return put.message([worker, n] if is_central else [worker], way_s, payload_bytes, after)

    waits: list[list[int]] = [[] for _ in range(n)]
    lasts = []
    for number in range(num_rounds):
        ends = [put.step(worker, float(spans[number, worker]), waits[worker]) for worker in range(n)]
        returns = [way(worker, [ends[worker]]) for worker in range(n)]
        waits = [[way(worker, returns)] for worker in range(n)]
        lasts.append([task for tasks in waits for task in tasks])
    return _mean_step_s(put, lasts, 1)


def local_blocks_s(
    forward_s: Sequence[float],
    target_s: Sequence[float],
    update_s: Sequence[float],
    send_s: Sequence[float],
    error_s: Sequence[float],
    stride: int,
    num_micro_batches: int,
    *,
    is_local: bool = False,
) -> list[float]:
    """Return the time at which each of some micro-batches has updated all blocks: forward, targets, weights.

    An error goes back through blocks one after the other. A block finds its target when the error of the block ``stride`` behind
    it has come, which has then found its own. The first ones get the error of the last block after its forward pass. A block
    sends activations and errors on a stream of its own.

    Args:
        forward_s, target_s, update_s: seconds of a micro-batch in each block, ``(p,)``.
        send_s: seconds of its activations from each block to the next one, ``(p - 1,)``.
        error_s: seconds of the error that each block but the last gets, ``(p - 1,)``.
        stride: blocks from a block to the one whose error it gets.
        num_micro_batches: one behind the other.
        is_local: whether targets are labels that each block has, so that it waits for no error.
    """
    p = len(forward_s)
    put, lasts = WorkerRounds(p), []
    for _ in range(num_micro_batches):
        destinations: list[int] = []
        forwards, targets = [], [0] * p
        for block in range(p):
            forwards.append(put.step(block, forward_s[block], destinations))
            destinations = [put.sent([block], send_s[block], 0.0, [forwards[block]])] if block < p - 1 else []
        for block in reversed(range(p)):
            waits = [forwards[block]]
            if not is_local and block < p - 1:
                sender = error_sender(block, stride, p)
                result = targets[sender] if block + stride < p else forwards[-1]
                waits.append(put.sent([sender], error_s[block], 0.0, [result]))
            targets[block] = put.step(block, target_s[block], waits)
        lasts.append([put.step(block, update_s[block], [targets[block]]) for block in range(p)])
    finish = put.finish_s()
    return [float(finish[tasks].max()) for tasks in lasts]


def _mean_step_s(put: WorkerRounds, lasts: list[list[int]], period: int) -> float:
    """Return mean seconds from the end of a step to that of the last one, whole periods between them."""
    finish = put.finish_s()
    ends = [float(finish[tasks].max()) for tasks in lasts]
    counted = max(1, (len(ends) // 2) // period) * period
    return (ends[-1] - ends[-1 - counted]) / counted
