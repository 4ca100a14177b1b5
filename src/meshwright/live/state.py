"""The state of a cluster: which job holds which device, and which hosts take no jobs.

A state is a document of its own, JSON or YAML, in the scheduler's names: hosts by name, devices by index in the host. Links and
bandwidths are in the cluster's own YAML.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AwareDatetime, Field, field_validator

from .. import files, settings
from ..clusters.cluster import Cluster
from ..errors import ConfigError, StateError, nearest
from ..plans.document import HostName, PlacementPlan
from ..settings import Count, Index
from ..simulation.ragged import row_starts

Condition = Literal["up", "drained", "down"]
"""Of a host: it takes jobs; it takes no new ones, those on it run on; it is gone, and so are those on it."""


Source = Literal["slurm", "kubernetes", "ray", "file"]
"""Who listed a state."""


class HeldJob(settings.Settings):
    """A job and the devices that it holds.

    Attributes:
        id: unique among the jobs of a state; of a scheduler its own, such as ``1234`` or ``namespace/name``.
        name: for people.
        devices: indices of the devices that it holds on each host; of ``whole_hosts`` all of them.
        whole_hosts: whether it holds its hosts to the exclusion of others, whatever devices it uses.
        source: the scheduler that reported it; ``plan`` for a planned job that no scheduler has reported yet.
        ends_at: instant at which it ends at the latest, as the scheduler's limit says; it stays as it is while time passes.
        decision: id of the plan that it came from, where the scheduler's record of it names one.
        confirmed_as: of a planned job, the scheduler's id for it; None while nobody has said that it was handed over.
    """

    id: str = Field(min_length=1, max_length=300)
    name: str | None = Field(default=None, max_length=300)
    devices: dict[HostName, tuple[Index, ...]] = Field(min_length=1)
    whole_hosts: bool = Field(default=False, strict=True)
    source: Literal["plan", "slurm", "kubernetes", "ray", "file"] = "file"
    ends_at: AwareDatetime | None = None
    decision: str | None = Field(default=None, max_length=300)
    confirmed_as: str | None = Field(default=None, min_length=1, max_length=300)

    @field_validator("devices")
    @classmethod
    def _each_once(cls, devices: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        return {host: tuple(sorted(set(local))) for host, local in devices.items()}

    @property
    def of_decision(self) -> str | None:
        """Id of the plan that it is, or came from; None where none is known."""
        return self.id if self.source == "plan" else self.decision

    @property
    def is_unconfirmed(self) -> bool:
        """Whether it was planned and its submission has not been confirmed."""
        return self.source == "plan" and self.confirmed_as is None

    def limit_s(self, now: datetime) -> float:
        """Return the seconds until it ends at the latest; infinite where that is unknown, or where it has passed its limit."""
        left_s = math.inf if self.ends_at is None else (self.ends_at - now).total_seconds()
        return left_s if left_s > 0 else math.inf


class HostState(settings.Settings):
    """A host as a scheduler lists it.

    Attributes:
        condition: see `Condition`.
        num_devices: accelerators that the scheduler knows of; None where it does not say.
        reason: why it is not up.
    """

    condition: Condition = "up"
    num_devices: Count | None = None
    reason: str | None = Field(default=None, max_length=1000)


class ClusterState(settings.Settings):
    """The state of a cluster.

    Attributes:
        schema_version: of this document.
        source: who listed it; None where nobody did and jobs were added by hand.
        hosts: those that were listed or changed; where nobody listed any, all others of the cluster are up.
        jobs: those that hold devices.
    """

    schema_version: Literal[1] = 1
    source: Source | None = None
    hosts: dict[HostName, HostState] = Field(default={})
    jobs: tuple[HeldJob, ...] = ()

    def planned(self, name: str) -> HeldJob | None:
        """Return the planned job of an id that no scheduler has reported yet."""
        return next((job for job in self.jobs if job.id == name and job.source == "plan"), None)

    def is_closed(self, host: str) -> bool:
        """Return whether a host is known to take no jobs."""
        return host in self.hosts and self.hosts[host].condition != "up"


@dataclass(frozen=True, eq=False)
class HeldDevices:
    """A state on the devices of a cluster.

    Attributes:
        holder: index into the state's jobs of the one that holds each device, -1 where none does, ``(n,)``.
        is_up: whether the host of each device takes new jobs, ``(n,)``.
        remarks: what of the state does not fit the cluster and what was made of it, for people.
    """

    holder: NDArray[np.int64]
    is_up: NDArray[np.bool_]
    remarks: tuple[str, ...]

    @property
    def is_free(self) -> NDArray[np.bool_]:
        """Whether each device can be given to a new job, ``(n,)``."""
        return (self.holder < 0) & self.is_up

    def free_at_s(self, state: ClusterState, now: datetime | None = None) -> NDArray[np.float64]:
        """Return the seconds from now until each device becomes free, ``(n,)``; ``now`` is by default the clock's time.

        Infinite where nobody says, where a job has passed its limit, and on hosts that are closed.
        """
        now = datetime.now(UTC) if now is None else now
        limits_s = [job.limit_s(now) for job in state.jobs]
        ends_s = np.array([*limits_s, 0.0])
        return np.where(self.is_up, ends_s[self.holder], np.inf)


def occupancy(state: ClusterState, cluster: Cluster, *, file: str | Path | None = None) -> HeldDevices:
    """Return the job that holds each device of a cluster, and until when.

    A host of the cluster that a scheduler does not list, or whose devices it counts otherwise, takes no jobs; a remark says so.
    Hosts of the listing that the cluster lacks are other people's: they and their jobs are left out, with a remark.

    Args:
        state: of it.
        cluster: its hosts by name.
        file: of the state, for messages.

    Raises:
        StateError: no host of the state is in the cluster with as many devices, an unknown device, or two jobs with one device
            or id.
    """
    index, sizes, _ = numbered_hosts(cluster)
    named = set(state.hosts) | {host for job in state.jobs for host in job.devices}
    absent = sorted(named - set(index))
    if named and len(absent) == len(named):
        near = nearest(absent[0], cluster.host_names)
        hint = f"; its hosts are called as {near or cluster.host_names[0]}"
        problem = f"no host of the state is one of the cluster {cluster.name}{hint}: give them these names under host_names"
        raise StateError(problem, file=file, field="hosts", value=absent[0])
    is_up = np.ones(cluster.num_hosts, np.bool_)
    unlisted = [] if state.source is None else [name for name in cluster.host_names if name not in state.hosts]
    for name in unlisted:
        is_up[index[name]] = False
    listed = {name: host for name, host in state.hosts.items() if name in index}
    counts = {name: host.num_devices for name, host in listed.items() if host.num_devices is not None}
    uneven = [name for name, count in counts.items() if count != sizes[index[name]]]
    if uneven and len(uneven) == len(counts):
        name = uneven[0]
        problem = f"the host has {counts[name]} devices, in {cluster.name} it has {sizes[index[name]]}"
        raise StateError(problem, file=file, field=f"hosts.{name}.num_devices")
    for name, host in listed.items():
        is_up[index[name]] = host.condition == "up" and name not in uneven
    holder = np.full(cluster.num_devices, -1)
    ids: set[str] = set()
    for number, job in enumerate(state.jobs):
        if job.id in ids:
            raise StateError("the id appears twice", file=file, field=f"jobs.{number}.id", value=job.id)
        ids.add(job.id)
        _take(holder, number, state.jobs, cluster, file, uneven)
    return HeldDevices(holder, is_up[cluster.device_host], _remarks(unlisted, absent, uneven, cluster.name, state.source))


def occupancy_after(earlier: ClusterState, held: HeldDevices, state: ClusterState, cluster: Cluster) -> HeldDevices:
    """Return the occupancy of a state, faster than `occupancy` where it differs by one job from an earlier state.

    Args:
        earlier: state with the occupancy ``held``.
        held: that.
        state: the later one.
        cluster: of both.

    Raises:
        StateError: as `occupancy`.
    """
    old, new, index = earlier.jobs, state.jobs, numbered_hosts(cluster)[0]
    same = next((k for k, (was, now) in enumerate(zip(old, new, strict=False)) if was is not now), min(len(old), len(new)))
    has_come = len(new) == len(old) + 1 and same == len(old)
    has_gone = len(new) == len(old) - 1 and all(was is now for was, now in zip(old[same + 1 :], new[same:], strict=True))
    if state.hosts is not earlier.hosts or state.source != earlier.source or held.remarks or not (has_come or has_gone):
        return occupancy(state, cluster)
    job = new[-1] if has_come else old[same]
    if any(host not in index for host in job.devices) or (has_come and any(one.id == job.id for one in old)):
        return occupancy(state, cluster)
    holder = held.holder.copy()
    if has_come:
        _take(holder, same, new, cluster, None)
    else:
        holder[holder == same] = -1
        holder[holder > same] -= 1
    return HeldDevices(holder, held.is_up, held.remarks)


@lru_cache(maxsize=4)
def numbered_hosts(cluster: Cluster) -> tuple[dict[str, int], NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of the hosts by name, and for each its number of devices and its first one."""
    sizes = np.bincount(cluster.device_host, minlength=cluster.num_hosts)
    first = row_starts(sizes)[:-1]
    return {name: number for number, name in enumerate(cluster.host_names)}, sizes, first


