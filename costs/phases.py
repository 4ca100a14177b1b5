"""What a message moves, as flows from rank to rank: the form in which every algorithm tells its traffic.

A message goes in *phases*, one after another. In each its flows run side by side, and when the last one has been sent
the phase's latency passes. Pipelined steps (a ring's, a tree's) are one phase: all hops are in use all the time.
"""

from __future__ import annotations

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
    """Seconds of a message if each of its flows had its path for itself.

    Less than this it never takes, whatever shares its links: each phase waits for its slowest flow.
    """
    total_s = 0.0
    for latency_s, flows in phases:
        slowest_s = max((size / float(network.bandwidth_bytes_per_s[a, b]) for a, b, size in flows), default=0.0)
        total_s += latency_s + slowest_s
    return total_s


def ring(ranks: list[int], payload_bytes: float) -> tuple[Flow, ...]:
    """The hops of a ring in the order of ``ranks``, each with the same bytes; none where there is one rank."""
    if len(ranks) <= 1:
        return ()
    return tuple(Flow(a, b, payload_bytes) for a, b in zip(ranks, ranks[1:] + ranks[:1], strict=True))
