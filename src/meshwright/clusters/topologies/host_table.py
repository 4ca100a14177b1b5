"""A real, irregular three-layer network, read from a table of hosts with their core, pod and leaf switch.

The form is that of the Lingjun data set of 2023 (columns ``ip,DSW,PSW,ASW``: host, core, pod and leaf switch; leaf names repeat
between pods). Each leaf has one link to its pod switch and each pod one to the core. The YAML gives their bandwidths, which the
table lacks. Hosts are sorted by pod and leaf, so neighbours are near each other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import model_validator

from ... import files
from ...errors import InputFileError
from .hosts import Hosts, HostSettings
from .topology import GBytesPerS, Latency, Links, Topology, frozen, relabelled

COLUMNS = ["ip", "DSW", "PSW", "ASW"]

_HASH = re.compile(r"[0-9a-f]{16,}")


class TraceSettings(HostSettings):
    """``topology:`` of a traced cluster in YAML.

    Either ``csv`` names the table, or ``hosts_at`` holds its rows ``[host, core, pod, leaf]``. Bandwidths of the two upper tiers
    are totals over the uplinks of a leaf or of a pod, one direction. Latencies are per hop.
    """

    kind: Literal["trace"]
    csv: str | None = None
    hosts_at: tuple[tuple[str, str, str, str], ...] | None = None
    leaf_uplink_gbytes_per_s: GBytesPerS
    leaf_uplink_latency_us: Latency
    pod_uplink_gbytes_per_s: GBytesPerS
    pod_uplink_latency_us: Latency

    @model_validator(mode="after")
    def _one_table(self) -> TraceSettings:
        if (self.csv is None) == (self.hosts_at is None):
            raise ValueError("needs either csv or hosts_at")
        cores = sorted({row[1] for row in self.hosts_at or ()})
        if len(cores) > 1:
            raise ValueError(f"no link joins the cores {cores[0]} and {cores[1]}; keep the hosts of one")
        if self.hosts_at is not None and not self.hosts_at:
            raise ValueError("a cluster has at least one device")
        return self

    def resolved(self, folder: Path) -> TraceSettings:
        """Return the settings with the table written out.

        Raises:
            InputFileError: the file is missing or malformed.
            ConfigError: the table joins hosts of several cores.
        """
        if self.csv is None:
            return self
        from ... import settings

        data = self.model_dump(exclude_unset=True, exclude={"csv"}) | {"hosts_at": read_table(folder / self.csv)}
        return settings.build_settings(TraceSettings, data, file=folder / self.csv)

    def build(self) -> TraceTopology:
        """Return the topology with the units of the code."""
        rows = sorted(self.hosts_at or (), key=lambda row: [_natural(text) for text in row[1:]])
        leaves = list(dict.fromkeys((pod, leaf) for _, _, pod, leaf in rows))
        pods = list(dict.fromkeys(pod for pod, _ in leaves))
        leaf_index = {leaf: i for i, leaf in enumerate(leaves)}
        return TraceTopology(
            hosts=self.hosts(len(rows)),
            host_leaf=np.array([leaf_index[pod, leaf] for _, _, pod, leaf in rows]),
            leaf_pod=np.array([pods.index(pod) for pod, _ in leaves]),
            leaf_bandwidth_bytes_per_s=self.leaf_uplink_gbytes_per_s * 1e9,
            leaf_latency_s=self.leaf_uplink_latency_us / 1e6,
            pod_bandwidth_bytes_per_s=self.pod_uplink_gbytes_per_s * 1e9,
            pod_latency_s=self.pod_uplink_latency_us / 1e6,
            host_names=tuple(_host_name(row[0]) for row in rows),
            leaf_names=tuple(f"{pod}.{leaf}" for pod, leaf in leaves),
            pod_names=tuple(pods),
        )


@dataclass(frozen=True, eq=False)
class TraceTopology(Topology):
    """A tree of three layers: leaves below pods below one core.

    Attributes:
        hosts: the hosts below the leaves.
        host_leaf: leaf of each host, ``(num_hosts,)``, nondecreasing.
        leaf_pod: pod of each leaf, ``(num_leaves,)``, nondecreasing.
        leaf_bandwidth_bytes_per_s: from a leaf to its pod switch, one direction.
        leaf_latency_s: of that hop.
        pod_bandwidth_bytes_per_s: from a pod switch to the core, one direction.
        pod_latency_s: of that hop.
        host_names: of each host.
        leaf_names: of each leaf.
        pod_names: of each pod.
    """

    kind: ClassVar[str] = "trace"
    hosts: Hosts
    host_leaf: NDArray[np.int64]
    leaf_pod: NDArray[np.int64]
    leaf_bandwidth_bytes_per_s: float
    leaf_latency_s: float
    pod_bandwidth_bytes_per_s: float
    pod_latency_s: float
    host_names: tuple[str, ...]
    leaf_names: tuple[str, ...]
    pod_names: tuple[str, ...]

    @property
    def device_host(self) -> NDArray[np.int64]:
        """Host of each device, ``(n,)``."""
        return self.hosts.host

    @property
    def host_group(self) -> NDArray[np.int64]:
        """The leaf of each host, ``(num_hosts,)``."""
        return self.host_leaf

    @cached_property
    def device_leaf(self) -> NDArray[np.int64]:
        """Leaf of each device, ``(n,)``."""
        return frozen(self.host_leaf[self.device_host], np.int64)

    @cached_property
    def device_pod(self) -> NDArray[np.int64]:
        """Pod of each device, ``(n,)``."""
        return frozen(self.leaf_pod[self.device_leaf], np.int64)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """Pod, leaf, host, device of the host."""
        return "pod", "leaf", "host", "device"

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """Pod, leaf and host (each counted over the cluster), and device of the host, ``(n, 4)``."""
        local = np.arange(self.hosts.num_devices) % self.hosts.devices_per_host
        return frozen(np.stack([self.device_pod, self.device_leaf, self.device_host, local], axis=1), np.int64)

    @cached_property
    def links(self) -> Links:
        """The hosts' links, then up and down for each leaf, then up and down for each pod."""
        nics = np.arange(self.hosts.num_nics)
        names = self.hosts.link_names(
            self.host_names, [self.leaf_names[leaf] for leaf in self.host_leaf[nics // self.hosts.nics_per_host].tolist()]
        )
        for leaf, pod in zip(self.leaf_names, self.leaf_pod.tolist(), strict=True):
            names += [f"{leaf}>{self.pod_names[pod]}", f"{self.pod_names[pod]}>{leaf}"]
        for name in self.pod_names:
            names += [f"{name}>core", f"core>{name}"]
        bandwidth, latency = self.hosts.link_figures()
        above = [2 * len(self.leaf_names), 2 * len(self.pod_names)]
        upper_bandwidth = np.repeat([self.leaf_bandwidth_bytes_per_s, self.pod_bandwidth_bytes_per_s], above)
        bandwidth = np.concatenate([bandwidth, upper_bandwidth])
        latency = np.concatenate([latency, np.repeat([self.leaf_latency_s, self.pod_latency_s], above)])
        return Links(tuple(names), frozen(bandwidth, np.float64), frozen(latency, np.float64))

    @property
    def hosts_are_equal(self) -> bool:
        """Whether one leaf serves all hosts; several leaves are taken as the table describes them."""
        return len(self.leaf_names) == 1

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Go up to the lowest switch that both share, and down."""
        if source == target:
            return ()
        hosts = self.hosts
        if source // hosts.devices_per_host == target // hosts.devices_per_host:
            return hosts.inside(source, target)
        up, down = [hosts.way_out(source)], [hosts.way_in(target)]
        first, last = int(self.device_leaf[source]), int(self.device_leaf[target])
        if first != last:
            up.append(hosts.num_links + 2 * first)
            down.append(hosts.num_links + 2 * last + 1)
            above = hosts.num_links + 2 * len(self.leaf_names)
            if self.leaf_pod[first] != self.leaf_pod[last]:
                up.append(above + 2 * int(self.leaf_pod[first]))
                down.append(above + 2 * int(self.leaf_pod[last]) + 1)
        return (*up, *reversed(down))

    def bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the narrowest tier up to the switch that both share."""
        tiers = [self.hosts.nic_bandwidth_bytes_per_s, self.leaf_bandwidth_bytes_per_s, self.pod_bandwidth_bytes_per_s]
        narrowest = [np.inf, self.hosts.bandwidth_bytes_per_s, *np.minimum.accumulate(tiers)]
        return np.array(narrowest)[self._tier(source, target)]

    def latency_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return twice each tier's, up to the switch that both share."""
        hops = 2 * np.cumsum([self.hosts.nic_latency_s, self.leaf_latency_s, self.pod_latency_s])
        return np.array([0.0, self.hosts.latency_s, *hops])[self._tier(source, target)]

    def figures(self) -> tuple[object, ...]:
        """Return the hosts' figures, the tree and its two upper tiers."""
        leaf = (self.leaf_bandwidth_bytes_per_s, self.leaf_latency_s)
        pod = (self.pod_bandwidth_bytes_per_s, self.pod_latency_s)
        return (*self.hosts.figures(), self.host_leaf, self.leaf_pod, *leaf, *pod)

    def pattern(self, devices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions that share a host, a card, a leaf and a pod."""
        above = [relabelled(self.device_leaf[devices]), relabelled(self.device_pod[devices])]
        return np.hstack([self.hosts.pattern(devices), *above])

    def _tier(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.int64]:
        """Return 0 for the same device, 1 the same host, 2 the same leaf, 3 the same pod, 4 across the core."""
        source, target = np.asarray(source), np.asarray(target)
        tiers: NDArray[np.int64] = (source != target).astype(np.int64)
        for place in (self.device_host, self.device_leaf, self.device_pod):
            tiers += place[source] != place[target]
        return tiers


def read_table(path: Path) -> list[tuple[str, str, str, str]]:
    """Return the rows of a table of hosts.

    Raises:
        InputFileError: the file is missing, the header is another, or a row has a missing field; with its line.
    """
    reader = files.read_csv(path)
    _, header = next(reader, (1, []))
    if header != COLUMNS:
        raise InputFileError(f"the first line must be {','.join(COLUMNS)}", file=path, line=1, value=",".join(header))
    rows = []
    for line, fields in reader:
        if len(fields) != len(COLUMNS) or not all(field.strip() for field in fields):
            problem = f"a row has {len(COLUMNS)} fields, none empty"
            raise InputFileError(problem, file=path, line=line, value=",".join(fields))
        host, core, pod, leaf = fields
        rows.append((host, core, pod, leaf))
    if not rows:
        raise InputFileError("names no host", file=path)
    return rows


def _host_name(identity: str) -> str:
    """Return a legal, short name: a hash of 16 or more hexadecimal digits becomes ``h`` and its first twelve."""
    return f"h{identity[:12]}" if _HASH.fullmatch(identity) else identity


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key in which P8 comes before P10."""
    return [(int(part), "") if re.fullmatch("[0-9]+", part) else (-1, part) for part in re.split("([0-9]{1,300})", text) if part]
