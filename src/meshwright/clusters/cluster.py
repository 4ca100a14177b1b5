"""The cluster: devices in hosts, joined by links, and the one function that loads it from a preset or a file.

Legend of shapes: ``n`` devices, those of a host consecutive; ``L`` directed links; ``k`` coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import files, settings
from ..devices import DeviceSettings, DeviceType, device_type
from ..errors import ClusterError, ConfigError, InputFileError, Names, nearest
from ..packaged import shipped_path
from . import plausible
from .routes import Carried
from .settings import ClusterSettings
from .topologies.topology import Links, Topology, check_host_names, check_size, frozen

PRESET = "preset:"


@dataclass(frozen=True, eq=False)
class Cluster:
    """A cluster: devices in hosts, and the topology that joins them.

    Attributes:
        name: for tables and plans.
        host_names: name of each host by RFC 1123, unique whatever its capitals.
        device_host: host of each device, ``(n,)``.
        device_types: the distinct device types, in order of first appearance.
        device_type: index into ``device_types`` of each device, ``(n,)``.
        topology: which links a pair of devices uses.
        settings: what the cluster was built from.

    Raises:
        ClusterError: no device, a bad or repeated host name, arrays of unequal length, devices of a host that
            are not consecutive.
    """

    name: str
    host_names: tuple[str, ...]
    device_host: NDArray[np.int64]
    device_types: tuple[DeviceType, ...]
    device_type: NDArray[np.int64]
    topology: Topology
    settings: ClusterSettings

    def __post_init__(self) -> None:
        object.__setattr__(self, "host_names", tuple(self.host_names))
        object.__setattr__(self, "device_types", tuple(self.device_types))
        object.__setattr__(self, "device_host", frozen(self.device_host, np.int64))
        object.__setattr__(self, "device_type", frozen(self.device_type, np.int64))
        self._check()

    @classmethod
    def from_settings(cls, described: ClusterSettings, *, folder: Path | None = None) -> Cluster:
        """Build a cluster.

        Args:
            described: its YAML.
            folder: where relative file names in it start; the working folder if not given.

        Raises:
            ClusterError: impossible, as the class says, or an override of an absent host.
            ConfigError: an unknown device type.
            InputFileError: a file that the YAML names is missing or malformed.
        """
        described = described.resolved(folder or Path())
        topology: Topology = described.topology.build()
        if described.host_names is not None:
            if len(described.host_names) != len(topology.host_names):
                problem = f"has {len(described.host_names)} names for {len(topology.host_names)} hosts"
                raise ClusterError(problem, field="host_names")
            topology = replace(topology, host_names=described.host_names)  # type: ignore[type-var]
        types, host_type = _device_types(described, topology.host_names)
        return cls(
            name=described.name,
            host_names=topology.host_names,
            device_host=topology.device_host,
            device_types=types,
            device_type=host_type[topology.device_host],
            topology=topology,
            settings=described,
        )

    @property
    def num_devices(self) -> int:
        """Number of devices, ``n``."""
        return len(self.device_host)

    @property
    def num_hosts(self) -> int:
        """Number of hosts."""
        return len(self.host_names)

    @cached_property
    def local_rank(self) -> NDArray[np.int64]:
        """Index of each device within its host, ``(n,)``."""
        first = np.searchsorted(self.device_host, np.arange(self.num_hosts))
        return frozen(np.arange(self.num_devices) - first[self.device_host], np.int64)

    @cached_property
    def memory_bytes(self) -> NDArray[np.float64]:
        """Memory of each device, ``(n,)``."""
        return frozen(np.array([kind.memory_bytes for kind in self.device_types])[self.device_type], np.float64)

    @cached_property
    def types_by_speed(self) -> list[int]:
        """Indices into ``device_types``, the fastest first."""
        kinds = self.device_types
        return sorted(range(len(kinds)), key=lambda one: (-kinds[one].reached_flops_per_s, str(kinds[one].to_data())))

    @property
    def links(self) -> Links:
        """All directed links."""
        return self.topology.links

    @cached_property
    def hosts_are_equal(self) -> bool:
        """Whether every host has as many devices and sees the same network, see `Topology.hosts_are_equal`."""
        return len(set(np.bincount(self.device_host).tolist())) == 1 and self.topology.hosts_are_equal

    @property
    def coordinates(self) -> NDArray[np.int64]:
        """The place of each device in its topology, ``(n, k)``."""
        return self.topology.coordinates

    def bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the bandwidth of the narrowest link on the path, one direction, elementwise; infinite to itself.

        Raises:
            ClusterError: an absent device.
        """
        return self.topology.bandwidth_bytes_per_s(self._present(source), self._present(target))

    def latency_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the sum of the latencies on the path, elementwise; zero to itself.

        Raises:
            ClusterError: an absent device.
        """
        return self.topology.latency_s(self._present(source), self._present(target))

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Return the indices into `links` that a message crosses, in order; empty to itself.

        Raises:
            ClusterError: an absent device.
        """
        return self.topology.path(int(self._present(source)), int(self._present(target)))

    def num_paths(self, source: int, target: int) -> int:
        """Return the number of paths of the same cost as `path`, itself among them; 1 to itself.

        Raises:
            ClusterError: an absent device.
        """
        return self.topology.num_paths(int(self._present(source)), int(self._present(target)))

    def equal_path(self, source: int, target: int, number: int) -> tuple[int, ...]:
        """Return one of these paths by its number, from 0 on.

        Raises:
            ClusterError: an absent device, or fewer paths.
        """
        count = self.num_paths(source, target)
        if not 0 <= number < count:
            raise ClusterError(f"{count} paths join devices {source} and {target}", field=self.name, value=number)
        return self.topology.equal_path(source, target, number)

    def spread(self, source: int, target: int) -> Carried:
        """Return the links that a message crosses if all these paths take equal parts of it, with the part that crosses each.

        Raises:
            ClusterError: an absent device.
        """
        return self.topology.spread(int(self._present(source)), int(self._present(target)))

    def spread_bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the bytes in a second from device to device over all these paths, elementwise; infinite to itself.

        Raises:
            ClusterError: an absent device.
        """
        return self.topology.spread_bandwidth_bytes_per_s(self._present(source), self._present(target))

    def device_name(self, device: int) -> str:
        """Return ``host/local``, for example ``g0-r1-s0/0``."""
        return f"{self.host_names[self.device_host[device]]}/{self.local_rank[device]}"

    @cached_property
    def digest(self) -> str:
        """A hash of everything that a time on this cluster depends on; names of cluster and hosts do not count."""
        types = [sorted(kind.to_data().items()) for kind in self.device_types]
        return files.digest(self.topology.kind, self.topology.figures(), self.device_host, types, self.device_type)

    def to_data(self) -> dict[str, Any]:
        """Return plain data of the shape of the YAML, complete in itself, that `from_data` reads back."""
        return self.settings.model_dump(mode="json", exclude_unset=True)

    @classmethod
    def from_data(cls, data: Any, *, file: str | Path | None = None) -> Cluster:
        """Return the cluster that `to_data` described.

        Raises:
            ConfigError: an unknown key or impossible value.
            ClusterError: an impossible cluster.
        """
        return cls.from_settings(settings.build_settings(ClusterSettings, data, file=file))

    def _present(self, devices: ArrayLike) -> NDArray[np.int64]:
        ids = np.asarray(devices, np.int64)
        absent = (ids < 0) | (ids >= self.num_devices)
        if absent.any():
            first = int(ids[absent].flat[0]) if ids.ndim else int(ids)
            raise ClusterError(f"no such device, there are 0..{self.num_devices - 1}", field=self.name, value=first)
        return ids

    def _check(self) -> None:
        check_size(self.num_devices)
        if self.num_hosts == 0:
            raise ClusterError("has no host", field="host_names")
        check_host_names(self.host_names)
        if self.device_type.shape != self.device_host.shape:
            raise ClusterError(f"has {len(self.device_type)} entries for {self.num_devices} devices", field="device_type")
        steps = np.diff(self.device_host, prepend=-1)
        if not (np.isin(steps, (0, 1)).all() and self.device_host[0] == 0 and self.device_host[-1] == self.num_hosts - 1):
            raise ClusterError("each host has devices, numbered one host after another", field="device_host")
        if not np.isin(self.device_type, np.arange(len(self.device_types))).all():
            raise ClusterError(f"names a type outside 0..{len(self.device_types) - 1}", field="device_type")


def load_cluster(spec: str) -> Cluster:
    """Load a cluster.

    Args:
        spec: ``preset:NAME``, or the path of a YAML file.

    Warns:
        PlausibilityWarning: a figure is beyond what machines are like, see `plausible`.

    Raises:
        ConfigError: an unknown preset, or a bad key or value in the file.
        InputFileError: the file is missing.
        ClusterError: the file describes an impossible cluster.
    """
    path = _preset(spec.removeprefix(PRESET)) if spec.startswith(PRESET) else Path(spec)
    if not path.exists() and "/" not in spec and path.suffix not in (".yaml", ".yml"):
        candidates = [path.with_suffix(ending) for ending in (".yaml", ".yml") if path.with_suffix(ending).is_file()]
        near = nearest(spec, preset_names())
        choices = [str(candidates[0])] if candidates else [PRESET + name for name in ([near] if near else preset_names())]
        raise InputFileError("neither a file nor a preset", field="cluster", value=spec, choices=choices)
    if path.suffix in (".csv", ".txt") and path.is_file():
        raise ClusterError("a cluster is YAML, which names a CSV of devices or links under topology", file=path, field="cluster")
    described = settings.load(ClusterSettings, path)
    try:
        cluster = Cluster.from_settings(described, folder=path.parent)
    except (ClusterError, ConfigError) as error:
        raise error.at(file=path) from None
    plausible.warn(cluster.settings, path)
    return cluster


def preset_names() -> list[str]:
    """Return the clusters that come with the package."""
    return Names("clusters", sorted(path.stem for path in shipped_path("clusters").glob("*.yaml")))


def _preset(name: str) -> Path:
    if name not in preset_names():
        raise ConfigError("unknown preset", field="cluster", value=name, choices=preset_names())
    return shipped_path("clusters") / f"{name}.yaml"


def _device_types(described: ClusterSettings, host_names: tuple[str, ...]) -> tuple[tuple[DeviceType, ...], NDArray[np.int64]]:
    """Return the distinct types in order of first appearance, and the index of each host's."""
    known = set(host_names)
    for name in described.device_overrides:
        if name not in known:
            raise ClusterError("no such host", field="device_overrides", value=name, choices=host_names)
    default = _device(described.device, "device")
    overrides = {name: _device(spec, f"device_overrides.{name}") for name, spec in described.device_overrides.items()}
    of_host = [overrides.get(name, default) for name in host_names]
    types = tuple(dict.fromkeys(of_host))
    index = {kind: i for i, kind in enumerate(types)}
    return types, np.array([index[kind] for kind in of_host], np.int64)


def _device(spec: str | DeviceSettings, field: str) -> DeviceType:
    try:
        return device_type(spec)
    except ConfigError as error:
        raise ConfigError(error.problem, field=field, value=error.value, choices=error.choices) from None
