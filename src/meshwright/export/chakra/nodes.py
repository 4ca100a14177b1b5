"""The work of each rank in one simulated step, as nodes of Chakra traces.

A computation is a node of its rank, a transfer a send and a receive with one tag, a collective a node of each member. A turn of
a ring, in which each member sends to the next one, is a send and a receive of each. Nodes of all ranks have one common order,
by start and then by dependency. So a reader that takes the nodes of each trace in order never deadlocks, and every rank meets
its collectives in the same order.

Legend: ``t`` tasks of the execution graph.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import ExportError, GraphError
from ...jobs.graph import JobGraph
from ...plans.splitting.op_splits import OpSplits
from ...simulation.step.execution import ExecutionGraph, TaskKind
from ...simulation.step.timeline import Timeline
from .schema import Collective, NodeType, TraceNode, Value

_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, eq=False)
class TaskWork:
    """The work of the tasks of an execution graph.

    Attributes:
        op_names: by ``op``.
        operations: operation of each op's messages; None where all are all-reduces.
        flops, moved_bytes: of each task, ``(t,)``.
        rank_of: the plan's rank of each simulated one.
    """

    op_names: tuple[str, ...]
    operations: tuple[str, ...] | None
    flops: NDArray[np.float64]
    moved_bytes: NDArray[np.float64]
    rank_of: tuple[int, ...]


def op_split_work(execution: ExecutionGraph, graph: JobGraph, splits: OpSplits) -> TaskWork:
    """Return each rank's share of every op; see `costs.compute.Roofline`."""
    split = splits.splits[execution.op]
    flops = np.where(execution.is_backward, graph.backward_flops[execution.op], graph.forward_flops[execution.op]) / split
    moved = graph.moved_bytes[execution.op] / split + graph.parameter_bytes[execution.op] * (1 - 1 / split)
    twice = np.where(execution.is_backward, 2.0, 1.0)
    return TaskWork(graph.op_names, None, flops, twice * moved, tuple(range(execution.num_ranks)))


