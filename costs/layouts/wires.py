"""What a message of a layout costs: its group's place on the hosts, and a time from the collective layer.

Ranks stand on devices in their order, so that a group along an axis is regular: equal shares of its ranks on each of its
hosts. `Wires` prices such groups by measured latency and bandwidth inside a host and by the cards between hosts;
`FabricWires` asks `costs.collectives`. Both are `Wiring`, and which one is used is one choice (`wiring`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

from ...clusters.clos import ClosTopology
from ...clusters.cluster import Cluster
from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER
from ..collectives.calibrated import NETWORK_EFFICIENCY, NETWORK_LATENCY_S, HostLine, Links, host_line
from ..collectives.groups import Fabric, group_price, group_price_s
from ..collectives.prices import Operation, Provenance
from ..model import CostSettings
from .items import Message


class Group(NamedTuple):
    """A regular group of ranks.

    Attributes:
        size: ranks.
        per_host: of them on one host.
        stride: devices from one rank to the next.
        side_by_side: equal groups on the same hosts that do the same at the same time.
    """

    size: int
    per_host: int
    stride: int
    side_by_side: int


class Wiring(Protocol):
    """Prices messages over regular groups."""

    def group_s(self, operation: Operation, payload_bytes: float, group: Group) -> float:
        """Seconds of one collective, or of one transfer to the next rank."""
        ...

    def flat_s(self, operation: Operation, payload_bytes: float, group: Group) -> float:
        """As `group_s`, but over hosts each rank fetches all by its own share of the cards, as if its neighbours had nothing."""
        ...

    def provenance(self, operation: Operation, payload_bytes: float, group: Group) -> Provenance:
        """Where these seconds come from; of a group of more than one rank, and some bytes."""
        ...

    @property
    def devices_per_host(self) -> int:
        """Devices of a host."""
        ...


def group_of(axis: str, layout: Layout, devices_per_host: int, order: str = DEFAULT_ORDER) -> Group:
    """The group of a rank along an axis, as the ranks' order puts it on hosts."""
    return groups_of(layout, devices_per_host, order)[axis]


def groups_of(layout: Layout, devices_per_host: int, order: str = DEFAULT_ORDER) -> dict[str, Group]:
    """The groups of a rank along every axis."""
    return _groups(layout.tp, layout.cp, layout.dp, layout.pp, layout.ep, layout.num_shards, devices_per_host, order)[0]


def is_regular(layout: Layout, devices_per_host: int, order: str = DEFAULT_ORDER) -> bool:
    """Whether each group has equally many ranks on each of its hosts, in even steps; the prices of others are rough."""
    return _groups(layout.tp, layout.cp, layout.dp, layout.pp, layout.ep, layout.num_shards, devices_per_host, order)[1]


