"""The links that jobs of a fleet share: out of and into each host, and the trunks above groups of hosts and sites.

All cards of a host count as one link, and so do all uplinks of a leaf switch, since traffic spreads evenly over equal links.
Legend: ``m`` hosts, ``r`` groups of hosts (a leaf switch each), ``z`` sites of groups, ``t`` trunks, ``L`` links. A site is a
pod; there is one where all leaves meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...clusters.topologies.clos import ClosTopology
from ...clusters.topologies.host_table import TraceTopology
from ...clusters.topologies.hosts import Hosts
from ...clusters.topologies.matrix import MatrixTopology
from ...compiled import njit
from ...errors import ClusterError
from ...numba_records import by_reference
from ..ragged import row_starts
from .menu_table import SERVERS

UNLIMITED = 1e300
"""Bytes a second of a link on which jobs do not meet."""
MAX_GROUPS = 1024
"""Most groups of hosts between which paths are kept, one row for each pair."""


@by_reference
class FleetNetwork(NamedTuple):
    """The network of a cluster as compiled code reads it.

    Attributes:
        host_group: group of each host, ``(m,)``.
        class_group: groups that placement classes count, ``(m,)``: those of a Clos or a matrix, or one for all hosts.
        host_type: device type of each host, ``(m,)``.
        num_groups: ``r``.
        group_site: site of each group, ``(r,)``.
        num_sites: ``z``.
        num_trunks: ``t``: a trunk for each group, then one for each site if there are several; 0 where links form no tree.
        group_first, group_hosts: hosts of group ``i`` are ``group_hosts[group_first[i]:group_first[i + 1]]``, ``(r + 1,)`` and
            ``(m,)``.
        devices_per_host: of every host.
        way_first: where the links between two groups begin in ``way_links``, ``(r * r + 1,)``.
        way_links: links from a group to another, without those of the hosts.
        capacity_bytes_per_s: of each link, ``(L,)``: host ``i`` out ``2 i`` and in ``2 i + 1``. Then come trunk ``j`` up
            ``2 m + 2 j`` and down ``2 m + 2 j + 1``, or all other links.
    """

    host_group: NDArray[np.int64]
    class_group: NDArray[np.int64]
    host_type: NDArray[np.int64]
    num_groups: int
    group_site: NDArray[np.int64]
    num_sites: int
    num_trunks: int
    group_first: NDArray[np.int64]
    group_hosts: NDArray[np.int64]
    devices_per_host: int
    way_first: NDArray[np.int64]
    way_links: NDArray[np.int64]
    capacity_bytes_per_s: NDArray[np.float64]


@dataclass(frozen=True)
class NamedNetwork:
    """A fleet's network with names for people.

    Attributes:
        arrays: what compiled code reads.
        link_names: ``(L,)``.
        trunk_names: of the groups, then of the sites if there are several, ``(t,)``; of the hosts where links form no tree.
    """

    arrays: FleetNetwork
    link_names: tuple[str, ...]
    trunk_names: tuple[str, ...]

    @property
    def has_shared_links(self) -> bool:
        """Whether jobs can meet on any link at all."""
        return bool((self.arrays.capacity_bytes_per_s < UNLIMITED).any())


def fleet_network(cluster: Cluster) -> NamedNetwork:
    """Return the links that jobs on a cluster share.

    In a Clos or a tree of hosts, the groups are those of its leaf switches (or sets of rails), the sites its pods. In a matrix
    the groups are its sites, and no link is shared: each pair of devices has its own. Elsewhere every host is a group of its own,
    and the links between two are those on the path between their first devices.

    Raises:
        ClusterError: hosts that differ in their number of devices, or too many groups.
    """
    sizes = np.bincount(cluster.device_host, minlength=cluster.num_hosts)
    if (sizes != sizes[0]).any():
        raise ClusterError("a fleet wants equally many devices on each host", field=cluster.name)
    topology = cluster.topology
    host_group = topology.host_group
    has_groups, group = host_group is not None, np.arange(cluster.num_hosts) if host_group is None else host_group
    num_groups = int(group.max()) + 1
    if num_groups > MAX_GROUPS:
        raise ClusterError(f"a fleet has at most {MAX_GROUPS} groups of hosts", field=cluster.name, value=num_groups)
    site = np.zeros(num_groups, np.int64)
    if isinstance(topology, ClosTopology):
        trunks, names, capacity, card = _clos_trunks(topology, num_groups)
    elif isinstance(topology, TraceTopology):
        site = topology.leaf_pod
        trunks, names, capacity, card = _tree_trunks(topology)
    elif isinstance(topology, MatrixTopology):
        trunks, names, capacity, card = _matrix_trunks(topology, num_groups)
    if has_groups:
        ways = [_way(a, b, site) for a in range(num_groups) for b in range(num_groups)]
    else:
        names, capacity, ways, card = _path_links(cluster)
        trunks = list(cluster.host_names)
    host_names = [f"{host}>{end}" if way == 0 else f"{end}>{host}" for host in cluster.host_names for way, end in _ENDS]
    first_device = np.searchsorted(cluster.device_host, np.arange(cluster.num_hosts))
    arrays = FleetNetwork(  # copies: an array that cannot be written is another type to compiled code
        host_group=np.array(group, np.int64),
        class_group=np.array(group if has_groups else np.zeros_like(group), np.int64),
        host_type=np.array(cluster.device_type[first_device], np.int64),
        num_groups=num_groups,
        group_site=np.array(site, np.int64),
        num_sites=int(site.max()) + 1,
        num_trunks=len(trunks) if has_groups else 0,
        group_first=row_starts(np.bincount(group, minlength=num_groups)),
        group_hosts=np.argsort(group, kind="stable").astype(np.int64),
        devices_per_host=int(sizes[0]),
        way_first=row_starts([len(way) for way in ways]),
        way_links=np.array([link + 2 * cluster.num_hosts for way in ways for link in way], np.int64),
        capacity_bytes_per_s=np.concatenate([card, capacity]),
    )
    return NamedNetwork(arrays, (*host_names, *names), tuple(trunks))


_ENDS = ((0, "network"), (1, "network"))

_Trunks = tuple[list[str], list[str], NDArray[np.float64], NDArray[np.float64]]


def _clos_trunks(clos: ClosTopology, num_groups: int) -> _Trunks:
    """Return the names of the trunks, names and capacity of their links, and the capacity of the hosts' links."""
    leaves = clos.num_leaves // num_groups
    trunk = leaves * clos.num_spines * clos.uplink_bandwidth_bytes_per_s
    trunks = [f"leaf {n}" if leaves == 1 else f"leaves {n * leaves}-{(n + 1) * leaves - 1}" for n in range(num_groups)]
    names = [f"{name}>{way}" for name in trunks for way in ("spines", "from-spines")]
    return trunks, names, np.full(2 * num_groups, trunk), _cards(clos.hosts)


