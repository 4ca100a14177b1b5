"""Seconds of a resharding: sends one by one, sends and all-gathers inside hosts, broadcasts; and what no order is below.

A host's card sends and receives at the same time. A message holds its sender's card to send and its receivers' cards to receive;
messages begin in the order of their list, each as soon as its cards are free. Links inside hosts are free here.

Source: Zhuang et al., "On optimizing the communication of model parallelism", 2022, section 3; the bound is the linear program of
an ideal split of every task over its senders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import Literal

import numpy as np
from scipy.optimize import linprog

from ...errors import PlanError
from .sender_order import chosen_senders, makespan_s
from .tiles import MeshTensor, UnitTask, part_bytes, scattered, unit_tasks

Algorithm = Literal["send-recv", "all-gather", "broadcast"]
LoadBalance = Literal["none", "size", "order"]

ALGORITHMS: tuple[Algorithm, ...] = ("send-recv", "all-gather", "broadcast")
LOAD_BALANCES: tuple[LoadBalance, ...] = ("none", "size", "order")


@dataclass(frozen=True)
class Card:
    """Cards of all hosts.

    Attributes:
        bytes_per_s: each way, ``B``.
        latency_s: of a hop, ``alpha``.
    """

    bytes_per_s: float
    latency_s: float = 0.0


def resharding_s(
    source: MeshTensor,
    target: MeshTensor,
    card: Card,
    algorithm: Algorithm = "broadcast",
    load_balance: LoadBalance = "order",
    *,
    seed: int = 0,
) -> float:
    """Seconds to bring a tensor from one mesh to another mesh of other hosts.

    Args:
        source: who holds it.
        target: who wants it.
        card: of every host.
        algorithm: how a task is carried out.
        load_balance: which of its senders broadcasts a task, and in which order: the first one in the order of the tasks; the
            least loaded one, the largest task first; or the best order that is found.
        seed: of the random rounds of the last.

    Raises:
        PlanError: an unknown algorithm or choice, or tensors that do not go together.
    """
    if algorithm not in ALGORITHMS:
        raise PlanError("no such algorithm", field="resharding", value=algorithm, choices=ALGORITHMS)
    if algorithm == "send-recv":
        return _sent_s(_each_by_itself(source, target), card)
    if algorithm == "all-gather":
        return _sent_s(_scattered_parts(source, target), card)
    tasks = unit_tasks(source, target)
    lasts_s = [broadcast_s(task, card) for task in tasks]
    return makespan_s(tasks, lasts_s, chosen_senders(tasks, lasts_s, load_balance, least_s=lower_bound_s(tasks, card), seed=seed))


def broadcast_s(task: UnitTask, card: Card) -> float:
    """A chain through all receivers, cut into the best number of chunks: ``(A + b - 2 + k) (alpha + D / (k B))``.

    ``A`` receiver hosts of ``b`` devices at most, ``k`` chunks; without latency ``D / B``.
    """
    hosts = task.receiver_hosts
    most = max(sum(device.host == host for device in task.receivers) for host in hosts)
    hops, whole_s = len(hosts) + most - 2, task.task_bytes / card.bytes_per_s
    if card.latency_s == 0.0:
        return whole_s
    best = sqrt(hops * whole_s / card.latency_s)
    return min((hops + k) * (card.latency_s + whole_s / k) for k in {max(1, floor(best)), max(1, ceil(best))})


def lower_bound_s(tasks: Sequence[UnitTask], card: Card) -> float:
    """No order of the tasks takes less: what a host has to receive, and the best split of the tasks over their senders.

    The latter is ``min T`` with ``sum_h x_ih = 1`` and ``sum_i x_ih D_i / B <= T`` over the senders ``h`` of a task, solved by
    HiGHS.
    """
    if not tasks:
        return 0.0
    seconds = np.array([task.task_bytes / card.bytes_per_s for task in tasks])
    receivers = sorted({host for task in tasks for host in task.receiver_hosts})
    received = max(
        sum(s for task, s in zip(tasks, seconds.tolist(), strict=True) if host in task.receiver_hosts) for host in receivers
    )
    pairs = [(number, host) for number, task in enumerate(tasks) for host in task.sender_hosts]
    hosts = sorted({host for _, host in pairs})
    loads, whole = np.zeros((len(hosts), len(pairs) + 1)), np.zeros((len(tasks), len(pairs) + 1))
    for column, (number, host) in enumerate(pairs):
        loads[hosts.index(host), column] = seconds[number]
        whole[number, column] = 1.0
    loads[:, -1] = -1.0
    goal = np.append(np.zeros(len(pairs)), 1.0)
    found = linprog(goal, A_ub=loads, b_ub=np.zeros(len(hosts)), A_eq=whole, b_eq=np.ones(len(tasks)), method="highs")
    assert found.success, found.message
    return max(float(received), float(found.fun or 0.0))


Message = tuple[float, int, int]
"""Bytes, the sending and the receiving host."""


def _sent_s(messages: Iterable[Message], card: Card) -> float:
    """Messages one by one, each as soon as both its cards are free."""
    sends_s: dict[int, float] = {}
    receives_s: dict[int, float] = {}
    last_s = 0.0
    for sent_bytes, sender, receiver in messages:
        begin_s = max(sends_s.get(sender, 0.0), receives_s.get(receiver, 0.0))
        end_s = begin_s + card.latency_s + sent_bytes / card.bytes_per_s
        sends_s[sender] = receives_s[receiver] = end_s
        last_s = max(last_s, end_s)
    return last_s


def _each_by_itself(source: MeshTensor, target: MeshTensor) -> Iterable[Message]:
    """Every receiver gets its own copy; receivers take the replicas of a task in turn, by their own number."""
    number = {device: place for place, device in enumerate(target.devices)}
    for task in unit_tasks(source, target):
        for device in task.receivers:
            yield task.task_bytes, task.senders[number[device] % len(task.senders)].host, device.host


def _scattered_parts(source: MeshTensor, target: MeshTensor) -> Iterable[Message]:
    """Every device gets its share of its tile, and the devices of a host gather the whole among themselves."""
    number = {device: place for place, device in enumerate(target.devices)}
    for device, wanted in scattered(target):
        for held, senders in source.replicas().items():
            sent_bytes = part_bytes(wanted, held, source.element_bytes)
            if sent_bytes > 0:
                yield sent_bytes, senders[number[device] % len(senders)].host, device.host
