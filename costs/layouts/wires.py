"""What a message of a layout costs: its group's place on the hosts, and a time from the collective layer.

Ranks stand on devices in their order, so that a group along an axis is regular: equal shares of its ranks on each of its
hosts. `Wires` prices such groups by measured latency and bandwidth inside a host and by the cards between hosts;
`FabricWires` asks `costs.collectives`. Both are `Wiring`, and which one is used is one choice (`wiring`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol

from ...clusters.clos import ClosTopology
from ...clusters.cluster import Cluster
from ...clusters.single_host import SingleHostTopology
from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER
from ..collectives.groups import Fabric, group_price, group_price_s
from ..collectives.prices import Operation, Provenance
from ..model import CostSettings
from .items import Message

HOST_ALL_REDUCE = {
    "nvswitch": {2: (46.0e-6, 192.9e9), 4: (54.0e-6, 218.4e9), 8: (78.6e-6, 227.3e9)},
    "cube mesh": {2: (23.8e-6, 22.6e9), 4: (45.0e-6, 85.8e9), 8: (75.9e-6, 136.1e9)},
}
"""Latency and bus bandwidth of NCCL's all-reduce inside a host by ranks, on a DGX A100 and on V100s in a hybrid cube mesh:
least squares over 1-1024 MiB of the tables in VIA-Research/vTrain (trace/a100 and trace/v100, AR_GPU*_LUT)."""

MEASURED_LINK_BYTES_PER_S = {"nvswitch": 300e9, "cube mesh": 150e9}
"""One direction of one device of the hosts on which `HOST_ALL_REDUCE` was measured; other links scale with theirs."""

GATHER_LATENCY_SHARE, GATHER_BANDWIDTH_SHARE = 0.6, 0.9
"""All-gather, reduce-scatter and all-to-all against the all-reduce: fitted on every second size of the nccl-tests tables of
ai-dynamo/aiconfigurator for A100 (eight ranks: about 45 us and 205 GB/s)."""

MEASURED_FROM_BYTES, MEASURED_TO_BYTES = 2**20, 2**30
"""Sizes over which the lines of `HOST_ALL_REDUCE` were fitted."""

NETWORK_LATENCY_S = 14e-6
"""One hop between hosts by NCCL's protocol Simple (NVIDIA/nccl, src/graph/tuning.cc, hardware latency NET, ring)."""

NETWORK_EFFICIENCY = 0.9
"""Share of a card's nominal rate that reaches the payload. Published: 84.8-96 of 100 GB/s with four HDR cards
(NVIDIA/nccl-tests, issues 100 and 119), 46-48 of 50 GB/s with NDR (issue 290)."""


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


