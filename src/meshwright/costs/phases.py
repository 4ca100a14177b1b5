"""Messages as flows from rank to rank: the form in which every algorithm gives its traffic.

A message goes in *phases*, one after another. In each its flows run side by side, and when the last one has been sent the
phase's latency passes. Pipelined steps (a ring's, a tree's) are one phase: all hops are in use all the time.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from .network import RankNetwork


class Flow(NamedTuple):
    """Bytes from rank to rank.

    Attributes:
        sender: rank.
        receiver: rank.
        payload_bytes: all that crosses the path in this phase.
    """

    sender: int
    receiver: int
    payload_bytes: float


class Phase(NamedTuple):
    """Flows that run side by side.

    Attributes:
        latency_s: passes once after the last byte has been sent; of pipelined steps, that of all steps together.
        flows: what is sent; none where only time passes.
    """

    latency_s: float
    flows: tuple[Flow, ...]


Phases = tuple[Phase, ...]


def alone_s(network: RankNetwork, phases: Phases) -> float:
    """Return the seconds of a message if each of its flows had its path for itself.

    Less than this it never takes, whatever shares its links: each phase waits for its slowest flow.
    """
    total_s = 0.0
    for latency_s, flows in phases:
        slowest_s = max((size / float(network.bandwidth_bytes_per_s[a, b]) for a, b, size in flows), default=0.0)
        total_s += latency_s + slowest_s
    return total_s


def slowdown(network: RankNetwork, phases: Phases, carried_bytes: float, bandwidth_bytes_per_s: float) -> float:
    """Return the factor by which sending takes longer than a formula says that puts ``carried_bytes`` on one link; at least 1.

    In each phase the fullest link decides: the one that needs longest for the bytes of all flows that cross it. Flows
    share a link where devices share a network card, or where more leaves a leaf switch than its uplinks carry.

    Args:
        network: the ranks.
        phases: what is sent; both this and ``carried_bytes`` for the same payload.
        carried_bytes: what the formula divides by its bandwidth.
        bandwidth_bytes_per_s: the formula's bandwidth.
    """
    links_bytes_per_s = network.cluster.links.bandwidth_bytes_per_s
    fullest_bytes = 0.0  # as many as a link of the formula's bandwidth would send in that time
    for phase in phases:
        # In this order of operations a link of the formula's bandwidth counts as exactly its bytes.
        counted = (
            size * (bandwidth_bytes_per_s / float(links_bytes_per_s[link])) for link, size in _loads(network, phase).items()
        )
        fullest_bytes += max(counted, default=0.0)
    return max(1.0, fullest_bytes / carried_bytes)


def fullest_s(network: RankNetwork, phase: Phase) -> float:
    """Return the seconds that the fullest link of a phase needs to send what crosses it."""
    speed = network.cluster.links.bandwidth_bytes_per_s
    return max((size / float(speed[link]) for link, size in _loads(network, phase).items()), default=0.0)


def _loads(network: RankNetwork, phase: Phase) -> dict[int, float]:
    load_bytes: dict[int, float] = defaultdict(float)
    for sender, receiver, size in phase.flows:
        for link, share in network.carried(sender, receiver):
            load_bytes[link] += share * size
    return load_bytes


def lasting(network: RankNetwork, phases: Phases, total_s: float) -> Phases:
    """Return the flows of phases with latencies that make them take a given time when nobody else sends."""
    beyond_s = max(0.0, total_s - sum(fullest_s(network, phase) for phase in phases))
    return tuple(Phase(beyond_s / len(phases), phase.flows) for phase in phases)


def ring(ranks: list[int], payload_bytes: float) -> tuple[Flow, ...]:
    """Return the hops of a ring in the order of ``ranks``, each with the same bytes; none where there is one rank."""
    if len(ranks) <= 1:
        return ()
    return tuple(Flow(a, b, payload_bytes) for a, b in zip(ranks, ranks[1:] + ranks[:1], strict=True))
