"""RAMP: an optical circuit-switched network in which every pair of servers has its own channel.

Servers are in communication groups and racks; server ``(g, r, s)`` has the id ``(g R + r) S + s``. A node's bandwidth is divided
evenly among its transceivers, one for each communication group.

Source: Ottino, Benjamin and Zervas, "RAMP: a flat nanosecond optical network and MPI operations for distributed
deep learning systems", 2023. Constants as in Parsonson et al., "Partitioning distributed compute jobs with reinforcement learning
and graph neural networks", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .topology import Count, GBytesPerS, Latency, Links, Topology, TopologySection, check_size, frozen, relabelled


class RampSettings(TopologySection):
    """``topology:`` of a RAMP cluster in YAML; one device in each server.

    ``propagation_ns`` is the time of flight of one message, ``io_ns`` what each of its two ends adds.
    """

    kind: Literal["ramp"]
    num_groups: Count
    num_racks: Count
    servers_per_rack: Count
    node_bandwidth_gbytes_per_s: GBytesPerS
    propagation_ns: Latency
    io_ns: Latency

    def build(self) -> RampTopology:
        """Return the topology with the units of the code."""
        return RampTopology(
            num_groups=self.num_groups,
            num_racks=self.num_racks,
            servers_per_rack=self.servers_per_rack,
            node_bandwidth_bytes_per_s=self.node_bandwidth_gbytes_per_s * 1e9,
            propagation_s=self.propagation_ns / 1e9,
            io_s=self.io_ns / 1e9,
        )


@dataclass(frozen=True, eq=False)
class RampTopology(Topology):
    """A RAMP network of ``num_groups x num_racks x servers_per_rack`` servers with one device each.

    Attributes:
        num_groups: communication groups, also the number of transceivers of a node.
        num_racks: racks in each group.
        servers_per_rack: servers in each rack.
        node_bandwidth_bytes_per_s: of all transceivers of a node together, one direction.
        propagation_s: time of flight.
        io_s: what each end of a message adds.
        host_names: ``g{group}-r{rack}-s{server}`` unless given.
    """

    kind: ClassVar[str] = "ramp"
    is_vertex_transitive: ClassVar[bool] = True  # groups, racks and servers may be renumbered
    num_groups: int
    num_racks: int
    servers_per_rack: int
    node_bandwidth_bytes_per_s: float
    propagation_s: float
    io_s: float
    host_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_size(self.num_servers)
        if not self.host_names:
            names = tuple(f"g{g}-r{r}-s{s}" for g, r, s in self.coordinates.tolist())
            object.__setattr__(self, "host_names", names)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Groups, racks of a group, servers of a rack."""
        return self.num_groups, self.num_racks, self.servers_per_rack

    @property
    def num_servers(self) -> int:
        """Servers, and devices, in all."""
        return self.num_groups * self.num_racks * self.servers_per_rack

    @property
    def num_transceivers(self) -> int:
        """Transceivers of a node: one for each communication group."""
        return self.num_groups

    @property
    def channel_bandwidth_bytes_per_s(self) -> float:
        """Bandwidth of one channel: the node's, divided by its transceivers."""
        return self.node_bandwidth_bytes_per_s / self.num_transceivers

    @property
    def channel_latency_s(self) -> float:
        """Latency of one channel: the flight and both ends."""
        return self.propagation_s + 2 * self.io_s

    @cached_property
    def device_host(self) -> NDArray[np.int64]:
        """Each server has one device."""
        return frozen(np.arange(self.num_servers), np.int64)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """Names of the coordinates: group, rack, server."""
        return "group", "rack", "server"

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """Group, rack and server of each device, ``(n, 3)``."""
        return frozen(np.stack(np.unravel_index(np.arange(self.num_servers), self.shape), axis=1), np.int64)

    @cached_property
    def links(self) -> Links:
        """One channel for each ordered pair of servers, by source, then by target."""
        names = tuple(f"{a}>{b}" for a in self.host_names for b in self.host_names if a != b)
        bandwidth = frozen(np.full(len(names), self.channel_bandwidth_bytes_per_s), np.float64)
        return Links(names, bandwidth, frozen(np.full(len(names), self.channel_latency_s), np.float64))

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Return the one channel from server to server."""
        if source == target:
            return ()
        return (source * (self.num_servers - 1) + target - (target > source),)

    def bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the channel's, between any two servers."""
        return np.where(np.equal(source, target), np.inf, self.channel_bandwidth_bytes_per_s)

    def latency_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the channel's, between any two servers."""
        return np.where(np.equal(source, target), 0.0, self.channel_latency_s)

    def figures(self) -> tuple[object, ...]:
        """Return shape, bandwidth and latencies."""
        return (*self.shape, self.node_bandwidth_bytes_per_s, self.propagation_s, self.io_s)

    def pattern(self, devices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions that share a group, a rack index and a server index: RAMP's collectives depend on no more."""
        return np.hstack([relabelled(self.coordinates[:, axis][devices]) for axis in range(3)])
