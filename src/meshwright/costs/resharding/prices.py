"""Seconds of the messages of a resharding, and a lower bound over all orders of them.

A host's card sends and receives at the same time. A message holds its sender's card to send and its receivers' cards to
receive. Messages begin in the order of their list, each as soon as its cards are free.

Source: Zhuang et al., "On optimizing the communication of model parallelism", 2022, section 3. The bound is the linear program
of an ideal split of every task over its senders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor, sqrt
from typing import Literal

import numpy as np

from .tiles import UnitTask

Algorithm = Literal["send-recv", "all-gather", "broadcast"]
LoadBalance = Literal["none", "size", "order"]


def broadcast_chain_s(
    sent_bytes: float,
    hosts: Sequence[int],
    between_s: Callable[[float], float],
    inside_s: Callable[[float], float] | None = None,
    sender: int | None = None,
) -> float:
    """Return seconds of a chain from the sender's host to each other one, and on among the receivers of a host.

    The chain forwards the best number of chunks, ``k``. The first chunk passes all hops, each other one follows it on the
    slowest: ``A h + i g + (k - 1) max(h, g)``, with ``A`` hops between hosts and ``i`` inside one.

    Args:
        sent_bytes: all that is sent.
        hosts: of each receiver.
        between_s: seconds of a hop of some bytes between hosts, ``h``: a latency and the rest in proportion.
        inside_s: the same inside a host, ``g``; by default as between hosts.
        sender: its host; None: none of the receivers'.
    """
    between, inside = len(set(hosts) - {sender}), max(hosts.count(host) - (host != sender) for host in set(hosts))
    inside_s = inside_s or between_s
    hops, slowest_s = between + inside, inside_s if between == 0 else between_s
    latency_s = slowest_s(0.0)
    if hops <= 1 or latency_s <= 0.0:  # without latency chunks are as small as may be
        return max([one(sent_bytes) for count, one in ((between, between_s), (inside, inside_s)) if count], default=0.0)
    best = sqrt((hops - 1) * (slowest_s(sent_bytes) - latency_s) / latency_s)
    results = []
    for k in {1, max(1, floor(best)), max(1, ceil(best))}:
        one_s, other_s = between_s(sent_bytes / k), inside_s(sent_bytes / k)
        longest_s = max(one_s if between else 0.0, other_s if inside else 0.0)
        results.append(between * one_s + inside * other_s + (k - 1) * longest_s)
    return min(results)


def least_s(tasks: Sequence[UnitTask], lasts_s: Sequence[float]) -> float:
    """Return a bound below any order: what a host has to receive, and the best split of the tasks over their senders.

    The latter is ``min T`` with ``sum_h x_ih = 1`` and ``sum_i x_ih t_i <= T`` over the senders ``h`` of a task, solved by HiGHS.

    Args:
        tasks: what is sent.
        lasts_s: seconds of each, ``t_i``.
    """
    if not tasks:
        return 0.0
    seconds = np.array(lasts_s)
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
    from scipy.optimize import linprog  # loads slowly; few layouts ask for this bound

    result = linprog(goal, A_ub=loads, b_ub=np.zeros(len(hosts)), A_eq=whole, b_eq=np.ones(len(tasks)), method="highs")
    assert result.success, result.message
    return max(float(received), float(result.fun or 0.0))
