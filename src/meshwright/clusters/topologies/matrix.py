"""A network known only by its measured figures: a bandwidth and a latency for each ordered pair of devices.

Each pair has a channel of its own. The matrices stand in the YAML or in CSV files beside it (plain numbers, a row
for each sending device, no header); their diagonals are not read.
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
from .topology import Count, Links, Topology, TopologySection, check_size, frozen, relabelled

Rows = tuple[tuple[float, ...], ...]


class MatrixSettings(TopologySection):
    """``topology:`` of a measured cluster in YAML; row ``i``, column ``j`` holds from device ``i`` to device ``j``."""

    kind: Literal["matrix"]
    devices_per_host: Count = 1
    bandwidth_gbytes_per_s: Rows | None = None
    bandwidth_gbytes_per_s_csv: str | None = None
    latency_us: Rows | None = None
    latency_us_csv: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> MatrixSettings:
        for key in ("bandwidth_gbytes_per_s", "latency_us"):
            if (getattr(self, key) is None) == (getattr(self, f"{key}_csv") is None):
                raise ValueError(f"needs either {key} or {key}_csv")
        for key in ("bandwidth_gbytes_per_s", "latency_us"):
            rows = getattr(self, key)
            for i, row in enumerate(rows or ()):
                if len(row) != len(rows):
                    raise ValueError(f"{key} has {len(rows)} rows, but row {i} has {len(row)} numbers")
                for j, figure in enumerate(row):
                    if i != j and (problem := _problem(key, figure)) is not None:
                        raise ValueError(f"{key}, row {i}, column {j}: {problem}, is {figure:g}")
        both = self.bandwidth_gbytes_per_s, self.latency_us
        if both[0] is not None and both[1] is not None and len(both[0]) != len(both[1]):
            raise ValueError(f"bandwidth_gbytes_per_s has {len(both[0])} rows, latency_us {len(both[1])}")
        for rows in both:
            if rows is not None and (not rows or len(rows) % self.devices_per_host):
                raise ValueError(f"{len(rows)} devices do not fill hosts of {self.devices_per_host}")
        return self

    def resolved(self, folder: Path) -> MatrixSettings:
        """The same with the content of the CSV files written out.

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
        """The topology with the units of the code."""
        return MatrixTopology(
            pair_bandwidth_bytes_per_s=np.array(self.bandwidth_gbytes_per_s) * 1e9,
            pair_latency_s=np.array(self.latency_us) / 1e6,
            devices_per_host=self.devices_per_host,
        )


@dataclass(frozen=True, eq=False)
class MatrixTopology(Topology):
    """A channel for each ordered pair of devices.

    Attributes:
        pair_bandwidth_bytes_per_s: from each device to each, ``(n, n)``.
        pair_latency_s: from each device to each, ``(n, n)``.
        devices_per_host: consecutive devices of one host.
        host_names: ``host-{index}`` unless given.
    """

    kind: ClassVar[str] = "matrix"
    pair_bandwidth_bytes_per_s: NDArray[np.float64]
    pair_latency_s: NDArray[np.float64]
    devices_per_host: int = 1
    host_names: tuple[str, ...] = ()

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
        """Whether every link is alike in both directions."""
        return all(np.array_equal(one, one.T) for one in (self.pair_bandwidth_bytes_per_s, self.pair_latency_s))

    @cached_property
    def device_host(self) -> NDArray[np.int64]:
        """Host of each device, ``(n,)``."""
        return frozen(np.arange(len(self.pair_latency_s)) // self.devices_per_host, np.int64)

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
    def hosts_are_alike(self) -> bool:
        """Where all pairs within hosts have the same figures, and all pairs between hosts."""
        host = self.device_host
        is_inside, is_self = host[:, None] == host[None, :], np.eye(len(host), dtype=np.bool_)
        places = (is_inside & ~is_self, ~is_inside)
        figures = (self.pair_bandwidth_bytes_per_s, self.pair_latency_s)
        return all(len(np.unique(figure[place])) <= 1 for figure in figures for place in places)

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """The pair's own channel."""
        if source == target:
            return ()
        return (source * (len(self.pair_latency_s) - 1) + target - (target > source),)

    def bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """As the matrix says."""
        return np.asarray(self.pair_bandwidth_bytes_per_s[np.asarray(source), np.asarray(target)])

    def latency_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """As the matrix says."""
        return np.asarray(self.pair_latency_s[np.asarray(source), np.asarray(target)])

    def figures(self) -> tuple[object, ...]:
        """Both matrices."""
        return (self.devices_per_host, self.pair_bandwidth_bytes_per_s, self.pair_latency_s)

    def pattern(self, devices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Both figures of each pair of positions, bit for bit, and which positions share a host."""
        rows, columns = devices[:, :, None], devices[:, None, :]
        bandwidth = self.pair_bandwidth_bytes_per_s[rows, columns].reshape(len(devices), -1).view(np.int64)
        latency = self.pair_latency_s[rows, columns].reshape(len(devices), -1).view(np.int64)
        return np.hstack([bandwidth, latency, relabelled(self.device_host[devices])])


def read_matrix(path: Path) -> Rows:
    """The rows of a CSV file of numbers.

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
    """What is wrong with one figure of a matrix; None where nothing is."""
    if figure < 0:
        return "must not be negative"
    if figure == 0 and key == "bandwidth_gbytes_per_s":
        return "must be greater than 0"
    return quantities.problem(key, figure)
