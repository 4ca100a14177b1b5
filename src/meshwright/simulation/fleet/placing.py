"""Hosts for a job: the placement rules, compiled.

Every rule takes ``g`` devices on each of ``n / g`` hosts of one device type, group after group. Each group gives as many hosts as
are still needed, or all that it has. Hosts are written in that order, so that neighbouring ranks share a leaf switch. Ties go to
the lowest number.

- `PACKED`: ``g`` is the largest part of a host that divides ``n``. The next group is the one with the fewest usable hosts among
  those with enough for the rest. If none has enough, it is the one with the most. Ties go to the fewest free devices. Its fullest
  hosts are taken first. Where no group has enough, a site is chosen before its groups, in the same way by the hosts of sites. The
  next site follows where one does not have enough.
- `NEAREST`: the same with the largest ``g`` for which there are hosts; possible only where `PACKED` is not.
- `SPREAD`: ``g`` as by `PACKED`. The next group is the one whose trunk is least loaded, up or down; ties go to the most free
  devices. Its emptiest hosts are taken first.
- `CONSTRUCT`: ``g`` as by `PACKED`; hosts are picked one by one, and put in the order of their groups, by picks within one.
"""

import numpy as np

from ...compiled import njit
from .menu_table import class_of
from .state import PlacementRule


@njit
def log2(number):  # type: ignore[no-untyped-def]
    """Return the logarithm to base 2 of a power of two; rounded down for other numbers."""
    result = 0
    while number > 1:
        number >>= 1
        result += 1
    return result


@njit
def largest_part(devices_per_host, degree):  # type: ignore[no-untyped-def]
    """Return the most devices of one host that a job of this degree takes: a power of two that divides it."""
    part = 1
    while part * 2 <= devices_per_host and degree % (part * 2) == 0:
        part *= 2
    return part


@njit
def find_hosts(problem, free, load, degree, rule, wanted_type, hosts):  # type: ignore[no-untyped-def]
    """Write hosts for a job; devices a host, or 0 where there are none.

    Args:
        problem: the `FleetProblem`.
        free: free devices of each host, ``(m,)``.
        load: of each link, ``(L,)``.
        degree: devices.
        rule: the `PlacementRule`; `CONSTRUCT` is taken as `PACKED`.
        wanted_type: device type of all hosts.
        hosts: where they go, ``(M,)``.
    """
    network = problem.network
    part = largest_part(network.devices_per_host, degree)
    num_hosts = len(free)
    while True:
        need = degree // part
        count = 0
        for host in range(num_hosts):
            if free[host] >= part and network.host_type[host] == wanted_type:
                count += 1
        if count >= need and need <= len(hosts):
            break
        if rule != PlacementRule.NEAREST or part == 1:
            return 0
        part //= 2
    available = np.zeros(network.num_groups, np.int64)
    devices = np.zeros(network.num_groups, np.int64)
    for host in range(num_hosts):
        if network.host_type[host] == wanted_type:
            devices[network.host_group[host]] += free[host]
            available[network.host_group[host]] += free[host] >= part
    result, site = 0, -1
    while result < need:
        left = need - result
        if rule != PlacementRule.SPREAD and network.num_sites > 1:
            site = _next_site(network, available, left, site)
        best = -1
        for group in range(network.num_groups):
            if available[group] == 0 or (site >= 0 and network.group_site[group] != site):
                continue
            if best < 0 or _is_better(problem, load, available, devices, left, rule, group, best):
                best = group
        result += _take(problem, free, part, wanted_type, rule, best, min(left, available[best]), hosts, result)
        available[best] = 0
    return part


@njit
def _next_site(network, available, left, site):  # type: ignore[no-untyped-def]
    """Return the site of the next group, the present one as long as it has enough; -1 where one group of any site will do."""
    has = np.zeros(network.num_sites, np.int64)
    holds = False
    for group in range(network.num_groups):
        has[network.group_site[group]] += available[group]
        holds |= available[group] >= left
    if site >= 0 and has[site] > 0:
        return site
    if holds:
        return -1
    best = 0
    for other in range(1, network.num_sites):
        enough = has[other] >= left
        if enough != (has[best] >= left):
            best = other if enough else best
        elif has[other] != has[best] and (has[other] < has[best]) == enough:
            best = other
    return best


