"""The messages of an execution graph: the ranks of each message, and its flows phase by phase.

Legend: ``t`` tasks, ``m`` memberships, ``p`` phases of all messages, ``f`` flows of all phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs.phases import Phases
from ...errors import GraphError
from ..ragged import joined_rows, row_starts, starts_behind


@dataclass(frozen=True, eq=False)
class Messages:
    """Flows between ranks, by phase and task.

    Attributes:
        member_start: ranks that take part in task ``i`` are ``member_start[i]:member_start[i + 1]`` of ``members``,
            ``(t + 1,)``. Their communication streams are busy while it runs, whether or not it holds them.
        members: ranks, ``(m,)``.
        phase_start: phases of task ``i``, ``(t + 1,)``; a task without phases takes its duration.
        phase_latency_s: time that passes when the flows of a phase have been sent, ``(p,)``.
        flow_start: flows of each phase, ``(p + 1,)``.
        sender: rank, ``(f,)``.
        receiver: rank, ``(f,)``.
        flow_bytes: what each flow sends, ``(f,)``.

    Raises:
        GraphError: bytes or a latency that are negative or not finite.
    """

    member_start: NDArray[np.int64]
    members: NDArray[np.int64]
    phase_start: NDArray[np.int64]
    phase_latency_s: NDArray[np.float64]
    flow_start: NDArray[np.int64]
    sender: NDArray[np.int64]
    receiver: NDArray[np.int64]
    flow_bytes: NDArray[np.float64]

    def __post_init__(self) -> None:
        for field, values in (("phase_latency_s", self.phase_latency_s), ("flow_bytes", self.flow_bytes)):
            bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
            if len(bad):
                raise GraphError("must be finite and not negative", field=f"messages.{field}", value=float(values[bad[0]]))

    @classmethod
    def from_members(cls, members: Sequence[Sequence[int]], phases: Sequence[Phases]) -> Messages:
        """Return the messages of the ranks that take part in each task and of its phases, one entry each per task."""
        member_start, every_member = joined_rows(members)
        every_phase = list(chain.from_iterable(phases))
        every_flow = list(chain.from_iterable(flows for _, flows in every_phase))
        sender, receiver, flow_bytes = zip(*every_flow, strict=True) if every_flow else ((), (), ())
        return cls(
            member_start=member_start,
            members=every_member,
            phase_start=row_starts([len(each) for each in phases]),
            phase_latency_s=np.array([latency_s for latency_s, _ in every_phase], np.float64),
            flow_start=row_starts([len(flows) for _, flows in every_phase]),
            sender=np.array(sender, np.int64),
            receiver=np.array(receiver, np.int64),
            flow_bytes=np.array(flow_bytes, np.float64),
        )

    @classmethod
    def none(cls, num_tasks: int) -> Messages:
        """Return the tasks that send nothing."""
        return cls.from_members([()] * num_tasks, [()] * num_tasks)

    @classmethod
    def joined(cls, parts: Sequence[Messages]) -> Messages:
        """Return the messages of several runs of tasks, one behind the other."""
        made: dict[str, NDArray[Any]] = {}
        for name in (field.name for field in fields(cls)):
            columns = [getattr(part, name) for part in parts]
            made[name] = starts_behind(columns) if name.endswith("_start") else np.concatenate(columns)
        return cls(**made)

    def part(self, first: int, end: int) -> Messages:
        """Return the messages of the tasks from one up to another."""
        phases, ranks = (starts[first : end + 1] for starts in (self.phase_start, self.member_start))
        flows = self.flow_start[phases[0] : phases[-1] + 1]
        sent = slice(flows[0], flows[-1])
        return Messages(
            ranks - ranks[0],
            self.members[ranks[0] : ranks[-1]],
            phases - phases[0],
            self.phase_latency_s[phases[0] : phases[-1]],
            flows - flows[0],
            self.sender[sent],
            self.receiver[sent],
            self.flow_bytes[sent],
        )

    @property
    def num_flows(self) -> int:
        """Number of flows, ``f``."""
        return len(self.flow_bytes)

    @property
    def flow_task(self) -> NDArray[np.int64]:
        """The task of each flow, ``(f,)``."""
        phase_task = np.repeat(np.arange(len(self.phase_start) - 1), np.diff(self.phase_start))
        return np.repeat(phase_task, np.diff(self.flow_start))

    def parted(self, counts: NDArray[np.int64]) -> Messages:
        """Return the messages with each flow cut into equal parts, which run side by side in its phase.

        Args:
            counts: into how many each flow is cut, ``(f,)``, at least 1.
        """
        if (counts == 1).all():
            return self
        first = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        return replace(
            self,
            flow_start=first[self.flow_start],
            sender=np.repeat(self.sender, counts),
            receiver=np.repeat(self.receiver, counts),
            flow_bytes=np.repeat(self.flow_bytes / counts, counts),
        )

    def ranks(self, task: int) -> list[int]:
        """Return the ranks that take part in a task."""
        return [int(rank) for rank in self.members[self.member_start[task] : self.member_start[task + 1]]]

    def check(self, num_tasks: int, num_ranks: int) -> None:
        """Refuse messages of another number of tasks, or of absent ranks.

        Raises:
            GraphError: either.
        """
        if not len(self.member_start) == len(self.phase_start) == num_tasks + 1:
            counts = f"{len(self.member_start) - 1} and {len(self.phase_start) - 1}"
            raise GraphError(f"must have an entry for each of {num_tasks} tasks", field="messages", value=counts)
        for field, ranks in (("members", self.members), ("sender", self.sender), ("receiver", self.receiver)):
            absent = ranks[(ranks < 0) | (ranks >= num_ranks)]
            if len(absent):
                raise GraphError(f"names a rank outside 0..{num_ranks - 1}", field=f"messages.{field}", value=int(absent[0]))