def _take(
    holder: NDArray[np.int64],
    number: int,
    jobs: Sequence[HeldJob],
    cluster: Cluster,
    file: str | Path | None,
    left_out: Sequence[str] = (),
) -> None:
    """Write who holds the devices of a job, those of hosts that the cluster has and that are not left out."""
    index, sizes, first = numbered_hosts(cluster)
    job = jobs[number]
    for host_name, local in job.devices.items():
        if host_name not in index or host_name in left_out:
            continue
        size = int(sizes[index[host_name]])
        wrong = next((one for one in local if one >= size), None)
        if wrong is not None:
            field = f"jobs.{number}.devices.{host_name}"
            raise StateError(f"the host has devices 0..{size - 1}", file=file, field=field, value=wrong)
        target = np.arange(size) if job.whole_hosts else np.array(local, np.int64)
        held = first[index[host_name]] + target
        other = next((int(one) for one in holder[held] if one >= 0), None)
        if other is not None and other != number:
            problem = f"{jobs[other].id} and {job.id} hold one device of {host_name}"
            raise StateError(problem, file=file, field=f"jobs.{number}.devices")
        holder[held] = number


def of_whole_hosts(free_s: NDArray[np.float64], cluster: Cluster) -> NDArray[np.float64]:
    """Return the seconds until the whole host of each device is free, ``(n,)``, from those of each device."""
    latest = np.zeros(cluster.num_hosts)
    np.maximum.at(latest, cluster.device_host, free_s)
    result: NDArray[np.float64] = latest[cluster.device_host]
    return result


