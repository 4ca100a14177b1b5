"""What a message of a layout costs: how its group stands on the hosts, and a time from the collective layer.

`Wires` prices regular groups (`regular_groups`) by measured latency and bandwidth inside a host and by the cards between
hosts; `FabricWires` asks `costs.collectives`. Where hosts are not alike `PlacedWires` asks it for each group on its own devices
(`lanes`). All are `Wiring`, and which one is used is one choice (`wiring`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...clusters.topologies.clos import ClosTopology
from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER, ORDERS, distinct_orders, numbers
from ..collectives.groups import Fabric, Placed, group_price, group_price_s, placed, price
from ..collectives.libraries.calibrated import NETWORK_EFFICIENCY, NETWORK_LATENCY_S, HostLine, Links, host_line
from ..collectives.prices import Operation, Provenance
from ..network import RankNetwork
from ..settings import CostSettings
from ..work.operations import Message
from .lanes import ALONE, Lane, PlacedGroups, PlacedLayout, Stand, regular_lane
from .rank_groups import IN_PASSES, group_size
from .regular_groups import Group, boundary_groups, group_of, groups_of, is_regular

__all__ = [
    "FabricWires",
    "Group",
    "PlacedWires",
    "Uplinks",
    "Wires",
    "Wiring",
    "boundary_groups",
    "group_of",
    "groups_of",
    "is_regular",
    "lanes_of",
    "message_s",
    "placed_on",
    "slowest_group",
    "whole_lane",
    "wiring",
]


class Wiring(Protocol):
    """Prices messages."""

    def group_s(self, operation: Operation, payload_bytes: float, group: Stand) -> float:
        """Seconds of one collective, or of one transfer to the next rank."""
        ...

    def flat_s(self, operation: Operation, payload_bytes: float, group: Stand) -> float:
        """As `group_s`, but over hosts each rank fetches all by its own share of the cards, as if its neighbours had nothing."""
        ...

    def provenance(self, operation: Operation, payload_bytes: float, group: Stand) -> Provenance:
        """Where these seconds come from; of a group of more than one rank, and some bytes."""
        ...

    @property
    def devices_per_host(self) -> int:
        """Devices of a host."""
        ...


class Uplinks(NamedTuple):
    """What leaf switches carry to the spines.

    Attributes:
        hosts_per_leaf: hosts below one leaf switch, or one set of rails.
        oversubscription: bandwidth into a leaf's hosts over bandwidth into its spines.
    """

    hosts_per_leaf: int = 1
    oversubscription: float = 1.0

    @classmethod
    def of(cls, cluster: Cluster) -> Uplinks:
        """Those of a cluster; as wide as the cards where it has no leaves."""
        topology = cluster.topology
        if isinstance(topology, ClosTopology) and topology.oversubscription > 1:
            return cls(topology.hosts_per_leaf, topology.oversubscription)
        return AS_WIDE_AS_CARDS

    def share(self, group: Group, devices_per_host: int, operation: Operation) -> float:
        """What is left of the cards' rate while all groups along an axis send to other hosts at once.

        Of ``k`` hosts below a leaf each sends to the one ``d`` hosts on: ``min(d, k)`` of them across the spines, over uplinks
        that carry ``k`` hosts' cards divided by the oversubscription. In an all-to-all each of them sends to all hosts of its
        group, as much to each. A group that whole leaves hold sends nothing across; of a transfer between two stages it is not
        told where the others stand, so that some go across.
        """
        hosts, k = group.size // group.per_host, self.hosts_per_leaf
        apart = max(1, group.stride // devices_per_host) if group.per_host == 1 else 1
        if self.oversubscription <= 1 or hosts <= 1 or (k % (hosts * apart) == 0 and operation != "send_recv"):
            return 1.0
        across = min(apart, k) / k
        if operation == "all_to_all":
            across = (hosts - min(hosts, max(1, k // apart))) / (hosts - 1)
        return min(1.0, 1.0 / (self.oversubscription * across)) if across else 1.0


AS_WIDE_AS_CARDS = Uplinks()


@dataclass(frozen=True)
class Wires:
    """Hosts of equal devices behind equal cards, priced by measured figures (`costs.collectives.libraries.calibrated`).

    Attributes:
        devices_per_host: devices of a host.
        link_bytes_per_s: what one device sends inside its host, nominal, one direction.
        card_bytes_per_s: what all cards of a host send together, nominal, one direction.
        links: which of `calibrated.HOST_ALL_REDUCE` the host resembles.
        uplinks: what stands above the hosts.
    """

    devices_per_host: int
    link_bytes_per_s: float
    card_bytes_per_s: float
    links: Links = "nvswitch"
    uplinks: Uplinks = AS_WIDE_AS_CARDS

    @property
    def line(self) -> HostLine:
        """What the hosts' links reach."""
        return HostLine(self.link_bytes_per_s, self.links)

    def group_s(self, operation: Operation, payload_bytes: float, group: Stand) -> float:
        """Inside a host by the measured line; between hosts by the group's share of the cards, or of the uplinks above them."""
        assert isinstance(group, Group), "equal hosts tell groups by their form"
        if group.size <= 1 or payload_bytes <= 0:
            return 0.0
        between = self.between_bytes_per_s(group, operation)
        return self.line.seconds(operation, payload_bytes, group.size, group.per_host, between)

    def between_bytes_per_s(self, group: Group, operation: Operation = "all_reduce") -> float:
        """Nominal, what a group's ranks of one host together send to other hosts: their share of the cards and uplinks."""
        return self.card_bytes_per_s / group.side_by_side * self.uplinks.share(group, self.devices_per_host, operation)

    def flat_s(self, operation: Operation, payload_bytes: float, group: Stand) -> float:
        """As `group_s`, each rank fetching all by its own share of the cards, as if its neighbours had fetched nothing."""
        assert isinstance(group, Group), "equal hosts tell groups by their form"
        if group.size <= group.per_host:
            return self.group_s(operation, payload_bytes, group)
        each = Group(group.size // group.per_host, 1, self.devices_per_host, self.devices_per_host)
        rounds = 2.0 if operation == "all_reduce" else 1.0
        share = self.between_bytes_per_s(each) * NETWORK_EFFICIENCY
        return NETWORK_LATENCY_S + rounds * (group.size - 1) / group.size * payload_bytes / share

    def provenance(self, operation: Operation, payload_bytes: float, group: Stand) -> Provenance:
        """See `HostLine.provenance`."""
        assert isinstance(group, Group), "equal hosts tell groups by their form"
        return self.line.provenance(operation, payload_bytes, group.size, group.per_host)


@dataclass(frozen=True)
class FabricWires:
    """The collective layer of a cluster whose hosts are alike.

    Attributes:
        fabric: the cluster and the algorithm.
        devices_per_host: devices of a host.
    """

    fabric: Fabric
    devices_per_host: int
    _known: dict[tuple[Operation, float, Group], float] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def uplinks(self) -> Uplinks:
        """What stands above the hosts."""
        return Uplinks.of(self.fabric.cluster)

    def group_s(self, operation: Operation, payload_bytes: float, group: Stand) -> float:
        """See `costs.collectives.group_price_s`; of a transfer between stages no less than the uplinks need for all of them."""
        assert isinstance(group, Group), "equal hosts tell groups by their form"
        if group.size <= 1 or payload_bytes <= 0:
            return 0.0
        key = (operation, payload_bytes, group)
        if key not in self._known:
            stride = self._stride(group)
            self._known[key] = group_price_s(
                operation,
                payload_bytes,
                group.size,
                group.per_host,
                self.fabric,
                stride=stride,
                side_by_side=self._fitting(group, stride),
            )
            if operation == "send_recv" and group.per_host == 1 and self.uplinks.oversubscription > 1:
                cards = card_bytes_per_s(self.fabric.cluster) / group.side_by_side
                across = payload_bytes / (cards * self.uplinks.share(group, self.devices_per_host, operation))
                self._known[key] = max(self._known[key], across)
        return self._known[key]

    def flat_s(self, operation: Operation, payload_bytes: float, group: Stand) -> float:
        """A group of one rank on each host, beside as many as a host has devices, fetches what each rank does not hold.

        The algorithm is the chosen one; it takes no less than where the ranks of a host share what they fetch.
        """
        assert isinstance(group, Group), "equal hosts tell groups by their form"
        n, hosts = group.size, group.size // group.per_host
        shared_s = self.group_s(operation, payload_bytes, group)
        if hosts <= 1:
            return shared_s
        fetched = payload_bytes * ((n - 1) / n) / ((hosts - 1) / hosts)
        return max(shared_s, self.group_s(operation, fetched, Group(hosts, 1, 1, self.devices_per_host)))

    def provenance(self, operation: Operation, payload_bytes: float, group: Stand) -> Provenance:
        """That of the collective layer's price."""
        assert isinstance(group, Group), "equal hosts tell groups by their form"
        stride = self._stride(group)
        beside = self._fitting(group, stride)
        price = group_price(operation, payload_bytes, group.size, group.per_host, self.fabric, stride=stride, side_by_side=beside)
        return price.provenance

    def _stride(self, group: Group) -> int:
        return min(group.stride, self.devices_per_host) if group.per_host > 1 else 1

    def _fitting(self, group: Group, stride: int) -> int:
        """Of the groups beside each other, as many as there is room for on whole strides of one host (see `Fabric`)."""
        reach = (group.per_host - 1) * stride
        places = range(group.side_by_side)
        firsts = [k % stride + k // stride * stride * group.per_host for k in places]
        return max(1, sum(first + reach < self.devices_per_host for first in firsts))


@dataclass(frozen=True, eq=False)
class PlacedWires:
    """The collective layer of a cluster whose hosts are not alike: each group is priced on its own devices.

    Attributes:
        fabric: the cluster and the algorithm.
        devices: of the ranks, in the order in which they are numbered; None: the first ones.
    """

    fabric: Fabric
    devices: NDArray[np.int64] | None = None
    _known: dict[tuple[Operation, float, PlacedGroups], float] = field(default_factory=dict, repr=False)
    _layouts: dict[tuple[object, ...], PlacedLayout] = field(default_factory=dict, repr=False)
    _stands: dict[tuple[object, ...], list[Stand]] = field(default_factory=dict, repr=False)

    @property
    def devices_per_host(self) -> int:
        """Devices of a host, in the mean where hosts differ."""
        return self.fabric.cluster.num_devices // self.fabric.cluster.num_hosts

    def on(self, devices: NDArray[np.int64]) -> PlacedWires:
        """The same for ranks on other devices."""
        return replace(self, devices=devices, _layouts={}, _stands={})

    def layout(self, layout: Layout, order: str = DEFAULT_ORDER, *, pass_axes: frozenset[str] = IN_PASSES) -> PlacedLayout:
        """The groups of a layout whose ranks are numbered in an order; see `PlacedLayout` for ``pass_axes``."""
        key = (layout.tp, layout.cp, layout.dp, layout.pp, layout.ep, layout.num_shards, pass_axes, order)
        if key not in self._layouts:
            places = numbers(layout, order)
            devices = places if self.devices is None else self.devices[places]
            self._layouts[key] = PlacedLayout(layout, self.fabric.cluster, devices, self.fabric.routing, pass_axes)
        return self._layouts[key]

    def stands(self, layout: Layout, axis: str) -> list[Stand]:
        """Every way in which groups along an axis stand in some order: in passes those of a lane, else each group by itself."""
        key = (layout.tp, layout.cp, layout.dp, layout.pp, layout.ep, layout.num_shards, axis)
        if key not in self._stands:
            every = [self.layout(layout, order) for order in distinct_orders(layout, ORDERS)]
            stages = range(layout.pp)
            if group_size(layout, axis) == 1:
                found: set[Stand] = {ALONE}
            elif axis in IN_PASSES | {"pp"}:
                found = {lane.at(stage)[axis] for one in every for lane in one.lanes for stage in stages}
            else:
                found = {single for one in every for stage in stages for single in one.singles(axis, stage)}
            self._stands[key] = list(found)
        return self._stands[key]

    def group_s(self, operation: Operation, payload_bytes: float, group: Stand) -> float:
        """The time of the slowest of the groups."""
        if group.size <= 1 or payload_bytes <= 0:
            return 0.0
        assert isinstance(group, PlacedGroups), "unequal hosts tell groups by their devices"
        key = operation, payload_bytes, group
        if key not in self._known:
            self._known[key] = max(self.fabric.seconds(operation, one)(payload_bytes) for one in group.groups)
        return self._known[key]

    def flat_s(self, operation: Operation, payload_bytes: float, group: Stand) -> float:
        """As `FabricWires.flat_s`: one device of each of a group's hosts, beside it as many others, fetches what a rank lacks."""
        if group.size <= 1 or payload_bytes <= 0:
            return 0.0
        assert isinstance(group, PlacedGroups), "unequal hosts tell groups by their devices"
        n, found = group.size, [self.group_s(operation, payload_bytes, group)]
        for one in group.groups:
            columns = self._columns(one)
            hosts = columns[0].devices.shape[1]
            if hosts > 1:
                fetched = payload_bytes * ((n - 1) / n) / ((hosts - 1) / hosts)
                found.append(self.group_s(operation, fetched, PlacedGroups(hosts, columns)))
        return max(found)

    def provenance(self, operation: Operation, payload_bytes: float, group: Stand) -> Provenance:
        """That of the least sure of the groups' prices."""
        assert isinstance(group, PlacedGroups), "unequal hosts tell groups by their devices"
        ranked: tuple[Provenance, ...] = get_args(Provenance)
        networks = [self.fabric.network(one) for one in group.groups]
        told = [price(operation, network, ranks, payload_bytes, self.fabric.algorithm) for network, ranks in networks]
        return max((one.provenance for one in told), key=ranked.index)

    def _columns(self, group: Placed) -> tuple[Placed, ...]:
        """The devices of a place on each host of a group, beside those of the other places; one for each place."""
        cluster = self.fabric.cluster
        hosts = list(dict.fromkeys(cluster.device_host[group.devices[0]].tolist()))
        rows = [np.flatnonzero(cluster.device_host == host) for host in hosts]
        fewest = min(map(len, rows))
        table = np.stack([row[:fewest] for row in rows], axis=1)
        turned = np.stack([np.roll(table, -place, axis=0) for place in range(fewest)])
        return tuple(placed(cluster, turned, self.fabric.routing))


def wiring(cluster: Cluster, costs: CostSettings | None = None, devices: NDArray[np.int64] | None = None) -> Wiring:
    """How the messages of a cluster are priced.

    By measured figures (``collectives: calibrated``, which layouts take where no algorithm is named) where its hosts have
    switched links and cards of their own, else by the collective layer.

    Args:
        cluster: where.
        costs: names the algorithm and the routes.
        devices: of each rank, in the order in which ranks are numbered; by default the first ones. Read only where hosts are
            not alike.
    """
    per_host = cluster.num_devices // cluster.num_hosts
    costs = (costs or CostSettings()).of_layouts
    line = host_line(cluster)
    if costs.collectives != "calibrated" or line is None:
        fabric = Fabric.of(cluster, costs)
        return FabricWires(fabric, per_host) if cluster.hosts_are_alike else PlacedWires(fabric, devices)
    cards = card_bytes_per_s(cluster) or line.link_bytes_per_s
    return Wires(per_host, line.link_bytes_per_s, cards, line.links, Uplinks.of(cluster))


def card_bytes_per_s(cluster: Cluster) -> float:
    """What all cards of a host of a Clos network send together, nominal, one direction; 0 where hosts have none."""
    topology = cluster.topology
    return topology.hosts.nics_per_host * topology.hosts.nic_bandwidth_bytes_per_s if isinstance(topology, ClosTopology) else 0.0


def lanes_of(
    wires: Wiring, layout: Layout, order: str = DEFAULT_ORDER, *, pass_axes: frozenset[str] = IN_PASSES
) -> tuple[Lane, ...]:
    """How the groups of a layout stand, see `lanes`: one lane where hosts are alike.

    Args:
        wires: what prices messages.
        layout: how a job is cut.
        order: how ranks are numbered.
        pass_axes: axes of the messages of passes.
    """
    if isinstance(wires, PlacedWires):
        return wires.layout(layout, order, pass_axes=pass_axes).lanes
    return (regular_lane(layout, wires.devices_per_host, order),)


def whole_lane(wires: Wiring, layout: Layout, order: str = DEFAULT_ORDER) -> Lane:
    """All lanes as one: every message as slow as over the slowest group of its stage."""
    if isinstance(wires, PlacedWires):
        return wires.layout(layout, order).whole
    return regular_lane(layout, wires.devices_per_host, order)


def slowest_group(wires: Wiring, layout: Layout, axis: str, order: str = DEFAULT_ORDER) -> Stand:
    """How the groups of all stages along an axis stand, so that a message is priced for the slowest of them."""
    if isinstance(wires, PlacedWires):
        return wires.layout(layout, order).every(axis)
    return group_of(axis, layout, wires.devices_per_host, order)


def placed_on(network: RankNetwork, layout: Layout, costs: CostSettings) -> PlacedLayout | None:
    """The groups of a layout whose ranks, in its own numbering, are those of a network; None where their form tells a price."""
    wires = wiring(network.cluster, costs, network.devices)
    return wires.layout(layout) if isinstance(wires, PlacedWires) else None


def message_s(message: Message, layout: Layout, wires: Wiring) -> float:
    """Seconds of a message of a layout that has the links for itself."""
    return wires.group_s(message.operation, message.payload_bytes, whole_lane(wires, layout).at(0)[message.axis])
