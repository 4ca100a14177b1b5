"""Classes of placements of a job, the representative placement of each, and what messages cost there.

The representative placement of ``g`` devices a host and ``h`` hosts a group takes the first devices of the first hosts with
room. It has ``h`` hosts in each of as many groups as it needs; where groups differ in size, as evenly as they allow. A job in
several sites changes the site with each group. Only links that a job has alone count: of a host the cards of the job's own
``g`` devices, of a leaf switch all uplinks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...clusters.topologies.clos import ClosTopology
from ...clusters.topologies.host_table import TraceTopology
from ...costs.collectives.groups import Fabric
from ...costs.process_groups.group_network import GroupNetwork, HostNetwork, PlacedNetwork, group_network
from ...costs.process_groups.uplinks import AS_WIDE_AS_CARDS, Uplinks
from ...costs.settings import CostSettings


class PlacementClass(NamedTuple):
    """How a job is placed.

    Attributes:
        device_type: number of the type of its devices.
        devices_per_host: of the job, on each of its hosts; a power of two.
        hosts_per_group: of the job, in each of its groups of hosts; a power of two.
        is_apart: whether its groups lie in several sites.
    """

    device_type: int
    devices_per_host: int
    hosts_per_group: int
    is_apart: bool = False


@dataclass(frozen=True, eq=False)
class PlacementClasses:
    """All classes of a cluster.

    Attributes:
        cluster: where jobs run.
        costs: choices of the cost model, as layouts are priced.
    """

    cluster: Cluster
    costs: CostSettings
    _wires: dict[object, GroupNetwork] = field(default_factory=dict, repr=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Device types, and powers of two of devices on a host and of hosts in a group; these twice for several sites."""
        most_devices = int(np.bincount(self.cluster.device_host).max())
        return len(self.cluster.device_types), most_devices.bit_length(), self.num_spreads * (1 + self._has_sites)

    @cached_property
    def num_spreads(self) -> int:
        """Numbers of powers of two of hosts in a group."""
        return int(np.bincount(self.host_group).max()).bit_length()

    def position(self, placement_class: PlacementClass) -> tuple[int, int, int]:
        """Return the index of a class in the arrays of a `MenuTable`."""
        spread = placement_class.hosts_per_group.bit_length() - 1 + placement_class.is_apart * self.num_spreads
        return placement_class.device_type, placement_class.devices_per_host.bit_length() - 1, spread

    @cached_property
    def host_group(self) -> NDArray[np.int64]:
        """The group of each host: those below one leaf switch, of one site of a matrix, or all of the cluster."""
        host_group = self.cluster.topology.host_group
        return np.zeros(self.cluster.num_hosts, np.int64) if host_group is None else host_group

    @cached_property
    def group_site(self) -> NDArray[np.int64]:
        """The site of each group: its pod, or one for all."""
        topology = self.cluster.topology
        return topology.leaf_pod if isinstance(topology, TraceTopology) else np.zeros(int(self.host_group.max()) + 1, np.int64)

    @property
    def _has_sites(self) -> bool:
        return bool((self.group_site != self.group_site[0]).any())

    @cached_property
    def first_device(self) -> NDArray[np.int64]:
        """The first device of each host."""
        return np.searchsorted(self.cluster.device_host, np.arange(self.cluster.num_hosts))

    def of(self, degree: int) -> Iterator[PlacementClass]:
        """Yield the classes in which the cluster has room for so many devices, the fewest hosts and groups first."""
        kinds, most_devices, _ = self.shape
        for kind in range(kinds):
            for devices_per_host in (2**k for k in reversed(range(most_devices)) if degree % 2**k == 0):
                for is_apart in (False, True)[: 1 + self._has_sites]:
                    for hosts_per_group in (2**k for k in reversed(range(self.num_spreads))):
                        one = PlacementClass(kind, devices_per_host, hosts_per_group, is_apart)
                        if self.hosts(one, degree) is not None:
                            yield one

    def hosts(self, placement_class: PlacementClass, degree: int) -> NDArray[np.int64] | None:
        """Return the hosts of the representative placement, rising; None where there is no room."""
        num_hosts = degree // placement_class.devices_per_host
        if degree % placement_class.devices_per_host or num_hosts % placement_class.hosts_per_group:
            return None
        sizes = np.bincount(self.cluster.device_host)
        has_room = (self.cluster.device_type[self.first_device] == placement_class.device_type) & (
            sizes >= placement_class.devices_per_host
        )
        room = np.bincount(self.host_group[has_room], minlength=len(self.group_site))
        for num_groups in range(
            num_hosts // placement_class.hosts_per_group, num_hosts // (2 * placement_class.hosts_per_group), -1
        ):
            for groups in self._groups(room, num_groups, placement_class):
                if room[groups].sum() >= num_hosts:
                    shares = _evenly(room[groups], num_hosts)
                    results = [np.flatnonzero(has_room & (self.host_group == g))[:n] for g, n in zip(groups, shares, strict=True)]
                    return np.sort(np.concatenate(results))
        return None

    def _groups(self, room: NDArray[np.int64], num_groups: int, placement_class: PlacementClass) -> Iterator[list[int]]:
        """Yield so many groups with room, those that hold what is wanted of each first, of one site or of as many as can."""
        by_room = [
            g for g in np.argsort(-np.minimum(room, placement_class.hosts_per_group), kind="stable").tolist() if room[g] > 0
        ]
        sites = list(dict.fromkeys(self.group_site[by_room].tolist()))
        of_site = [[g for g in by_room if self.group_site[g] == site] for site in sites]
        if placement_class.is_apart:
            in_turn = [g for turn in itertools.zip_longest(*of_site) for g in turn if g is not None]
            if len(in_turn) >= num_groups > 1 < len(sites):
                yield in_turn[:num_groups]
        else:
            yield from (groups[:num_groups] for groups in of_site if len(groups) >= num_groups)

    def devices(self, placement_class: PlacementClass, degree: int) -> NDArray[np.int64]:
        """Return the devices of the representative placement, host by host."""
        hosts = self.hosts(placement_class, degree)
        assert hosts is not None, "there is room for the class"
        return (self.first_device[hosts][:, None] + np.arange(placement_class.devices_per_host)).reshape(-1)

    def wires(self, placement_class: PlacementClass, degree: int, share: float = 1.0) -> GroupNetwork:
        """Return the prices of messages on the representative placement; one object for all with the same prices.

        Args:
            placement_class: the class.
            degree: devices of the job.
            share: of the network's bandwidth that the job has; read only where `can_share`.
        """
        whole = self._whole
        if isinstance(whole, HostNetwork):
            has_many = degree > placement_class.devices_per_host * placement_class.hosts_per_group
            key: object = placement_class.devices_per_host, placement_class.hosts_per_group if has_many else 0, share
            if key not in self._wires:
                alone = self._of_cards(whole, placement_class, has_many)
                self._wires[key] = replace(alone, card_bytes_per_s=share * alone.card_bytes_per_s)
        else:
            key = placement_class, degree
            if key not in self._wires:
                fabric = whole.fabric if isinstance(whole, PlacedNetwork) else Fabric.from_settings(self.cluster, self.costs)
                self._wires[key] = PlacedNetwork(fabric, self.devices(placement_class, degree))
        return self._wires[key]

    def can_share(self, placement_class: PlacementClass, degree: int) -> bool:
        """Return whether a job uses a network that it may share: cards between hosts."""
        return isinstance(self._whole, HostNetwork) and degree > placement_class.devices_per_host

    def link_s(
        self,
        placement_class: PlacementClass,
        degree: int,
        sent_bytes: NDArray[np.float64],
        served_bytes: NDArray[np.float64] | float = 0.0,
    ) -> float:
        """Return the seconds in which the busiest link between hosts is busy.

        A link is all cards of the job's devices on a host, out or in, or all uplinks of a leaf switch. Elsewhere links are
        those on the path from the first device of a host to that of another.

        Args:
            placement_class: the class.
            degree: devices of the job.
            sent_bytes: from host slot to host slot, ``(s, s)``.
            served_bytes: from each host slot to servers above the leaf switches of a Clos, and back, ``(s,)``.
        """
        hosts, topology = self.hosts(placement_class, degree), self.cluster.topology
        assert hosts is not None, "there is room for the class"
        cards_s = 0.0
        if isinstance(topology, ClosTopology | TraceTopology):
            busiest_bytes = max((sent_bytes.sum(axis=way) + served_bytes).max() for way in (0, 1))
            cards_s = float(busiest_bytes) / self._card_bytes_per_s(placement_class.devices_per_host)
        if isinstance(topology, ClosTopology):
            groups = np.unique(self.host_group[hosts], return_inverse=True)[1]
            among = np.zeros((int(groups.max()) + 1,) * 2)
            np.add.at(among, (groups[:, None], groups[None, :]), sent_bytes)
            np.fill_diagonal(among, 0.0)
            trunk = topology.hosts_per_leaf * self._host_bytes_per_s / topology.oversubscription
            served = np.bincount(groups, np.broadcast_to(served_bytes, groups.shape))
            return max(cards_s, float(max((among.sum(axis=way) + served).max() for way in (0, 1))) / trunk)
        links_s, first = np.zeros(len(self.cluster.links.names)), self.first_device[hosts].tolist()
        for a, b in zip(*np.nonzero(sent_bytes), strict=True):
            path = list(self.cluster.path(first[a], first[b]))
            links_s[path] += sent_bytes[a, b] / self.cluster.links.bandwidth_bytes_per_s[path]
        if isinstance(topology, TraceTopology):
            links_s = links_s[topology.hosts.num_links :]  # cards have been counted
        return max(cards_s, float(links_s.max(initial=0.0)))

    def _of_cards(self, whole: HostNetwork, placement_class: PlacementClass, has_many: bool) -> HostNetwork:
        """Return the hosts of fewer devices and cards, whose leaf switches have all their uplinks for them."""
        if not isinstance(self.cluster.topology, ClosTopology):
            return replace(whole, devices_per_host=placement_class.devices_per_host)
        cards, uplinks = self._card_bytes_per_s(placement_class.devices_per_host), whole.uplinks
        target = placement_class.hosts_per_group * cards / (uplinks.hosts_per_leaf * self._host_bytes_per_s)
        narrow = (
            Uplinks(placement_class.hosts_per_group, max(1.0, uplinks.oversubscription * target))
            if has_many
            else AS_WIDE_AS_CARDS
        )
        return replace(whole, devices_per_host=placement_class.devices_per_host, card_bytes_per_s=cards, uplinks=narrow)

    def server_cards(self, devices: int) -> float:
        """Return the cards of a whole host over those of its first devices, where networks of classes have these alone."""
        is_of_cards = isinstance(self._whole, HostNetwork) and isinstance(self.cluster.topology, ClosTopology)
        return self._host_bytes_per_s / self._card_bytes_per_s(devices) if is_of_cards else 1.0

    def _card_bytes_per_s(self, devices: int) -> float:
        """Return the bandwidth of the cards of a host's first devices."""
        topology = self.cluster.topology
        assert isinstance(topology, ClosTopology | TraceTopology), "no other hosts have cards"
        cards = math.ceil(devices * topology.hosts.nics_per_host / topology.hosts.devices_per_host)
        return cards * topology.hosts.nic_bandwidth_bytes_per_s

    @property
    def _host_bytes_per_s(self) -> float:
        topology = self.cluster.topology
        assert isinstance(topology, ClosTopology), "no other hosts have cards"
        return topology.hosts.nics_per_host * topology.hosts.nic_bandwidth_bytes_per_s

    @cached_property
    def _whole(self) -> GroupNetwork:
        return group_network(self.cluster, self.costs)


def _evenly(room: NDArray[np.int64], num_hosts: int) -> list[int]:
    """Return hosts of each group, as equal as the groups' room allows; what is left over goes to the first with room."""
    shares = np.zeros(len(room), np.int64)
    while (left := num_hosts - int(shares.sum())) > 0:
        for group in np.flatnonzero(shares < room)[:left].tolist():
            shares[group] += 1
    result: list[int] = shares.tolist()
    return result