def _tree_trunks(tree: TraceTopology) -> _Trunks:
    """Return the same; above the sites only where there are several."""
    sites = tree.pod_names if len(tree.pod_names) > 1 else ()
    trunks = [*tree.leaf_names, *sites]
    names = [f"{name}>{way}" for name in trunks for way in ("up", "down")]
    counts = [2 * len(tree.leaf_names), 2 * len(sites)]
    return trunks, names, np.repeat([tree.leaf_bandwidth_bytes_per_s, tree.pod_bandwidth_bytes_per_s], counts), _cards(tree.hosts)


def _matrix_trunks(matrix: MatrixTopology, num_groups: int) -> _Trunks:
    """Return the same; nothing limits them."""
    trunks = list(matrix.site_names or (f"site{number}" for number in range(num_groups)))
    names = [f"{name}>{way}" for name in trunks for way in ("out", "in")]
    return trunks, names, np.full(2 * num_groups, UNLIMITED), np.full(2 * len(matrix.host_names), UNLIMITED)


def _cards(hosts: Hosts) -> NDArray[np.float64]:
    return np.full(2 * hosts.num_hosts, hosts.nics_per_host * hosts.nic_bandwidth_bytes_per_s)


def _way(a: int, b: int, site: NDArray[np.int64]) -> list[int]:
    """Return the links of trunks from a group to another: up to the lowest switch that both share, and down."""
    if a == b:
        return []
    if site[a] == site[b]:
        return [2 * a, 2 * b + 1]
    num = len(site)
    return [2 * a, 2 * (num + int(site[a])), 2 * (num + int(site[b])) + 1, 2 * b + 1]


