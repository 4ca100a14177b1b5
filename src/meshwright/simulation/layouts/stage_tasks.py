"""A template on the ranks of a stage: tasks as flat arrays, ready to be added once for each micro-batch.

Kernels are a task of each rank, a message is one of each group. A *row* holds the task of an entry for each rank of the stage,
``(w,)``, numbered from the first task of the instance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...costs.phases import Phase, Phases, fullest_s
from ...costs.work.operations import Message
from ..step.execution import TaskKind
from ..step.messages import Messages
from .axes import Axes
from .pass_segments import Template

Row = NDArray[np.int64]


class BlockRows(NamedTuple):
    """A block of a cut template: rows with which it begins and after which it is done, and its parameters.

    ``done`` is the part of the template's entries after which it is done.
    """

    name: str
    done: float
    first: list[Row]
    last: list[Row]
    dense: float
    experts: float


@dataclass(frozen=True, eq=False)
class StageTasks:
    """Tasks of a stage.

    Attributes:
        names: of the entries.
        entry: number of the name of each task, ``(t,)``.
        kind, seconds, rank, payload_bytes, flops, moved_bytes: of each task, ``(t,)``.
        operations: of each entry's message; empty for kernels.
        members: ranks that take part in each task; none for kernels.
        edges: ``(d, 2)``.
        starts, ends: rows with which the instance begins, and after which it is done.
        blocks: of the template.
        phases: flows of each task.
        held: rows after which a sending stage that waits for a transfer continues; by default ``ends``.
    """

    names: tuple[str, ...]
    operations: tuple[str, ...]
    entry: NDArray[np.int64]
    kind: NDArray[np.int8]
    seconds: NDArray[np.float64]
    rank: NDArray[np.int64]
    payload_bytes: NDArray[np.float64]
    flops: NDArray[np.float64]
    moved_bytes: NDArray[np.float64]
    members: tuple[tuple[int, ...], ...]
    edges: NDArray[np.int64]
    starts: list[Row]
    ends: list[Row]
    blocks: tuple[BlockRows, ...]
    phases: Callable[[], Sequence[Phases]]
    held: list[Row] | None = None

    @property
    def num_tasks(self) -> int:
        """Number of tasks, ``t``."""
        return len(self.seconds)

    def messages(self) -> Messages:
        """Return the members of each message, and its payload."""
        return Messages.from_members(self.members, self.phases())


class Pricing(NamedTuple):
    """Seconds and flows of a message.

    Attributes:
        seconds: of a message over ranks in their order.
        phases: flows of a message over ranks.
        together_s: what the fullest link of a group needs if all groups of all stages send a message at the same time.
    """

    seconds: Callable[[Message, Row], float]
    phases: Callable[[Message, Row], Phases]
    together_s: Callable[[Message], Callable[[Row], float]]


def instance(
    template: Template, stage: int, axes: Axes, pricing: Pricing, rank_s: NDArray[np.float64] | None = None
) -> StageTasks:
    """Return a template on the ranks of a stage.

    Args:
        template: what each rank does.
        stage: whose ranks.
        axes: the groups of the layout on their devices.
        pricing: of messages.
        rank_s: seconds of the kernels of each entry on each rank, ``(entries, w)``; by default those of the template.
    """
    width, first_rank = axes.width(stage), axes.first(stage)
    rows: list[Row] = []
    made: list[_Task] = []
    for entry in template.entries:
        begun = len(made)
        if entry.message is None:
            for rank in range(first_rank, first_rank + width):
                own_s = entry.seconds if rank_s is None else float(rank_s[len(rows), rank - first_rank])
                made.append(_Task(len(rows), TaskKind.COMPUTE, own_s, rank, 0.0, (), entry.flops, entry.moved_bytes))
            rows.append(begun + np.arange(width))
        else:
            groups, group_of = axes.groups(entry.message.axis, stage)
            payload = entry.share * entry.message.payload_bytes
            for group in groups:
                seconds = entry.share * pricing.seconds(entry.message, group)
                made.append(_Task(len(rows), TaskKind.COLLECTIVE, seconds, int(group[0]), payload, tuple(group.tolist())))
            rows.append(begun + group_of)
    edges = [joined(rows[before], rows[place]) for place, entry in enumerate(template.entries) for before in entry.before]

    def phases() -> list[Phases]:
        result: list[Phases] = []
        for entry in template.entries:
            if entry.message is None:
                result += [()] * width
            else:
                groups = axes.groups(entry.message.axis, stage)[0]
                result += flows_of(entry.message, groups, entry.share, pricing.together_s(entry.message), pricing)
        return result

    blocks = tuple(
        BlockRows(
            b.name,
            (max(b.last, default=-1) + 1) / len(rows),
            [rows[n] for n in b.first],
            [rows[n] for n in b.last],
            b.dense,
            b.experts,
        )
        for b in template.blocks
    )
    return StageTasks(
        names=tuple(entry.name for entry in template.entries),
        operations=tuple("" if entry.message is None else entry.message.operation for entry in template.entries),
        edges=np.concatenate([np.zeros((0, 2), np.int64), *edges]),
        starts=[rows[n] for n in template.starts],
        ends=[rows[n] for n in template.ends],
        blocks=blocks,
        phases=phases,
        **_columns(made),
    )


def transfer(message: Message, source: int, target: int, axes: Axes, pricing: Pricing) -> StageTasks:
    """Return a message from each rank of a stage to its counterpart on another one."""
    pairs, size = axes.pairs(source, target), message.payload_bytes
    kind = TaskKind.TRANSFER if message.operation == "send_recv" else TaskKind.COLLECTIVE
    made = [_Task(0, kind, pricing.seconds(message, pair), int(pair[0]), size, tuple(pair.tolist())) for pair in pairs]
    row = [np.arange(len(pairs))]
    return StageTasks(
        names=(message.name,),
        operations=(message.operation,),
        edges=np.zeros((0, 2), np.int64),
        starts=row,
        ends=row,
        blocks=(),
        phases=lambda: flows_of(message, pairs, 1.0, together_s(message, pairs, pricing, axes), pricing),
        **_columns(made),
    )


def flows_of(
    message: Message, groups: NDArray[np.int64], share: float, full_s: Callable[[Row], float], pricing: Pricing
) -> list[Phases]:
    """Return the flows of groups, with a latency by which they take what the message costs when all send at the same time.

    If one group alone sends, it takes less where they would have shared a link; if links carry others' messages too, it
    takes longer.

    Args:
        message: what is sent.
        groups: ranks of each.
        share: of the message's time and bytes.
        full_s: what the fullest link of a group needs for all who do the same, of the whole message.
        pricing: seconds and flows.
    """
    result: list[Phases] = []
    for group in groups:
        latency_s = share * max(0.0, pricing.seconds(message, group) - full_s(group))
        phases = pricing.phases(message, group)
        scaled = [tuple(flow._replace(payload_bytes=share * flow.payload_bytes) for flow in phase.flows) for phase in phases]
        last = len(scaled) - 1
        result.append(tuple(Phase(latency_s if step == last else 0.0, flows) for step, flows in enumerate(scaled)))
    return result


def together_s(message: Message, groups: Iterable[Row], pricing: Pricing, axes: Axes) -> Callable[[Row], float]:
    """Return the seconds that the fullest link needs if groups send at the same time, phase by phase.

    With equal hosts that is one figure for all of them; elsewhere the fullest link of each group counts.
    """
    if axes.placed is not None:
        return _fullest_of_own(message, groups, pricing, axes)
    every = [pricing.phases(message, group) for group in groups]
    full_s = 0.0
    for step in range(max(map(len, every), default=0)):
        flows = tuple(flow for phases in every for phase in phases[step : step + 1] for flow in phase.flows)
        full_s += fullest_s(axes.network, Phase(0.0, flows))
    return lambda group: full_s


def _fullest_of_own(message: Message, groups: Iterable[Row], pricing: Pricing, axes: Axes) -> Callable[[Row], float]:
    network, needs_s = axes.network, defaultdict[tuple[int, int], float](float)
    used: dict[bytes, list[set[int]]] = {}
    speed = network.cluster.links.bandwidth_bytes_per_s
    for group in groups:
        mine = used.setdefault(group.tobytes(), [])
        for step, phase in enumerate(pricing.phases(message, group)):
            mine.append(set())
            for sender, receiver, size in phase.flows:
                for link, part in network.carried(sender, receiver):
                    needs_s[step, link] += part * size / float(speed[link])
                    mine[step].add(link)
    return lambda group: sum(
        max((needs_s[step, link] for link in links), default=0.0) for step, links in enumerate(used[group.tobytes()])
    )


def joined(before: Row, after: Row) -> NDArray[np.int64]:
    """Return the dependencies of a row on another, rank by rank, none twice, ``(d, 2)``."""
    pairs = np.stack([before, after], axis=1)
    is_new = np.ones(len(pairs), np.bool_)
    keys = before * (int(after.max(initial=0)) + 1) + after
    order = np.argsort(keys, kind="stable")
    is_new[order[1:]] = keys[order][1:] != keys[order][:-1]
    return pairs[is_new]


class _Task(NamedTuple):
    """A task of an instance; see `StageTasks`."""

    entry: int
    kind: TaskKind
    seconds: float
    rank: int
    payload_bytes: float
    members: tuple[int, ...]
    flops: float = 0.0
    moved_bytes: float = 0.0


def _columns(tasks: Sequence[_Task]) -> dict[str, Any]:
    """Return the tasks of an instance as the arrays of `StageTasks`."""
    entry, kind, seconds, rank, payload_bytes, members, flops, moved_bytes = zip(*tasks, strict=True)
    numbers = {"seconds": seconds, "payload_bytes": payload_bytes, "flops": flops, "moved_bytes": moved_bytes}
    return {name: np.array(values, np.float64) for name, values in numbers.items()} | {
        "entry": np.array(entry, np.int64),
        "kind": np.array(kind, np.int8),
        "rank": np.array(rank, np.int64),
        "members": members,
    }
