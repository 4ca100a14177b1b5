"""How long each dependency of a placed job takes: one-to-one messages and RAMP's collectives.

Legend: ``d`` dependencies, ``g`` groups (dependencies that form one collective), ``w`` servers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...clusters.topologies.ramp import RampTopology
from ...errors import ConfigError
from .semantics import Defects
from .splitting import SplitJob

# The published reduction runs on a worker of this memory rate (bytes/s) and peak rate (operations/s).
MEMORY_BYTES_PER_S = 2e12
PEAK_FLOPS = 130e12


@dataclass(frozen=True, eq=False)
class DepTimes:
    """Times and paths of all dependencies.

    Attributes:
        run_s: time on an idle network, ``(d,)``.
        is_flow: whether it leaves its server and carries anything, ``(d,)``.
        source, target: servers at both ends, ``(d,)``.
        group: dependencies of one collective, or one message, have one number, ``(d,)``.
    """

    run_s: NDArray[np.float64]
    is_flow: NDArray[np.bool_]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    group: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Network:
    """RAMP's constants, as the published formulas use them.

    Attributes:
        coordinates: communication group, rack and server of each server, ``(w, 3)``.
        num_transceivers: ``x``.
        channel_bytes_per_s: of one channel.
        latency_s: of one message: flight, and both ends.
    """

    coordinates: NDArray[np.int64]
    num_transceivers: int
    channel_bytes_per_s: float
    latency_s: float

    @classmethod
    def from_cluster(cls, cluster: Cluster) -> Network:
        """Return the constants of a RAMP cluster.

        Raises:
            ConfigError: another topology, or racks that the transceivers cannot reach in one step.
        """
        topology = cluster.topology
        if not isinstance(topology, RampTopology):
            raise ConfigError(
                "the published simulator knows RAMP only", field="topology.kind", value=topology.kind, choices=["ramp"]
            )
        if max(topology.num_racks, topology.servers_per_rack) > topology.num_transceivers + 1:
            raise ConfigError(
                f"{topology.num_transceivers} transceivers serve at most one rack, and one server of a rack, more",
                field="topology",
                value="x".join(map(str, topology.shape)),
            )
        return cls(
            topology.coordinates, topology.num_transceivers, topology.channel_bandwidth_bytes_per_s, topology.channel_latency_s
        )


def dep_times(job: SplitJob, server: NDArray[np.int64], network: Network, defects: Defects) -> DepTimes:
    """Return the run time of each dependency of a placed job.

    The out-edges of a cut forward op form one collective if as many of them leave each server as reach it. So do the in-edges of
    a cut backward op. Otherwise each edge is a message of its own. Weight synchronisation is a collective of two servers for each
    pair of sub-ops, or one of all of them.

    Args:
        job: the cut job.
        server: of each sub-op, ``(p,)``.
        network: constants.
        defects: which defects are kept.
    """
    num_servers = len(network.coordinates)
    source, target = server[job.source], server[job.target]
    is_flow = (source != target) & (job.size_bytes > 0)
    edges = slice(0, job.num_deps - job.num_sync)
    sync = slice(edges.stop, job.num_deps)
    run_s = network.latency_s + job.size_bytes / network.channel_bytes_per_s
    group = job.job.num_ops + np.arange(job.num_deps)

    op = np.where(job.op[job.source] < job.job.num_forward, job.op[job.source], job.op[job.target])[edges]
    leaving, reaching = (_per_server(op, end[edges], job.job.num_ops, num_servers) for end in (source, target))
    is_collective = (leaving == reaching).all(axis=1) & (job.splits > 1) & leaving.any(axis=1)
    message = np.bincount(op, weights=job.size_bytes[edges], minlength=job.job.num_ops)
    collective_s = np.zeros(job.job.num_ops)
    spread = _spread(leaving[is_collective] > 0, network)
    collective_s[is_collective] = collective_times_s(spread, message[is_collective], network, defects)
    run_s[edges] = np.where(is_collective[op], collective_s[op], run_s[edges])
    group[edges] = np.where(is_collective[op], op, group[edges])

    if defects.sync_is_pairwise:
        differs = network.coordinates[source[sync]] != network.coordinates[target[sync]]
        groups, racks, servers = 1 + differs.T.astype(np.int64)
        pair = Spread(groups, racks, servers, 1 + (~differs[:, 0] & differs[:, 1]).astype(np.int64))
        run_s[sync] = collective_times_s(pair, job.size_bytes[sync] + job.size_bytes[sync], network, defects)
    else:
        op = job.op[job.source[sync]]
        members = _per_server(op, source[sync], job.job.num_ops, num_servers) > 0
        held = np.zeros(job.job.num_ops)  # every sub-op holds the gradient of all the op's weights
        held[op] = job.size_bytes[sync] * job.splits[op]
        run_s[sync] = collective_times_s(_spread(members, network), held, network, defects)[op]
        group[sync] = job.job.num_ops + job.num_deps + op
    return DepTimes(np.where(is_flow, run_s, 0.0), is_flow, source, target, group)


class Spread(NamedTuple):
    """Over how much of the network each group of servers spreads.

    Attributes:
        groups: communication groups, ``(g,)``.
        racks: numbers that racks have within their groups, ``(g,)``.
        servers: numbers that servers have within their racks, ``(g,)``.
        racks_of_a_group: the most racks in one communication group, ``(g,)``.
    """

    groups: NDArray[np.int64]
    racks: NDArray[np.int64]
    servers: NDArray[np.int64]
    racks_of_a_group: NDArray[np.int64]


def collective_times_s(
    spread: Spread, message_bytes: NDArray[np.float64], network: Network, defects: Defects
) -> NDArray[np.float64]:
    """Return the time of a reduce-scatter and an all-gather over each group of servers, ``(g,)``.

    Both run in steps over the communication groups, servers and racks that the members spread over; a step's message
    is the last step's, divided. The reduction is counted once.

    Args:
        spread: of the members.
        message_bytes: in all, ``(g,)``.
        network: constants.
        defects: which defects are kept.

    Source:
        Ottino, Benjamin and Zervas, "RAMP: a flat nanosecond optical network and MPI operations for distributed deep learning
        systems", 2023. Computed as by the published simulator.
    """
    x = network.num_transceivers
    c, r, k, contending = spread
    steps: tuple[NDArray[np.int64], ...] = (c, k, r)
    if defects.intra_rack_is_free:  # servers count only as far as there are as many communication groups
        steps = (c, np.minimum(c, k), r, -(-k // x))
    reach = x if defects.racks_never_contend else np.maximum(1, x // contending)
    rate = network.channel_bytes_per_s / (x if defects.transceiver_rate_divided_twice else 1)
    exchange_s, reduce_s = np.zeros((2, len(message_bytes)))
    left = message_bytes
    for size in steps:
        left = np.ceil(left / size)
        pays = size > 1
        transceivers = np.minimum(reach, x // np.maximum(1, size - 1))
        exchange_s += np.where(pays, network.latency_s + left / (transceivers * rate), 0.0)
        reduce_s += np.where(pays, _reduction_s(left * size, np.maximum(2, size)), 0.0)
    return 2 * exchange_s + reduce_s


def _reduction_s(data_bytes: NDArray[np.float64], size: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the time in which a worker adds up what ``size`` workers hold."""
    depth = np.ceil(np.log2(size))
    intensity = depth / ((size + 1) * 2)
    operations = depth * (data_bytes / size) / 2
    return np.asarray(operations / np.minimum(MEMORY_BYTES_PER_S * intensity, PEAK_FLOPS))


def _per_server(group: NDArray[np.int64], server: NDArray[np.int64], num_groups: int, num_servers: int) -> NDArray[np.int64]:
    """Count the occurrences of each server in each group, ``(g, w)``."""
    counts = np.bincount(group * num_servers + server, minlength=num_groups * num_servers)
    return counts.reshape(num_groups, num_servers)


def _spread(is_member: NDArray[np.bool_], network: Network) -> Spread:
    """Return the spread of groups of servers, ``(g, w)``."""
    grid = is_member.reshape(-1, *(network.coordinates.max(axis=0) + 1).tolist())
    racks = np.any(grid, axis=3)
    return Spread(
        groups=_at_least_one(np.any(racks, axis=2).sum(axis=1)),
        racks=_at_least_one(np.any(racks, axis=1).sum(axis=1)),
        servers=_at_least_one(np.any(grid, axis=(1, 2)).sum(axis=1)),
        racks_of_a_group=_at_least_one(racks.sum(axis=2).max(axis=1)),
    )


def _at_least_one(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.maximum(1, counts)
