"""Common parts of the sources: a listing with its remarks, and the free devices of its hosts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from ... import settings
from ...clusters.topologies.topology import is_host_name
from ...errors import StateError
from ..state import ClusterState, some

MOST_DEVICES = 4096
"""Of a host."""

EMPTY = ClusterState()
"""The state of a cluster before its first listing."""


@dataclass(frozen=True)
class Listing:
    """A scheduler's listing.

    Attributes:
        state: of its cluster.
        remarks: its gaps and the values in their place, for people.
        waiting: ids of the plans whose jobs it has and has not started.
        queued: of these the scheduler's ids of the jobs, by plan, where it gives them.
        ended: by plan the scheduler's id of its job, if it still lists it and it has ended.
    """

    state: ClusterState
    remarks: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    queued: Mapping[str, str] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)

    def without(self, jobs: Collection[str]) -> Listing:
        """Return the listing without jobs of these ids."""
        if not jobs:
            return self
        other_jobs = tuple(job for job in self.state.jobs if job.id not in jobs)
        return replace(self, state=self.state.model_copy(update={"jobs": other_jobs}))


class ReadPart(BaseModel):
    """A part of an answer; only some keys are read."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class FreeDevices:
    """The devices of the hosts of a listing that no job listed so far holds.

    Args:
        num_devices: of each host; None where the scheduler does not say.

    Raises:
        StateError: more than `MOST_DEVICES` of a host.
    """

    def __init__(self, num_devices: Mapping[str, int | None]) -> None:
        for host, count in num_devices.items():
            if count is not None and count > MOST_DEVICES:
                problem = f"a host has at most {MOST_DEVICES:,} devices"
                raise StateError(problem, field=f"hosts.{host}.num_devices", value=count)
        self.num_devices = num_devices
        self._held: dict[str, set[int]] = {}

    def take(self, host: str, devices: Iterable[int]) -> tuple[int, ...]:
        """Hold devices of a host; returns those that were not held before.

        Raises:
            StateError: a device that the host does not have.
        """
        held, size = self._held.setdefault(host, set()), self.num_devices.get(host)
        taken = sorted(set(devices) - held)
        if taken and size is not None and taken[-1] >= size:
            raise StateError(f"the host has devices 0..{size - 1}", field=f"hosts.{host}", value=taken[-1])
        held.update(taken)
        return tuple(taken)

    def are_free(self, host: str, devices: Iterable[int]) -> bool:
        """Return whether a host has these devices and none of them is held."""
        size = self.num_devices.get(host)
        return self._held.get(host, set()).isdisjoint(devices) and (size is None or max(devices, default=0) < size)

    def take_lowest(self, host: str, count: int, holder: str, avoided: Collection[int] = ()) -> tuple[int, ...]:
        """Hold the free devices of a host with the lowest indices; those that are to be avoided come last.

        Raises:
            StateError: the host has too few.
        """
        held, size = self._held.setdefault(host, set()), self.num_devices.get(host)
        most = MOST_DEVICES if size is None else size
        if len(held) + count > most:
            known = "" if size is None else f" of its {size} devices"
            problem = f"{holder} holds {count} more devices than the host has; {len(held)}{known} are held by others"
            raise StateError(problem, field=f"hosts.{host}")
        free = [index for index in range(most) if index not in held]
        taken = sorted(sorted(free, key=lambda index: index in avoided)[:count])
        held.update(taken)
        return tuple(taken)

    def num_held(self, host: str) -> int:
        """Return how many devices of a host are held."""
        return len(self._held.get(host, ()))


