"""Messages of a resharding, and when each is done if they begin in order, each as soon as its cards are free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .sender_order import Choice
from .tiles import Replica, Tiled, UnitTask, part_bytes, scattered, unit_tasks


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
    """Messages in their order. A card sends and receives at the same time, one message each way.

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
    """Every receiver gets its own copy; receivers take the replicas of a task in turn, by their own number."""
    number = {device: place for place, device in enumerate(target.devices)}
    for task in unit_tasks(source, target):
        for device in task.receivers:
            yield Send(task.task_bytes, task.senders[number[device] % len(task.senders)], (device,))


def scattered_parts(source: Tiled, target: Tiled) -> Iterator[Send]:
    """Every device gets its share of its tile, and the devices of a host gather the whole among themselves."""
    number = {device: place for place, device in enumerate(target.devices)}
    for device, required in scattered(target):
        for held, senders in source.replicas().items():
            sent_bytes = part_bytes(required, held, source.element_bytes)
            if sent_bytes > 0:
                yield Send(sent_bytes, senders[number[device] % len(senders)], (device,))


def broadcasts(tasks: Sequence[UnitTask], choice: Choice) -> Iterator[Send]:
    """Unit tasks in a chosen order, each broadcast by a device of its chosen host."""
    for number, host in choice:
        task = tasks[number]
        yield Send(task.task_bytes, next(sender for sender in task.senders if sender.host == host), task.receivers)
