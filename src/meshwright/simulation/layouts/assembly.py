"""Assembly of the execution graph of a layout: instances, and tasks of resharding between them, are added and linked."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...costs import collectives
from ...costs.collectives.algorithm import Algorithm
from ...costs.phases import Flow, Phase, Phases, lasting
from ...costs.process_groups.lanes import ProcessGroup
from ...costs.resharding.crossings import Crossing, CrossingMessage
from ...costs.settings import CostSettings
from ...costs.work.operations import Message
from ..ragged import row_starts
from ..step.deadlines import by_deadline
from ..step.execution import ExecutionGraph, TaskKind
from ..step.messages import Messages
from . import stage_tasks
from .axes import Axes
from .gradient_buckets import Piece
from .pass_segments import Entry, Template
from .stage_tasks import Pricing, Row, StageTasks

NAMES = {"send_recv": "slice", "broadcast": "slice", "all_gather": "slices"}
"""Names of messages by operation."""

WITHIN = 0.9
"""Part of the distance between one pass of a stage and the next over which the messages of a pass are spread."""


class Assembly:
    """The tasks so far.

    Attributes:
        axes: the groups of the layout on their devices.
        costs: one choice per layer.
        num_tasks: put down so far.
    """

    def __init__(self, axes: Axes, message_s: Callable[[Message, ProcessGroup], float], costs: CostSettings) -> None:
        self.axes, self.costs = axes, costs
        self.num_tasks = 0
        self._message_s = message_s
        self._algorithm = collectives.algorithm_of(costs)
        self._pricing = Pricing(self._seconds, self._phases, self._together_s)
        self._placed: list[StageTasks] = []
        self._priority: list[NDArray[np.float64]] = []
        self._op: list[NDArray[np.int64]] = []
        self._is_backward: list[bool] = []
        self._names: dict[str, int] = {}
        self._operations: list[str] = []
        self._edges: list[NDArray[np.int64]] = []
        self._instances: dict[Hashable, StageTasks] = {}
        self._known_s: dict[tuple[Message, bytes], float] = {}
        self._known_together_s: dict[Message, Callable[[Row], float]] = {}
        self._known_uses: dict[StageTasks, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def template(
        self,
        key: Hashable,
        template: Callable[[], Template],
        stage: int,
        seconds: Callable[[], NDArray[np.float64] | None] = lambda: None,
    ) -> StageTasks:
        """Return a template on a stage, with its seconds on each rank as `stage_tasks.instance` takes them; once for each key."""
        return self._cached((key, stage), lambda: stage_tasks.instance(template(), stage, self.axes, self._pricing, seconds()))

    def message(self, piece: Piece, stage: int) -> StageTasks | None:
        """Return a message of a stage by itself; None where no rank would receive it."""
        message = piece.message
        if self.axes.size(message.axis, stage) <= 1 or message.payload_bytes <= 0:
            return None
        entry = Entry(message.name, (), 0.0, message, piece.share)
        return self.template((message, piece.share), lambda: Template((entry,), (0,), ()), stage)

    def transfer(self, message: Message, source: int, target: int) -> StageTasks:
        """Return a message from each rank of a stage to its counterpart."""
        key = message, source, target
        return self._cached(key, lambda: stage_tasks.transfer(message, source, target, self.axes, self._pricing))

    def crossing(self, sent: Crossing, source: int, target: int) -> StageTasks:
        """Return the tasks that bring a micro-batch from a stage to one with another mesh."""
        key = sent, source, target
        return self._cached(key, lambda: crossing_tasks(sent, source, target, self.axes, self._algorithm))

    def put(self, made: StageTasks, order: float, label: str, *, is_backward: bool) -> tuple[list[Row], list[Row], int]:
        """Add an instance; return the rows with which it begins and ends, and its first task.

        Args:
            made: the instance.
            order: place of its first messages among those on the same stream, the smallest first; its last ones are just before
                ``order + 1``.
            label: put behind the names of its tasks.
            is_backward: of the backward pass.
        """
        first = self.num_tasks
        self.num_tasks += made.num_tasks
        self._placed.append(made)
        self._is_backward.append(is_backward)
        is_shortest = self.costs.priority == "shortest-first"
        self._priority.append(made.seconds if is_shortest else order + WITHIN * made.entry / len(made.names))
        numbers = np.array([self._name(n + label, o) for n, o in zip(made.names, made.operations, strict=True)], np.int64)
        self._op.append(numbers[made.entry])
        self._edges.append(made.edges + first)
        return self.rows(made.starts, first), self.rows(made.ends, first), first

    @staticmethod
    def rows(rows: Sequence[Row], first: int) -> list[Row]:
        """Return the rows of an instance as tasks of the graph."""
        return [row + first for row in rows]

    def link(self, before: Sequence[Row], after: Sequence[Row]) -> None:
        """Make each rank's tasks in the second rows wait for its tasks in the first ones."""
        self._edges += [stage_tasks.joined(one, other) for one in before for other in after]

    def execution(self) -> ExecutionGraph:
        """Return the execution graph of everything that was added."""
        placed, width = self._placed, self.axes.layout.world
        uses = [self._uses(made, width) for made in placed]
        sizes = [made.num_tasks for made in placed]
        made = ExecutionGraph(
            num_ranks=width,
            kind=np.concatenate([made.kind for made in placed]),
            duration_s=np.concatenate([made.seconds for made in placed]),
            priority=np.concatenate(self._priority),
            stream_start=row_starts(np.concatenate([counts for counts, _ in uses])),
            streams=np.concatenate([streams for _, streams in uses]),
            edges=np.concatenate(self._edges),
            op=np.concatenate(self._op),
            rank=np.concatenate([made.rank for made in placed]),
            is_backward=np.repeat(np.array(self._is_backward), sizes),
            payload_bytes=np.concatenate([made.payload_bytes for made in placed]),
            describe_messages=self._messages,
        )
        return by_deadline(made) if self.costs.priority == "deadline" else made

    def _messages(self) -> Messages:
        """Return the messages of all instances."""
        once = {made: made.messages() for made in set(self._placed)}
        return Messages.joined([once[made] for made in self._placed])

    @property
    def op_names(self) -> tuple[str, ...]:
        """Names of the tasks, by ``op``."""
        return tuple(self._names)

    @property
    def operations(self) -> tuple[str, ...]:
        """Operations of the tasks' messages, by ``op``; empty for kernels."""
        return tuple(self._operations)

    def work(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the operations and moved bytes of each task."""
        return np.concatenate([m.flops for m in self._placed]), np.concatenate([m.moved_bytes for m in self._placed])

    def _cached(self, key: Hashable, make: Callable[[], StageTasks]) -> StageTasks:
        if key not in self._instances:
            self._instances[key] = make()
        return self._instances[key]

    def _name(self, name: str, operation: str) -> int:
        full = f"{name} {operation.replace('_', '-')}" if operation else name
        if full not in self._names:
            self._names[full] = len(self._names)
            self._operations.append(operation)
        return self._names[full]

    def _uses(self, made: StageTasks, world: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many streams each task holds, and which."""
        if made not in self._known_uses:
            holds = self.costs.contention == "serialised"
            is_compute = made.kind == TaskKind.COMPUTE
            streams = [
                [rank] if alone else [world + member for member in members] if holds else []
                for rank, alone, members in zip(made.rank.tolist(), is_compute.tolist(), made.members, strict=True)
            ]
            counts = np.array([len(stream) for stream in streams], np.int64)
            self._known_uses[made] = counts, np.array([s for stream in streams for s in stream], np.int64)
        return self._known_uses[made]

    def _seconds(self, message: Message, ranks: Row) -> float:
        key = message, ranks.tobytes()
        if key not in self._known_s:
            group = self.axes.process_group(message.axis, ranks)
            if group is None:  # hosts have unequal shares of it: no regular group
                network, operation = self.axes.network, message.operation
                self._known_s[key] = self._algorithm.time_s(network, ranks, message.payload_bytes, operation)
            else:
                self._known_s[key] = self._message_s(message, group)
        return self._known_s[key]

    def _together_s(self, message: Message) -> Callable[[Row], float]:
        if message not in self._known_together_s:
            stages = range(self.axes.layout.pp)
            groups = (group for stage in stages for group in self.axes.groups(message.axis, stage)[0])
            self._known_together_s[message] = stage_tasks.together_s(message, groups, self._pricing, self.axes)
        return self._known_together_s[message]

    def _phases(self, message: Message, ranks: Row) -> Phases:
        network = self.axes.network
        if message.operation == "send_recv" and len(ranks) == 2:
            return self._algorithm.transfer(network, int(ranks[0]), int(ranks[1]), message.payload_bytes)
        return self._algorithm.phases(network, ranks, message.payload_bytes, message.operation)


def crossing_tasks(crossing: Crossing, source: int, target: int, axes: Axes, algorithm: Algorithm) -> StageTasks:
    """Return the messages of a crossing as tasks.

    A message waits for its sender and for the messages that hold its cards; the first one also for ranks that send nothing. A
    rank of the target continues when it has all of its input. A stage that waits for its transfers continues when all are done.

    Args:
        crossing: its messages.
        source, target: stages.
        axes: the layout on its devices.
        algorithm: of the flows of gathers.
    """
    messages = crossing.messages
    operations = sorted({message.operation for message in messages})
    sent: list[list[int]] = [[] for _ in range(axes.width(source))]
    got: list[list[int]] = [[] for _ in range(axes.width(target))]
    for number, one in enumerate(messages):
        if one.sender is not None:
            sent[one.sender].append(number)
        for place in one.receivers:
            got[place].append(number)
    members = [_members(message, axes.first(source), axes.first(target)) for message in messages]
    count = len(messages)

    def phases() -> list[Phases]:
        return [_flows(one, ranks, axes, algorithm) for one, ranks in zip(messages, members, strict=True)]

    return StageTasks(
        names=tuple(NAMES[operation] for operation in operations),
        operations=tuple(operations),
        entry=np.array([operations.index(message.operation) for message in messages], np.int64),
        kind=np.array(
            [TaskKind.TRANSFER if message.operation == "send_recv" else TaskKind.COLLECTIVE for message in messages], np.int8
        ),
        seconds=np.array([message.seconds for message in messages], np.float64),
        rank=np.array([ranks[0] for ranks in members], np.int64),
        payload_bytes=np.array([message.payload_bytes for message in messages], np.float64),
        flops=np.zeros(count),
        moved_bytes=np.zeros(count),
        members=tuple(members),
        edges=np.array([(before, number) for number, one in enumerate(messages) for before in one.after], np.int64).reshape(
            -1, 2
        ),
        starts=_rows(sent),
        ends=_rows(got),
        blocks=(),
        phases=phases,
        held=[
            np.full(len(sent), number)
            for number in sorted(set(range(count)) - {n for message in messages for n in message.after})
        ],
    )


def _members(message: CrossingMessage, first_source: int, first_target: int) -> tuple[int, ...]:
    """Return the ranks that take part, the sender first."""
    receivers = tuple(first_target + place for place in message.receivers)
    return receivers if message.sender is None else (first_source + message.sender, *receivers)


def _rows(of_rank: list[list[int]]) -> list[Row]:
    """Return rows in which each rank meets each of its messages, then its last one again; without any it meets the first."""
    most = max(map(len, of_rank))
    return [np.array([own[min(row, len(own) - 1)] if own else 0 for own in of_rank], np.int64) for row in range(most)]


def _flows(message: CrossingMessage, ranks: tuple[int, ...], axes: Axes, algorithm: Algorithm) -> Phases:
    """Return the flows of a message, with a latency by which it takes its seconds where nobody else sends."""
    if message.operation == "all_gather":
        phases = algorithm.phases(axes.network, np.array(ranks), message.payload_bytes, message.operation)
        flows = tuple(flow for phase in phases for flow in phase.flows)
    else:
        flows = tuple(Flow(a, b, message.payload_bytes) for a, b in pairwise(ranks))
    return lasting(axes.network, (Phase(0.0, flows),), message.seconds)
