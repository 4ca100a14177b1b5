"""A micro-batch brought from a pipeline stage to the next one whose mesh is another: unit tasks as messages of ranks.

Where the stages are on different hosts, a message holds the cards of its hosts. A host sends a slice over the cards of all its
ranks of the stage, a part each. Where both stages are on one host, its devices take the part of hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..collectives.prices import Operation
from .prices import Algorithm, LoadBalance, broadcast_chain_s, least_s
from .sender_order import Choice, chosen_senders
from .stage_tensors import StageTensor
from .tiles import Replica, Tile, Tiled, UnitTask, part_bytes, scattered, unit_tasks


class Ways(NamedTuple):
    """Times of a cluster's links.

    Attributes:
        between_s: seconds of some bytes from one host to another.
        inside_s: seconds of some bytes from a device to another one of its host.
        gather_s: seconds of an all-gather inside a host: gathered bytes, ranks, and how many such groups the host has.
    """

    between_s: Callable[[float], float]
    inside_s: Callable[[float], float]
    gather_s: Callable[[float, int, int], float]


class CrossingMessage(NamedTuple):
    """A message of a crossing.

    Attributes:
        operation: ``send_recv``, ``broadcast`` or ``all_gather``.
        payload_bytes: as `collectives.prices` counts it.
        seconds: that it takes.
        sender: number within the source stage; None where ranks of the target gather among themselves.
        receivers: numbers within the target stage, in the order of the chain.
        after: messages that are done before it begins.
    """

    operation: Operation
    payload_bytes: float
    seconds: float
    sender: int | None
    receivers: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Crossing:
    """A tensor brought to another mesh.

    Attributes:
        messages: in their order.
        seconds: until the last one is done.
    """

    messages: tuple[CrossingMessage, ...]
    seconds: float


def crossing(
    source: StageTensor, target: StageTensor, ways: Ways, algorithm: Algorithm = "broadcast", order: LoadBalance = "order"
) -> Crossing:
    """Return the messages that bring a tensor from one stage to another, and how long they take.

    Args:
        source: who holds it.
        target: who wants it, on other ranks.
        ways: what the links take.
        algorithm: of each unit task.
        order: how senders of broadcasts are chosen, see `sender_order.chosen_senders`.

    Raises:
        PlanError: tensors that do not go together, or that an all-gather cannot share out.
    """
    is_inside = len({*source.hosts, *target.hosts}) == 1

    def card(replica: Replica, is_source: bool) -> Replica:
        """Return the device with the number of the card that its messages hold."""
        return Replica(replica.place + (0 if is_source else len(source.hosts)), replica.place) if is_inside else replica

    def with_cards(send: Send) -> Send:
        receivers = tuple(card(receiver, False) for receiver in send.receivers)
        return Send(send.payload_bytes, card(send.sender, True), receivers)

    def lasts_s(payload_bytes: float, sender: int, receivers: tuple[Replica, ...]) -> float:
        """See `broadcast_chain_s`."""
        hosts = [target.hosts[receiver.place] for receiver in receivers]
        return broadcast_chain_s(payload_bytes, hosts, ways.between_s, ways.inside_s, sender)

    gathers: list[CrossingMessage] = []
    if algorithm == "broadcast":
        tasks = [
            UnitTask(
                task.task_bytes,
                tuple(card(sender, True) for sender in task.senders),
                tuple(card(receiver, False) for receiver in task.receivers),
            )
            for task in unit_tasks(source, target)
        ]
        each_s = [lasts_s(task.task_bytes, source.hosts[task.senders[0].place], task.receivers) for task in tasks]
        senders = chosen_senders(tasks, each_s, order, least_s=least_s(tasks, each_s))
        sends = list(broadcasts(tasks, senders))
    else:
        sends = [with_cards(one) for one in (each_by_itself if algorithm == "send-recv" else scattered_parts)(source, target)]
    taken_s = [lasts_s(send.payload_bytes, source.hosts[send.sender.place], send.receivers) for send in sends]
    timeline = played(sends, taken_s)
    messages = [
        CrossingMessage(
            "send_recv" if len(send.receivers) == 1 else "broadcast",
            send.payload_bytes,
            seconds,
            send.sender.place,
            tuple(receiver.place for receiver in send.receivers),
            after,
        )
        for send, seconds, after in zip(sends, taken_s, timeline.after, strict=True)
    ]
    last_s = timeline.seconds
    for payload_bytes, places, groups_at_once in _gathered(target) if algorithm == "all-gather" else ():
        after = tuple(number for number, one in enumerate(messages) if set(one.receivers) & set(places))
        gathers.append(
            CrossingMessage(
                "all_gather", payload_bytes, ways.gather_s(payload_bytes, len(places), groups_at_once), None, places, after
            )
        )
        last_s = max(last_s, max(timeline.ends_s[one] for one in after) + gathers[-1].seconds)
    return Crossing((*messages, *gathers), last_s)


def _gathered(target: StageTensor) -> list[tuple[float, tuple[int, ...], int]]:
    """Return the bytes and ranks of each group that puts a tile together, and how many such groups its host has."""
    groups: dict[tuple[Tile, int], list[int]] = {}
    for tile, devices in target.replicas().items():
        for device in devices:
            groups.setdefault((tile, device.host), []).append(device.place)
    result = []
    for (tile, host), places in groups.items():
        if len(places) > 1:
            (top, bottom), (left, right) = tile
            groups_at_once = sum(other == host and len(among) > 1 for (_, other), among in groups.items())
            result.append((float((bottom - top) * (right - left) * target.element_bytes), tuple(places), groups_at_once))
    return result


class Send(NamedTuple):
    """A message from one device to others; the ``host`` of a device is whose card it holds.

    Attributes:
        payload_bytes: of the message.
        sender: who sends it.
        receivers: who gets it, one after the other.
    """

    payload_bytes: float
    sender: Replica
    receivers: tuple[Replica, ...]


class PlayedSends(NamedTuple):
    """Messages as they go.

    Attributes:
        seconds: until the last one is done.
        ends_s: when each is done.
        after: of each message, those that hold a card before it which it wants.
    """

    seconds: float
    ends_s: tuple[float, ...]
    after: tuple[tuple[int, ...], ...]


def played(sends: Sequence[Send], lasts_s: Sequence[float]) -> PlayedSends:
    """Return the messages in their order. A card sends and receives at the same time, one message each way.

    Args:
        sends: in order.
        lasts_s: seconds of each.
    """
    holders: dict[tuple[bool, int], int] = {}  # by direction and card, who held it last
    ends_s: list[float] = []
    after: list[tuple[int, ...]] = []
    for number, (send, seconds) in enumerate(zip(sends, lasts_s, strict=True)):
        cards = [
            (True, send.sender.host),
            *((False, host) for host in dict.fromkeys(receiver.host for receiver in send.receivers)),
        ]
        before = tuple(sorted({holders[card] for card in cards if card in holders}))
        ends_s.append(max((ends_s[one] for one in before), default=0.0) + seconds)
        after.append(before)
        holders |= dict.fromkeys(cards, number)
    return PlayedSends(max(ends_s, default=0.0), tuple(ends_s), tuple(after))


def each_by_itself(source: Tiled, target: Tiled) -> Iterator[Send]:
    """Let every receiver get its own copy; receivers take the replicas of a task in turn, by their own number."""
    number = {device: place for place, device in enumerate(target.devices)}
    for task in unit_tasks(source, target):
        for device in task.receivers:
            yield Send(task.task_bytes, task.senders[number[device] % len(task.senders)], (device,))


def scattered_parts(source: Tiled, target: Tiled) -> Iterator[Send]:
    """Send every device its share of its tile; the devices of a host gather the whole among themselves."""
    number = {device: place for place, device in enumerate(target.devices)}
    for device, required in scattered(target):
        for held, senders in source.replicas().items():
            sent_bytes = part_bytes(required, held, source.element_bytes)
            if sent_bytes > 0:
                yield Send(sent_bytes, senders[number[device] % len(senders)], (device,))


def broadcasts(tasks: Sequence[UnitTask], choice: Choice) -> Iterator[Send]:
    """Yield the unit tasks in a chosen order, each broadcast by a device of its chosen host."""
    for number, host in choice:
        task = tasks[number]
        yield Send(task.task_bytes, next(sender for sender in task.senders if sender.host == host), task.receivers)
