"""Prices of groups: any ranks of a network, groups on given devices, and regular groups by their shape alone.

A planner asks for thousands of regular groups, each some ranks on each of some hosts. `Fabric` prices each shape once on the
cluster itself, ranks and all, and keeps the result. The next price of the same shape is a little arithmetic. On a cluster of
unequal hosts a shape has no single price. A group is then given by its devices (`PlacedGroup`), and groups whose devices are
connected in the same way are priced once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...clusters.symmetry import signatures
from ...errors import ConfigError
from ..network import RankNetwork
from ..routing import SHORTEST_PATH, Routing
from ..settings import CostSettings
from .algorithm import Algorithm, Pricer, Ranks
from .choice import algorithm_named, algorithm_of
from .direct import RING
from .fastest import Fastest
from .in_network import InNetwork
from .libraries.library import Library
from .prices import Operation, Price

ASSUMED_UNCERTAINTY = 0.25
"""Relative standard deviation of a formula at the links' nominal figures."""


class Group(NamedTuple):
    """A regular group of ranks, and the groups that communicate at the same time.

    Attributes:
        size: number of ranks.
        per_host: ranks of the group on each of its hosts, at most the devices of a host.
        stride: devices from one rank of a host to the next: 1 is consecutive.
        side_by_side: number of equal groups on the same hosts that do the same at the same time, this one included. The first
            ``stride`` of them are in the gaps between the ranks, the others behind.
    """

    size: int
    per_host: int
    stride: int = 1
    side_by_side: int = 1


@dataclass(frozen=True)
class PlacedGroup:
    """A group on its own devices, and the groups that communicate at the same time.

    Attributes:
        signature: equal for groups whose times are equal.
        devices: of each group in rank order, the priced one first, ``(groups, n)``.
    """

    signature: bytes
    devices: Ranks = field(compare=False, repr=False)


def placed(cluster: Cluster, devices: NDArray[np.int64], routing: Routing = SHORTEST_PATH) -> list[PlacedGroup]:
    """Return groups on given devices.

    Args:
        cluster: where they run.
        devices: ``(g, groups, n)``: of each group, and of the groups that share a host with it.
        routing: which paths messages take.
    """
    rows = devices.reshape(len(devices), -1)
    form = b"%d groups;" % devices.shape[1]
    return [
        PlacedGroup(form + signature + routing.signature(cluster, row), group)
        for signature, row, group in zip(signatures(cluster, rows), rows, devices, strict=True)
    ]


def price(
    operation: Operation, network: RankNetwork, ranks: Ranks, payload_bytes: float, algorithm: Algorithm | str = "auto"
) -> Price:
    """Return the price of one collective over any ranks of a network.

    Args:
        operation: which one.
        network: the ranks' devices and what joins them.
        ranks: who takes part, in order.
        payload_bytes: total size as nccl-tests counts it (gathered, for all-gather and reduce-scatter).
        algorithm: by name as `CostSettings.collectives` spells it, or from `choice.algorithm_of`.

    Raises:
        ConfigError: an unknown algorithm, or one that does not run on the cluster.
    """
    model = algorithm_named(algorithm) if isinstance(algorithm, str) else algorithm
    ranks = np.asarray(ranks, np.int64)
    if isinstance(model, Library):
        return model.price(network, ranks, payload_bytes, operation)
    if isinstance(model, Fastest):
        model = model.best(network, ranks, payload_bytes, operation)
    seconds = model.time_s(network, ranks, payload_bytes, operation)
    has_own = model.has_tree(network, ranks, operation) if isinstance(model, InNetwork) else model.offers(operation)
    return Price(seconds, "estimated", ASSUMED_UNCERTAINTY, (model if has_own else RING).name)


@dataclass(frozen=True, eq=False)
class Fabric:
    """A cluster as groups see it.

    Attributes:
        cluster: where they run.
        algorithm: what does their collectives.
        routing: which paths messages take; hashed ones are, of a shape, those of the first groups.
    """

    cluster: Cluster
    algorithm: Algorithm = field(default_factory=Fastest)
    routing: Routing = SHORTEST_PATH
    _networks: dict[Group | PlacedGroup, tuple[RankNetwork, Ranks]] = field(default_factory=dict, repr=False)
    _seconds: dict[tuple[Operation, Group | PlacedGroup], Pricer] = field(default_factory=dict, repr=False)

    @classmethod
    def from_settings(cls, cluster: Cluster, costs: CostSettings) -> Fabric:
        """Return a cluster with the algorithm and the routing that settings choose."""
        return cls(cluster, algorithm_of(costs), Routing.from_settings(costs))

    def network(self, group: Group | PlacedGroup) -> tuple[RankNetwork, Ranks]:
        """Return the network of a group and of the groups that work at the same time, and the ranks of the group.

        Raises:
            ConfigError: the cluster has no room for the shape, or its hosts are unequal, so that a shape has no single price.
        """
        if group not in self._networks:
            groups = group.devices if isinstance(group, PlacedGroup) else self._groups(group)
            ranks = np.arange(groups.size).reshape(groups.shape)
            network = RankNetwork(self.cluster, groups.reshape(-1), tuple(ranks[1:]), self.routing)
            self._networks[group] = network, ranks[0]
        return self._networks[group]

    def seconds(self, operation: Operation, group: Group | PlacedGroup) -> Pricer:
        """Return the seconds of a payload; worked out once."""
        key = operation, group
        if key not in self._seconds:
            network, ranks = self.network(group)
            self._seconds[key] = self.algorithm.pricer(network, ranks, operation)
        return self._seconds[key]

    def price(self, operation: Operation, payload_bytes: float, group: Group | PlacedGroup) -> Price:
        """Return the price of one collective of a group, see `price`.

        Raises:
            ConfigError: as `network`.
        """
        network, ranks = self.network(group)
        return price(operation, network, ranks, payload_bytes, self.algorithm)

    def _groups(self, shape: Group) -> Ranks:
        """Return the devices of each group, a row each."""
        if not self.cluster.hosts_are_equal:
            problem = f"the hosts of {self.cluster.name} differ: give a group by its devices, not by its shape"
            raise ConfigError(problem, field="group", value=str(tuple(shape)))
        n, g, stride, groups_at_once = shape
        per_host = self.cluster.num_devices // self.cluster.num_hosts
        if min(shape) < 1 or n % g or n // g > self.cluster.num_hosts or self.cluster.num_devices % self.cluster.num_hosts:
            raise self._no_room(shape)
        first = np.array([k % stride + k // stride * stride * g for k in range(groups_at_once)])
        local = first[:, None] + np.arange(g) * stride
        if local.max() >= per_host:
            raise self._no_room(shape)
        hosts = np.arange(n // g) * per_host
        return (hosts[None, :, None] + local[:, None, :]).reshape(groups_at_once, n).astype(np.int64)

    def _no_room(self, shape: Group) -> ConfigError:
        devices, hosts = self.cluster.num_devices, self.cluster.num_hosts
        request = f"{shape.side_by_side} x {shape.size} ranks, {shape.per_host} on each host, {shape.stride} apart"
        return ConfigError(f"{self.cluster.name} has {devices} devices on {hosts} hosts: no room", field="group", value=request)
