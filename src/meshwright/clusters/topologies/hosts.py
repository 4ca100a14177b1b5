"""Inside a host: a switch that joins its devices, and the network cards through which they leave it.

Links are numbered ``2 i`` (device ``i`` to its host's switch) and ``2 i + 1`` (back), then from ``2 n`` on in the same way for
each network card: out, in. A device reaches its card without crossing the switch, so traffic within the host and traffic that
leaves it share no links. Devices of one card share its links.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from .topology import Count, GBytesPerS, Latency, TopologySection, check_size, frozen, relabelled


class HostSettings(TopologySection):
    """Keys that every topology of multi-device hosts shares.

    ``intra_host_latency_us`` holds from device to device, ``nic_latency_us`` from host to leaf switch, and
    ``nic_bandwidth_gbytes_per_s`` for each card.
    """

    devices_per_host: Count
    intra_host_bandwidth_gbytes_per_s: GBytesPerS
    intra_host_latency_us: Latency
    nics_per_host: Count
    nic_bandwidth_gbytes_per_s: GBytesPerS
    nic_latency_us: Latency

    @model_validator(mode="after")
    def _cards_divide_devices(self) -> HostSettings:
        if self.devices_per_host % self.nics_per_host:
            raise ValueError(f"nics_per_host ({self.nics_per_host}) must divide devices_per_host ({self.devices_per_host})")
        return self

    def hosts(self, num_hosts: int) -> Hosts:
        """Return the hosts, as many as asked for, with figures in the units of the code."""
        return Hosts(
            num_hosts=num_hosts,
            devices_per_host=self.devices_per_host,
            bandwidth_bytes_per_s=self.intra_host_bandwidth_gbytes_per_s * 1e9,
            latency_s=self.intra_host_latency_us / 1e6,
            nics_per_host=self.nics_per_host,
            nic_bandwidth_bytes_per_s=self.nic_bandwidth_gbytes_per_s * 1e9,
            nic_latency_s=self.nic_latency_us / 1e6,
        )


@dataclass(frozen=True)
class Hosts:
    """Equal hosts of several devices.

    Attributes:
        num_hosts: number of hosts.
        devices_per_host: devices in each.
        bandwidth_bytes_per_s: of a device into or out of its host's switch, one direction.
        latency_s: from device to device within a host.
        nics_per_host: network cards in each host; neighbouring devices share one.
        nic_bandwidth_bytes_per_s: of each card, one direction.
        nic_latency_s: from a device through its card to the next switch, or back.
    """

    num_hosts: int
    devices_per_host: int
    bandwidth_bytes_per_s: float
    latency_s: float
    nics_per_host: int
    nic_bandwidth_bytes_per_s: float
    nic_latency_s: float

    def __post_init__(self) -> None:
        check_size(self.num_devices)

    @property
    def num_devices(self) -> int:
        """Devices of all hosts, ``n``."""
        return self.num_hosts * self.devices_per_host

    @property
    def num_nics(self) -> int:
        """Network cards of all hosts."""
        return self.num_hosts * self.nics_per_host

    @property
    def num_links(self) -> int:
        """Links of all devices and cards."""
        return 2 * (self.num_devices + self.num_nics)

    @cached_property
    def host(self) -> NDArray[np.int64]:
        """Host of each device, ``(n,)``."""
        return frozen(np.arange(self.num_devices) // self.devices_per_host, np.int64)

    @cached_property
    def nic(self) -> NDArray[np.int64]:
        """Network card of each device, ``(n,)``, counted over all hosts."""
        return frozen(np.arange(self.num_devices) // (self.devices_per_host // self.nics_per_host), np.int64)

    def inside(self, source: int, target: int) -> tuple[int, ...]:
        """Return the links between two devices of one host."""
        return (2 * source, 2 * target + 1)

    def way_out(self, device: int) -> int:
        """Return the link by which a device leaves its host."""
        return 2 * (self.num_devices + device // (self.devices_per_host // self.nics_per_host))

    def way_in(self, device: int) -> int:
        """Return the link by which a device is reached from outside its host."""
        return self.way_out(device) + 1

    def link_names(self, host_names: tuple[str, ...], switch_names: list[str]) -> list[str]:
        """Return the names of the hosts' links, in their order.

        Args:
            host_names: of each host.
            switch_names: the switch that each card is plugged into.
        """
        names = []
        for host in host_names:
            for local in range(self.devices_per_host):
                names += [f"{host}/{local}>{host}", f"{host}>{host}/{local}"]
        for nic, switch in enumerate(switch_names):
            card = f"{host_names[nic // self.nics_per_host]}.nic{nic % self.nics_per_host}"
            names += [f"{card}>{switch}", f"{switch}>{card}"]
        return names

    def link_figures(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the bandwidth and latency of the hosts' links, in their order; the switch's two links share its latency."""
        counts = [2 * self.num_devices, 2 * self.num_nics]
        bandwidth = np.repeat([self.bandwidth_bytes_per_s, self.nic_bandwidth_bytes_per_s], counts)
        return bandwidth, np.repeat([self.latency_s / 2, self.nic_latency_s], counts)

    def figures(self) -> tuple[object, ...]:
        """Return every number, for a digest."""
        return tuple(getattr(self, field) for field in self.__dataclass_fields__)

    def pattern(self, devices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions that share a host and, where more than one host is used, a card, ``(B, 2 d)``."""
        host = relabelled(self.host[devices])
        return np.hstack([host, relabelled(self.nic[devices]) * host.any(axis=1, keepdims=True)])
