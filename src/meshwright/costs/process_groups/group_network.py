"""Cost of a layout's message: how its group is spread over hosts, and a time from the collective layer.

`HostNetwork` prices regular groups (`regular_groups`) by measured latency and bandwidth inside a host and by the network cards
between hosts. `FabricNetwork` prices them by `costs.collectives`. Where hosts differ, `PlacedNetwork` does that for each group
on its own devices (`lanes`). All are `GroupNetwork`, and `group_network` chooses one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...clusters.topologies.clos import ClosTopology
from ...devices import Links
from ...errors import PlanError
from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER, ORDERS, distinct_orders, numbers
from ...plans.stage_meshes import value_text
from ..collectives.groups import Fabric, Group, PlacedGroup, placed
from ..collectives.libraries.calibrated import (
    NETWORK_EFFICIENCY,
    NETWORK_LATENCY_S,
    HostLine,
    LineTerms,
    host_line,
    is_one_domain,
)
from ..collectives.prices import Operation, Provenance
from ..network import RankNetwork
from ..settings import CostSettings
from .lanes import ALONE, Lane, PlacedGroups, PlacedLayout, ProcessGroup, regular_lane, slowest_s
from .rank_groups import IN_PASSES, group_size
from .regular_groups import degrees_of, groups_of
from .uplinks import AS_WIDE_AS_CARDS, Uplinks


class GroupNetwork(Protocol):
    """A network of ranks that prices the messages of groups."""

    def group_s(self, operation: Operation, payload_bytes: float, group: ProcessGroup) -> float:
        """Return the seconds of one collective, or of one transfer to the next rank."""
        ...

    def flat_s(self, operation: Operation, payload_bytes: float, group: ProcessGroup) -> float:
        """Return seconds of `group_s` where each rank fetches all over its share of the cards, nothing shared inside its host."""
        ...

    def provenance(self, operation: Operation, payload_bytes: float, group: ProcessGroup) -> Provenance:
        """Return the provenance of these seconds, for a group of more than one rank and a positive payload."""
        ...

    @property
    def devices_per_host(self) -> int:
        """Devices of a host."""
        ...


@dataclass(frozen=True)
class HostNetwork:
    """Hosts of equal devices behind equal cards, priced by measured figures (`costs.collectives.libraries.calibrated`).

    Attributes:
        devices_per_host: devices of a host, or of all hosts that one fabric joins.
        link_bytes_per_s: what one device sends inside its host, nominal, one direction.
        card_bytes_per_s: what all cards of a host send together, nominal, one direction.
        links: the entry of `calibrated.HOST_ALL_REDUCE` that describes the host's links.
        uplinks: links from leaf switches to spines.
    """

    devices_per_host: int
    link_bytes_per_s: float
    card_bytes_per_s: float
    links: Links = "nvswitch"
    uplinks: Uplinks = AS_WIDE_AS_CARDS
    _terms: dict[tuple[Operation, Group], LineTerms] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def line(self) -> HostLine:
        """The measured line of the hosts' links."""
        return HostLine(self.link_bytes_per_s, self.links)

    def group_s(self, operation: Operation, payload_bytes: float, group: ProcessGroup) -> float:
        """Price inside a host by the measured line; between hosts by the share of the cards, or of the uplinks above them."""
        assert isinstance(group, Group), "equal hosts describe groups by their form"
        return 0.0 if group.size <= 1 or payload_bytes <= 0 else self._terms_of(operation, group).seconds(payload_bytes)

    def payloads_s(self, operation: Operation, payload_bytes: NDArray[np.float64], group: ProcessGroup) -> NDArray[np.float64]:
        """Return the seconds of `group_s` for many payloads, none of them empty."""
        assert isinstance(group, Group), "equal hosts describe groups by their form"
        return np.zeros(len(payload_bytes)) if group.size <= 1 else self._terms_of(operation, group).seconds(payload_bytes)

    def between_bytes_per_s(self, group: Group, operation: Operation = "all_reduce") -> float:
        """Return the nominal bandwidth of a group's ranks of one host to other hosts: their share of the cards and uplinks."""
        return self.card_bytes_per_s / group.side_by_side * self.uplinks.share(group, self.devices_per_host, operation)

    def flat_s(self, operation: Operation, payload_bytes: float, group: ProcessGroup) -> float:
        """Return seconds of `group_s` where each rank fetches all over its share of the cards, nothing shared inside its host."""
        assert isinstance(group, Group), "equal hosts describe groups by their form"
        if group.size <= group.per_host:
            return self.group_s(operation, payload_bytes, group)
        each = Group(group.size // group.per_host, 1, self.devices_per_host, self.devices_per_host)
        rounds = 2.0 if operation == "all_reduce" else 1.0
        share = self.between_bytes_per_s(each) * NETWORK_EFFICIENCY
        return NETWORK_LATENCY_S + rounds * (group.size - 1) / group.size * payload_bytes / share

    def provenance(self, operation: Operation, payload_bytes: float, group: ProcessGroup) -> Provenance:
        """See `HostLine.provenance`."""
        assert isinstance(group, Group), "equal hosts describe groups by their form"
        return self.line.provenance(operation, payload_bytes, group.size, group.per_host)

    def _terms_of(self, operation: Operation, group: Group) -> LineTerms:
        key = operation, group
        if key not in self._terms:
            between = self.between_bytes_per_s(group, operation)
            self._terms[key] = self.line.terms(operation, group.size, group.per_host, between)
        return self._terms[key]


@dataclass(frozen=True)
class FabricNetwork:
    """The collective layer of a cluster of equal hosts.

    Attributes:
        fabric: the cluster and the algorithm.
        devices_per_host: devices of a host.
    """

    fabric: Fabric
    devices_per_host: int
    _known: dict[tuple[Operation, float, Group], float] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def uplinks(self) -> Uplinks:
        """Links from leaf switches to spines."""
        return Uplinks.from_cluster(self.fabric.cluster)

    def group_s(self, operation: Operation, payload_bytes: float, group: ProcessGroup) -> float:
        """See `costs.collectives.Fabric.seconds`; a transfer between stages takes at least what the uplinks need for all."""
        assert isinstance(group, Group), "equal hosts describe groups by their form"
        if group.size <= 1 or payload_bytes <= 0:
            return 0.0
        key = (operation, payload_bytes, group)
        if key not in self._known:
            self._known[key] = self.fabric.seconds(operation, self._on_hosts(group))(payload_bytes)
            if operation == "send_recv" and group.per_host == 1 and self.uplinks.oversubscription > 1:
                cards = card_bytes_per_s(self.fabric.cluster) / group.side_by_side
                across = payload_bytes / (cards * self.uplinks.share(group, self.devices_per_host, operation))
                self._known[key] = max(self._known[key], across)
        return self._known[key]

    def flat_s(self, operation: Operation, payload_bytes: float, group: ProcessGroup) -> float:
        """Price as groups of one rank on each host, as many at a time as a host has devices, which fetch what a rank lacks.

        The algorithm is the chosen one. It takes at least as long as where the ranks of a host share what they fetch.
        """
        assert isinstance(group, Group), "equal hosts describe groups by their form"
        n, hosts = group.size, group.size // group.per_host
        shared_s = self.group_s(operation, payload_bytes, group)
        if hosts <= 1:
            return shared_s
        fetched = payload_bytes * ((n - 1) / n) / ((hosts - 1) / hosts)
        return max(shared_s, self.group_s(operation, fetched, Group(hosts, 1, 1, self.devices_per_host)))

    def provenance(self, operation: Operation, payload_bytes: float, group: ProcessGroup) -> Provenance:
        """Return the provenance of the collective layer's price."""
        assert isinstance(group, Group), "equal hosts describe groups by their form"
        return self.fabric.price(operation, payload_bytes, self._on_hosts(group)).provenance

    def _on_hosts(self, group: Group) -> Group:
        """Return the group with as many neighbours as fit on whole strides of one host (see `Fabric`)."""
        stride = min(group.stride, self.devices_per_host) if group.per_host > 1 else 1
        reach = (group.per_host - 1) * stride
        firsts = [k % stride + k // stride * stride * group.per_host for k in range(group.side_by_side)]
        return group._replace(stride=stride, side_by_side=max(1, sum(first + reach < self.devices_per_host for first in firsts)))


@dataclass(frozen=True, eq=False)
class PlacedNetwork:
    """The collective layer of a cluster of unequal hosts: each group is priced on its own devices.

    Attributes:
        fabric: the cluster and the algorithm.
        devices: the device of each rank, in rank order; None: the first devices.
    """

    fabric: Fabric
    devices: NDArray[np.int64] | None = None
    _known: dict[tuple[Operation, float, PlacedGroups], float] = field(default_factory=dict, repr=False)
    _layouts: dict[tuple[object, ...], PlacedLayout] = field(default_factory=dict, repr=False)
    _process_groups: dict[tuple[object, ...], list[ProcessGroup]] = field(default_factory=dict, repr=False)

    @property
    def devices_per_host(self) -> int:
        """Devices of a host; their mean where hosts differ."""
        return self.fabric.cluster.num_devices // self.fabric.cluster.num_hosts

    def on(self, devices: NDArray[np.int64]) -> PlacedNetwork:
        """Return a copy for ranks on other devices."""
        return replace(self, devices=devices, _layouts={}, _process_groups={})

    def layout(self, layout: Layout, order: str = DEFAULT_ORDER, *, pass_axes: frozenset[str] = IN_PASSES) -> PlacedLayout:
        """Return the groups of a layout whose ranks are numbered in an order; see `PlacedLayout` for ``pass_axes``.

        Raises:
            PlanError: stages of unequal meshes.
        """
        if layout.is_meshed:
            problem = "stages of unequal meshes are priced on equal hosts only"
            raise PlanError(problem, field="layout.stage_meshes", value=value_text(layout.stage_meshes or ()))
        key = (degrees_of(layout), pass_axes, order)
        if key not in self._layouts:
            places = numbers(layout, order)
            devices = places if self.devices is None else self.devices[places]
            self._layouts[key] = PlacedLayout(layout, self.fabric.cluster, devices, self.fabric.routing, pass_axes)
        return self._layouts[key]

    def process_groups(self, layout: Layout, axis: str) -> list[ProcessGroup]:
        """Return all placements of groups along an axis in any rank order: by lane for messages in passes, else by group."""
        key = (degrees_of(layout), axis)
        if key not in self._process_groups:
            every = [self.layout(layout, order) for order in distinct_orders(layout, ORDERS)]
            stages = range(layout.pp)
            if group_size(layout, axis) == 1:
                result: set[ProcessGroup] = {ALONE}
            elif axis in IN_PASSES | {"pp"}:
                result = {lane.at(stage)[axis] for one in every for lane in one.lanes for stage in stages}
            else:
                result = {single for one in every for stage in stages for single in one.singles(axis, stage)}
            self._process_groups[key] = list(result)
        return self._process_groups[key]

    def group_s(self, operation: Operation, payload_bytes: float, group: ProcessGroup) -> float:
        """Return the time of the slowest of the groups."""
        if group.size <= 1 or payload_bytes <= 0:
            return 0.0
        assert isinstance(group, PlacedGroups), "unequal hosts describe groups by their devices"
        key = operation, payload_bytes, group
        if key not in self._known:
            self._known[key] = slowest_s(self.fabric, operation, payload_bytes, group)
        return self._known[key]

    def flat_s(self, operation: Operation, payload_bytes: float, group: ProcessGroup) -> float:
        """Return seconds as in `FabricNetwork.flat_s`: groups of one device of each host fetch what a rank lacks, all at once."""
        if group.size <= 1 or payload_bytes <= 0:
            return 0.0
        assert isinstance(group, PlacedGroups), "unequal hosts describe groups by their devices"
        n, results = group.size, [self.group_s(operation, payload_bytes, group)]
        for one in group.groups:
            columns = self._columns(one)
            hosts = columns[0].devices.shape[1]
            if hosts > 1:
                fetched = payload_bytes * ((n - 1) / n) / ((hosts - 1) / hosts)
                results.append(self.group_s(operation, fetched, PlacedGroups(hosts, columns)))
        return max(results)

    def provenance(self, operation: Operation, payload_bytes: float, group: ProcessGroup) -> Provenance:
        """Return the provenance of the least certain of the groups' prices."""
        assert isinstance(group, PlacedGroups), "unequal hosts describe groups by their devices"
        ranked: tuple[Provenance, ...] = get_args(Provenance)
        every = (self.fabric.price(operation, payload_bytes, one).provenance for one in group.groups)
        return max(every, key=ranked.index)

    def _columns(self, group: PlacedGroup) -> tuple[PlacedGroup, ...]:
        """Return groups of the devices of one local rank on each host of a group, for every local rank, all at the same time."""
        cluster = self.fabric.cluster
        hosts = list(dict.fromkeys(cluster.device_host[group.devices[0]].tolist()))
        rows = [np.flatnonzero(cluster.device_host == host) for host in hosts]
        fewest = min(map(len, rows))
        table = np.stack([row[:fewest] for row in rows], axis=1)
        turned = np.stack([np.roll(table, -place, axis=0) for place in range(fewest)])
        return tuple(placed(cluster, turned, self.fabric.routing))


def group_network(cluster: Cluster, costs: CostSettings | None = None, devices: NDArray[np.int64] | None = None) -> GroupNetwork:
    """Return the network that prices the messages of a cluster.

    Measured figures (``collectives: calibrated``, the default of layouts) where its hosts have switched links and network
    cards, else the collective layer.

    Args:
        cluster: whose links carry the messages.
        costs: choose the algorithm and the routes.
        devices: the device of each rank, in rank order; by default the first ones. Read only where hosts differ.
    """
    costs = (costs or CostSettings()).of_layouts
    line, per_host = host_line(cluster), cluster.num_devices // cluster.num_hosts
    if costs.collectives != "calibrated" or line is None:
        fabric = Fabric.from_settings(cluster, costs)
        return FabricNetwork(fabric, per_host) if cluster.hosts_are_equal else PlacedNetwork(fabric, devices)
    cards = card_bytes_per_s(cluster) or line.link_bytes_per_s
    per_fabric = cluster.num_devices if is_one_domain(cluster) else per_host
    return HostNetwork(per_fabric, line.link_bytes_per_s, cards, line.links, Uplinks.from_cluster(cluster))


def in_order(wires: GroupNetwork, cluster: Cluster, devices: NDArray[np.int64]) -> GroupNetwork:
    """Return a cluster's network for ranks on its devices in an order in which hosts below one leaf switch may lie apart."""
    if isinstance(wires, PlacedNetwork):
        return wires.on(devices)
    assert isinstance(wires, HostNetwork | FabricNetwork)
    hosts, leaves = cluster.device_host[devices], cluster.topology.host_group
    if wires.uplinks.oversubscription <= 1 or leaves is None:
        return wires
    leaf = leaves[hosts[np.diff(hosts, prepend=-1) != 0]]
    runs = np.diff(np.flatnonzero(np.diff(leaf, append=-1)), prepend=-1)
    if len(runs) == len(set(leaf.tolist())):
        return wires
    if isinstance(wires, FabricNetwork):
        return PlacedNetwork(wires.fabric, devices)
    together = int(np.gcd.reduce([wires.uplinks.hosts_per_leaf, *runs.tolist()]))
    return replace(wires, uplinks=wires.uplinks._replace(hosts_per_leaf=together))


def card_bytes_per_s(cluster: Cluster) -> float:
    """Return the nominal bandwidth of all network cards of a host of a Clos network, one direction; 0 in other topologies."""
    topology = cluster.topology
    return topology.hosts.nics_per_host * topology.hosts.nic_bandwidth_bytes_per_s if isinstance(topology, ClosTopology) else 0.0


def lanes_of(
    wires: GroupNetwork, layout: Layout, order: str = DEFAULT_ORDER, *, pass_axes: frozenset[str] = IN_PASSES
) -> tuple[Lane, ...]:
    """Return the groups of a layout on their hosts, lane by lane (see `lanes`); a single lane where hosts are equal.

    Args:
        wires: what prices messages.
        layout: how a job is cut.
        order: the rank order.
        pass_axes: axes of the messages of passes.
    """
    if isinstance(wires, PlacedNetwork):
        return wires.layout(layout, order, pass_axes=pass_axes).lanes
    return (regular_lane(layout, wires.devices_per_host, order),)


def whole_lane(wires: GroupNetwork, layout: Layout, order: str = DEFAULT_ORDER) -> Lane:
    """Return one lane for all: every message takes as long as over the slowest group of its stage."""
    if isinstance(wires, PlacedNetwork):
        return wires.layout(layout, order).whole
    return regular_lane(layout, wires.devices_per_host, order)


def slowest_group(wires: GroupNetwork, layout: Layout, axis: str, order: str = DEFAULT_ORDER) -> ProcessGroup:
    """Return the groups of all stages along an axis on their hosts; a message over them is priced for the slowest."""
    if isinstance(wires, PlacedNetwork):
        return wires.layout(layout, order).every(axis)
    return groups_of(layout, wires.devices_per_host, order)[axis]


def placed_on(network: RankNetwork, layout: Layout, costs: CostSettings) -> PlacedLayout | None:
    """Return the groups of a layout on the devices of a network's ranks; None on equal hosts, where devices do not matter."""
    wires = group_network(network.cluster, costs, network.devices)
    return wires.layout(layout) if isinstance(wires, PlacedNetwork) else None


def payloads_s(
    wires: GroupNetwork, operation: Operation, payload_bytes: NDArray[np.float64], group: ProcessGroup
) -> NDArray[np.float64]:
    """Return the seconds of each of many payloads, none of them empty; at once where the network has a line for them."""
    if isinstance(wires, HostNetwork):
        return wires.payloads_s(operation, payload_bytes, group)
    return np.array([wires.group_s(operation, payload, group) for payload in payload_bytes.tolist()])
