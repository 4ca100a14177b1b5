"""A network known only by its measured figures: a bandwidth and a latency for each ordered pair of devices, or of sites.

Each pair has a channel of its own. The YAML holds the matrices or names CSV files (plain numbers, a row for each sending device,
no header). Diagonals are not read. With ``sites`` they have a row for each site, and the diagonal holds between two hosts of a
site.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import model_validator

from ... import files, quantities, settings
from ...errors import InputFileError
from .topology import Count, GBytesPerS, Latency, Links, Topology, TopologySection, check_size, frozen, relabelled

Rows = tuple[tuple[float, ...], ...]

NEAR_BYTES = 4e6
"""Bytes of the message whose time separates near hosts from far ones."""

FAR = 2.0
"""A step between times of messages that parts sites."""


class MatrixSettings(TopologySection):
    """``topology:`` of a measured cluster in YAML; row ``i``, column ``j`` holds from device ``i`` to device ``j``.

    ``sites`` counts the devices of each site by its name; rows and columns are then sites, in that order. Hosts of several
    devices have the two figures of links inside a host too.
    """

    kind: Literal["matrix"]
    devices_per_host: Count = 1
    sites: dict[str, Count] | None = None
    intra_host_bandwidth_gbytes_per_s: GBytesPerS | None = None
    intra_host_latency_us: Latency | None = None
    bandwidth_gbytes_per_s: Rows | None = None
    bandwidth_gbytes_per_s_csv: str | None = None
    latency_us: Rows | None = None
    latency_us_csv: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> MatrixSettings:
        self._check_sites()
        for key in ("bandwidth_gbytes_per_s", "latency_us"):
            if (getattr(self, key) is None) == (getattr(self, f"{key}_csv") is None):
                raise ValueError(f"needs either {key} or {key}_csv")
        for key in ("bandwidth_gbytes_per_s", "latency_us"):
            rows = getattr(self, key)
            for i, row in enumerate(rows or ()):
                if len(row) != len(rows):
                    raise ValueError(f"{key} has {len(rows)} rows, but row {i} has {len(row)} numbers")
                for j, figure in enumerate(row):
                    if (i != j or self.sites is not None) and (problem := _problem(key, figure)) is not None:
                        raise ValueError(f"{key}, row {i}, column {j}: {problem}, is {figure:g}")
        both = self.bandwidth_gbytes_per_s, self.latency_us
        if both[0] is not None and both[1] is not None and len(both[0]) != len(both[1]):
            raise ValueError(f"bandwidth_gbytes_per_s has {len(both[0])} rows, latency_us {len(both[1])}")
        for rows in both:
            if rows is not None and self.sites is not None:
                if len(rows) != len(self.sites):
                    raise ValueError(f"{len(self.sites)} sites, but {len(rows)} rows")
            elif rows is not None and (not rows or len(rows) % self.devices_per_host):
                raise ValueError(f"{len(rows)} devices do not fill hosts of {self.devices_per_host}")
        return self

    def _check_sites(self) -> None:
        inside = self.intra_host_bandwidth_gbytes_per_s, self.intra_host_latency_us
        if self.sites is None:
            if inside != (None, None):
                raise ValueError("intra_host_bandwidth_gbytes_per_s and intra_host_latency_us are read with sites alone")
            return
        if not self.sites:
            raise ValueError("sites: is empty")
        for name, count in self.sites.items():
            if count % self.devices_per_host:
                raise ValueError(f"sites.{name}: {count} devices do not fill hosts of {self.devices_per_host}")
        if self.devices_per_host > 1 and None in inside:
            raise ValueError("sites of hosts of several devices need intra_host_bandwidth_gbytes_per_s and intra_host_latency_us")

    def resolved(self, folder: Path) -> MatrixSettings:
        """Return the settings with the content of the CSV files written out.

        Raises:
            InputFileError: a file is missing or holds anything but numbers.
            ConfigError: the numbers make no square matrices of equal size, or are out of range.
        """
        named = {key: getattr(self, f"{key}_csv") for key in ("bandwidth_gbytes_per_s", "latency_us")}
        read = {key: read_matrix(folder / name) for key, name in named.items() if name is not None}
        if not read:
            return self
        data = self.model_dump(exclude_unset=True, exclude={f"{key}_csv" for key in read}) | read
        return settings.build_settings(
            MatrixSettings, data, file=folder / next(name for name in named.values() if name is not None)
        )

    def build(self) -> MatrixTopology:
        """Return the topology with the units of the code."""
        bandwidth, latency = np.array(self.bandwidth_gbytes_per_s) * 1e9, np.array(self.latency_us) / 1e6
        if self.sites is None:
            return MatrixTopology(bandwidth, latency, self.devices_per_host)
        sizes = list(self.sites.values())
        site = np.repeat(np.arange(len(sizes)), sizes)
        host = np.arange(len(site)) // self.devices_per_host
        is_inside = host[:, None] == host[None, :]
        pairs = np.ix_(site, site)
        return MatrixTopology(
            np.where(is_inside, (self.intra_host_bandwidth_gbytes_per_s or 0.0) * 1e9, bandwidth[pairs]),
            np.where(is_inside, (self.intra_host_latency_us or 0.0) / 1e6, latency[pairs]),
            devices_per_host=self.devices_per_host,
            host_names=tuple(f"{name}-{i}" for name, size in self.sites.items() for i in range(size // self.devices_per_host)),
            site_names=tuple(self.sites),
            site_of_host=tuple(site[:: self.devices_per_host].tolist()),
        )


@dataclass(frozen=True, eq=False)
class MatrixTopology(Topology):
    """A channel for each ordered pair of devices.

    Attributes:
        pair_bandwidth_bytes_per_s: from each device to each, ``(n, n)``.
        pair_latency_s: from each device to each, ``(n, n)``.
        devices_per_host: consecutive devices of one host.
        host_names: ``host-{index}`` unless given.
        site_names, site_of_host: of the sites, and the site of each host; empty unless given.
    """

    kind: ClassVar[str] = "matrix"
    pair_bandwidth_bytes_per_s: NDArray[np.float64]
    pair_latency_s: NDArray[np.float64]
    devices_per_host: int = 1
    host_names: tuple[str, ...] = ()
    site_names: tuple[str, ...] = ()
    site_of_host: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.pair_bandwidth_bytes_per_s)
        check_size(n)
        is_self = np.eye(n, dtype=np.bool_)
        for field, own in (("pair_bandwidth_bytes_per_s", np.inf), ("pair_latency_s", 0.0)):
            object.__setattr__(self, field, frozen(np.where(is_self, own, getattr(self, field)), np.float64))
        if not self.host_names:
            object.__setattr__(self, "host_names", tuple(f"host-{i}" for i in range(n // self.devices_per_host)))

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether every link has equal figures in both directions."""
        return all(np.array_equal(one, one.T) for one in (self.pair_bandwidth_bytes_per_s, self.pair_latency_s))

    @cached_property
    def device_host(self) -> NDArray[np.int64]:
        """Host of each device, ``(n,)``."""
        return frozen(np.arange(len(self.pair_latency_s)) // self.devices_per_host, np.int64)

    @cached_property
    def host_group(self) -> NDArray[np.int64]:
        """The site of each host, ``(num_hosts,)``, counted from the first host on: as given, else as found in the figures.

        A message of `NEAR_BYTES` takes some time each way between two devices of two hosts; the longest counts. Hosts are joined
        in the order of these times (single linkage). If one step of that order is at least `FAR` times the step before, the hosts
        joined before the largest such step form the sites. Otherwise all hosts are one site.
        """
        if self.site_of_host:
            return frozen(_numbered(np.array(self.site_of_host)), np.int64)
        return frozen(_sites(self._host_s()), np.int64)

    def _host_s(self) -> NDArray[np.float64]:
        """Return seconds of a message of `NEAR_BYTES` between devices of two hosts, the longest of both ways, ``(h, h)``."""
        pair_s = self.pair_latency_s + NEAR_BYTES / self.pair_bandwidth_bytes_per_s
        size, hosts = self.devices_per_host, len(self.host_names)
        one_way = pair_s.reshape(hosts, size, hosts, size).max(axis=(1, 3))
        return np.asarray(np.maximum(one_way, one_way.T))

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """Host, and device of the host."""
        return "host", "device"

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """Host, and device of the host, ``(n, 2)``."""
        devices = np.arange(len(self.pair_latency_s))
        return frozen(np.stack([devices // self.devices_per_host, devices % self.devices_per_host], axis=1), np.int64)

    @cached_property
    def links(self) -> Links:
        """One channel for each ordered pair of devices, by source, then by target."""
        size = self.devices_per_host
        device = [f"{host}/{local}" for host in self.host_names for local in range(size)]
        names = tuple(f"{a}>{b}" for a in device for b in device if a != b)
        others = ~np.eye(len(device), dtype=np.bool_)
        return Links(
            names,
            frozen(self.pair_bandwidth_bytes_per_s[others], np.float64),
            frozen(self.pair_latency_s[others], np.float64),
        )

    @cached_property
    def hosts_are_equal(self) -> bool:
        """Whether all pairs within hosts have the same figures, and all pairs between hosts."""
        host = self.device_host
        is_inside, is_self = host[:, None] == host[None, :], np.eye(len(host), dtype=np.bool_)
        places = (is_inside & ~is_self, ~is_inside)
        figures = (self.pair_bandwidth_bytes_per_s, self.pair_latency_s)
        return all(len(np.unique(figure[place])) <= 1 for figure in figures for place in places)

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Return the pair's own channel."""
        if source == target:
            return ()
        return (source * (len(self.pair_latency_s) - 1) + target - (target > source),)

    def bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the bandwidth from device to device, as the matrix says."""
        return np.asarray(self.pair_bandwidth_bytes_per_s[np.asarray(source), np.asarray(target)])

    def latency_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the latency from device to device in seconds, as the matrix says."""
        return np.asarray(self.pair_latency_s[np.asarray(source), np.asarray(target)])

    def figures(self) -> tuple[object, ...]:
        """Return both matrices, and the sites of hosts where they are given."""
        sites = (self.site_of_host,) if self.site_of_host else ()
        return (self.devices_per_host, self.pair_bandwidth_bytes_per_s, self.pair_latency_s, *sites)

    def pattern(self, devices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return both figures of each pair of positions, bit for bit, and which positions share a host."""
        rows, columns = devices[:, :, None], devices[:, None, :]
        bandwidth = self.pair_bandwidth_bytes_per_s[rows, columns].reshape(len(devices), -1).view(np.int64)
        latency = self.pair_latency_s[rows, columns].reshape(len(devices), -1).view(np.int64)
        return np.hstack([bandwidth, latency, relabelled(self.device_host[devices])])


def _sites(between_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return which hosts lie together, by the times between them, ``(h,)``."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    together = np.zeros(len(between_s), np.int64)
    if len(between_s) < 3:
        return together
    tree = linkage(squareform(between_s, checks=False), "single")
    times = tree[:, 2]
    steps = times[1:] / times[:-1] if times[0] > 0.0 else np.ones(1)
    if steps.max() < FAR:
        return together
    return _numbered(fcluster(tree, times[np.argmax(steps)], "distance").astype(np.int64))


def _numbered(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the labels as 0, 1, ... in the order in which they first occur."""
    return np.asarray(np.unique(relabelled(labels[None])[0], return_inverse=True)[1], np.int64)


def read_matrix(path: Path) -> Rows:
    """Return the rows of a CSV file of numbers.

    Raises:
        InputFileError: the file is missing or empty, or a field is no finite number; with its line.
    """
    rows = []
    for line, fields in files.read_csv(path):
        if not any(field.strip() for field in fields):
            continue
        row = []
        for column, text in enumerate(fields):
            try:
                row.append(quantities.number(text))
            except ValueError as error:
                raise InputFileError(str(error), file=path, line=line, field=f"column {column}", value=text) from None
        rows.append(tuple(row))
    if not rows:
        raise InputFileError("holds no numbers", file=path)
    return tuple(rows)


def _problem(key: str, figure: float) -> str | None:
    """Return the problem of one figure of a matrix; None if it has none."""
    if figure < 0:
        return "must not be negative"
    if figure == 0 and key == "bandwidth_gbytes_per_s":
        return "must be greater than 0"
    return quantities.problem(key, figure)
