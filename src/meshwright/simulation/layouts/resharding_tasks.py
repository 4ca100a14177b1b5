"""The tasks that bring a micro-batch to a stage with another mesh: each message one, in the order of its cards."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ...costs.collectives.algorithm import Algorithm
from ...costs.phases import Flow, Phase, Phases, lasting
from ...costs.resharding.crossings import Crossing, CrossingMessage
from ..step.execution import TaskKind
from .axes import Axes
from .stage_tasks import Row, StageTasks

NAMES = {"send_recv": "slice", "broadcast": "slice", "all_gather": "slices"}
"""Names of messages by operation."""


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
    """Ranks that take part, the sender first."""
    receivers = tuple(first_target + place for place in message.receivers)
    return receivers if message.sender is None else (first_source + message.sender, *receivers)


def _rows(of_rank: list[list[int]]) -> list[Row]:
    """Rows in which each rank meets each of its messages, then its last one again; a rank without any meets the first."""
    most = max(map(len, of_rank))
    return [np.array([own[min(row, len(own) - 1)] if own else 0 for own in of_rank], np.int64) for row in range(most)]


def _flows(message: CrossingMessage, ranks: tuple[int, ...], axes: Axes, algorithm: Algorithm) -> Phases:
    """Flows of a message, with a latency by which it takes its seconds where nobody else sends."""
    if message.operation == "all_gather":
        phases = algorithm.phases(axes.network, np.array(ranks), message.payload_bytes, message.operation)
        flows = tuple(flow for phase in phases for flow in phase.flows)
    else:
        flows = tuple(Flow(a, b, message.payload_bytes) for a, b in pairwise(ranks))
    return lasting(axes.network, (Phase(0.0, flows),), message.seconds)