class RankNodes:
    """The nodes of every rank of a timeline.

    Attributes:
        nodes: of each rank.
        groups: members of each communicator group by its ``pg_name``, counted from 1.

    Raises:
        ExportError: a size or time that the format cannot hold; the op is named.
        GraphError: the tasks form a cycle.
    """

    def __init__(self, timeline: Timeline, work: TaskWork) -> None:
        self._timeline, self._work = timeline, work
        self._execution = timeline.execution
        kinds, ranks = self._execution.kind.tolist(), self._execution.rank.tolist()
        messages, rank_of = self._execution.messages, work.rank_of
        self._members = [
            [rank_of[ranks[task]]] if kind == TaskKind.COMPUTE else [rank_of[rank] for rank in messages.ranks(task)]
            for task, kind in enumerate(kinds)
        ]
        self._is_transfer = [kind == TaskKind.TRANSFER for kind in kinds]
        self.nodes: list[list[TraceNode]] = [[] for _ in range(self._execution.num_ranks)]
        self.groups: dict[str, tuple[int, ...]] = {}
        self._id: dict[tuple[int, int], int] = {}  # node of a task on a rank
        self._last: dict[tuple[int, bool], int] = {}  # last node of a rank's stream
        self._signals: dict[tuple[int, int], int] = {}  # receiver's node of a message without bytes
        self._tag = self._execution.num_tasks  # the next one that no task has
        self._group_of: dict[tuple[int, ...], str] = {}
        self._build()

    def _build(self) -> None:
        before: dict[int, list[int]] = defaultdict(list)
        after: dict[int, list[int]] = defaultdict(list)
        for first, second in self._execution.edges.tolist():
            before[second].append(first)
            after[first].append(second)
        for task in self._order(after):
            self._add(task, before[task])
            for second in after[task]:
                if not set(self._givers(task)) & set(self._takers(second)):
                    self._signal(task, second)

    def _order(self, after: dict[int, list[int]]) -> Iterator[int]:
        """Yield tasks by start, finish and number, but never before one that they depend on."""
        start_s, finish_s = self._timeline.start_s, self._timeline.finish_s
        waiting = self._execution.num_predecessors.tolist()
        ready = [(start_s[task], finish_s[task], task) for task, count in enumerate(waiting) if count == 0]
        heapq.heapify(ready)
        done = 0
        while ready:
            _, _, task = heapq.heappop(ready)
            done += 1
            yield task
            for second in after[task]:
                waiting[second] -= 1
                if waiting[second] == 0:
                    heapq.heappush(ready, (start_s[second], finish_s[second], second))
        if done < len(waiting):
            raise GraphError("the tasks form a cycle", field="edges")

    def _takers(self, task: int) -> list[int]:
        """Return the ranks on which a task waits for what comes before."""
        members = self._members[task]
        return members[:1] if self._is_transfer[task] else members

    def _givers(self, task: int) -> list[int]:
        """Return the ranks that know that a task has ended; of a transfer the sender too, which may have waited for that."""
        return self._members[task]

    def _add(self, task: int, before: list[int]) -> None:
        execution, work = self._execution, self._work
        kind, op = TaskKind(execution.kind[task]), int(execution.op[task])
        operation = "all_reduce" if work.operations is None else work.operations[op]
        takers = self._takers(task)
        needed = {rank: self._needed(task, rank, before) if rank in takers else [] for rank in self._members[task]}
        if kind == TaskKind.COMPUTE:
            self._compute(task, op, needed)
        elif kind == TaskKind.TRANSFER:
            sender, receiver = self._members[task]
            what = "gradient" if execution.is_backward[task] else "activation"
            name = f"{work.op_names[op]} {what} {sender} to {receiver}"
            self._id[task, sender] = self._end(task, name, sender, sender, receiver, task, needed[sender])
            self._id[task, receiver] = self._end(task, name, receiver, sender, receiver, task, needed[receiver])
        elif operation == "send_recv":
            self._turn(task, work.op_names[op], needed)
        else:
            name = work.op_names[op] if work.operations is not None else f"{work.op_names[op]} all-reduce"
            group, size = self._group(tuple(self._members[task])), self._size(task)
            comm_type = int(Collective[operation.upper()])
            attributes: dict[str, Value] = {"comm_type": comm_type, "comm_size": size, "pg_name": group}
            for rank, nodes in needed.items():
                self._id[task, rank] = self._node(rank, task, name, NodeType.COMM_COLL, nodes, attributes)

    def _needed(self, task: int, rank: int, before: list[int]) -> list[int]:
        """Return the nodes of a rank that a task waits for."""
        nodes = [self._id[first, rank] for first in before if rank in self._givers(first)]
        return nodes + [self._signals[first, task] for first in before if (first, task) in self._signals]

    def _compute(self, task: int, op: int, needed: dict[int, list[int]]) -> None:
        op_name = self._work.op_names[op]
        attributes: dict[str, Value] = {
            "num_ops": self._whole(float(self._work.flops[task]), op_name),
            "tensor_size": self._whole(float(self._work.moved_bytes[task]), op_name),
        }
        direction = "backward" if self._execution.is_backward[task] else "forward"
        for rank, nodes in needed.items():
            self._id[task, rank] = self._node(rank, task, f"{op_name} {direction}", NodeType.COMP, nodes, attributes)

    def _turn(self, task: int, op_name: str, needed: dict[int, list[int]]) -> None:
        """Let each member send to the next one; what follows on a rank waits for what it received."""
        members = self._members[task]
        for sender, receiver in zip(members, members[1:] + members[:1], strict=True):
            name = f"{op_name} {sender} to {receiver}"
            self._end(task, name, sender, sender, receiver, self._tag, needed[sender])
            self._id[task, receiver] = self._end(task, name, receiver, sender, receiver, self._tag, needed[receiver])
            self._tag += 1

    def _end(self, task: int, name: str, rank: int, sender: int, receiver: int, tag: int, needed: list[int]) -> int:
        """Yield a send or the receive that belongs to it."""
        node_type = NodeType.COMM_SEND if rank == sender else NodeType.COMM_RECV
        common: dict[str, Value] = {"comm_src": sender, "comm_dst": receiver, "comm_tag": tag}
        return self._node(rank, task, name, node_type, needed, {**common, "comm_size": self._size(task)})

    def _size(self, task: int) -> int:
        return self._whole(float(self._execution.payload_bytes[task]), self._work.op_names[int(self._execution.op[task])])

    def _signal(self, first: int, second: int) -> None:
        """Add a dependency between ranks that moves nothing: a message of no bytes."""
        giver, taker = self._givers(first)[0], self._takers(second)[0]
        common: dict[str, Value] = {"comm_src": giver, "comm_dst": taker, "comm_tag": self._tag, "comm_size": 0}
        self._tag += 1
        name = f"{self._work.op_names[int(self._execution.op[first])]} signal {giver} to {taker}"
        self._node(giver, first, name, NodeType.COMM_SEND, [self._id[first, giver]], common, ends=True)
        self._signals[first, second] = self._node(taker, first, name, NodeType.COMM_RECV, [], common, ends=True)

    def _node(
        self,
        rank: int,
        task: int,
        name: str,
        node_type: NodeType,
        needed: list[int],
        attributes: dict[str, Value],
        *,
        ends: bool = False,
    ) -> int:
        """Append a node; ``ends`` makes it a moment at the end of its task, which occupies no stream."""
        finish_s = float(self._timeline.finish_s[task])
        start_s = finish_s if ends else float(self._timeline.start_s[task])
        start, finish = (self._whole(round(at_s * 1e6), name) for at_s in (start_s, finish_s))
        number = len(self.nodes[rank])
        stream = rank, node_type == NodeType.COMP
        previous = None if ends else self._last.get(stream)
        data_deps = tuple(sorted(set(needed)))
        self.nodes[rank].append(
            TraceNode(
                id=number,
                name=name,
                type=node_type,
                start_micros=start,
                duration_micros=finish - start,
                ctrl_deps=() if previous is None or previous in data_deps else (previous,),
                data_deps=data_deps,
                attributes={"is_cpu_op": False, **attributes, "start_s": start_s, "duration_s": finish_s - start_s},
            )
        )
        if not ends:
            self._last[stream] = number
        return number

    def _group(self, members: tuple[int, ...]) -> str:
        if members not in self._group_of:
            self._group_of[members] = str(len(self.groups) + 1)
            self.groups[self._group_of[members]] = members
        return self._group_of[members]

    @staticmethod
    def _whole(value: float, name: str) -> int:
        """Return a size or time rounded up to a whole number that the format can hold."""
        if value > _MAX_INT64 / 2:
            raise ExportError("is too large for the trace format", field=name, value=value)
        return math.ceil(value)