def held_by_plan(plan: PlacementPlan, name: str, *, whole_hosts: bool = False) -> HeldJob:
    """Return a plan as a job of a state.

    Args:
        plan: whose ranks say which devices.
        name: its id among the jobs.
        whole_hosts: whether it is started so that it holds its hosts whole.

    Raises:
        ConfigError: no name.
    """
    devices: dict[str, list[int]] = {}
    for rank in plan.ranks:
        devices.setdefault(rank.host, []).append(rank.local_rank)
    data = {
        "id": name,
        "name": plan.job.name[:300],
        "devices": {host: sorted(local) for host, local in devices.items()},
        "whole_hosts": whole_hosts,
        "source": "plan",
    }
    return settings.build_settings(HeldJob, data)


def load_state(path: str | Path) -> ClusterState:
    """Read a state, JSON or YAML.

    Raises:
        InputFileError: the file is missing or unreadable.
        ConfigError: an unknown key or impossible value.
    """
    path = Path(path)
    if path.suffix == ".json":
        data = files.read_json(path)
        try:
            result = settings.build_settings(ClusterState, data, file=path)
        except ConfigError:
            result = settings.load(ClusterState, path)  # slower, and tells the line and which kind of file it is
    else:
        data, result = settings.read_yaml(path)[0], settings.load(ClusterState, path)
    if not isinstance(data, dict) or "schema_version" not in data:
        problem = "the key is missing; a state is what `meshwright state` keeps"
        raise ConfigError(problem, file=path, field="schema_version")
    return result


def num_held(job: HeldJob, state: ClusterState) -> int:
    """Return the number of devices that a job holds; of a whole host whose devices are not listed, those that it uses."""
    hosts = ((state.hosts.get(host), len(local)) for host, local in job.devices.items())
    return sum(host.num_devices if job.whole_hosts and host and host.num_devices else used for host, used in hosts)


def devices_by_state(state: ClusterState, cluster: Cluster) -> dict[str, int]:
    """Return how many devices are free, held by a plan, held by a job that runs, and closed.

    Raises:
        StateError: the state is not of the cluster.
    """
    taken = occupancy(state, cluster)
    is_plan = np.array([*(job.source == "plan" for job in state.jobs), False])
    is_held = taken.holder >= 0
    reserved = int((is_held & is_plan[taken.holder]).sum())
    closed = int((~is_held & ~taken.is_up).sum())
    return {"free": int(taken.is_free.sum()), "reserved": reserved, "held": int(is_held.sum()) - reserved, "closed": closed}


def _remarks(
    unlisted: Sequence[str], absent: Sequence[str], uneven: Sequence[str], cluster: str, source: str | None
) -> tuple[str, ...]:
    remarks = []
    if unlisted:
        remarks.append(f"{some(unlisted, 3)} of {cluster} {_is(unlisted)} not listed by {source or 'the state'}: taken as down")
    if absent:
        remarks.append(f"{some(absent, 3)} {_is(absent)} not in {cluster}: left out, with what runs there")
    if uneven:
        has = "has" if len(uneven) == 1 else "have"
        remarks.append(f"{some(uneven, 3)} {has} another number of devices than in {cluster}: taken as down")
    return tuple(remarks)


def some(names: Sequence[str], most: int = 4) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