def assumed(jobs: Sequence[Mapping[str, Any]], free: FreeDevices, known: ClusterState) -> list[dict[str, Any]]:
    """Return jobs with ``devices``, where the scheduler gives their number on each host but not their indices.

    A job keeps its known or planned devices of a host if it holds as many there. Other jobs get the free devices with the
    lowest indices. They get those of planned jobs that the scheduler has not listed yet only where no others are left. So
    nothing changes while no job comes or goes.

    Args:
        jobs: fields of a `HeldJob`, and ``counts``, the devices of each host, in place of ``devices``.
        free: devices of the hosts; those taken are held afterwards.
        known: the state so far.

    Raises:
        StateError: a host has too few.
    """
    before = {job.id: job.devices for job in known.jobs}
    devices: list[dict[str, tuple[int, ...]]] = [{} for _ in jobs]
    for job, where in zip(jobs, devices, strict=True):
        for host, count in job["counts"].items():
            for name in (job["id"], job.get("decision") or ""):
                same = before.get(name, {}).get(host, ())
                if host not in where and 0 < count == len(same) and free.are_free(host, same):
                    where[host] = free.take(host, same)
    decisions = {job.get("decision") for job in jobs}
    planned: defaultdict[str, set[int]] = defaultdict(set)
    for one in known.jobs:
        for host, local in one.devices.items() if one.source == "plan" and one.id not in decisions else ():
            planned[host].update(local)
    for job, where in zip(jobs, devices, strict=True):
        for host, count in job["counts"].items():
            if count and host not in where:
                where[host] = free.take_lowest(host, count, job["id"], planned[host])
    fields = ({name: value for name, value in job.items() if name != "counts"} for job in jobs)
    return [{**job, "devices": where} for job, where in zip(fields, devices, strict=True)]


def unlisted(in_use: Mapping[str, tuple[int, Iterable[int]]], free: FreeDevices, known: ClusterState) -> Iterator[dict[str, Any]]:
    """Yield a job ``unlisted/HOST`` for each host with more devices in use than the jobs of the listing hold.

    Args:
        in_use: for each host the number of devices in use, and the known indices among them.
        free: devices of the hosts once all jobs are listed.
        known: the state so far.
    """
    taken = {host: free.take(host, indices) for host, (_, indices) in sorted(in_use.items())}
    missing = {host: min(in_use[host][0], free.num_devices.get(host) or 0) - free.num_held(host) for host in taken}
    jobs = [{"id": f"unlisted/{host}", "counts": {host: max(count, 0)}} for host, count in missing.items()]
    for job, (host, known_ones) in zip(assumed(jobs, free, known), taken.items(), strict=True):
        devices = tuple(sorted((*known_ones, *job["devices"].get(host, ()))))
        if devices:
            yield {"id": job["id"], "devices": {host: devices}}


def listed(
    source: Literal["slurm", "kubernetes", "ray"],
    hosts: Mapping[str, Mapping[str, Any]],
    jobs: Sequence[Mapping[str, Any]],
    remarks: Iterable[str] = (),
    waiting: Iterable[str] = (),
) -> Listing:
    """Return a listing of plain data. Hosts whose names no cluster can have are left out, which a remark says.

    Args:
        source: who listed it.
        hosts: fields of a `HostState` by name.
        jobs: fields of a `HeldJob`; those that hold nothing are left out.
        remarks, waiting: of the listing.

    Raises:
        ConfigError: a name or number in it that cannot be.
    """
    wrong = {host for named in (hosts, *(job["devices"] for job in jobs)) for host in named if not is_host_name(host)}
    if wrong:
        named = some([repr(plain(host, 60)) for host in sorted(wrong)], 3)
        remarks = [*remarks, f"left out, as no host name by RFC 1123: {named}"]
    held = []
    for job in jobs:
        devices = {host: local for host, local in job["devices"].items() if host not in wrong}
        if devices:
            held.append({**job, "devices": devices, "source": source})
    known = {host: state for host, state in hosts.items() if host not in wrong}
    data = {"source": source, "hosts": known, "jobs": held}
    return Listing(settings.build_settings(ClusterState, data), tuple(remarks), tuple(waiting))


def plain(text: str, limit: int = 300) -> str:
    """Return free text of a user as one short line; letters that a terminal would act on are replaced."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text[:limit])
