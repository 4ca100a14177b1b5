"""Traffic of a layout from host to host: the flows of the event path, added up over a step.

All groups along an axis send the same, so the flows of the first one are taken for each. The algorithm of a collective is
chosen once for all payloads between two powers of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...costs import collectives, flows
from ...costs.network import RankNetwork
from ...costs.process_groups.rank_groups import group_size, stage_groups, stage_pairs, stage_width
from ...costs.routing import Routing
from ...costs.settings import CostSettings
from ...costs.work.operations import BETWEEN_STAGES, Message
from ...costs.work.step_work import SUMMED, StepWork
from ...errors import PlanError
from ...plans.rank_order import numbers
from ...simulation.fleet.menu_table import SERVERS


class Sent(NamedTuple):
    """A message of a step.

    Attributes:
        message: what is sent.
        groups: ranks of each group in the layout's own numbering, ``(g, k)``; of pairs the sender first.
        times: how often in a step each group sends it, ``(g,)``.
    """

    message: Message
    groups: NDArray[np.int64]
    times: NDArray[np.float64]


class SlotTraffic(NamedTuple):
    """Traffic between host slots.

    Attributes:
        sent_bytes: in a step, from slot to slot, ``(s, s)``; nothing within a slot.
        at_once: messages at once, of the kind that sends most from the one to the other, ``(s, s)``.
        axes: along which anything is sent between slots.
        served_bytes: in a step, from each slot to the servers outside the cluster, and back, ``(s,)``.
        served_at_once: ranks of each slot that send there, ``(s,)``.
    """

    sent_bytes: NDArray[np.float64]
    at_once: NDArray[np.int64]
    axes: frozenset[str]
    served_bytes: NDArray[np.float64]
    served_at_once: NDArray[np.int64]

    def times(self, factor: float) -> SlotTraffic:
        """Return the traffic times a factor."""
        return self._replace(sent_bytes=factor * self.sent_bytes, served_bytes=factor * self.served_bytes)

    @property
    def flows(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Sender, receiver, bytes and simultaneous messages of each flow, as a `MenuTable` lists them."""
        a, b = np.nonzero(self.sent_bytes)
        slots = np.flatnonzero(self.served_bytes)
        servers, served, at_once = np.full(len(slots), SERVERS), self.served_bytes[slots], self.served_at_once[slots]
        return (
            np.concatenate([a, slots, servers]),
            np.concatenate([b, servers, slots]),
            np.concatenate([self.sent_bytes[a, b], served, served]),
            np.concatenate([self.at_once[a, b], at_once, at_once]),
        )


