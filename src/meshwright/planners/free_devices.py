"""Free devices of a cluster that others use too, on the fewest hosts and below the fewest switches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..clusters.cluster import Cluster
from ..clusters.host_order import chained_devices
from ..costs.collectives.groups import Fabric
from ..costs.process_groups.group_network import GroupNetwork, HostNetwork, PlacedNetwork, group_network
from ..costs.settings import CostSettings
from .menu.placement_classes import PlacementClass, PlacementClasses


@dataclass(frozen=True, eq=False)
class Allocation:
    """Devices for a job, and what messages cost among them.

    Attributes:
        devices: in the order of their ranks, host by host, ``(d,)``.
        devices_per_host: of the job, on each of its hosts.
        wires: prices messages among them. On a Clos network with measured collectives the leaf switches may have different
            numbers of the job's hosts. Each then counts the largest power of two that every leaf has.
    """

    devices: NDArray[np.int64]
    devices_per_host: int
    wires: GroupNetwork


def find_allocation(cluster: Cluster, costs: CostSettings, is_free: NDArray[np.bool_], count: int) -> Allocation | None:
    """Return free devices for a job: on the fewest hosts, then below the fewest leaf switches, then with the least left over.

    Args:
        cluster: where they are; types of devices do not count.
        costs: choices of the cost model.
        is_free: whether each device may be taken, ``(n,)``.
        count: devices that are wanted, equally many on each host.

    Returns:
        None where there are not so many.
    """
    free = free_of_hosts(cluster, is_free)
    whole = group_network(cluster, costs)
    if isinstance(whole, PlacedNetwork):
        return _chained(cluster, whole, is_free, free, count)
    classes = PlacementClasses(cluster, costs)
    for part in (part for part in range(min(count, int(free.max())), 0, -1) if count % part == 0):
        groups = _hosts(classes, free, part, count // part)
        if groups is None:
            continue
        devices = first_free(cluster, is_free, np.concatenate(groups), part)
        return Allocation(devices, part, _wires(classes, devices, part, [len(group) for group in groups]))
    return None


def find_allocations(cluster: Cluster, costs: CostSettings, is_free: NDArray[np.bool_], count: int) -> list[Allocation]:
    """Return free devices by `find_allocation` among all, then among the fastest types, and those with most memory alone.

    Each set comes once, at most two by speed and two by memory in whole GB; there is none where devices are too few.
    """
    sets = [is_free]
    figures = [(kind.reached_flops_per_s, round(kind.memory_bytes / 1e9)) for kind in cluster.device_types]
    for of_device in np.array(figures)[cluster.device_type].T:
        sets += [is_free & (of_device >= least) for least in np.unique(of_device[is_free])[:0:-1][:2]]
    found = (find_allocation(cluster, costs, one, count) for one in sets)
    return list({one.devices.tobytes(): one for one in found if one is not None}.values())


def _chained(
    cluster: Cluster, whole: PlacedNetwork, is_free: NDArray[np.bool_], free: NDArray[np.int64], count: int
) -> Allocation | None:
    """Return the first hosts of the chain of those with room; whole hosts are first in the cluster's own chain."""
    for part in (part for part in range(min(count, int(free.max())), 0, -1) if count % part == 0):
        hosts = np.flatnonzero(free >= part)
        if len(hosts) >= count // part:
            devices = chained_devices(cluster, np.sort(first_free(cluster, is_free, hosts, part)))[:count]
            return Allocation(devices, part, whole.on(devices))
    return None


def most_free(cluster: Cluster, is_free: NDArray[np.bool_]) -> int:
    """Return the most devices that a job can have: all of the wholly free hosts, or what is free of one host; else 0."""
    sizes = np.bincount(cluster.device_host, minlength=cluster.num_hosts)
    free = free_of_hosts(cluster, is_free)
    return max(int(sizes[free == sizes].sum()), int(free.max()))


def free_of_hosts(cluster: Cluster, is_free: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return free devices of each host."""
    return np.bincount(cluster.device_host, weights=is_free, minlength=cluster.num_hosts).astype(np.int64)


def first_free(cluster: Cluster, is_free: NDArray[np.bool_], hosts: ArrayLike, part: int) -> NDArray[np.int64]:
    """Return the first free devices of some hosts, a number of each, host by host in the order given."""
    devices = np.flatnonzero(is_free)
    begin = np.searchsorted(cluster.device_host[devices], np.asarray(hosts))
    result: NDArray[np.int64] = devices[begin[:, None] + np.arange(part)].reshape(-1)
    return result


def _hosts(classes: PlacementClasses, free: NDArray[np.int64], part: int, num_wanted: int) -> list[NDArray[np.int64]] | None:
    """Return hosts with so many free devices, below each leaf switch that is used those to take; None if there are too few."""
    has_room = free >= part
    room = np.bincount(classes.host_group[has_room], minlength=len(classes.group_site))
    of_site = np.bincount(classes.group_site, weights=room).astype(np.int64)
    if of_site.sum() < num_wanted:
        return None
    fitting = np.flatnonzero(of_site >= num_wanted)
    if len(fitting):  # one site will do: that which is left with the least
        room = np.where(classes.group_site == fitting[np.argmin(of_site[fitting])], room, 0)
    result, left = [], num_wanted
    while left:
        enough = np.flatnonzero(room >= left)
        group = int(enough[np.argmin(room[enough])]) if len(enough) else int(np.argmax(room))
        taken = min(left, int(room[group]))
        hosts = np.flatnonzero(has_room & (classes.host_group == group))
        result.append(np.sort(hosts[np.argsort(free[hosts], kind="stable")[:taken]]))  # part-used hosts before whole ones
        room[group], left = 0, left - taken
    return result


def _wires(classes: PlacementClasses, devices: NDArray[np.int64], part: int, of_groups: list[int]) -> GroupNetwork:
    """Return the prices of messages; those of the empty cluster where the devices are its first ones."""
    cluster, costs = classes.cluster, classes.costs
    whole = group_network(cluster, costs)
    if (devices == np.arange(len(devices))).all() and part == min(len(devices), cluster.num_devices // cluster.num_hosts):
        return whole
    if isinstance(whole, HostNetwork):
        most = min(of_groups) if len(of_groups) > 1 else max(of_groups[0], 1)
        spread = 1 << (most.bit_length() - 1 if len(of_groups) > 1 else (most - 1).bit_length())
        return classes.wires(PlacementClass(0, part, spread), len(devices))
    fabric = whole.fabric if isinstance(whole, PlacedNetwork) else Fabric.from_settings(cluster, costs)
    return PlacedNetwork(fabric, devices)
