"""The meaning of each column of an observation of a fleet, in order.

All values lie in [0, 1]. A *time* ``t`` is given as ``t / (t + mean duration of a job)``, `Fleet.mean_duration_s`; 1 is without
end. A *count* ``x`` is given as ``x / (1 + x)``, *devices* ``n`` of all ``N`` as ``log(n + 1) / log(N + 1)``. A *load* is the
share of time for which jobs keep a link busy, summed and halved, at most 1.

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

    DEVICES = "devices"  #: Devices.
    STEP = "step against best"  #: The least step time of the job type over that of the entry; 1 for the fastest.
    DEVICE_SECONDS = "device-seconds against least"  #: The least of the job type over those of the entry.
    APART = "slowdown on hosts far apart"  #: Share of the step time on hosts far apart that hosts close by save.
    SLOWEST_TYPE = "slowdown on the slowest device type"  #: Share of the step time there that the fastest saves.
    MEMORY = "memory"  #: Share of the largest device's memory that a rank takes.
    HOSTS_WANTED = "hosts wanted"  #: Share of the cluster's devices.


class HostColumn(Column):
    """Columns of a host, the key ``hosts``."""

    FREE = "free share"  #: Share of its devices that is free.
    IS_FREE = "free wholly"  #: 1 if all are.
    LOAD_OUT = "load out"  #: Load of its cards outwards.
    LOAD_IN = "load in"  #: The same inwards.
    IS_PICKED = "is picked"  #: 1 if it is picked for the job that is being placed.
    MAY_BE_PICKED = "may be picked"  #: 1 if it may be picked next.
    DEVICE_TYPE = "device type"  #: Number of its device type over the highest; 0 with one type.


class TrunkColumn(Column):
    """Columns of a trunk above hosts, the key ``trunks``."""

    FREE = "free share"  #: Share of the devices below that is free.
    FREE_HOSTS = "wholly free hosts"  #: Share of the hosts below that is wholly free.
    LOAD_UP = "load up"  #: Load away from hosts.
    LOAD_DOWN = "load down"  #: Load towards hosts.
    JOBS = "jobs across"  #: A quarter for each running job that uses it, at most 1.
    SHARE = "share of all hosts"  #: Share of all hosts that is below.
    IS_SITE = "is of a site"  #: 1 if it is above a site, not above a leaf.


class LinkColumn(Column):
    """Columns of a host below a trunk, where links are observed; bandwidths are shares of the fastest link's."""

    CARD = "bandwidth of the host's card"
    TRUNK = "bandwidth of the trunk"
    LOAD_OUT = "load out"
    LOAD_IN = "load in"


class RunningColumn(Column):
    """Columns of a running job, the key ``running``."""

    DEVICES = "devices"  #: Devices that it holds.
    PROGRESS = "progress"  #: Share of its steps that is done.
    TIME_LEFT = "time left"  #: Time to its foreseen end.
    AGE = "age"  #: Time since its arrival.
    SLOWDOWN = "slowdown"  #: Share of its step time that it would save without other jobs.
    RESTARTS = "restarts now"  #: 1 if it restarts and computes nothing yet.
    HOSTS = "hosts"  #: Share of all hosts that it holds a part of.
    GROUPS = "groups of hosts"  #: Share of the leaves that it reaches.
    DEADLINE = "time to deadline"  #: Time to its deadline; 1 without one.
    IS_THERE = "is told"  #: 1 if the row is used.


class OfferColumn(Column):
    """Columns of a job on offer, the key ``offers``."""

    IS_THERE = "is there"  #: 1 if the row is used.
    IS_RUNNING = "is running"  #: 1 if it runs, and is offered in a round.
    AGE = "age"  #: Time since its arrival.
    TIME_LEFT = "least time left"  #: Time that it needs in its fastest entry.
    DEVICE_SECONDS_LEFT = "least device-seconds left"  #: Time of an eighth of the cluster for the work left.
    REQUESTED = "devices asked for"  #: Devices that its user requests.
    DEADLINE = "time to deadline"  #: Time to its deadline; 1 without one.
    HAS_DEADLINE = "has deadline"  #: 1 if it has one.
    PROGRESS = "progress"  #: Share of its steps that is done.
    HELD = "devices held"  #: Devices that it holds; 0 while it waits.
    RESTART = "restart time"  #: Time of a restart; 0 without rounds and failures.
    #: Jobs that wait on offer with less work left, as a share of ``visible_jobs``; 0 for a running job.
    LESS_WORK = "share of waiting jobs on offer with less work"
    EARLIER_DEADLINE = "share with an earlier deadline"  #: The same with an earlier deadline.
    IS_BEING_PLACED = "is being placed"  #: 1 if its hosts are being picked.


