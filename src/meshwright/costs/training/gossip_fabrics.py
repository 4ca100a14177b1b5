"""Steps of a transformer of 65 million parameters on three published clusters, by all-reduce, stochastic push and gossip.

Six constants of each fabric are fitted on the published rows of two numbers of ranks. Two give a step, ``C = start + compute /
n`` (25,000 tokens over all ranks), and one its stragglers. Three are bandwidths: of rings, of groups of two hosts and of
pairs. No other price reads this module.

Legend: ``n`` ranks, ``L`` of them on a host, ``S`` bytes of parameters in float32, ``C`` seconds of a step of one.

Source:
    Wang et al., "From promise to practice: realizing high-performance decentralized training", 2024, arXiv 2410.11998.
"""

from __future__ import annotations

from typing import NamedTuple

from .gossip import SLACK_STEPS, rounds
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
        ring_bytes_per_s, group_bytes_per_s, pair_bytes_per_s: what a host's card carries for a ring over all hosts, for groups
            of two hosts, and for pairs side by side.
        sigma: of stragglers.
    """

    per_host: int
    start_s: float
    compute_s: float
    ring_bytes_per_s: float
    group_bytes_per_s: float
    pair_bytes_per_s: float
    sigma: float


FABRICS = {
    "t4": GossipFabric(8, 39.812e-3, 4.228909, 5.309e9, 18.751e9, 11.077e9, 0.107),
    "a100": GossipFabric(4, 27.961e-3, 0.264439, 16.005e9, 18.75e9, 98.7e9, 0.082),
    "a40": GossipFabric(4, 50.247e-3, 0.594069, 3.434e9, 7.728e9, 41.978e9, 0.008),
}
"""8 x T4 and 4 x A100 a host at 100 Gb/s, 4 x A40 a host on Ethernet of 25 Gb/s. The effective bandwidths absorb effects that
the model leaves out, such as numbers of two bytes on the wire. So they may exceed a card's.
"""


class FabricSteps(NamedTuple):
    """Seconds of a step by all-reduce, stochastic push over pairs at powers of two, gossip over these pairs, and over hosts."""

    all_reduce_s: float
    push_s: float
    exponential_s: float
    aer_s: float


def fabric_steps(name: str, num_ranks: int) -> FabricSteps:
    """Return the steps of a fabric at a power of two of ranks.

    All-reduce waits for the slowest of all and exposes the buckets that the backward pass does not hide. Stochastic push waits
    for one peer and hides nothing. Gossip hides its averaging behind a whole step.

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
    with_slack_s = slowest_of(2, fabric.sigma, SLACK_STEPS) * alone_s
    pairs_s = [one.crossing * PARAMETER_BYTES / fabric.pair_bytes_per_s for one in rounds("one-peer-exp", n, own)]
    group_s = 2 * (2 * own - 1) / (2 * own) * PARAMETER_BYTES / fabric.group_bytes_per_s
    hosts_s = [group_s if one.crossing else 0.0 for one in rounds("aer", n, own)]
    return FabricSteps(
        slowest_of(n, fabric.sigma) * alone_s + shown_s,
        slowest_of(2, fabric.sigma) * alone_s + sum(pairs_s) / len(pairs_s),
        sum(max(with_slack_s, one) for one in pairs_s) / len(pairs_s),
        sum(max(with_slack_s, one) for one in hosts_s) / len(hosts_s),
    )
