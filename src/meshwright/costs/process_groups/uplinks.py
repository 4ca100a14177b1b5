"""Share of the cards' bandwidth that remains where leaf switches carry less to the spines than their hosts send."""

from __future__ import annotations

from typing import NamedTuple

from ...clusters.cluster import Cluster
from ...clusters.topologies.clos import ClosTopology
from ..collectives.groups import Group
from ..collectives.prices import Operation


class Uplinks(NamedTuple):
    """Capacity of leaf switches to the spines.

    Attributes:
        hosts_per_leaf: hosts below one leaf switch, or one set of rails.
        oversubscription: bandwidth into a leaf's hosts over bandwidth into its spines.
    """

    hosts_per_leaf: int = 1
    oversubscription: float = 1.0

    @classmethod
    def from_cluster(cls, cluster: Cluster) -> Uplinks:
        """Return the uplinks of a cluster; as fast as the cards where it has no leaf switches."""
        topology = cluster.topology
        if isinstance(topology, ClosTopology) and topology.oversubscription > 1:
            return cls(topology.hosts_per_leaf, topology.oversubscription)
        return AS_WIDE_AS_CARDS

    def share(self, group: Group, devices_per_host: int, operation: Operation) -> float:
        """Return the share of the cards' bandwidth that remains while all groups along an axis send to other hosts at once.

        Each of ``k`` hosts below a leaf sends to the one ``d`` hosts on. ``min(d, k)`` of them cross the spines, over uplinks
        that carry ``k`` hosts' cards divided by the oversubscription. In an all-to-all each of them sends to all hosts of its
        group, as much to each. A group that fills whole leaves sends nothing across. Of a transfer between two stages the
        ranks' leaves are not known, so a share of it is assumed to go across.
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