@dataclass(frozen=True)
class Wires:
    """Hosts of equal devices behind equal cards, priced by measured figures.

    Attributes:
        devices_per_host: devices of a host.
        link_bytes_per_s: what one device sends inside its host, nominal, one direction.
        card_bytes_per_s: what all cards of a host send together, nominal, one direction.
        links: which of `HOST_ALL_REDUCE` the host resembles.
    """

    devices_per_host: int
    link_bytes_per_s: float
    card_bytes_per_s: float
    links: Literal["nvswitch", "cube mesh"] = "nvswitch"

    def group_s(self, operation: Operation, payload_bytes: float, group: Group) -> float:
        """Inside a host by the measured line of the all-reduce; between hosts by the group's share of the cards.

        Between hosts a ring enters and leaves each host by as many cards as the group has ranks there, as NCCL's channels
        do, and shares them with the groups beside it; it is never faster than inside the host. An all-reduce takes a
        tree's latency where that is shorter.
        """
        n = group.size
        if n <= 1 or payload_bytes <= 0:
            return 0.0
        if operation == "send_recv":
            return self._send_s(payload_bytes, group)
        rounds = 2.0 if operation == "all_reduce" else 1.0
        latency_s, bandwidth = self._host(min(n, group.per_host))
        if operation != "all_reduce":
            latency_s, bandwidth = GATHER_LATENCY_SHARE * latency_s, GATHER_BANDWIDTH_SHARE * bandwidth
        hosts = n // group.per_host
        if hosts > 1:
            share = self.card_bytes_per_s * NETWORK_EFFICIENCY / group.side_by_side
            bandwidth = min(share, bandwidth) if group.per_host > 1 else share
            steps = rounds * (hosts - 1)
            if operation == "all_reduce":
                steps = min(steps, 2.0 * math.ceil(math.log2(hosts)) + 2.0)
            latency_s = (latency_s if group.per_host > 1 else 0.0) + steps * NETWORK_LATENCY_S
        return latency_s + rounds * (n - 1) / n * payload_bytes / bandwidth

    def flat_s(self, operation: Operation, payload_bytes: float, group: Group) -> float:
        """As `group_s`, each rank fetching all by its own share of the cards, as if its neighbours had fetched nothing."""
        if group.size <= group.per_host:
            return self.group_s(operation, payload_bytes, group)
        share = self.card_bytes_per_s * NETWORK_EFFICIENCY / self.devices_per_host
        rounds = 2.0 if operation == "all_reduce" else 1.0
        return NETWORK_LATENCY_S + rounds * (group.size - 1) / group.size * payload_bytes / share

    def provenance(self, operation: Operation, payload_bytes: float, group: Group) -> Provenance:
        """``interpolated`` on the measured lines: inside a host with the links and over the sizes that they were fitted to."""
        is_measured = (
            group.size <= group.per_host
            and operation != "send_recv"
            and self.link_bytes_per_s == MEASURED_LINK_BYTES_PER_S[self.links]
            and MEASURED_FROM_BYTES <= payload_bytes <= MEASURED_TO_BYTES
        )
        return "interpolated" if is_measured else "estimated"

    def _send_s(self, payload_bytes: float, group: Group) -> float:
        latency_s, bandwidth = self._host(2)
        if group.per_host < 2:
            return NETWORK_LATENCY_S + payload_bytes / (self.card_bytes_per_s * NETWORK_EFFICIENCY / group.side_by_side)
        return 0.5 * latency_s + payload_bytes / bandwidth

    def _host(self, ranks: int) -> tuple[float, float]:
        """Latency and bus bandwidth inside a host, linear between the measured numbers of ranks."""
        measured = HOST_ALL_REDUCE[self.links]
        known = sorted(measured)
        low = max((n for n in known if n <= ranks), default=known[0])
        high = min((n for n in known if n >= ranks), default=known[-1])
        weight = 0.0 if low == high else (ranks - low) / (high - low)
        latency_s, bandwidth = ((1 - weight) * measured[low][part] + weight * measured[high][part] for part in (0, 1))
        return latency_s, bandwidth * self.link_bytes_per_s / MEASURED_LINK_BYTES_PER_S[self.links]


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

    def group_s(self, operation: Operation, payload_bytes: float, group: Group) -> float:
        """See `costs.collectives.group_price_s`."""
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

    By measured figures where its hosts have switched links and cards of their own and no algorithm is named
    (``collectives: auto``), else by the collective layer.
    """
    per_host = cluster.num_devices // cluster.num_hosts
    topology = cluster.topology
    costs = costs or CostSettings()
    if costs.collectives == "auto":
        if isinstance(topology, ClosTopology):
            hosts = topology.hosts
            cards = hosts.nics_per_host * hosts.nic_bandwidth_bytes_per_s
            links: Literal["nvswitch", "cube mesh"] = "cube mesh" if cluster.device_types[0].name == "v100" else "nvswitch"
            return Wires(per_host, hosts.bandwidth_bytes_per_s, cards / max(1.0, topology.oversubscription), links)
        if isinstance(topology, SingleHostTopology) and not topology.is_bus:
            return Wires(per_host, topology.link_bandwidth_bytes_per_s, topology.link_bandwidth_bytes_per_s)
    return FabricWires(Fabric.of(cluster, costs), per_host)


def message_s(message: Message, layout: Layout, wires: Wiring) -> float:
    """Seconds of a message of a layout that has the links for itself."""
    return wires.group_s(message.operation, message.payload_bytes, group_of(message.axis, layout, wires.devices_per_host))
