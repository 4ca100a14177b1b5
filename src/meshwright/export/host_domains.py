"""Hosts that are near one another, and which of a plan's hosts must be, in the terms of schedulers.

A cluster's hosts fall into domains, tier by tier, narrowest first. Any two hosts of a domain reach each other at least as fast
as any host outside. Domains follow from bandwidths and latencies alone, for every topology. Where nearness forms no groups, as
in a torus, only the whole cluster is a domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..clusters.cluster import Cluster
from ..errors import ExportError
from ..plans.document import PlacementPlan

MAX_HOSTS = 4096
"""Largest cluster whose hosts are compared, each with each."""


@dataclass(frozen=True, eq=False)
class Domains:
    """The tiers of a cluster.

    Attributes:
        cluster: its name.
        host_names: of all hosts.
        label: number of each host's domain, ``(num_tiers, num_hosts)``; in the last row all are 0.
    """

    cluster: str
    host_names: tuple[str, ...]
    label: NDArray[np.int64]

    @property
    def num_tiers(self) -> int:
        """Number of tiers, at least 1."""
        return len(self.label)

    def tier_of(self, hosts: Sequence[str]) -> int:
        """Return the narrowest tier, counted from 1, in which these hosts are in one domain."""
        at = [self.host_names.index(host) for host in hosts]
        together = (self.label[:, at] == self.label[:, at[:1]]).all(axis=1)
        return 1 + int(np.flatnonzero(together)[0])

    def members(self, tier: int, domain: int) -> list[str]:
        """Return the members of a domain: hosts in tier 1, above it numbers of domains of the tier below, as text."""
        inside = self.label[tier - 1] == domain
        if tier == 1:
            return [name for name, is_in in zip(self.host_names, inside.tolist(), strict=True) if is_in]
        return [str(number) for number in np.unique(self.label[tier - 2][inside]).tolist()]


def domains(cluster: Cluster) -> Domains:
    """Return the tiers of a cluster's hosts.

    Raises:
        ExportError: more than `MAX_HOSTS` hosts.
    """
    if cluster.num_hosts > MAX_HOSTS:
        raise ExportError(f"tiers are given for at most {MAX_HOSTS} hosts", field="cluster", value=cluster.num_hosts)
    first = np.flatnonzero(cluster.local_rank == 0)
    bandwidth = cluster.bandwidth_bytes_per_s(first[:, None], first[None, :])
    latency = cluster.latency_s(first[:, None], first[None, :])
    # How far two hosts are apart: first by bandwidth, then by latency.
    pairs = np.stack([-bandwidth, latency], axis=-1).reshape(-1, 2)
    steps, distance = np.unique(pairs, axis=0, return_inverse=True)
    distance = distance.reshape(bandwidth.shape)
    distance = np.maximum(distance, distance.T)
    np.fill_diagonal(distance, 0)
    rows: list[NDArray[np.int64]] = []
    for step in range(len(steps)):
        near = distance <= step
        label = np.argmax(near, axis=1)
        if not (near == (label[:, None] == label[None, :])).all():  # no equivalence: nearness does not make groups here
            continue
        label = np.unique(label, return_inverse=True)[1].astype(np.int64)
        num_domains = int(label.max()) + 1
        if num_domains < cluster.num_hosts and not (rows and (rows[-1] == label).all()):
            rows.append(label)
    if not rows or rows[-1].any():
        rows.append(np.zeros(cluster.num_hosts, np.int64))
    return Domains(cluster.name, cluster.host_names, np.array(rows))


def domains_of(plan: PlacementPlan) -> Domains:
    """Return the tiers of the plan's cluster.

    Raises:
        ExportError: the plan embeds no cluster, or one that is too large.
    """
    cluster = plan.embedded_cluster()
    if cluster is None:
        raise ExportError("the plan embeds no cluster, so its topology is unknown", field="cluster")
    return domains(cluster)


def hosts_per_group(plan: PlacementPlan) -> int:
    """Return how many hosts a tensor-parallel group spans, if each group has hosts of its own that follow one another; else 1."""
    groups: dict[tuple[int, int, int], set[str]] = {}
    for rank in plan.ranks:
        at = rank.coordinates
        if at is None:
            return 1
        groups.setdefault((at.pp, at.dp, at.cp), set()).add(rank.host)
    size = len(next(iter(groups.values())))
    blocks = [set(plan.host_order[first : first + size]) for first in range(0, len(plan.host_order), size)]
    return size if len(plan.host_order) % size == 0 and all(group in blocks for group in groups.values()) else 1


def hosts_by_stage(plan: PlacementPlan) -> list[list[str]]:
    """Return the hosts of each pipeline stage, where stages have hosts of their own that follow one another; else all in one."""
    stages: dict[str, set[int]] = {}
    for rank in plan.ranks:
        stages.setdefault(rank.host, set()).add(rank.coordinates.pp if rank.coordinates else 0)
    runs: list[tuple[set[int], list[str]]] = []
    for host in plan.host_order:
        if runs and runs[-1][0] == stages[host]:
            runs[-1][1].append(host)
        else:
            runs.append((stages[host], [host]))
    numbers = [next(iter(held)) for held, _ in runs if len(held) == 1]
    if len(numbers) < len(runs) or len(set(numbers)) < len(numbers):
        return [list(plan.host_order)]
    return [hosts for _, hosts in runs]