@lru_cache(maxsize=65_536)
def _groups(
    tp: int, cp: int, dp: int, pp: int, ep: int, shards: int, devices_per_host: int, order: str
) -> tuple[dict[str, Group], bool]:
    """Groups by axis, and whether all of them are regular.

    The ranks of dp and cp that hold the same weights count along cp first. Stages next to each other are on one host if
    all stages are; else the transfer that leaves the host decides, which it shares with the ranks of one stage.
    """
    size, stride, step = {"tp": tp, "cp": cp, "dp": dp, "pp": pp}, {}, 1
    for axis in order.split("-"):
        stride[axis], step = step, step * size[axis]
    used = min(step, devices_per_host)
    same = [(cp, stride["cp"]), (dp, stride["dp"])]
    if stride["dp"] == cp * stride["cp"] or 1 in (cp, dp):
        same = [(cp * dp, stride["dp"] if cp == 1 else stride["cp"])]
    experts, expert_copies = _cut(same, ep)
    sharing, copies = _cut(same, shards)
    found, regular = {}, step % used == 0
    for name, axes in (
        ("tp", [(tp, stride["tp"])]),
        ("cp", [(cp, stride["cp"])]),
        ("ep", experts),
        ("dp_cp", same),
        ("expert_dp", expert_copies),
        ("shard", sharing),
        ("replica", copies),
    ):
        per_host, apart, parts_inside = 1, axes[0][1], 0
        for ranks, distance in axes:
            room = max(1, used // distance)
            inside = max(1, min(ranks, room))
            while ranks % inside:
                inside -= 1
            if inside > 1:
                apart = distance if not parts_inside else apart
                parts_inside += 1
            per_host *= inside
            fits = distance >= used or (used % distance == 0 and max(ranks, room) % min(ranks, room) == 0)
            regular &= ranks == 1 or (fits and (distance < used or distance % used == 0))
        regular &= parts_inside <= 1
        found[name] = Group(math.prod(ranks for ranks, _ in axes), per_host, apart, max(1, used // per_host))
    is_inside = pp * stride["pp"] <= used
    beside = used // 2 if is_inside else min(used, stride["pp"])
    for name, distance in (("pp", stride["pp"]), ("ends", stride["pp"] * max(1, pp - 1))):
        found[name] = Group(min(2, pp), 2 if is_inside and pp > 1 else 1, distance, max(1, beside))
    room = max(1, used // stride["pp"])
    regular &= pp == 1 or stride["pp"] % used == 0 or max(pp, room) % min(pp, room) == 0
    return found, regular


@lru_cache(maxsize=65_536)
def boundary_groups(layout: Layout, devices_per_host: int, order: str = DEFAULT_ORDER) -> tuple[Group, ...]:
    """The ranks of a transfer between each stage and the next one, and of one between the last and the first.

    Where a host has room for some stages only, a transfer between two of them does not leave it.
    """
    groups, pp = groups_of(layout, devices_per_host, order), layout.pp
    stride = groups["pp"].stride
    room = devices_per_host // stride if devices_per_host % stride == 0 else 1
    if room <= 1 or groups["pp"].per_host > 1:
        return (groups["pp"],) * (pp - 1) + (groups["ends"],)
    inside = Group(2, 2, stride, max(1, devices_per_host // 2))
    return (*(groups["pp"] if (stage + 1) % room == 0 else inside for stage in range(pp - 1)), groups["ends"])


def _cut(axes: list[tuple[int, int]], ranks: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The first so many of the ranks of some axes, and those that are as far along in the next such runs."""
    (first, apart), *rest = axes
    if not rest or first % ranks == 0:
        return [(ranks, apart)], [(first // ranks, apart * ranks), *rest]
    further, distance = rest[0]
    along = ranks // first
    return [(first, apart), (along, distance)], [(1, apart), (further // along, distance * along)]


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
    """Hosts of equal devices behind equal cards, priced by measured figures (`costs.collectives.calibrated`).

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

    def group_s(self, operation: Operation, payload_bytes: float, group: Group) -> float:
        """Inside a host by the measured line; between hosts by the group's share of the cards, or of the uplinks above them."""
        if group.size <= 1 or payload_bytes <= 0:
            return 0.0
        between = self.between_bytes_per_s(group, operation)
        return self.line.seconds(operation, payload_bytes, group.size, group.per_host, between)

    def between_bytes_per_s(self, group: Group, operation: Operation = "all_reduce") -> float:
        """Nominal, what a group's ranks of one host together send to other hosts: their share of the cards and uplinks."""
        return self.card_bytes_per_s / group.side_by_side * self.uplinks.share(group, self.devices_per_host, operation)

    def flat_s(self, operation: Operation, payload_bytes: float, group: Group) -> float:
        """As `group_s`, each rank fetching all by its own share of the cards, as if its neighbours had fetched nothing."""
        if group.size <= group.per_host:
            return self.group_s(operation, payload_bytes, group)
        each = Group(group.size // group.per_host, 1, self.devices_per_host, self.devices_per_host)
        rounds = 2.0 if operation == "all_reduce" else 1.0
        share = self.between_bytes_per_s(each) * NETWORK_EFFICIENCY
        return NETWORK_LATENCY_S + rounds * (group.size - 1) / group.size * payload_bytes / share

    def provenance(self, operation: Operation, payload_bytes: float, group: Group) -> Provenance:
        """See `HostLine.provenance`."""
        return self.line.provenance(operation, payload_bytes, group.size, group.per_host)


@dataclass(frozen=True)
class FabricWires:
    """A cluster's own collective layer.

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

    def group_s(self, operation: Operation, payload_bytes: float, group: Group) -> float:
        """See `costs.collectives.group_price_s`; of a transfer between stages no less than the uplinks need for all of them."""
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

    def flat_s(self, operation: Operation, payload_bytes: float, group: Group) -> float:
        """A group of one rank on each host, beside as many as a host has devices, fetches what each rank does not hold.

        The algorithm is the chosen one; it takes no less than where the ranks of a host share what they fetch.
        """
        n, hosts = group.size, group.size // group.per_host
        shared_s = self.group_s(operation, payload_bytes, group)
        if hosts <= 1:
            return shared_s
        fetched = payload_bytes * ((n - 1) / n) / ((hosts - 1) / hosts)
        return max(shared_s, self.group_s(operation, fetched, Group(hosts, 1, 1, self.devices_per_host)))

    def provenance(self, operation: Operation, payload_bytes: float, group: Group) -> Provenance:
        """That of the collective layer's price."""
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


def wiring(cluster: Cluster, costs: CostSettings | None = None) -> Wiring:
    """How the messages of a cluster are priced.

    By measured figures (``collectives: calibrated``, which layouts take where no algorithm is named) where its hosts have
    switched links and cards of their own, else by the collective layer.
    """
    per_host = cluster.num_devices // cluster.num_hosts
    costs = (costs or CostSettings()).of_layouts
    line = host_line(cluster)
    if costs.collectives != "calibrated" or line is None:
        return FabricWires(Fabric.of(cluster, costs), per_host)
    cards = card_bytes_per_s(cluster) or line.link_bytes_per_s
    return Wires(per_host, line.link_bytes_per_s, cards, line.links, Uplinks.of(cluster))


def card_bytes_per_s(cluster: Cluster) -> float:
    """What all cards of a host of a Clos network send together, nominal, one direction; 0 where hosts have none."""
    topology = cluster.topology
    return topology.hosts.nics_per_host * topology.hosts.nic_bandwidth_bytes_per_s if isinstance(topology, ClosTopology) else 0.0


def message_s(message: Message, layout: Layout, wires: Wiring) -> float:
    """Seconds of a message of a layout that has the links for itself."""
    return wires.group_s(message.operation, message.payload_bytes, group_of(message.axis, layout, wires.devices_per_host))
