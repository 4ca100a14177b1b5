"""The links that jobs of a fleet share: what goes out of and into each host, and the trunks between groups of hosts.

All cards of a host count as one link, and so do all links from a leaf switch to its spines: traffic that is spread over
equal links loads them alike. Legend: ``m`` hosts, ``r`` groups of hosts (a leaf switch each), ``L`` links.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...clusters.topologies.clos import ClosTopology
from ...compiled import njit
from ...errors import ClusterError
from ...numba_records import by_reference

MAX_GROUPS = 1024
"""Most groups of hosts between which paths are kept, one row for each pair."""


@by_reference
class FleetNetwork(NamedTuple):
    """What compiled code reads of a cluster.

    Attributes:
        host_group: group of each host, ``(m,)``.
        class_group: by which placement classes count groups, ``(m,)``: that of a Clos, or one for all hosts.
        host_type: device type of each host, ``(m,)``.
        num_groups: ``r``.
        group_first, group_hosts: hosts of group ``i`` are ``group_hosts[group_first[i]:group_first[i + 1]]``, ``(r + 1,)`` and
            ``(m,)``.
        devices_per_host: of every host.
        way_first: where the links between two groups begin in ``way_links``, ``(r * r + 1,)``.
        way_links: links from a group to another, without those of the hosts.
        capacity_bytes_per_s: of each link, ``(L,)``: host ``i`` out ``2 i`` and in ``2 i + 1``, then the trunks.
    """

    host_group: NDArray[np.int64]
    class_group: NDArray[np.int64]
    host_type: NDArray[np.int64]
    num_groups: int
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
        group_names: ``(r,)``.
    """

    arrays: FleetNetwork
    link_names: tuple[str, ...]
    group_names: tuple[str, ...]


def fleet_network(cluster: Cluster) -> NamedNetwork:
    """The links that jobs on a cluster share.

    Below a Clos of hosts the groups are those of its leaf switches (of its sets of rails); elsewhere every host is a group
    of its own, and the links between two are those on the path between their first devices.

    Raises:
        ClusterError: hosts that differ in their number of devices, or too many groups.
    """
    sizes = np.bincount(cluster.device_host, minlength=cluster.num_hosts)
    if (sizes != sizes[0]).any():
        raise ClusterError("a fleet wants equally many devices on each host", field=cluster.name)
    topology = cluster.topology
    clos = topology if isinstance(topology, ClosTopology) else None
    group = clos.host_group if clos is not None else np.arange(cluster.num_hosts)
    num_groups = int(group.max()) + 1
    if num_groups > MAX_GROUPS:
        raise ClusterError(f"a fleet has at most {MAX_GROUPS} groups of hosts", field=cluster.name, value=num_groups)
    if clos is not None:
        names, capacity, ways, card = _clos_links(clos, num_groups)
    else:
        names, capacity, ways, card = _path_links(cluster)
    host_names = [f"{host}>{end}" if way == 0 else f"{end}>{host}" for host in cluster.host_names for way, end in _ENDS]
    first = np.zeros(num_groups**2 + 1, np.int64)
    np.cumsum([len(way) for way in ways], out=first[1:])
    first_device = np.searchsorted(cluster.device_host, np.arange(cluster.num_hosts))
    arrays = FleetNetwork(  # copies: an array that cannot be written is another type to compiled code
        host_group=np.array(group, np.int64),
        class_group=np.array(group if clos is not None else np.zeros_like(group), np.int64),
        host_type=np.array(cluster.device_type[first_device], np.int64),
        num_groups=num_groups,
        group_first=np.concatenate([[0], np.cumsum(np.bincount(group, minlength=num_groups))]).astype(np.int64),
        group_hosts=np.argsort(group, kind="stable").astype(np.int64),
        devices_per_host=int(sizes[0]),
        way_first=first,
        way_links=np.array([link + 2 * cluster.num_hosts for way in ways for link in way], np.int64),
        capacity_bytes_per_s=np.concatenate([card, capacity]),
    )
    groups = tuple(f"group{number}" for number in range(num_groups)) if clos is not None else cluster.host_names
    return NamedNetwork(arrays, (*host_names, *names), groups)


_ENDS = ((0, "network"), (1, "network"))

_Links = tuple[list[str], NDArray[np.float64], list[list[int]], NDArray[np.float64]]


def _clos_links(clos: ClosTopology, num_groups: int) -> _Links:
    """Names and capacity of the trunks, those on the way from group to group, and the capacity of the hosts' links."""
    leaves = clos.num_leaves // num_groups
    trunk = leaves * clos.num_spines * clos.uplink_bandwidth_bytes_per_s
    names = [f"group{number}>{way}" for number in range(num_groups) for way in ("spines", "from-spines")]
    ways = [[] if a == b else [2 * a, 2 * b + 1] for a in range(num_groups) for b in range(num_groups)]
    card = np.full(2 * clos.hosts.num_hosts, clos.hosts.nics_per_host * clos.hosts.nic_bandwidth_bytes_per_s)
    return names, np.full(2 * num_groups, trunk), ways, card


def _path_links(cluster: Cluster) -> _Links:
    """The same where each host is a group: the links on the paths between first devices; hosts' own links are no limit."""
    first = np.searchsorted(cluster.device_host, np.arange(cluster.num_hosts)).tolist()
    paths = [[] if a == b else list(cluster.path(a, b)) for a in first for b in first]
    used = sorted({link for path in paths for link in path})
    number = {link: place for place, link in enumerate(used)}
    names = [cluster.links.names[link] for link in used]
    capacity = cluster.links.bandwidth_bytes_per_s[used] if used else np.zeros(0)
    ways = [[number[link] for link in path] for path in paths]
    return names, np.asarray(capacity, np.float64), ways, np.full(2 * cluster.num_hosts, 1e300)


@njit
def add_loads(network, flow_from, flow_to, flow_bytes, flow_streams, first, last, hosts, busy_s, streams, touched):  # type: ignore[no-untyped-def]
    """Add what flows between the hosts of a job put on each link, in seconds a step; the number of links touched.

    Args:
        network: the `FleetNetwork`.
        flow_from, flow_to, flow_bytes, flow_streams: as in `MenuTable`; flows ``first`` to ``last`` are the job's.
        hosts: host of each of the job's host slots.
        busy_s, streams: of each link, ``(L,)``, zero before.
        touched: links with traffic, ``(L,)``.
    """
    count = 0
    for f in range(first, last):
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
