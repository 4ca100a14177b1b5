"""Seconds from chunk to chunk of a transformer whose stages have meshes of their own, or long skips between them.

Between stages of one mesh each rank sends to its counterpart, as without `Layout.stage_meshes`; between others what is sent is
brought into other tiles (`costs.resharding.crossings`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...plans.partition import Layout
from ..collectives.groups import Group
from ..pipelines.tasks import FORWARD
from ..process_groups.group_network import GroupNetwork
from ..process_groups.lanes import Lane, ProcessGroup
from ..resharding.crossings import Crossing, Ways, crossing
from ..resharding.prices import Algorithm, LoadBalance
from ..resharding.stage_tensors import StageTensor
from ..settings import CostSettings
from ..work.operations import Message
from ..work.stage_work import stage_tensor
from ..work.work import LayoutWork

_LEAST_BYTES = 1e-6
"""Bytes for which a network is asked for its latency alone; of nothing it says that it takes no time."""


@dataclass(frozen=True)
class Resharding:
    """How tensors are brought to other meshes; what was worked out is kept.

    Attributes:
        algorithm: of each unit task.
        order: how senders of broadcasts are chosen.
    """

    algorithm: Algorithm = "broadcast"
    order: LoadBalance = "order"
    _known: dict[tuple[StageTensor, StageTensor], Crossing] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_settings(cls, costs: CostSettings) -> Resharding:
        """Return the resharding that settings choose."""
        return cls(costs.resharding, costs.resharding_order)

    def crossing(self, work: LayoutWork, chunk: int, kind: int, wires: GroupNetwork) -> Crossing | None:
        """Return the transfer after a chunk's forward or backward pass; None where both stages have one mesh.

        Args:
            work: of a layout whose ranks follow each other on equal hosts.
            chunk: of the model.
            kind: `pipelines.schedules.FORWARD` or the backward pass.
            wires: prices messages.
        """
        pp = work.layout.pp
        source, target = chunk % pp, (chunk + (1 if kind == FORWARD else -1)) % pp
        if work.at(source) is work.at(target):
            return None
        carried = work.carried(chunk if kind == FORWARD else chunk - 1)
        ends = [stage_tensor(work, stage, carried, wires.devices_per_host) for stage in (source, target)]
        first = min(*ends[0].hosts, *ends[1].hosts)
        key = ends[0].on(first), ends[1].on(first)
        if key not in self._known:
            self._known[key] = crossing(*key, sending_ways(key[0].hosts, wires), self.algorithm, self.order)
        return self._known[key]


def ways_s(
    work: LayoutWork,
    lane: Lane,
    wires: GroupNetwork,
    resharding: Resharding,
    message_s: Callable[[Message, Layout, ProcessGroup], float],
) -> NDArray[np.float64]:
    """Return the seconds of a transfer from each chunk to the next one, forward, and then of those back, ``(2 p v,)``."""
    layout = work.layout
    chunks = layout.pp * layout.virtual_stages
    result = np.zeros((2, chunks))
    for chunk in range(chunks - 1):
        source, target = chunk % layout.pp, (chunk + 1) % layout.pp
        for kind, sender in enumerate((chunk, chunk + 1)):
            other = resharding.crossing(work, sender, kind, wires)
            if other is not None:
                result[kind, chunk] = other.seconds
                continue
            for item in work.sent(chunk):
                group = lane.boundary[source] if item.axis == "pp" else lane.at(target)[item.axis]
                result[kind, chunk] += message_s(item, layout, group)
    return result.reshape(-1)


def sending_ways(hosts: Sequence[int], wires: GroupNetwork) -> Ways:
    """Let a host send over the cards of all its ranks that send, a part each; devices of a host send to each other.

    Args:
        hosts: of each rank that sends.
        wires: prices messages.
    """
    per_host = max(hosts.count(host) for host in set(hosts))
    group = Group(2, 1, wires.devices_per_host, per_host)

    def between_s(size: float) -> float:
        return wires.group_s("send_recv", max(size, _LEAST_BYTES) / per_host, group)

    def inside_s(size: float) -> float:
        return wires.group_s("send_recv", max(size, _LEAST_BYTES), Group(2, 2, 1, 1))

    def gather_s(size: float, ranks: int, groups: int) -> float:
        return wires.group_s("all_gather", size, Group(ranks, ranks, 1, groups))

    return Ways(between_s, inside_s, gather_s)
