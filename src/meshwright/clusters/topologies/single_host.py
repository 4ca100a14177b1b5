"""One host: its devices meet in a non-blocking switch, or share one bus."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .topology import Count, GBytesPerS, Latency, Links, Topology, TopologySection, check_size, frozen


class SingleHostSettings(TopologySection):
    """``topology:`` of a single host in YAML.

    ``fabric: switch`` gives every device ``bandwidth_gbytes_per_s`` in and as much out; ``bus`` is one link of that
    bandwidth for all messages together. ``latency_us`` holds from device to device.
    """

    kind: Literal["single-host"]
    num_devices: Count
    fabric: Literal["switch", "bus"]
    bandwidth_gbytes_per_s: GBytesPerS
    latency_us: Latency

    def build(self) -> SingleHostTopology:
        """Return the topology with the units of the code."""
        return SingleHostTopology(
            num_devices=self.num_devices,
            is_bus=self.fabric == "bus",
            link_bandwidth_bytes_per_s=self.bandwidth_gbytes_per_s * 1e9,
            pair_latency_s=self.latency_us / 1e6,
        )


@dataclass(frozen=True, eq=False)
class SingleHostTopology(Topology):
    """Devices of one host.

    Attributes:
        num_devices: devices of the host, ``n``.
        is_bus: whether all messages share one link.
        link_bandwidth_bytes_per_s: of a device into or out of the switch, one direction, or of the bus.
        pair_latency_s: from device to device.
        host_names: ``host-0`` unless given.
    """

    kind: ClassVar[str] = "single-host"
    is_vertex_transitive: ClassVar[bool] = True  # there is one host
    num_devices: int
    is_bus: bool
    link_bandwidth_bytes_per_s: float
    pair_latency_s: float
    host_names: tuple[str, ...] = ("host-0",)

    def __post_init__(self) -> None:
        check_size(self.num_devices)

    @cached_property
    def device_host(self) -> NDArray[np.int64]:
        """The host of each device: zero, as there is one."""
        return frozen(np.zeros(self.num_devices), np.int64)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """The device of the host."""
        return ("device",)

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """The device of the host, ``(n, 1)``."""
        return frozen(np.arange(self.num_devices)[:, None], np.int64)

    @cached_property
    def links(self) -> Links:
        """The bus, or for each device its link into the switch and its link out of it."""
        host = self.host_names[0]
        if self.is_bus:
            names, latency_s = [f"{host}.bus"], self.pair_latency_s
        else:
            ways = [(f"{host}/{i}>{host}", f"{host}>{host}/{i}") for i in range(self.num_devices)]
            names, latency_s = [name for way in ways for name in way], self.pair_latency_s / 2
        bandwidth = frozen(np.full(len(names), self.link_bandwidth_bytes_per_s), np.float64)
        return Links(tuple(names), bandwidth, frozen(np.full(len(names), latency_s), np.float64))

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Return the bus, or into the switch and out of it."""
        if source == target:
            return ()
        return (0,) if self.is_bus else (2 * source, 2 * target + 1)

    def bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the bandwidth of a link, which is the same between all devices."""
        return np.where(np.equal(source, target), np.inf, self.link_bandwidth_bytes_per_s)

    def latency_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the latency from device to device, in seconds."""
        return np.where(np.equal(source, target), 0.0, self.pair_latency_s)

    def figures(self) -> tuple[object, ...]:
        """Return the fabric, size, bandwidth and latency."""
        return (self.num_devices, self.is_bus, self.link_bandwidth_bytes_per_s, self.pair_latency_s)

    def pattern(self, devices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return no columns: all devices are interchangeable."""
        return np.zeros((len(devices), 0), np.int64)