class ContextColumn(Column):
    """Columns of the whole cluster, the key ``context``; those of `EntryColumn` follow, of the entry whose hosts are picked."""

    FREE = "free devices"  #: Share of all devices that is free.
    WAITING = "waiting jobs"  #: Count of jobs that wait.
    RUNNING = "running jobs"  #: Count of jobs that run.
    HIDDEN = "waiting jobs that are not offered"  #: ``x / (8 + x)`` of the waiting jobs that are not on offer.
    TO_COME = "jobs to come"  #: Share of the episode's jobs that is still to come.
    IS_ROUND = "is a round"  #: 1 if running jobs are decided too.
    PICKING = "hosts are being picked"  #: 1 if hosts are being picked.
    STILL_TO_PICK = "hosts still to pick"  #: Share of the job's hosts that is still to be picked.


class CandidateColumn(Column):
    """Columns of an action that starts or resizes a job, the key ``candidates``; zeros for others and where it is masked."""

    TIME_LEFT = "time left"  #: Time that the job would need, alone on its links.
    STEP = "time left against best"  #: The least step time of the job type over that of the action.
    DEVICE_SECONDS = "device-seconds against least"  #: The least device-seconds of a step over those of the action.
    SPREAD = "hosts of a group"  #: Rank of the number of hosts in a leaf among those that the menu prices; 1 is the last.
    PART = "part of a host"  #: The same for the part of a host.
    DEADLINE = "time against deadline"  #: The time that it would need over that to its deadline, at most 1; 0 without one.
    #: Share of its step time that it would save without other jobs; 0 unless ``candidate_features: simulated``.
    SLOWDOWN = "slowdown"
    #: Count of the sum by which others slow down, each over its step time now; 0 in the same cases.
    SLOWDOWN_OF_OTHERS = "slowdown of others"


class StrategyColumn(Column):
    """Further columns of an entry, behind `EntryColumn`, where the menu has entries with names."""

    EXACTNESS = "exactness"  #: 1 exact, 0.5 with a bound, 0 neither.
    STEPS = "steps wanted against synchronous ones"  #: ``rho / (1 + rho)`` of the multiplier ``rho`` of steps.
    EXPOSED = "exposed communication"  #: Share of a step that is exposed communication, on its fastest placement.


class LeftColumn(Column):
    """Further columns of the whole cluster, behind those of the entry, where the menu has entries with names."""

    TREES = "aggregation trees left"  #: Count of aggregation trees that no job holds.
    SERVERS = "servers left"  #: Count of parameter servers that no job holds.


class CandidateStrategyColumn(Column):
    """Further columns of a candidate, behind `CandidateColumn`, where the menu has entries with names."""

    EXACTNESS = "exactness"  #: That of its entry.
    STEPS = "steps wanted against synchronous ones"  #: That of its entry.
    MEMORY = "memory"  #: That of its entry.
    EXPOSED = "exposed communication"  #: Share of a step that is exposed communication, on the hosts of the action.
    TREES_LEFT = "aggregation trees left afterwards"  #: Count that would be left.
    SERVERS_LEFT = "servers left afterwards"  #: Count that would be left.
    LINK_LEFT = "share of its busiest link left afterwards"  #: 0 unless ``candidate_features: simulated``.


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
    """Return observations of episodes, with `LINK` of each trunk and host where there are `observed_links`, ``(e, r, m, 4)``."""
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
    """Return the bandwidths of each host's card and of each trunk above it, as shares of the fastest link's, ``(r, m, 2)``.

    Zeros where a host is not below a trunk; ones of each host where there are no trunks.
    """
    member, num_hosts = trunk_members(network)[:, :, None], len(network.host_group)
    if network.num_trunks == 0:
        return np.repeat(member, 2, axis=2)
    share = network.capacity_bytes_per_s / network.capacity_bytes_per_s.max()
    cards, trunks = share[: 2 * num_hosts : 2], share[2 * num_hosts : 2 * (num_hosts + network.num_trunks) : 2]
    return (np.stack(np.broadcast_arrays(cards, trunks[:, None]), axis=2) * member).astype(np.float32)


def trunk_members(network: FleetNetwork) -> NDArray[np.float32]:
    """Return whether each host is below each trunk, ``(r, m)``; without trunks each host has one of its own."""
    num_trunks, group = network.num_trunks, network.host_group
    if num_trunks == 0:
        return np.eye(len(group), dtype=np.float32)
    result = np.zeros((num_trunks, len(group)), np.float32)
    result[group, np.arange(len(group))] = 1.0
    if num_trunks > network.num_groups:
        result[network.num_groups + network.group_site[group], np.arange(len(group))] = 1.0
    return result
