"""The choice of the sender that broadcasts each unit task, and the order of the tasks.

A schedule is a list of tasks with a sender each. A task begins as soon as its sender and all its receivers have free cards.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import PlanError
from .tiles import UnitTask

MOST_EXACT = 20
"""Of so many tasks at most every order is searched, until `MOST_NODES`."""
MOST_NODES = 100_000
NUM_ROUNDS = 100
"""Random rounds of more tasks, and before the exact search."""

Choice = list[tuple[int, int]]
"""Tasks in their order, each with its sending host."""


def chosen_senders(
    tasks: Sequence[UnitTask], lasts_s: Sequence[float], load_balance: str, *, least_s: float = 0.0, seed: int = 0
) -> Choice:
    """Return senders and order of some tasks.

    Args:
        tasks: what is sent.
        lasts_s: seconds of each.
        load_balance: ``none``: the first sender, in the given order. ``size``: the least loaded sender, the largest task
            first. ``order``: the best of both, of random rounds of tasks that do not meet, and of a depth-first search of few
            tasks.
        least_s: no order takes less; a search ends there.
        seed: of the rounds.

    Raises:
        PlanError: no such choice.
    """
    if load_balance not in ("none", "size", "order"):
        raise PlanError("no such choice", field="resharding_order", value=load_balance, choices=("none", "size", "order"))
    first = [(number, task.sender_hosts[0]) for number, task in enumerate(tasks)]
    if load_balance == "none":
        return first
    by_size = _by_size(tasks, lasts_s)
    if load_balance == "size" or not tasks:
        return by_size
    random = np.random.default_rng(seed)
    best = min((first, by_size), key=lambda one: makespan_s(tasks, lasts_s, one))
    best_s = makespan_s(tasks, lasts_s, best)
    for _ in range(NUM_ROUNDS):
        if best_s <= least_s * (1 + 1e-12):
            return best
        result = _by_rounds(tasks, lasts_s, random)
        found_s = makespan_s(tasks, lasts_s, result)
        if found_s < best_s:
            best, best_s = result, found_s
    return _depth_first(tasks, lasts_s, best, best_s, least_s) if len(tasks) <= MOST_EXACT else best


def makespan_s(tasks: Sequence[UnitTask], lasts_s: Sequence[float], choice: Choice) -> float:
    """Return the seconds until the last task ends."""
    sends_s: dict[int, float] = {}
    receives_s: dict[int, float] = {}
    for number, sender in choice:
        receivers = tasks[number].receiver_hosts
        end_s = max(sends_s.get(sender, 0.0), *(receives_s.get(host, 0.0) for host in receivers)) + lasts_s[number]
        sends_s[sender] = end_s
        for host in receivers:
            receives_s[host] = end_s
    return max((*sends_s.values(), *receives_s.values()), default=0.0)


def _by_size(tasks: Sequence[UnitTask], lasts_s: Sequence[float]) -> Choice:
    loads_s: dict[int, float] = {}
    sender_of = {}
    for number in sorted(range(len(tasks)), key=lambda one: -lasts_s[one]):
        sender = min(tasks[number].sender_hosts, key=lambda host: loads_s.get(host, 0.0))
        loads_s[sender] = loads_s.get(sender, 0.0) + lasts_s[number]
        sender_of[number] = sender
    return [(number, sender_of[number]) for number in range(len(tasks))]


def _by_rounds(tasks: Sequence[UnitTask], lasts_s: Sequence[float], random: np.random.Generator) -> Choice:
    """Send again and again a set of tasks with senders and receivers of their own, drawn in a random order."""
    left, result, loads_s = list(range(len(tasks))), [], dict[int, float]()
    while left:
        busy_senders: set[int] = set()
        busy_receivers: set[int] = set()
        for number in random.permutation(left).tolist():
            free = [host for host in tasks[number].sender_hosts if host not in busy_senders]
            if not free or busy_receivers & set(tasks[number].receiver_hosts):
                continue
            sender = min(free, key=lambda host: loads_s.get(host, 0.0))
            loads_s[sender] = loads_s.get(sender, 0.0) + lasts_s[number]
            busy_senders.add(sender)
            busy_receivers.update(tasks[number].receiver_hosts)
            result.append((number, sender))
            left.remove(number)
    return result


def _depth_first(tasks: Sequence[UnitTask], lasts_s: Sequence[float], best: Choice, best_s: float, least_s: float) -> Choice:
    """Return every order and sender that may be better, the earliest tasks first; cut off after `MOST_NODES`."""
    nodes = 0
    sends_s: dict[int, float] = {}
    receives_s: dict[int, float] = {}

    def search(left: frozenset[int], so_far: Choice, end_s: float) -> None:
        nonlocal best, best_s, nodes
        nodes += 1
        if not left:
            if end_s < best_s:
                best, best_s = list(so_far), end_s
            return
        waiting: dict[int, float] = {}
        for number in left:
            for host in tasks[number].receiver_hosts:
                waiting[host] = waiting.get(host, receives_s.get(host, 0.0)) + lasts_s[number]
        if max(end_s, *waiting.values()) >= best_s * (1 - 1e-12):
            return
        options = []
        for number in left:
            ready_s = max(receives_s.get(host, 0.0) for host in tasks[number].receiver_hosts)
            for sender in tasks[number].sender_hosts:
                options.append((max(ready_s, sends_s.get(sender, 0.0)), -lasts_s[number], number, sender))
        for begin_s, _, number, sender in sorted(options):
            if nodes >= MOST_NODES or best_s <= least_s * (1 + 1e-12):
                return
            hosts = tasks[number].receiver_hosts
            before = sends_s.get(sender), [receives_s.get(host) for host in hosts]
            done_s = begin_s + lasts_s[number]
            sends_s[sender] = done_s
            receives_s.update(dict.fromkeys(hosts, done_s))
            search(left - {number}, [*so_far, (number, sender)], max(end_s, done_s))
            _restore(sends_s, sender, before[0])
            for host, was_s in zip(hosts, before[1], strict=True):
                _restore(receives_s, host, was_s)

    search(frozenset(range(len(tasks))), [], 0.0)
    return best


def _restore(clock_s: dict[int, float], host: int, was_s: float | None) -> None:
    if was_s is None:
        del clock_s[host]
    else:
        clock_s[host] = was_s
