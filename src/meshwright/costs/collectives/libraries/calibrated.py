"""NCCL by lines fitted to measurements: the default algorithm of layouts.

Inside a host of switched links a collective takes a measured latency and bus bandwidth. Between such hosts its ring is as wide
as the network's capacity for the group's flows, and a measured share of that reaches the payload. Other clusters, and groups
with unequal parts on their hosts, take the fastest formula (`fastest.Fastest`).
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from ....clusters.cluster import Cluster
from ....clusters.topologies.clos import ClosTopology
from ....clusters.topologies.single_host import SingleHostTopology
from ....devices import Links, base_name
from ...network import RankNetwork
from ...phases import Phases, lasting
from ..algorithm import Algorithm, Pricer, Ranks
from ..fastest import Fastest
from ..prices import Operation, Provenance
from . import tables
from .library import Measured, wires

HOST_ALL_REDUCE = {
    "nvswitch": {2: (46.0e-6, 192.9e9), 4: (54.0e-6, 218.4e9), 8: (78.6e-6, 227.3e9)},
    "cube mesh": {2: (23.8e-6, 22.6e9), 4: (45.0e-6, 85.8e9), 8: (75.9e-6, 136.1e9)},
    "pcie": {2: (46.0e-6, 20.0e9), 4: (54.0e-6, 17.5e9), 8: (78.6e-6, 14.0e9)},
}
"""Latency and bus bandwidth of NCCL's all-reduce inside a host by ranks, on a DGX A100 and on V100s in a hybrid cube mesh.
Least squares over 1-1024 MiB of the tables in VIA-Research/vTrain (trace/a100 and trace/v100, AR_GPU*_LUT). Over PCIe 4.0 two
L40S sum 20 GB/s (ai-dynamo/aiconfigurator, NCCL 2.27.3). Four and eight devices reach 35 and 28 of the 63 GB/s of PCIe 5.0
(RTX 5090, NVIDIA/nccl, issue 1639): shares of any PCIe. The latencies of PCIe are those of the A100, an assumption.
"""

MEASURED_DEVICE = {"nvswitch": "a100", "cube mesh": "v100", "pcie": "l40s"}
"""On whose hosts `HOST_ALL_REDUCE` was measured."""

MEASURED_LINK_BYTES_PER_S = {"nvswitch": 300e9, "cube mesh": 150e9, "pcie": 31.5e9}
"""One direction of one device of the hosts on which `HOST_ALL_REDUCE` was measured; other links scale with theirs."""

GATHER_LATENCY_SHARE, GATHER_BANDWIDTH_SHARE = 0.6, 0.9
"""All-gather, reduce-scatter and all-to-all relative to the all-reduce. Fitted on every second size of the nccl-tests tables
of ai-dynamo/aiconfigurator for A100 (eight ranks: about 45 us and 205 GB/s).
"""

MEASURED_FROM_BYTES, MEASURED_TO_BYTES = 2**20, 2**30
"""Sizes over which the lines of `HOST_ALL_REDUCE` were fitted."""

NETWORK_LATENCY_S = 14e-6
"""One hop between hosts by NCCL's protocol Simple (NVIDIA/nccl, src/graph/tuning.cc, hardware latency NET, ring)."""

NETWORK_EFFICIENCY = 0.9
"""Share of a card's nominal rate that reaches the payload. Published: 84.8-96 of 100 GB/s with four HDR cards
(NVIDIA/nccl-tests, issues 100 and 119), 46-48 of 50 GB/s with NDR (issue 290)."""

Payload = TypeVar("Payload", float, NDArray[np.float64])


class LineTerms(NamedTuple):
    """A latency, and payloads over a bandwidth.

    Attributes:
        latency_s: at size zero.
        passes: bytes that cross the busiest link for each byte of the payload.
        bytes_per_s: of that link.
    """

    latency_s: float
    passes: float
    bytes_per_s: float

    def seconds(self, payload_bytes: Payload) -> Payload:
        """Return the seconds of a payload, or of many."""
        return self.latency_s + self.passes * payload_bytes / self.bytes_per_s


class HostLine(NamedTuple):
    """Latency and bandwidth of a host's links.

    Attributes:
        link_bytes_per_s: bandwidth of one device inside its host, nominal, one direction.
        links: which of `HOST_ALL_REDUCE` the host resembles.
    """

    link_bytes_per_s: float
    links: Links = "nvswitch"

    def terms(self, operation: Operation, size: int, per_host: int, between_bytes_per_s: float) -> LineTerms:
        """Return latency and rate that hold for every positive payload, of a group of two ranks or more.

        Between hosts a ring enters and leaves each host by as many cards as the group has ranks there, as NCCL's channels do.
        It is never faster than inside the host. An all-reduce takes a tree's latency where that is shorter.

        Args:
            operation: which collective, of a regular group that has the links for itself; ``send_recv`` is one transfer.
            size: ranks of the group.
            per_host: of them on one host.
            between_bytes_per_s: nominal, of those of one host together to the next host.
        """
        share = between_bytes_per_s * NETWORK_EFFICIENCY
        if operation == "send_recv":
            latency_s, bandwidth = self.inside(2)
            return LineTerms(NETWORK_LATENCY_S, 1.0, share) if per_host < 2 else LineTerms(0.5 * latency_s, 1.0, bandwidth)
        rounds = 2.0 if operation == "all_reduce" else 1.0
        latency_s, bandwidth = self.inside(min(size, per_host))
        if operation != "all_reduce":
            latency_s, bandwidth = GATHER_LATENCY_SHARE * latency_s, GATHER_BANDWIDTH_SHARE * bandwidth
        hosts = size // per_host
        if hosts > 1:
            bandwidth = min(share, bandwidth) if per_host > 1 else share
            steps = rounds * (hosts - 1)
            if operation == "all_reduce":
                steps = min(steps, 2.0 * math.ceil(math.log2(hosts)) + 2.0)
            latency_s = (latency_s if per_host > 1 else 0.0) + steps * NETWORK_LATENCY_S
        return LineTerms(latency_s, rounds * (size - 1) / size, bandwidth)

    def inside(self, ranks: int) -> tuple[float, float]:
        """Return the latency and bus bandwidth inside a host, linear between the measured numbers of ranks."""
        measured = HOST_ALL_REDUCE[self.links]
        known = sorted(measured)
        low = max((n for n in known if n <= ranks), default=known[0])
        high = min((n for n in known if n >= ranks), default=known[-1])
        weight = 0.0 if low == high else (ranks - low) / (high - low)
        latency_s, bandwidth = ((1 - weight) * measured[low][part] + weight * measured[high][part] for part in (0, 1))
        return latency_s, bandwidth * self.link_bytes_per_s / MEASURED_LINK_BYTES_PER_S[self.links]

    def provenance(self, operation: Operation, payload_bytes: float, size: int, per_host: int) -> Provenance:
        """Return ``interpolated`` on measured lines: inside a host with the links and over the fitted sizes."""
        is_measured = (
            size <= (min(2, per_host) if self.links == "pcie" else per_host)
            and operation != "send_recv"
            and self.link_bytes_per_s == MEASURED_LINK_BYTES_PER_S[self.links]
            and MEASURED_FROM_BYTES <= payload_bytes <= MEASURED_TO_BYTES
        )
        return "interpolated" if is_measured else "estimated"