_Links = tuple[list[str], NDArray[np.float64], list[list[int]], NDArray[np.float64]]


def _path_links(cluster: Cluster) -> _Links:
    """Return the same where each host is a group: the links on the paths between first devices; hosts' own links are no limit."""
    first = np.searchsorted(cluster.device_host, np.arange(cluster.num_hosts)).tolist()
    paths = [[] if a == b else list(cluster.path(a, b)) for a in first for b in first]
    used = sorted({link for path in paths for link in path})
    number = {link: place for place, link in enumerate(used)}
    names = [cluster.links.names[link] for link in used]
    capacity = cluster.links.bandwidth_bytes_per_s[used] if used else np.zeros(0)
    ways = [[number[link] for link in path] for path in paths]
    return names, np.asarray(capacity, np.float64), ways, np.full(2 * cluster.num_hosts, UNLIMITED)


@njit
def add_loads(network, flow_from, flow_to, flow_bytes, flow_streams, first, last, hosts, busy_s, streams, touched):  # type: ignore[no-untyped-def]
    """Add the load of a job's flows on each link, in seconds a step; return the number of links touched.

    Args:
        network: the `FleetNetwork`.
        flow_from, flow_to, flow_bytes, flow_streams: as in `MenuTable`; flows ``first`` to ``last`` are the job's.
        hosts: host of each of the job's host slots. Flows to and from `SERVERS` cross the trunks above it.
        busy_s, streams: of each link, ``(L,)``, zero before.
        touched: links with traffic, ``(L,)``.
    """
    count = 0
    for f in range(first, last):
        if flow_from[f] == SERVERS or flow_to[f] == SERVERS:
            comes = flow_from[f] == SERVERS
            host = hosts[flow_to[f] if comes else flow_from[f]]
            for i in range(3):
                link = _link_to_servers(network, host, i)
                if link >= 0:
                    link += comes
                    if streams[link] == 0.0:
                        touched[count] = link
                        count += 1
                    busy_s[link] += flow_bytes[f] / network.capacity_bytes_per_s[link]
                    streams[link] += flow_streams[f]
            continue
        a, b = hosts[flow_from[f]], hosts[flow_to[f]]
        if a == b:
            continue
        ga, gb = network.host_group[a], network.host_group[b]
        row = ga * network.num_groups + gb
        begin, end = network.way_first[row], network.way_first[row + 1]
        for i in range(begin - 2, end):
            link = 2 * a if i == begin - 2 else (2 * b + 1 if i == begin - 1 else network.way_links[i])
            if streams[link] == 0.0:
                touched[count] = link
                count += 1
            busy_s[link] += flow_bytes[f] / network.capacity_bytes_per_s[link]
            streams[link] += flow_streams[f]
    return count


@njit
def _link_to_servers(network, host, number):  # type: ignore[no-untyped-def]
    """Return the links out of a host towards the servers one after the other; -1 for none."""
    group, num_hosts = network.host_group[host], len(network.host_group)
    if number == 0:
        return 2 * host
    if network.num_trunks == 0:
        return -1
    if number == 1:
        return 2 * (num_hosts + group)
    return 2 * (num_hosts + network.num_groups + network.group_site[group]) if network.num_sites > 1 else -1