@njit
def _is_better(problem, load, available, devices, left, rule, group, other):  # type: ignore[no-untyped-def]
    """Return whether a group is to be taken before another."""
    if rule == PlacementRule.SPREAD:
        mine, theirs = _trunk_load(problem, load, group), _trunk_load(problem, load, other)
        return mine < theirs or (mine == theirs and devices[group] > devices[other])
    holds, other_holds = available[group] >= left, available[other] >= left
    if holds != other_holds:
        return holds
    if available[group] != available[other]:
        return available[group] < available[other] if holds else available[group] > available[other]
    return devices[group] < devices[other]


@njit
def _trunk_load(problem, load, group):  # type: ignore[no-untyped-def]
    """Return the load of a group's trunk; without trunks of the busiest link on the way to the next group by number."""
    network = problem.network
    most = 0.0
    if network.num_trunks > 0:
        up = 2 * (len(network.host_group) + group)
        return max(load[up], load[up + 1])
    if network.num_groups > 1:
        row = group * network.num_groups + (group + 1) % network.num_groups
        for i in range(network.way_first[row], network.way_first[row + 1]):
            most = max(most, load[network.way_links[i]])
    return most


@njit
def _take(problem, free, part, wanted_type, rule, group, count, hosts, first):  # type: ignore[no-untyped-def]
    """Return the hosts of one group: the fullest that suit, by `SPREAD` the emptiest."""
    network = problem.network
    taken = 0
    while taken < count:
        best = -1
        for place in range(network.group_first[group], network.group_first[group + 1]):
            host = network.group_hosts[place]
            if free[host] < part or network.host_type[host] != wanted_type:
                continue
            is_used = False
            for i in range(first, first + taken):
                is_used |= hosts[i] == host
            if is_used:
                continue
            if best < 0 or (free[host] > free[best] if rule == PlacementRule.SPREAD else free[host] < free[best]):
                best = host
        hosts[first + taken] = best
        taken += 1
    return taken


@njit
def placement_class(problem, hosts, count):  # type: ignore[no-untyped-def]
    """Return ``log2`` of the hosts per group, rounded down; after all of these the same again for hosts of several sites."""
    network = problem.network
    groups, is_apart = 0, False
    seen = np.zeros(network.num_groups, np.bool_)
    for i in range(count):
        group = network.class_group[hosts[i]]
        is_apart |= network.group_site[group] != network.group_site[network.class_group[hosts[0]]]
        if not seen[group]:
            seen[group] = True
            groups += 1
    return log2(count // groups) + is_apart * num_spreads(problem)


@njit
def num_spreads(problem):  # type: ignore[no-untyped-def]
    """Return the classes of hosts per group."""
    return problem.menu.step_s.shape[3] // (2 if problem.network.num_sites > 1 else 1)


@njit
def can_run_on(problem, entry, kind, part):  # type: ignore[no-untyped-def]
    """Return whether an entry is possible with a number of devices on each host of a type, on whatever hosts."""
    menu, spreads = problem.menu, num_spreads(problem)
    for spread in range(menu.step_s.shape[3]):
        if spread % spreads <= log2(menu.degree[entry] // part) and menu.step_s[entry, kind, log2(part), spread] == np.inf:
            return False
    return True


@njit
def step_on(problem, entry, hosts, count, part):  # type: ignore[no-untyped-def]
    """Return step seconds of an entry on some hosts alone, and its hidden network time: those of the slowest device type."""
    network, menu = problem.network, problem.menu
    is_block = problem.blocks.are_classes
    spread = class_of(problem.blocks, hosts, count) if is_block else placement_class(problem, hosts, count)
    part_index = log2(part)
    worst, hidden = 0.0, 0.0
    for kind in range(menu.step_s.shape[1]):
        for i in range(count):
            if network.host_type[hosts[i]] == kind:
                step = menu.step_s[entry, kind, part_index, spread]
                if step > worst:
                    worst, hidden = step, menu.hidden_s[entry, kind, part_index, spread]
                break
    return worst, hidden
