"""Hosts whose optical ports meet in a circuit switch: a port has one partner at a time, and a change of partners takes a while.

A host's ports are taken together: pointed at one other host they carry the sum, and the switch itself is no bottleneck. Which
circuits are there when is a matter of the collectives (`costs.collectives.circuits`); any two hosts can be joined.

Source: Wang et al., "TopoOpt: co-optimizing network topology and parallelization strategy for distributed training jobs", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .hosts import Hosts
from .topology import Count, GBytesPerS, Latency, Links, Topology, TopologySection, frozen


class OpticalSettings(TopologySection):
    """``topology:`` of hosts joined by circuits in YAML.

    ``port_bandwidth_gbytes_per_s`` is of each of the ``ports_per_host``, ``circuit_latency_us`` from host to host, and
    ``reconfiguration_us`` what it takes to give a port another partner.
    """

    kind: Literal["optical"]
    num_hosts: Count
    devices_per_host: Count
    intra_host_bandwidth_gbytes_per_s: GBytesPerS
    intra_host_latency_us: Latency
    ports_per_host: Count
    port_bandwidth_gbytes_per_s: GBytesPerS
    circuit_latency_us: Latency
    reconfiguration_us: Latency

    def build(self) -> OpticalTopology:
        """Return the topology with the units of the code."""
        hosts = Hosts(
            num_hosts=self.num_hosts,
            devices_per_host=self.devices_per_host,
            bandwidth_bytes_per_s=self.intra_host_bandwidth_gbytes_per_s * 1e9,
            latency_s=self.intra_host_latency_us / 1e6,
            nics_per_host=1,
            nic_bandwidth_bytes_per_s=self.ports_per_host * self.port_bandwidth_gbytes_per_s * 1e9,
            nic_latency_s=self.circuit_latency_us / 2e6,
        )
        return OpticalTopology(hosts, self.ports_per_host, self.reconfiguration_us / 1e6)


@dataclass(frozen=True, eq=False)
class OpticalTopology(Topology):
    """Hosts around a circuit switch.

    Attributes:
        hosts: equal hosts; their one card represents all ports.
        ports_per_host: circuits that a host can have at a time, each way.
        reconfiguration_s: to give a port another partner.
        host_names: ``host-{number}`` unless given.
    """

    kind: ClassVar[str] = "optical"
    is_vertex_transitive: ClassVar[bool] = True  # any two hosts can be joined
    hosts: Hosts
    ports_per_host: int
    reconfiguration_s: float
    host_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.host_names:
            object.__setattr__(self, "host_names", tuple(f"host-{host}" for host in range(self.hosts.num_hosts)))

    @property
    def device_host(self) -> NDArray[np.int64]:
        """Host of each device, ``(n,)``."""
        return self.hosts.host

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """Host, device of the host."""
        return "host", "device"

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """Host and device of the host, ``(n, 2)``."""
        return frozen(np.stack(np.divmod(np.arange(self.hosts.num_devices), self.hosts.devices_per_host), axis=1), np.int64)

    @cached_property
    def links(self) -> Links:
        """The hosts' links, with those of all ports of a host as one each way."""
        names = self.hosts.link_names(self.host_names, ["circuits"] * self.hosts.num_nics)
        bandwidth, latency = self.hosts.link_figures()
        return Links(tuple(names), frozen(bandwidth, np.float64), frozen(latency, np.float64))

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Go through the host's switch, or out by the ports of one host and in by those of the other."""
        if source == target:
            return ()
        if self.device_host[source] == self.device_host[target]:
            return self.hosts.inside(source, target)
        return self.hosts.way_out(source), self.hosts.way_in(target)

    def bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the host switch's, or that of all ports of a host together."""
        figures = np.array([np.inf, self.hosts.bandwidth_bytes_per_s, self.hosts.nic_bandwidth_bytes_per_s])
        return figures[self._tier(source, target)]

    def latency_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the host switch's, or a circuit's."""
        return np.array([0.0, self.hosts.latency_s, 2 * self.hosts.nic_latency_s])[self._tier(source, target)]

    def figures(self) -> tuple[object, ...]:
        """Return the hosts' figures, ports and reconfiguration."""
        return (*self.hosts.figures(), self.ports_per_host, self.reconfiguration_s)

    def pattern(self, devices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions that share a host."""
        return self.hosts.pattern(devices)

    def _tier(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.int64]:
        """Return 0 for the same device, 1 the same host, 2 another host."""
        source, target = np.asarray(source), np.asarray(target)
        tiers: NDArray[np.int64] = (source != target).astype(np.int64)
        tiers += self.device_host[source] != self.device_host[target]
        return tiers
