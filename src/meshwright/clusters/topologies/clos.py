"""Leaf-spine Clos network of equal hosts, oversubscribed above the leaves.

A leaf has one link to each spine; all of them together carry ``1 / oversubscription`` of what its hosts' cards carry. A message
to network card ``j`` below another leaf takes the spine ``j mod num_spines`` (D-mod-k routing). The rule is deterministic, and
shift permutations spread evenly.

Source of the routing rule: Zahavi, "D-Mod-K routing providing non-blocking traffic for shift permutations on real
life fat trees", 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from ..routes import Carried
from .hosts import Hosts, HostSettings
from .topology import Count, Latency, Links, Topology, frozen, relabelled

_LEFT_OUT: Any = object()
"""In place of a key that is not there, which may be fine."""

_ACROSS = 3
"""Tier of two devices below different leaves."""


class ClosSettings(HostSettings):
    """``topology:`` of a leaf-spine cluster in YAML.

    ``wiring: host`` plugs all cards of a host into one leaf, which serves ``hosts_per_leaf`` hosts. ``wiring: rail`` plugs card
    ``j`` of ``hosts_per_leaf`` neighbouring hosts into the ``j``-th leaf of their group (rail-optimised). ``num_spines`` may be
    left out where one leaf serves all hosts: no message reaches a spine then.
    """

    kind: Literal["clos"]
    num_hosts: Count
    hosts_per_leaf: Count
    wiring: Literal["host", "rail"] = "host"
    num_spines: Count = Field(default=_LEFT_OUT, validate_default=True)
    oversubscription: float = Field(gt=0)
    spine_latency_us: Latency

    @field_validator("num_spines", mode="before")
    @classmethod
    def _one_unless_said(cls, value: Any, info: ValidationInfo) -> Any:
        """Return one spine, which nothing reaches, where the key is left out and one leaf serves all hosts."""
        if value is not _LEFT_OUT:
            return value
        read = info.data
        if read.get("wiring") == "host" and read.get("num_hosts", 1) <= read.get("hosts_per_leaf", 0):
            return 1
        raise PydanticCustomError("missing", "Field required")

    def build(self) -> ClosTopology:
        """Return the topology with the units of the code."""
        return ClosTopology(
            hosts=self.hosts(self.num_hosts),
            hosts_per_leaf=self.hosts_per_leaf,
            is_rail=self.wiring == "rail",
            num_spines=self.num_spines,
            oversubscription=self.oversubscription,
            spine_latency_s=self.spine_latency_us / 1e6,
        )


@dataclass(frozen=True, eq=False)
class ClosTopology(Topology):
    """A leaf-spine network.

    Attributes:
        hosts: the hosts below the leaves.
        hosts_per_leaf: hosts of one group: of one leaf, or of one set of rails.
        is_rail: whether card ``j`` of each host goes to leaf ``j`` of the group.
        num_spines: spine switches, each joined to every leaf.
        oversubscription: bandwidth into a leaf's hosts over bandwidth into its spines.
        spine_latency_s: of one hop between leaf and spine.
        host_names: ``l{group}-h{host of the group}`` unless given.
    """

    kind: ClassVar[str] = "clos"
    hosts: Hosts
    hosts_per_leaf: int
    is_rail: bool
    num_spines: int
    oversubscription: float
    spine_latency_s: float
    host_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.host_names:
            names = tuple(f"l{h // self.hosts_per_leaf}-h{h % self.hosts_per_leaf}" for h in range(self.hosts.num_hosts))
            object.__setattr__(self, "host_names", names)

    @property
    def device_host(self) -> NDArray[np.int64]:
        """Host of each device, ``(n,)``."""
        return self.hosts.host

    @cached_property
    def host_group(self) -> NDArray[np.int64]:
        """The group of ``hosts_per_leaf`` hosts to which each host belongs, ``(num_hosts,)``."""
        return frozen(np.arange(self.hosts.num_hosts) // self.hosts_per_leaf, np.int64)

    @cached_property
    def nic_leaf(self) -> NDArray[np.int64]:
        """The leaf that each network card is plugged into, ``(num_nics,)``."""
        nics = np.arange(self.hosts.num_nics)
        group = self.host_group[nics // self.hosts.nics_per_host]
        return frozen(group * self.hosts.nics_per_host + nics % self.hosts.nics_per_host if self.is_rail else group, np.int64)

    @cached_property
    def device_leaf(self) -> NDArray[np.int64]:
        """The leaf of each device, ``(n,)``."""
        return frozen(self.nic_leaf[self.hosts.nic], np.int64)

    @property
    def is_one_domain(self) -> bool:
        """Whether what lies between hosts is the fabric within them: each device's own link, as wide, to one set of switches."""
        hosts = self.hosts
        is_as_wide = hosts.nic_bandwidth_bytes_per_s == hosts.bandwidth_bytes_per_s
        return is_as_wide and hosts.nics_per_host == hosts.devices_per_host and self.num_leaves == 1

    @property
    def num_leaves(self) -> int:
        """Number of leaf switches."""
        return int(self.nic_leaf[-1]) + 1

    @property
    def uplink_bandwidth_bytes_per_s(self) -> float:
        """Bandwidth of the link from a leaf to one spine, one direction."""
        cards = self.hosts_per_leaf * (1 if self.is_rail else self.hosts.nics_per_host)
        return cards * self.hosts.nic_bandwidth_bytes_per_s / (self.oversubscription * self.num_spines)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """Group, host of the group, device of the host."""
        return "group", "host", "device"

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """Group, host of the group and device of the host, ``(n, 3)``."""
        local = np.arange(self.hosts.num_devices) % self.hosts.devices_per_host
        host = self.device_host
        return frozen(np.stack([host // self.hosts_per_leaf, host % self.hosts_per_leaf, local], axis=1), np.int64)

    @cached_property
    def links(self) -> Links:
        """The hosts' links, then up and down for each leaf and each spine."""
        names = self.hosts.link_names(self.host_names, [f"leaf{leaf}" for leaf in self.nic_leaf.tolist()])
        for leaf in range(self.num_leaves):
            for spine in range(self.num_spines):
                names += [f"leaf{leaf}>spine{spine}", f"spine{spine}>leaf{leaf}"]
        bandwidth, latency = self.hosts.link_figures()
        above = 2 * self.num_leaves * self.num_spines
        bandwidth = np.concatenate([bandwidth, np.full(above, self.uplink_bandwidth_bytes_per_s)])
        latency = np.concatenate([latency, np.full(above, self.spine_latency_s)])
        return Links(tuple(names), frozen(bandwidth, np.float64), frozen(latency, np.float64))

    @property
    def hosts_are_equal(self) -> bool:
        """Whether no leaf serves fewer hosts than the others."""
        return self.hosts.num_hosts <= self.hosts_per_leaf or self.hosts.num_hosts % self.hosts_per_leaf == 0

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Go through the host's switch, through one leaf, or up to a spine and down."""
        if source == target:
            return ()
        hosts = self.hosts
        if source // hosts.devices_per_host == target // hosts.devices_per_host:
            return hosts.inside(source, target)
        if self.device_leaf[source] == self.device_leaf[target]:
            return (hosts.way_out(source), hosts.way_in(target))
        return self._across(source, target, int(hosts.nic[target]) % self.num_spines)

    @property
    def has_equal_paths(self) -> bool:
        """Whether there are several leaves and several spines."""
        return self.num_leaves > 1 and self.num_spines > 1

    def num_paths(self, source: int, target: int) -> int:
        """Return the number of equal paths: between leaves one through each spine."""
        return self.num_spines if int(self._tier(source, target)) == _ACROSS else 1

    def equal_path(self, source: int, target: int, number: int) -> tuple[int, ...]:
        """Go through the spine of that number, between leaves."""
        crosses = int(self._tier(source, target)) == _ACROSS
        return self._across(source, target, number) if crosses else self.path(source, target)

    def spread(self, source: int, target: int) -> Carried:
        """Return the shares of a message on each link: all of it on both cards, an equal part up to and down from each spine."""
        if int(self._tier(source, target)) != _ACROSS:
            return super().spread(source, target)
        every = [self._across(source, target, spine) for spine in range(self.num_spines)]
        out, _, _, into = every[0]
        share = 1.0 / self.num_spines
        return ((out, 1.0), *((link, share) for path in every for link in path[1:3]), (into, 1.0))

    def spread_bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the card's, or that of all uplinks together where these are narrower."""
        between = min(self.hosts.nic_bandwidth_bytes_per_s, self.num_spines * self.uplink_bandwidth_bytes_per_s)
        return np.where(self._tier(source, target) == _ACROSS, between, self.bandwidth_bytes_per_s(source, target))

    def _across(self, source: int, target: int, spine: int) -> tuple[int, ...]:
        """Go up to a spine and down."""
        hosts, first, last = self.hosts, int(self.device_leaf[source]), int(self.device_leaf[target])
        up = hosts.num_links + 2 * (first * self.num_spines + spine)
        down = hosts.num_links + 2 * (last * self.num_spines + spine) + 1
        return (hosts.way_out(source), up, down, hosts.way_in(target))

    def bandwidth_bytes_per_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the host switch's, the card's, or the narrower of card and uplink."""
        card = self.hosts.nic_bandwidth_bytes_per_s
        between = min(card, self.uplink_bandwidth_bytes_per_s)
        return np.array([np.inf, self.hosts.bandwidth_bytes_per_s, card, between])[self._tier(source, target)]

    def latency_s(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
        """Return the host switch's, two cards', or two cards' and two hops'."""
        cards = 2 * self.hosts.nic_latency_s
        return np.array([0.0, self.hosts.latency_s, cards, cards + 2 * self.spine_latency_s])[self._tier(source, target)]

    def figures(self) -> tuple[object, ...]:
        """Return the hosts' figures, the wiring and what is above the leaves."""
        above = (self.hosts_per_leaf, self.is_rail, self.num_spines, self.oversubscription, self.spine_latency_s)
        return (*self.hosts.figures(), *above)

    def pattern(self, devices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions that share a host, a card, a leaf and, where more than one leaf is used, a spine."""
        leaf = relabelled(self.device_leaf[devices])
        spine = relabelled(self.hosts.nic[devices] % self.num_spines)
        return np.hstack([self.hosts.pattern(devices), leaf, spine * leaf.any(axis=1, keepdims=True)])

    def _tier(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.int64]:
        """Return 0 for the same device, 1 the same host, 2 the same leaf, 3 across the spines."""
        source, target = np.asarray(source), np.asarray(target)
        tiers: NDArray[np.int64] = (source != target).astype(np.int64)
        tiers += self.device_host[source] != self.device_host[target]
        tiers += (self.device_host[source] != self.device_host[target]) & (self.device_leaf[source] != self.device_leaf[target])
        return tiers
