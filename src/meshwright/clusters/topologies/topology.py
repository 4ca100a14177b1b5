"""The interface of all topologies: hosts and their devices, directed links, and the path between any two devices.

Legend of shapes: ``n`` devices, ``L`` directed links (full duplex = two links), ``k`` coordinates of a device, ``B`` groups of
``d`` devices. Devices of a host are consecutive.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, Field

from ...errors import ClusterError
from ...settings import Settings
from ..routes import Carried

MAX_DEVICES = 65_536
"""Largest cluster that is built; a larger one is refused by name."""

_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
HOST_NAME = rf"{_LABEL}(\.{_LABEL})*"


def _positive_count(value: int) -> int:
    if value < 1:
        raise ValueError("must be at least 1")
    return value


Count = Annotated[int, AfterValidator(_positive_count), Field(le=MAX_DEVICES)]
"""A number of hosts, devices or switches in YAML."""

GBytesPerS = Annotated[float, Field(gt=0)]
"""A bandwidth in YAML: GB/s, one direction."""

Latency = Annotated[float, Field(ge=0)]
"""A latency in YAML: microseconds or nanoseconds, as the key says."""


class TopologySection(Settings):
    """``topology:`` of a cluster in YAML."""

    def resolved(self, folder: Path) -> Self:
        """Return itself where it names no other files; else with its paths relative to ``folder``."""
        return self


@dataclass(frozen=True, eq=False)
class Links:
    """The directed links of a cluster.

    Attributes:
        names: ``from>to`` of each link, length ``L``.
        bandwidth_bytes_per_s: what each link carries in its direction, ``(L,)``.
        latency_s: time that a byte needs to cross it, ``(L,)``.
    """

    names: tuple[str, ...]
    bandwidth_bytes_per_s: NDArray[np.float64]
    latency_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.names)


class Topology(ABC):
    """How the devices of a cluster are joined.

    Attributes:
        kind: the word that names this topology in YAML.
        is_vertex_transitive: whether renumbering, without a change of any figure, takes any host to any other.
        host_names: unique name of each host.
        device_host: host of each device, ``(n,)``.
        coordinate_names: what each coordinate counts, length ``k``.
        coordinates: where each device is, ``(n, k)``.
    """

    kind: ClassVar[str]
    is_vertex_transitive: ClassVar[bool] = False
    host_names: tuple[str, ...]

    @property
    @abstractmethod
    def device_host(self) -> NDArray[np.int64]:
        """Host of each device, ``(n,)``."""

    @property
    @abstractmethod
    def coordinate_names(self) -> tuple[str, ...]:
        """Names of the coordinates, length ``k``."""

    @property
    @abstractmethod
    def coordinates(self) -> NDArray[np.int64]:
        """The place of each device, ``(n, k)``."""

    @property
    @abstractmethod
    def links(self) -> Links:
        """All directed links."""

    @property
    def host_group(self) -> NDArray[np.int64] | None:
        """The leaf switch or site of each host, ``(num_hosts,)``; None where hosts form no groups."""
        return None

    @property
    def hosts_are_equal(self) -> bool:
        """Whether renumbering takes any host to any other, as far as that is known; by default `is_vertex_transitive`.

        Then the first group of a form is priced for all of them; else each group is priced on its own devices.
        """
        return self.is_vertex_transitive

    @abstractmethod
    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Return the indices of the links that a message from one device to another crosses, in order; empty for itself."""

    @property
    def has_equal_paths(self) -> bool:
        """Whether any two devices are joined by more than one path of the same cost."""
        return False

    def num_paths(self, source: int, target: int) -> int:
        """Return the number of paths of the same cost as `path`, itself among them; 1 from a device to itself."""
        return 1

    def equal_path(self, source: int, target: int, number: int) -> tuple[int, ...]:
        """Return one of these paths by its number, from 0 on.

        Groups of devices with the same `pattern` share links in the same way if all of their pairs take the paths of the
        same numbers.
        """
        return self.path(source, target)

    def spread(self, source: int, target: int) -> Carried:
        """Return each link that a message crosses if equal parts of it take all these paths, with the part that crosses it."""
        return tuple((link, 1.0) for link in self.path(source, target))

    def spread_bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return bytes per second from device to device if all these paths are used evenly, elementwise; infinite to itself."""
        return self.bandwidth_bytes_per_s(source, target)

    @abstractmethod
    def bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the bandwidth of the narrowest link on each path, elementwise; infinite from a device to itself."""

    @abstractmethod
    def latency_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the sum of the latencies on each path, elementwise; zero from a device to itself."""

    @abstractmethod
    def figures(self) -> tuple[object, ...]:
        """Return every number on which times depend, without names: what a digest of the cluster is made of."""

    @abstractmethod
    def pattern(self, devices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a key that differs between ordered groups of devices whose times may differ.

        Two groups with equal rows have equal bandwidths and latencies between equal positions, and the same
        positions share links.

        Args:
            devices: ``(B, d)`` device ids.

        Returns:
            ``(B, m)``, whatever ``m`` the topology needs.
        """


def relabelled(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each label replaced by the position at which it first occurs in its row: the row's equality pattern.

    Args:
        labels: ``(B, d)`` integers.

    Returns:
        ``(B, d)``: ``[7, 3, 7]`` becomes ``[0, 1, 0]``.
    """
    rows, width = labels.shape
    if labels.size == 0:
        return np.zeros_like(labels)
    low = int(labels.min())
    keys = (labels - low) + np.arange(rows)[:, None] * (int(labels.max()) - low + 1)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    pattern: NDArray[np.int64] = (first[inverse.reshape(-1)] % width).reshape(rows, width).astype(np.int64)
    return pattern


def is_host_name(name: str) -> bool:
    """Return whether a text is a host name by RFC 1123: labels of letters, digits and inner hyphens, dots between, up to 253."""
    return len(name) <= 253 and re.fullmatch(HOST_NAME, name) is not None


def check_host_names(names: tuple[str, ...]) -> None:
    """Refuse host names that are none by RFC 1123, or that occur twice but for capitals: they go into scripts.

    Raises:
        ClusterError: naming the first bad one.
    """
    for index, name in enumerate(names):
        if not is_host_name(name):
            problem = "a host name is labels of letters, digits and inner hyphens, 1-63 each, with dots between, 253 in all"
            raise ClusterError(problem, field=f"host_names.{index}", value=name)
    twice, count = Counter(name.lower() for name in names).most_common(1)[0]
    if count > 1:
        raise ClusterError("the host name appears twice", field="host_names", value=twice)


def check_size(num_devices: int) -> None:
    """Refuse clusters without devices, or too large to hold.

    Raises:
        ClusterError: no device, or more than `MAX_DEVICES`.
    """
    if num_devices < 1:
        raise ClusterError("has no device", field="topology", value=num_devices)
    if num_devices > MAX_DEVICES:
        raise ClusterError(f"has more than {MAX_DEVICES} devices", field="topology", value=num_devices)


def frozen(values: Any, dtype: Any) -> NDArray[Any]:
    """Return a read-only copy of an array."""
    array = np.array(values, dtype)
    array.flags.writeable = False
    return array