def is_one_domain(cluster: Cluster) -> bool:
    """Return whether the links inside hosts join the hosts too, as those of a rack of GB200 NVL72 do."""
    return isinstance(cluster.topology, ClosTopology) and cluster.topology.is_one_domain


def host_line(cluster: Cluster) -> HostLine | None:
    """Return the line of a cluster's hosts; None where hosts have no switched links, or no cards of their own.

    The links are those of the device type, of several the slowest kind. Over PCIe the rate is at most that of the device
    type's own link, whatever the cluster says.
    """
    nominal = _nominal_bytes_per_s(cluster)
    if nominal is None:
        return None
    results = [kind.host_links for kind in cluster.device_types]
    slowest = max((links for links, _ in results), key=get_args(Links).index)
    most = min(rate for links, rate in results if links == slowest) if slowest == "pcie" else nominal
    return HostLine(min(nominal, most), slowest)


def _nominal_bytes_per_s(cluster: Cluster) -> float | None:
    """Return the bandwidth that a cluster states for the links inside its hosts; None as `host_line`."""
    topology = cluster.topology
    if isinstance(topology, ClosTopology):
        return topology.hosts.bandwidth_bytes_per_s
    return topology.link_bandwidth_bytes_per_s if isinstance(topology, SingleHostTopology) and not topology.is_bus else None


def is_line_known(device_name: str) -> bool:
    """Return whether collectives were measured inside hosts of a device type, against which its line was held."""
    return base_name(device_name) in tables.SYSTEMS.names()


class Calibrated(Algorithm):
    """The lines of `HostLine` where a cluster and a group have them, and the fastest formula elsewhere."""

    name = "calibrated"

    def foreign_figures(self, cluster: Cluster) -> tuple[str, ...]:
        """Return the devices on whose hosts the line inside a host was measured."""
        line = host_line(cluster)
        if line is None or cluster.num_devices == cluster.num_hosts:  # nothing is sent inside a host of one device
            return ()
        if line.links == "pcie":
            names = ", ".join(kind.name for kind in cluster.device_types)
            nominal = _nominal_bytes_per_s(cluster) or 0.0
            instead = f" in place of {nominal / 1e9:g}" if nominal > line.link_bytes_per_s else ""
            note = f"{names} reach each other over PCIe, {line.link_bytes_per_s / 1e9:g} GB/s one way{instead}"
            return (f"collectives inside hosts: {note}; measured on two l40s, and on four and eight RTX 5090",)
        measured = MEASURED_DEVICE[line.links]
        others = ", ".join(kind.name for kind in cluster.device_types if base_name(kind.name) != measured)
        if not others:
            return ()
        note = f"collectives inside hosts: measured on {measured}, scaled to the links of {others}"
        if Measured().system(cluster) is not None:
            note += f" (--set collectives=measured takes tables of {others}, by which no published step was predicted)"
        return (note,)

    def pricer(self, network: RankNetwork, ranks: Ranks, operation: Operation) -> Pricer:
        """Return the line of the group."""
        line, per_host = host_line(network.cluster), _per_host(network, ranks)
        if line is None or per_host is None:
            return FASTEST.pricer(network, ranks, operation)
        return line.terms(operation, len(ranks), per_host, wires(network, ranks, operation).between_bytes_per_s).seconds

    def phases(self, network: RankNetwork, ranks: Ranks, payload_bytes: float, operation: Operation = "all_reduce") -> Phases:
        """Return the flows of the fastest formula; what the line takes longer passes as latency."""
        result = FASTEST.phases(network, ranks, payload_bytes, operation)
        if not result or host_line(network.cluster) is None or _per_host(network, ranks) is None:
            return result
        return lasting(network, result, self.time_s(network, ranks, payload_bytes, operation))


FASTEST = Fastest()


def _per_host(network: RankNetwork, ranks: Ranks) -> int | None:
    """Return the ranks on each host, all where the hosts are one domain; None where hosts have unequal parts."""
    if is_one_domain(network.cluster):
        return len(ranks)
    counts = np.unique(network.host[ranks], return_counts=True)[1]
    return int(counts[0]) if counts.min() == counts.max() else None
