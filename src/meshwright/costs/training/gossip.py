"""Gossip: who averages with whom in each round, what it costs, and how much of it a step hides.

A replica averages its parameters while it takes its next step, so that a step takes the longer of the two. The rounds of a
topology repeat; a step is their mean.

Legend: ``n`` replicas, ``L`` of them on a host, ``N`` hosts, ``S`` bytes of parameters of a rank.

Source:
    Wang et al., "From promise to practice: realizing high-performance decentralized training", 2024, arXiv 2410.11998.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from ...plans.training import Gossip
from ..collectives.groups import Group
from ..collectives.prices import Operation
from ..process_groups.group_network import PlacedNetwork
from .replicas import Replicas, slowest_of

SLACK_STEPS = 2
"""Steps over which a late replica may catch up before others wait for it: its own and the one that hides the averaging."""


class Round(NamedTuple):
    """A round of averaging.

    Attributes:
        groups: replicas that average, ``(groups, size)``; of a directed exchange the sender and its peer, ``(n, 2)``.
        crossing: replicas of a host that send to other hosts, at most.
        is_exchange: whether each sends its own to one peer and gets another's, else the groups sum.
    """

    groups: NDArray[np.int64]
    crossing: int
    is_exchange: bool


def rounds(topology: str, num_replicas: int, per_host: int) -> list[Round]:
    """Return the rounds of a topology, which then repeat.

    Args:
        topology: ``complete``. ``ring``: left and right neighbour in turn. ``one-peer-exp``: the peer at distance ``2^r``.
            ``aer``: in turn a round inside each host and one of two whole hosts that differ in bit ``r`` of their number.
        num_replicas: ``n``.
        per_host: ``L``.

    Raises:
        PlanError: a number of replicas or hosts that the topology cannot pair.
    """
    n, own = num_replicas, min(per_host, num_replicas)
    every = np.arange(n)
    is_one = n == own
    if n == 1:
        return []
    if topology == "complete":
        return [Round(every[None], 0 if is_one else own, False)]
    if topology == "ring":
        if n % 2:
            raise PlanError("topology=ring pairs neighbours: an even number of replicas is wanted", field="layout.dp", value=n)
        return [
            Round(np.roll(every, -shift).reshape(-1, 2), 0 if is_one or (shift == 0 and own % 2 == 0) else min(2, own), True)
            for shift in ((0, 1) if n > 2 else (0,))
        ]
    if topology == "one-peer-exp":
        if n & (n - 1):
            raise PlanError("topology=one-peer-exp wants a power of two of replicas", field="layout.dp", value=n)
        hops = [1 << bit for bit in range(n.bit_length() - 1)]
        return [Round(np.stack([every, (every + hop) % n], axis=1), 0 if is_one else min(hop, own), True) for hop in hops]
    hosts = n // own
    if n % own or hosts & (hosts - 1):
        raise PlanError("topology=aer pairs hosts: a power of two of hosts is wanted, equally full", field="layout.dp", value=n)
    inside = Round(every.reshape(hosts, own), 0, False)
    between = []
    for bit in range(hosts.bit_length() - 1):
        pairs = [host for host in range(hosts) if not host >> bit & 1]
        groups = np.array([[*inside.groups[host], *inside.groups[host | 1 << bit]] for host in pairs])
        between.append(Round(groups, own, False))
    if own == 1:
        return between
    return [one for pair in between for one in (inside, pair)] or [inside]


def rounds_of(replicas: Replicas, topology: str) -> list[Round]:
    """Return the rounds of a topology among replicas on their devices.

    Raises:
        PlanError: a number of replicas or hosts that the topology cannot pair, or, for ``aer``, hosts that are not equally full.
    """
    if not isinstance(replicas.pricer.wires, PlacedNetwork):
        return rounds(topology, replicas.num_replicas, replicas.regular().per_host)
    hosts = replicas.pricer.wires.layout(replicas.layout, replicas.pricer.order).hosts_of_replicas
    counts = [len(list(of_host)) for _, of_host in groupby(hosts)]
    are_even = len(set(counts)) == 1 and len(counts) == len(set(hosts))
    if topology == "aer" and not are_even:
        problem = "topology=aer pairs whole hosts: as many replicas on each are wanted, one host behind the other"
        raise PlanError(problem, field="layout.dp", value=replicas.num_replicas)
    return rounds(topology, replicas.num_replicas, counts[0] if are_even else 1)


def can_pair(replicas: Replicas, topology: str) -> bool:
    """Return whether a topology can pair the replicas on their devices."""
    try:
        rounds_of(replicas, topology)
    except PlanError:
        return False
    return True


def round_s(replicas: Replicas, one: Round) -> float:
    """Return seconds of the averaging of one round, the links its own.

    A group of two hosts moves ``2 (g - 1) / g S`` with ``g = 2 L``, an exchange of all replicas of a host ``L S`` over its
    card. On unequal hosts each group is priced on its own devices, and the slowest counts.
    """
    size, wires = replicas.gradient_bytes, replicas.pricer.wires
    if isinstance(wires, PlacedNetwork):
        layout = wires.layout(replicas.layout, replicas.pricer.order)
        groups = layout.of_replicas(one.groups, are_pairs=one.is_exchange)
        return replicas.group_s("send_recv" if one.is_exchange else "all_reduce", size, groups)
    operation, group = message_of(one, replicas.regular())
    return replicas.group_s(operation, size, group)


def message_of(one: Round, whole: Group) -> tuple[Operation, Group]:
    """Return the operation of each group of a round, and the places of its replicas on equal hosts.

    Args:
        one: the round.
        whole: the places of all replicas.
    """
    if not one.is_exchange:
        count = one.groups.shape[1]
        return "all_reduce", Group(count, max(1, min(whole.per_host, count)), whole.stride, whole.side_by_side)
    if one.crossing == 0:
        return "send_recv", Group(2, 2, whole.stride, max(1, whole.per_host // 2))
    return "send_recv", Group(2, 1, whole.stride, max(1, one.crossing * whole.side_by_side))


def mean_step_s(local_s: float, sigma: float, rounds_s: Sequence[float]) -> float:
    """Return mean step seconds: ``mean over the rounds of max(C, c)``, ``C`` that of the slower of two with a step of slack.

    Two count whatever the size of a group. Steps of up to 32 replicas, played one by one, differ by at most 4 % (``sigma`` 0.1)
    or 10 % (0.3) with short rounds. With rounds of about a step they take up to 9 % or 26 % longer, with rounds of two steps 3 %.

    Args:
        local_s: of a step of one replica, ``C``.
        sigma: of stragglers.
        rounds_s: of the averaging of each round.
    """
    late_s = slowest_of(2, sigma, SLACK_STEPS) * local_s
    return sum(max(late_s, one) for one in rounds_s) / len(rounds_s)


def gossip_s(replicas: Replicas, training: Gossip) -> float:
    """Return the mean seconds of a step, see `mean_step_s`.

    Raises:
        PlanError: replicas or hosts that the topology cannot pair.
    """
    if replicas.num_replicas == 1:
        return replicas.local_s
    results = [round_s(replicas, one) for one in rounds_of(replicas, training.topology)]
    return mean_step_s(replicas.local_s, replicas.straggler_sigma, results)
