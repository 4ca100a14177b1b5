"""The meaning of each column of an observation of a fleet, in order.

Each class lists the columns of one array; a tuple of their names goes with it. `observation` writes columns and networks read
them as members of these classes. `models.fleet.saved` stores a digest of the names: a policy is refused where they differ.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...simulation.fleet.network import FleetNetwork
from ...simulation.named_columns import Column
from .fleet import Fleet


class EntryColumn(Column):
    """Columns of an entry of the menu."""

    DEVICES = "devices"
    STEP = "step against best"
    DEVICE_SECONDS = "device-seconds against least"
    APART = "slowdown on hosts far apart"
    SLOWEST_TYPE = "slowdown on the slowest device type"
    MEMORY = "memory"
    HOSTS_WANTED = "hosts wanted"


class HostColumn(Column):
    """Columns of a host."""

    FREE = "free share"
    IS_FREE = "free wholly"
    LOAD_OUT = "load out"
    LOAD_IN = "load in"
    IS_PICKED = "is picked"
    MAY_BE_PICKED = "may be picked"
    DEVICE_TYPE = "device type"


class TrunkColumn(Column):
    """Columns of a trunk above hosts."""

    FREE = "free share"
    FREE_HOSTS = "wholly free hosts"
    LOAD_UP = "load up"
    LOAD_DOWN = "load down"
    JOBS = "jobs across"
    SHARE = "share of all hosts"
    IS_SITE = "is of a site"


class LinkColumn(Column):
    """Columns of a host below a trunk, where links are observed; bandwidths are shares of the fastest link's."""

    CARD = "bandwidth of the host's card"
    TRUNK = "bandwidth of the trunk"
    LOAD_OUT = "load out"
    LOAD_IN = "load in"


class RunningColumn(Column):
    """Columns of a running job."""

    DEVICES = "devices"
    PROGRESS = "progress"
    TIME_LEFT = "time left"
    AGE = "age"
    SLOWDOWN = "slowdown"
    RESTARTS = "restarts now"
    HOSTS = "hosts"
    GROUPS = "groups of hosts"
    DEADLINE = "time to deadline"
    IS_THERE = "is told"


class OfferColumn(Column):
    """Columns of a job on offer."""

    IS_THERE = "is there"
    IS_RUNNING = "is running"
    AGE = "age"
    TIME_LEFT = "least time left"
    DEVICE_SECONDS_LEFT = "least device-seconds left"
    REQUESTED = "devices asked for"
    DEADLINE = "time to deadline"
    HAS_DEADLINE = "has deadline"
    PROGRESS = "progress"
    HELD = "devices held"
    RESTART = "restart time"
    LESS_WORK = "share of waiting jobs on offer with less work"
    EARLIER_DEADLINE = "share with an earlier deadline"
    IS_BEING_PLACED = "is being placed"


class ContextColumn(Column):
    """Columns of the whole cluster; those of `EntryColumn` follow, of the entry whose hosts are picked."""

    FREE = "free devices"
    WAITING = "waiting jobs"
    RUNNING = "running jobs"
    HIDDEN = "waiting jobs that are not offered"
    TO_COME = "jobs to come"
    IS_ROUND = "is a round"
    PICKING = "hosts are being picked"
    STILL_TO_PICK = "hosts still to pick"


class CandidateColumn(Column):
    """Columns of an action that starts a job."""

    TIME_LEFT = "time left"
    STEP = "time left against best"
    DEVICE_SECONDS = "device-seconds against least"
    SPREAD = "hosts of a group"
    PART = "part of a host"
    DEADLINE = "time against deadline"
    SLOWDOWN = "slowdown"
    SLOWDOWN_OF_OTHERS = "slowdown of others"


class StrategyColumn(Column):
    """Further columns of an entry, behind `EntryColumn`, where the menu has entries with names.

    1 exact, 0.5 with a bound, 0 neither; ``rho / (1 + rho)``; the exposed communication of a step on its fastest placement, as
    a share of the step.
    """

    EXACTNESS = "exactness"
    STEPS = "steps wanted against synchronous ones"
    EXPOSED = "exposed communication"


