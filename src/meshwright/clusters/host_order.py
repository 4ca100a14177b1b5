"""Order hosts by their network alone, whatever their numbers.

Colour refinement first separates hosts by their links: two hosts of a colour have equally many links of each kind to hosts of
each colour. While several hosts share a colour, one of them gets a colour of its own. It is the one whose colour sorts the others
first, or any of several such hosts. Such hosts are almost always interchangeable. Exceptions are networks of more than a dozen
hosts, so regular that refinement around each host finds no difference. The order itself is a chain through nearest neighbours, so
that hosts with fast links follow each other; colours break ties.

Source:
    McKay and Piperno, "Practical graph isomorphism, II", 2014, sections 2.2 and 2.3.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .cluster import Cluster
from .symmetry import pair_signature, signatures

MOST_HOSTS = 512
"""More hosts keep the order of their numbers."""

MESSAGE_BYTES = 4e6
"""Of the message whose time says how near two hosts are."""


def chained_devices(cluster: Cluster, devices: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the devices, host by host, the hosts in a chain of short links; of a host in the order of their numbers.

    Args:
        cluster: where they are.
        devices: some of them by rising number; None for all.
    """
    every = np.arange(cluster.num_devices) if devices is None else devices
    of_host = np.split(every, np.flatnonzero(np.diff(cluster.device_host[every])) + 1)
    if len(of_host) > MOST_HOSTS:
        return every
    hosts = np.argsort(_colours(_kinds(cluster, of_host)))
    return np.concatenate([of_host[host] for host in hosts[_chain(_seconds(cluster, of_host)[np.ix_(hosts, hosts)])]])


def _kinds(cluster: Cluster, of_host: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return a number for each kind of host, and of ordered pair of hosts, by figures alone, ``(h, h)``."""
    order = sorted(range(len(cluster.device_types)), key=lambda number: str(cluster.device_types[number].to_data()))
    types = tuple(cluster.device_types[number] for number in order)
    cluster = replace(cluster, device_types=types, device_type=np.argsort(order)[cluster.device_type])
    sizes = np.array([len(one) for one in of_host])
    results: dict[tuple[int, int], bytes] = {}
    for one, own in enumerate(of_host):
        results[one, one] = pair_signature(cluster, own)
        for size in np.unique(np.delete(sizes, one)):
            others = np.flatnonzero((sizes == size) & (np.arange(len(sizes)) != one))
            pairs = np.hstack([np.tile(own, (len(others), 1)), np.array([of_host[other] for other in others]).reshape(-1, size)])
            results |= zip(((one, other) for other in others.tolist()), signatures(cluster, pairs), strict=True)
    number = {kind: place for place, kind in enumerate(sorted(set(results.values())))}
    return np.array([[number[results[one, other]] for other in range(len(sizes))] for one in range(len(sizes))])


def _seconds(cluster: Cluster, of_host: list[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return seconds of a message between devices of two hosts, the longest of both ways, and the mean in a host, ``(h, h)``."""
    every = np.concatenate(of_host)
    pair_s = cluster.latency_s(every[:, None], every) + MESSAGE_BYTES / cluster.bandwidth_bytes_per_s(every[:, None], every)
    ends = np.cumsum([len(one) for one in of_host])
    firsts = np.append(0, ends[:-1])
    one_way = np.maximum.reduceat(np.maximum.reduceat(pair_s, firsts, axis=0), firsts, axis=1)
    result = np.maximum(one_way, one_way.T)
    np.fill_diagonal(result, [pair_s[first:end, first:end].mean() for first, end in zip(firsts, ends, strict=True)])
    return result


def _colours(kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number of its own for each host, the same in every numbering, ``(h,)``."""
    colours, _ = _refined(kinds, np.zeros(len(kinds), np.int64))
    while len(shared := np.flatnonzero(np.bincount(colours) > 1)):
        hosts = np.flatnonzero(colours == shared[0]).tolist()
        tried: list[int] = []
        for host in hosts:
            if not any(_are_twins(kinds, host, other) for other in tried):
                tried.append(host)
        if len(tried) == 1:  # no other host sees these apart, whatever their colours
            colours = colours + (len(hosts) - 1) * (colours > shared[0])
            colours[hosts] += np.arange(len(hosts))
            continue
        alone = (2 * colours - (np.arange(len(kinds)) == one) for one in tried)
        colours, _ = min((_refined(kinds, one) for one in alone), key=lambda result: result[1])
    return colours


def _refined(kinds: NDArray[np.int64], colours: NDArray[np.int64]) -> tuple[NDArray[np.int64], bytes]:
    """Return colours refined until links separate no more, counted from 0, and a key equal in every numbering of the network."""
    count = 0
    while True:
        seen = np.sort(kinds * 2 * len(kinds) + colours, axis=1)
        rows, colours = np.unique(np.column_stack([colours, seen]), axis=0, return_inverse=True)
        colours = colours.reshape(-1)
        if len(rows) == count:
            return colours, rows[colours[np.argsort(colours)]].tobytes()
        count = len(rows)


def _are_twins(kinds: NDArray[np.int64], one: int, other: int) -> bool:
    """Return whether two hosts can change places while all others stay."""
    pair = np.array([[kinds[one], kinds[:, one]], [kinds[other], kinds[:, other]]])
    pair[1][:, [one, other]] = pair[1][:, [other, one]]
    return bool((pair[0] == pair[1]).all())


def _chain(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the best of the chains that begin with any host and go on with the nearest one that is left, ``(h,)``.

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