def sent(work: StepWork, coded: Callable[[int], tuple[Message, ...]] | None = None) -> Iterator[Sent]:
    """Yield all messages of a step.

    Args:
        work: of the layout.
        coded: the messages of each stage in place of those that sum its gradients.

    Raises:
        PlanError: stages of unequal meshes.
    """
    layout = work.layout
    pp, width, m = layout.pp, stage_width(layout), layout.micro_batches_per_chunk
    times: dict[Message, NDArray[np.float64]] = {}

    def add(message: Message, stage: int, number: float) -> None:
        if message.payload_bytes > 0 and group_size(layout, message.axis) > 1:
            times.setdefault(message, np.zeros(pp))[stage] += number

    if layout.is_meshed:
        raise PlanError("traffic of unequal meshes is not added up over a fleet", field="layout.stage_meshes")
    for item, stage, number in work.pass_messages():
        add(item, stage, m * number)
    for chunk in range(layout.chunks_per_rank * pp - 1 if pp > 1 else 0):
        source, target = layout.stage_of(chunk), layout.stage_of(chunk + 1)
        if source == target or layout.is_border(chunk):
            continue
        for items, one, other in ((work.sent(chunk), source, target), (work.returned(chunk + 1), target, source)):
            for item in items:
                if item.axis == "pp":
                    yield Sent(item, stage_pairs(layout, one, other), np.full(width, float(m)))
                else:
                    add(item, other, m)
    for stage in range(pp):
        for item in (*work.sync(stage), *work.gather(stage)):
            if coded is not None and item.axis in SUMMED:
                continue
            if item.axis not in BETWEEN_STAGES:
                add(item, stage, 1)
            elif stage < (1 if item.axis == "ends" else pp // 2):
                yield Sent(item, stage_pairs(layout, stage, pp - 1 - stage), np.ones(width))
        for item in () if coded is None else coded(stage):
            if item.axis in SUMMED:
                add(item, stage, 1)
    for message, by_stage in times.items():
        first = stage_groups(layout, message.axis)
        groups = (first + width * np.arange(pp)[:, None, None]).reshape(-1, first.shape[1])
        yield Sent(message, groups, np.repeat(by_stage, len(first)))


@dataclass(frozen=True, eq=False)
class Traffic:
    """Adds up flows.

    Attributes:
        cluster: where jobs run.
        costs: choose the algorithms of collectives, and routes.
    """

    cluster: Cluster
    costs: CostSettings
    _known: dict[tuple[object, ...], NDArray[np.float64]] = field(default_factory=dict, repr=False)

    def between_slots(
        self,
        work: StepWork,
        order: str,
        devices: NDArray[np.int64],
        devices_per_host: int,
        coded: Callable[[int], tuple[Message, ...]] | None = None,
        served_bytes: NDArray[np.float64] | None = None,
    ) -> SlotTraffic:
        """Return the traffic between host slots.

        Args:
            work: of the layout.
            order: of its ranks.
            devices: of a placement, in rank order.
            devices_per_host: of these.
            coded: as of `sent`.
            served_bytes: of each rank to servers in a step, ``(n,)``.
        """
        place = numbers(work.layout, order)
        slot = place // devices_per_host
        own_devices = devices[place]
        num_slots = len(devices) // devices_per_host
        total, most = np.zeros((num_slots, num_slots)), np.zeros((num_slots, num_slots))
        streams, axes = np.zeros((num_slots, num_slots), np.int64), set()
        for message, groups, times in sent(work, coded):
            slots = slot[groups]
            if (slots == slots[:, :1]).all():
                continue
            share = self._shares(message, own_devices[groups[int(np.argmax((slots != slots[:, :1]).any(axis=1)))]])
            senders, receivers = np.nonzero(share)
            pairs = slots[:, senders], slots[:, receivers]
            sizes = times[:, None] * message.payload_bytes * share[senders, receivers]
            now, at_once = np.zeros_like(total), np.zeros_like(streams)
            np.add.at(now, pairs, sizes)
            np.add.at(at_once, pairs, 1 * (sizes > 0))
            np.fill_diagonal(now, 0.0)
            total += now
            streams, most = np.where(now > most, at_once, streams), np.maximum(now, most)
            if now.any():
                axes.add(message.axis)
        served = np.zeros(len(slot)) if served_bytes is None else served_bytes
        to_servers = np.bincount(slot, served, minlength=num_slots).astype(np.float64)
        return SlotTraffic(total, streams, frozenset(axes), to_servers, np.bincount(slot[served > 0], minlength=num_slots))

    def _shares(self, message: Message, devices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the payloads that a group sends from each of its ranks to each other one, ``(k, k)``."""
        size = 2.0 ** round(math.log2(message.payload_bytes))
        key = message.operation, size, devices.tobytes()
        if key not in self._known:
            network, ranks = (
                RankNetwork(self.cluster, devices, routing=Routing.from_settings(self.costs)),
                np.arange(len(devices)),
            )
            if message.operation == "send_recv":
                phases = flows.transfer(network, 0, 1, size)
            else:
                phases = collectives.algorithm_of(self.costs).phases(network, ranks, size, message.operation)
            result = np.zeros((len(devices), len(devices)))
            for phase in phases:
                for sender, receiver, flow_bytes in phase.flows:
                    result[sender, receiver] += flow_bytes / size
            self._known[key] = result
        return self._known[key]
