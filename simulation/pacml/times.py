"""How long each dependency of a placed job takes: one-to-one messages and RAMP's collectives.

Legend: ``d`` dependencies, ``g`` groups (dependencies that form one collective), ``w`` servers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...clusters.ramp import RampTopology
from ...errors import ConfigError
from .splitting import SplitJob
from .switches import Defects

# The published reduction runs on a worker of this memory rate (bytes/s) and peak rate (operations/s).
MEMORY_BYTES_PER_S = 2e12
PEAK_FLOPS = 130e12


@dataclass(frozen=True, eq=False)
class DepTimes:
    """What the network does with each dependency.

    Attributes:
        run_s: time on an idle network, ``(d,)``.
        is_flow: whether it leaves its server and carries anything, ``(d,)``.
        channel: ordered pair of servers, ``source * w + target``, ``(d,)``.
        group: dependencies of one collective, or one message, have one number, ``(d,)``.
    """

    run_s: NDArray[np.float64]
    is_flow: NDArray[np.bool_]
    channel: NDArray[np.int64]
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
    def of(cls, cluster: Cluster) -> Network:
        """The constants of a RAMP cluster.

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
                f"{topology.num_transceivers} transceivers serve at most {topology.num_transceivers + 1} racks, and servers of one",
                field="topology",
                value="x".join(map(str, topology.shape)),
            )
        return cls(
            topology.coordinates, topology.num_transceivers, topology.channel_bandwidth_bytes_per_s, topology.channel_latency_s
        )


def dep_times(job: SplitJob, server: NDArray[np.int64], network: Network, defects: Defects) -> DepTimes:
    """The run time of each dependency of a placed job.

    The out-edges of a cut forward op form one collective, and so do the in-edges of a cut backward op, if as many of
    them leave each server as reach it; otherwise each edge is a message of its own. Weight synchronisation is a
    collective of two servers for each pair of sub-ops, or one of all of them.

    Args:
        job: what was cut.
        server: of each sub-op, ``(p,)``.
        network: constants.
        defects: which defects are kept.
    """
    num_servers = len(network.coordinates)
    source, target = server[job.source], server[job.target]
    is_flow = (source != target) & (job.size_bytes > 0)
    group, num_groups = _groups(job, defects)
    leaving = np.bincount(group * num_servers + source, minlength=num_groups * num_servers).reshape(num_groups, num_servers)
    reaching = np.bincount(group * num_servers + target, minlength=num_groups * num_servers).reshape(num_groups, num_servers)
    is_collective = (leaving == reaching).all(axis=1) & _may_be_collective(job, group, num_groups)
    message = np.bincount(group, weights=job.size_bytes, minlength=num_groups)
    if not defects.sync_is_pairwise:
        is_sync = np.zeros(num_groups, np.bool_)
        is_sync[group[job.edge < 0]] = True
        payload = np.zeros(num_groups)
        payload[group] = job.job.parameter_bytes[job.job.num_ops - 1 - job.op[job.target]]
    collective_s = np.zeros(num_groups)
    collective_s[is_collective] = collective_times_s(leaving[is_collective] > 0, message[is_collective], network, defects)
    alone_s = network.latency_s + job.size_bytes / network.channel_bytes_per_s
    run_s = np.where(is_flow, np.where(is_collective[group], collective_s[group], alone_s), 0.0)
    return DepTimes(run_s, is_flow, source * num_servers + target, group)
