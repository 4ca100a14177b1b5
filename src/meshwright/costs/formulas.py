"""Alpha-beta formulas of collectives, compiled: seconds from bytes, ranks, bytes/s and seconds.

Every function takes the payload in bytes of one rank's buffer and the number of ranks. Then come the bandwidth of the slowest
link in one direction and the latency paid on each step. A group of one costs nothing.
"""

from __future__ import annotations

import math

from ..compiled import njit_typed


@njit_typed
def ring_all_reduce_s(payload_bytes: float, num_ranks: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Return the time of one all-reduce over a ring, in seconds.

    The payload is cut into ``num_ranks`` chunks. Each rank sends ``num_ranks - 1`` of them to reduce and as many to gather, so
    the slowest link carries ``2 (n - 1) / n`` of the payload.

    Args:
        payload_bytes: size of one rank's buffer before the reduction.
        num_ranks: ranks in the ring; a ring of one costs nothing.
        bandwidth_bytes_per_s: of the slowest link in the ring, one direction.
        latency_s: paid on each of the ``2 (n - 1)`` steps.

    Source:
        Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
    """
    if num_ranks <= 1 or payload_bytes <= 0.0:
        return 0.0
    steps = 2.0 * (num_ranks - 1)
    return steps * latency_s + steps / num_ranks * payload_bytes / bandwidth_bytes_per_s


@njit_typed
def halving_doubling_all_reduce_s(payload_bytes: float, num_ranks: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Return the time of one all-reduce by recursive halving and doubling, in seconds.

    ``2 log2(n)`` steps move the same ``2 (n - 1) / n`` of the payload as a ring. Where ``n`` is no power of two, the ranks
    beyond the next lower one first send their whole buffer to a partner. They receive the result at the end: two more steps
    and twice the payload.

    Source:
        Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
    """
    if num_ranks <= 1 or payload_bytes <= 0.0:
        return 0.0
    doublings = math.floor(math.log2(num_ranks))
    power = 1 << doublings
    time_s = 2.0 * doublings * latency_s + 2.0 * (power - 1) / power * payload_bytes / bandwidth_bytes_per_s
    if power < num_ranks:
        time_s += 2.0 * (latency_s + payload_bytes / bandwidth_bytes_per_s)
    return time_s


@njit_typed
def tree_all_reduce_s(payload_bytes: float, num_ranks: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Return the time of one all-reduce over two pipelined complementary binary trees, in seconds.

    About ``2 log2(n)`` latencies; the pipelining hides all but two passes of the payload. A broadcast takes half of it.

    Source:
        Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
    """
    if num_ranks <= 1 or payload_bytes <= 0.0:
        return 0.0
    depth = math.ceil(math.log2(num_ranks))
    return 2.0 * depth * latency_s + 2.0 * payload_bytes / bandwidth_bytes_per_s


@njit_typed
def chain_broadcast_s(payload_bytes: float, num_ranks: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Return the time of one broadcast along a chain, cut into the best number of chunks, in seconds.

    ``h = n - 1`` hops pass on ``k`` chunks: ``(h + k - 1) (alpha + S beta / k)``. The least is at ``k = sqrt((h - 1) S beta /
    alpha)``: ``(h - 1) alpha + S beta + 2 sqrt((h - 1) alpha S beta)``, as if there could be any number of chunks from one on.

    Source:
        Derived; Sanders and Sibeyn, "A bandwidth latency tradeoff for broadcast and reduction", 2003.
    """
    if num_ranks <= 1 or payload_bytes <= 0.0:
        return 0.0
    send_s = payload_bytes / bandwidth_bytes_per_s
    beyond_s = (num_ranks - 2) * latency_s
    if send_s * (num_ranks - 2) <= latency_s:  # one chunk is best
        return (num_ranks - 1) * (latency_s + send_s)
    return beyond_s + send_s + 2.0 * math.sqrt(beyond_s * send_s)


@njit_typed
def pairwise_all_to_all_s(payload_bytes: float, num_ranks: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Return the time of one all-to-all by pairwise exchange, in seconds: ``n - 1`` steps that send ``1 / n`` each.

    Args:
        payload_bytes: what a rank sends to all, itself included.
        num_ranks: ranks; one costs nothing.
        bandwidth_bytes_per_s: of the slowest pair, one direction.
        latency_s: paid on each of the ``n - 1`` steps.

    Source:
        Thakur, Rabenseifner and Gropp, 2005.
    """
    if num_ranks <= 1 or payload_bytes <= 0.0:
        return 0.0
    return (num_ranks - 1.0) * latency_s + (num_ranks - 1.0) / num_ranks * payload_bytes / bandwidth_bytes_per_s


@njit_typed
def message_s(payload_bytes: float, num_ranks: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Return the time in which every rank sends one message to the next, in seconds: one latency, the payload once.

    Source:
        Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", 1994.
    """
    if num_ranks <= 1 or payload_bytes <= 0.0:
        return 0.0
    return latency_s + payload_bytes / bandwidth_bytes_per_s


@njit_typed
def ramp_step_s(
    message_bytes: float, group_size: int, num_transceivers: int, node_bandwidth_bytes_per_s: float, latency_s: float
) -> float:
    """Return the time of one reduce-scatter step within a RAMP subgroup: every pair exchanges its share at the same time.

    A node spreads its transceivers evenly over its peers. Where it has fewer transceivers than peers, it serves them in rounds,
    each with its own latency. The source does not meet this case: its networks have no more racks in a group than transceivers.

    Args:
        message_bytes: what one node holds after the step, that is, its share of the payload.
        group_size: nodes in the subgroup; a subgroup of one costs nothing.
        num_transceivers: transceivers of a node, ``x``.
        node_bandwidth_bytes_per_s: of all transceivers of a node together; each has ``1 / x`` of it.
        latency_s: propagation and both ends' input and output.

    Source:
        Ottino, Benjamin and Zervas, "RAMP: a flat nanosecond optical network and MPI operations for distributed deep learning
        systems", 2023.
    """
    if group_size <= 1:
        return 0.0
    for_each_peer = max(1, num_transceivers // (group_size - 1))
    rate = for_each_peer * node_bandwidth_bytes_per_s / num_transceivers
    rounds = (group_size - 2) // num_transceivers + 1
    return rounds * (latency_s + message_bytes / rate)
