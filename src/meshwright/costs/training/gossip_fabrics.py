"""Steps of a transformer of 65 million parameters on three published clusters, by all-reduce, stochastic push and gossip.

Six constants of each fabric are fitted on the published rows of two numbers of ranks. They are the start of a step, compute
times ranks (``C = start + compute / n``, 25,000 tokens over all ranks), two rates, push's own work and stragglers. Rounds,
messages and steps are those of `gossip`, by which jobs are priced too.

Legend: ``n`` ranks, ``L`` of them on a host, ``S`` bytes of parameters in float32, ``C`` seconds of a step of one.

Source:
    Wang et al., "From promise to practice: realizing high-performance decentralized training", 2024, arXiv 2410.11998.
"""

from __future__ import annotations

from typing import NamedTuple

from ..collectives.groups import Group
from .gossip import Round, mean_step_s, message_of, rounds
from .replicas import slowest_of

PARAMETER_BYTES = 4 * 65e6
"""``S``."""

BACKWARD_SHARE = 2 / 3
"""Share of a step in which gradients come, and in which their sum may hide."""

NUM_BUCKETS = 10
"""Of ``S`` in buckets of 25 MiB: the last one hides behind nothing."""


class GossipFabric(NamedTuple):
    """A cluster as fitted.

    Attributes:
        per_host: ranks on a host, ``L``.
        start_s: of a step, whatever the number of ranks.
        compute_s: of a step, times the number of ranks.
        ring_bytes_per_s, card_bytes_per_s: what a host's card carries for a ring over all hosts, and for groups of two hosts and
            pairs.
        push_s: of stochastic push in each step, on the device.
        sigma: of stragglers.
    """

    per_host: int
    start_s: float
    compute_s: float
    ring_bytes_per_s: float
    card_bytes_per_s: float
    push_s: float
    sigma: float


FABRICS = {
    "t4": GossipFabric(8, 43.15e-3, 4.1117, 4.377e9, 21.7e9, 109.4e-3, 0.107),
    "a100": GossipFabric(4, 27.42e-3, 0.25979, 25.0e9, 21.7e9, 6.17e-3, 0.116),
    "a40": GossipFabric(4, 38.15e-3, 0.67342, 3.353e9, 9.78e9, 23.1e-3, 0.001),
}
"""8 x T4 and 4 x A100 a host at 100 Gb/s, 4 x A40 a host on Ethernet of 25 Gb/s.

Rates count numbers of four bytes, and are at most twice a card's, as if two bytes went over the wire. A40's gossip needs three
times a card's, so that no share of a card's rate fits all fabrics. All averaging of T4 hides, so that its card is A100's.
"""


class FabricSteps(NamedTuple):
    """Seconds of a step by all-reduce, stochastic push over pairs at powers of two, gossip over these pairs, and over hosts."""

    all_reduce_s: float
    push_s: float
    exponential_s: float
    aer_s: float


def fabric_steps(name: str, num_ranks: int) -> FabricSteps:
    """Return the steps of a fabric at a power of two of ranks.

    All-reduce waits for the slowest of all and shows what buckets do not hide behind the backward pass. Gossip hides its
    averaging behind a whole step, and so does stochastic push, which waits for one peer and does its own work.

    Raises:
        KeyError: no such fabric.
        PlanError: ranks that cannot be paired.
    """
    fabric = FABRICS[name]
    n, own = num_ranks, min(fabric.per_host, num_ranks)
    alone_s = fabric.start_s + fabric.compute_s / n
    reduce_s = 2 * (n - 1) / n * PARAMETER_BYTES / fabric.ring_bytes_per_s
    hidden_s = (1 - 1 / NUM_BUCKETS) * BACKWARD_SHARE * alone_s
    shown_s = max(reduce_s - hidden_s, reduce_s / NUM_BUCKETS)
    exponential_s, aer_s = ([_round_s(fabric, one, n) for one in rounds(name, n, own)] for name in ("one-peer-exp", "aer"))
    late_s = slowest_of(2, fabric.sigma) * alone_s + fabric.push_s
    return FabricSteps(
        slowest_of(n, fabric.sigma) * alone_s + shown_s,
        sum(max(late_s, one) for one in exponential_s) / len(exponential_s),
        mean_step_s(alone_s, fabric.sigma, exponential_s),
        mean_step_s(alone_s, fabric.sigma, aer_s),
    )


def _round_s(fabric: GossipFabric, one: Round, num_ranks: int) -> float:
    """Return the seconds of the averaging of a round; none inside a host."""
    operation, group = message_of(one, Group(num_ranks, min(fabric.per_host, num_ranks), 1, 1))
    if group.size <= group.per_host:
        return 0.0
    sent = group.side_by_side if operation == "send_recv" else 2 * (group.size - 1) / group.size
    return sent * PARAMETER_BYTES / fabric.card_bytes_per_s