class LeftColumn(Column):
    """Further columns of the whole cluster, behind those of the entry, where the menu has entries with names."""

    TREES = "aggregation trees left"
    SERVERS = "servers left"


class CandidateStrategyColumn(Column):
    """Further columns of a candidate, behind `CandidateColumn`, where the menu has entries with names.

    The last describes the link with most load among those that the job uses. It is 0 unless candidates show the steps of all
    jobs (`candidate_features: simulated`).
    """

    EXACTNESS = "exactness"
    STEPS = "steps wanted against synchronous ones"
    MEMORY = "memory"
    EXPOSED = "exposed communication"
    TREES_LEFT = "aggregation trees left afterwards"
    SERVERS_LEFT = "servers left afterwards"
    LINK_LEFT = "share of its busiest link left afterwards"


ENTRY, HOST, TRUNK, LINK = EntryColumn.names(), HostColumn.names(), TrunkColumn.names(), LinkColumn.names()
RUNNING, OFFER, CANDIDATE = RunningColumn.names(), OfferColumn.names(), CandidateColumn.names()
STRATEGY, LEFT, CANDIDATE_STRATEGY = StrategyColumn.names(), LeftColumn.names(), CandidateStrategyColumn.names()
CONTEXT = (*ContextColumn.names(), *(f"{name} of the entry whose hosts are picked" for name in ENTRY))
PICKED_ENTRY = len(ContextColumn)
"""Column of the context at which those of the entry whose hosts are picked begin."""


def observed_links(fleet: Fleet) -> NDArray[np.float32] | None:
    """Return the bandwidths of a fleet's links for observations, `link_bandwidths`; None where the settings leave them out."""
    return link_bandwidths(fleet.problem.network) if fleet.settings.observes_links else None


def with_links(bandwidths: NDArray[np.float32] | None, seen: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Observations of episodes, with `LINK` of each trunk and host where there are `observed_links`, ``(e, r, m, 4)``."""
    if bandwidths is None:
        return dict(seen)
    is_below = bandwidths[..., 0] > 0
    hosts = seen["hosts"][:, None]
    columns = {
        LinkColumn.CARD: np.broadcast_to(bandwidths[..., 0], (len(hosts), *bandwidths.shape[:2])),
        LinkColumn.TRUNK: np.broadcast_to(bandwidths[..., 1], (len(hosts), *bandwidths.shape[:2])),
        LinkColumn.LOAD_OUT: hosts[..., HostColumn.LOAD_OUT] * is_below,
        LinkColumn.LOAD_IN: hosts[..., HostColumn.LOAD_IN] * is_below,
    }
    return {**seen, "links": np.stack([columns[column] for column in LinkColumn], axis=3)}


def link_bandwidths(network: FleetNetwork) -> NDArray[np.float32]:
    """Bandwidths of each host's card and of each trunk above it, as shares of the fastest link's, ``(r, m, 2)``.

    Zeros where a host is not below a trunk; ones of each host where there are no trunks.
    """
    member, num_hosts = trunk_members(network)[:, :, None], len(network.host_group)
    if network.num_trunks == 0:
        return np.repeat(member, 2, axis=2)
    share = network.capacity_bytes_per_s / network.capacity_bytes_per_s.max()
    cards, trunks = share[: 2 * num_hosts : 2], share[2 * num_hosts : 2 * (num_hosts + network.num_trunks) : 2]
    return (np.stack(np.broadcast_arrays(cards, trunks[:, None]), axis=2) * member).astype(np.float32)


def trunk_members(network: FleetNetwork) -> NDArray[np.float32]:
    """Whether each host is below each trunk, ``(r, m)``; without trunks each host has one of its own."""
    num_trunks, group = network.num_trunks, network.host_group
    if num_trunks == 0:
        return np.eye(len(group), dtype=np.float32)
    result = np.zeros((num_trunks, len(group)), np.float32)
    result[group, np.arange(len(group))] = 1.0
    if num_trunks > network.num_groups:
        result[network.num_groups + network.group_site[group], np.arange(len(group))] = 1.0
    return result
