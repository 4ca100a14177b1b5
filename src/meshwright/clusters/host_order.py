"""An order of hosts that their network decides, whatever their numbers.

Hosts are first told apart by what joins them (colour refinement): two of a colour have equally many links of each kind to hosts
of each colour. As long as several share a colour, one of them gets its own: the one whose own colour sorts the others first, as
any of these where several do. Such hosts can change places without a change of any figure, but in networks so regular that
refinement around each host finds no difference; those need more than a dozen hosts. The order itself is a chain through nearest
neighbours, so that hosts with fast links follow each other; the colours decide between equal ones.

Source:
    McKay and Piperno, "Practical graph isomorphism, II", 2014, sections 2.2 and 2.3.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .cluster import Cluster
from .symmetry import pair_signature

MOST_HOSTS = 128
"""More hosts keep the order of their numbers."""

MESSAGE_BYTES = 4e6
"""Of the message whose time says how near two hosts are."""


def chained_devices(cluster: Cluster) -> NDArray[np.int64]:
    """All devices, host by host, the hosts in a chain of short links; of a host in the order of their numbers, ``(n,)``."""
    if cluster.num_hosts > MOST_HOSTS:
        return np.arange(cluster.num_devices)
    of_host = np.split(np.arange(cluster.num_devices), np.flatnonzero(np.diff(cluster.device_host)) + 1)
    hosts = np.argsort(_colours(_kinds(cluster, of_host)))
    return np.concatenate([of_host[host] for host in hosts[_chain(_seconds(cluster, of_host)[np.ix_(hosts, hosts)])]])


def _kinds(cluster: Cluster, of_host: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """A number for each kind of host, and of ordered pair of hosts, by figures alone, ``(h, h)``."""
    found = [pair_signature(cluster, one if one is other else np.append(one, other)) for one in of_host for other in of_host]
    number = {kind: place for place, kind in enumerate(sorted(set(found)))}
    return np.array([number[kind] for kind in found]).reshape(len(of_host), -1)


def _seconds(cluster: Cluster, of_host: list[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Seconds of a message between the devices of two hosts, the longest of both ways, and the mean within a host, ``(h, h)``."""
    every = np.arange(cluster.num_devices)
    pair_s = cluster.latency_s(every[:, None], every) + MESSAGE_BYTES / cluster.bandwidth_bytes_per_s(every[:, None], every)
    firsts = np.searchsorted(cluster.device_host, np.arange(cluster.num_hosts))
    one_way = np.maximum.reduceat(np.maximum.reduceat(pair_s, firsts, axis=0), firsts, axis=1)
    found = np.maximum(one_way, one_way.T)
    np.fill_diagonal(found, [pair_s[np.ix_(one, one)].mean() for one in of_host])
    return found


def _colours(kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number of its own for each host, the same in every numbering, ``(h,)``."""
    colours, _ = _refined(kinds, np.zeros(len(kinds), np.int64))
    while len(shared := np.flatnonzero(np.bincount(colours) > 1)):
        hosts = np.flatnonzero(colours == shared[0]).tolist()
        tried = [one for place, one in enumerate(hosts) if not any(_are_twins(kinds, one, other) for other in hosts[:place])]
        alone = (2 * colours - (np.arange(len(kinds)) == one) for one in tried)
        colours, _ = min((_refined(kinds, one) for one in alone), key=lambda found: found[1])
    return colours


def _refined(kinds: NDArray[np.int64], colours: NDArray[np.int64]) -> tuple[NDArray[np.int64], bytes]:
    """Colours told apart as far as links tell, counted from 0, and what is alike in every numbering of the same network."""
    count = 0
    while True:
        seen = np.sort(kinds * 2 * len(kinds) + colours, axis=1)
        rows, colours = np.unique(np.column_stack([colours, seen]), axis=0, return_inverse=True)
        colours = colours.reshape(-1)
        if len(rows) == count:
            return colours, rows[colours[np.argsort(colours)]].tobytes()
        count = len(rows)


def _are_twins(kinds: NDArray[np.int64], one: int, other: int) -> bool:
    """Whether two hosts can change places while all others stay."""
    swapped = np.arange(len(kinds))
    swapped[[one, other]] = other, one
    return np.array_equal(kinds, kinds[np.ix_(swapped, swapped)])


def _chain(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """The best of the chains that begin with any host and go on with the nearest one that is left, ``(h,)``.

    A job on fewer hosts has the first ones, so that the best chain has the least sum of the lengths of all its beginnings.
    """
    count = len(seconds)
    starts, chains, total_s = np.arange(count), [np.arange(count)], count * seconds.diagonal()
    left = ~np.eye(count, dtype=np.bool_)
    for number in range(count - 1, 0, -1):
        chains.append(np.where(left, seconds[chains[-1]], np.inf).argmin(axis=1))
        total_s = total_s + number * (seconds[chains[-2], chains[-1]] + seconds.diagonal()[chains[-1]])
        left[starts, chains[-1]] = False
    best = int(total_s.argmin())
    return np.array([of_starts[best] for of_starts in chains])
