"""Torus of any number of dimensions: neighbours are joined along each axis, the last with the first.

A message goes along the first axis, then the second, and so on (dimension-ordered routing). On each axis it goes the shorter way
round, upward where both are equally long. Device ids count the last axis fastest. Along an axis of two, both directions lead to
the same neighbour over one link.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from ..routes import Carried, ShortestPaths
from .topology import Count, GBytesPerS, Latency, Links, Topology, TopologySection, check_size, frozen, relabelled


class TorusSettings(TopologySection):
    """``topology:`` of a torus in YAML; a host holds ``devices_per_host`` neighbours along the last axis."""

    kind: Literal["torus"]
    shape: tuple[Count, ...] = Field(min_length=1, max_length=6)
    devices_per_host: Count = 1
    link_bandwidth_gbytes_per_s: GBytesPerS
    link_latency_us: Latency

    @model_validator(mode="after")
    def _hosts_fill_the_last_axis(self) -> TorusSettings:
        if self.shape[-1] % self.devices_per_host:
            raise ValueError(f"devices_per_host ({self.devices_per_host}) must divide the last axis ({self.shape[-1]})")
        return self

    def build(self) -> TorusTopology:
        """Return the topology with the units of the code."""
        return TorusTopology(
            shape=self.shape,
            devices_per_host=self.devices_per_host,
            link_bandwidth_bytes_per_s=self.link_bandwidth_gbytes_per_s * 1e9,
            link_latency_s=self.link_latency_us / 1e6,
        )


@dataclass(frozen=True, eq=False)
class TorusTopology(Topology):
    """A torus of devices with any number of axes.

    Attributes:
        shape: devices along each axis.
        devices_per_host: devices of a host, neighbours along the last axis.
        link_bandwidth_bytes_per_s: between neighbours, one direction.
        link_latency_s: of one hop.
        host_names: ``t`` and the coordinates of the host's first device, unless given.
    """

    kind: ClassVar[str] = "torus"
    is_vertex_transitive: ClassVar[bool] = True  # it may be turned along each axis
    shape: tuple[int, ...]
    devices_per_host: int
    link_bandwidth_bytes_per_s: float
    link_latency_s: float
    host_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_size(math.prod(self.shape))
        if not self.host_names:
            first = self.coordinates[:: self.devices_per_host].tolist()
            object.__setattr__(self, "host_names", tuple("t" + "-".join(map(str, at)) for at in first))

    @cached_property
    def device_host(self) -> NDArray[np.int64]:
        """Host of each device, ``(n,)``."""
        return frozen(np.arange(math.prod(self.shape)) // self.devices_per_host, np.int64)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """Names of the axes, one after another."""
        return tuple(f"axis{axis}" for axis in range(len(self.shape)))

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """Place of each device along each axis, ``(n, k)``."""
        return frozen(np.stack(np.unravel_index(np.arange(math.prod(self.shape)), self.shape), axis=1), np.int64)

    @cached_property
    def links(self) -> Links:
        """The links of each device in the order of the axes, upward before downward."""
        names = []
        for device, at in enumerate(self.coordinates.tolist()):
            for axis, step in self._directions:
                neighbour = device + ((at[axis] + step) % self.shape[axis] - at[axis]) * self._strides[axis]
                names.append(f"{self._name(device)}>{self._name(neighbour)}")
        bandwidth = frozen(np.full(len(names), self.link_bandwidth_bytes_per_s), np.float64)
        return Links(tuple(names), bandwidth, frozen(np.full(len(names), self.link_latency_s), np.float64))

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Return the axis by axis, the shorter way round."""
        path = []
        here = source
        for axis, (length, stride) in enumerate(zip(self.shape, self._strides, strict=True)):
            place = source // stride % length
            ahead = (target // stride % length - place) % length
            step = 1 if 2 * ahead <= length else -1
            for _ in range(min(ahead, length - ahead)):
                path.append(here * len(self._directions) + self._directions.index((axis, step)))
                after = (place + step) % length
                here += (after - place) * stride
                place = after
        return tuple(path)

    @property
    def has_equal_paths(self) -> bool:
        """Whether there are two axes to go along, or two ways round of equal length."""
        longer = [length for length in self.shape if length > 1]
        return len(longer) > 1 or any(length > 2 and length % 2 == 0 for length in longer)

    def num_paths(self, source: int, target: int) -> int:
        """Return the ways of the fewest hops: steps along axes in any order, and both ways round where these are equally long."""
        return self._from_first.num_paths[self._relative(source, target)]

    def equal_path(self, source: int, target: int, number: int) -> tuple[int, ...]:
        """Return a way of the fewest hops."""
        links = self._from_first.path(self._relative(source, target), number)
        return tuple(self._moved(link, source) for link in links)

    def spread(self, source: int, target: int) -> Carried:
        """Return the shares of a message on each link, spread over all ways of the fewest hops."""
        carried = self._from_first.carried(self._relative(source, target))
        return tuple((self._moved(link, source), share) for link, share in carried)

    def spread_bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the bandwidth of a spread message: that of a link over the largest share that a link carries."""
        ahead = (self.coordinates[np.asarray(target)] - self.coordinates[np.asarray(source)]) % self.shape
        offset = ahead @ np.array(self._strides)
        figures = np.full(math.prod(self.shape), np.inf)
        for target_of_first in np.unique(offset[offset > 0]).tolist():
            largest = max(share for _, share in self._from_first.carried(target_of_first))
            figures[target_of_first] = self.link_bandwidth_bytes_per_s / largest
        return np.asarray(figures[offset])

    def bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the bandwidth of a link, which is the same between all devices."""
        return np.where(np.equal(source, target), np.inf, self.link_bandwidth_bytes_per_s)

    def latency_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the latency of a link times the number of hops, in seconds."""
        ahead = (self.coordinates[np.asarray(target)] - self.coordinates[np.asarray(source)]) % self.shape
        hops: NDArray[np.int64] = np.minimum(ahead, np.array(self.shape) - ahead).sum(axis=-1)
        return np.asarray(hops * self.link_latency_s, np.float64)

    def figures(self) -> tuple[object, ...]:
        """Return shape, hosts, bandwidth and latency."""
        return (self.shape, self.devices_per_host, self.link_bandwidth_bytes_per_s, self.link_latency_s)

    def pattern(self, devices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of each device relative to the first, round the torus, and which share a host."""
        at = self.coordinates[devices]
        relative = (at - at[:, :1]) % self.shape
        return np.hstack([relative.reshape(len(devices), -1), relabelled(self.device_host[devices])])

    @cached_property
    def _strides(self) -> list[int]:
        """How far apart the ids of neighbours along each axis are."""
        return [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]

    @cached_property
    def _directions(self) -> list[tuple[int, int]]:
        """Axis and step of each of a device's links."""
        steps = {1: (), 2: (1,)}
        return [(axis, step) for axis, length in enumerate(self.shape) for step in steps.get(length, (1, -1))]

    @cached_property
    def _from_first(self) -> ShortestPaths:
        """Ways from the first device; those from another one are the same, moved along."""
        ends = []
        for device, at in enumerate(self.coordinates.tolist()):
            for axis, step in self._directions:
                ends.append((device, device + ((at[axis] + step) % self.shape[axis] - at[axis]) * self._strides[axis]))
        return ShortestPaths.from_source(math.prod(self.shape), ends, 0)

    def _relative(self, source: int, target: int) -> int:
        """Return the device at the target's offset from the source, counted from device 0."""
        return self._added(target, source, -1)

    def _moved(self, link: int, source: int) -> int:
        """Return the link as moved from device 0 to the source."""
        device, direction = divmod(link, len(self._directions))
        return self._added(device, source, 1) * len(self._directions) + direction

    def _added(self, device: int, other: int, sign: int) -> int:
        """Return the device whose coordinates are the sum, or the difference, of two devices' round the torus."""
        return sum(
            (device // stride % length + sign * (other // stride % length)) % length * stride
            for length, stride in zip(self.shape, self._strides, strict=True)
        )

    def _name(self, device: int) -> str:
        return f"{self.host_names[device // self.devices_per_host]}/{device % self.devices_per_host}"
