"""The changes of a state: a job is added or removed, a host changes, a scheduler lists everything.

`changed` is the one way from a state and a change to the next state, so a ledger's state is a fold over its changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from .. import settings
from ..errors import ConflictError, StateError
from ..plans.document import HostName
from .state import ClusterState, Condition, HeldJob, HostState, Source, some


class JobAdded(settings.Settings):
    """A job holds devices from now on."""

    kind: Literal["job added"] = "job added"
    job: HeldJob


class JobRemoved(settings.Settings):
    """A job holds nothing any more.

    Attributes:
        id: of it.
        reason: why, where somebody says.
        has_ended: whether it had run; otherwise it was given up.
    """

    kind: Literal["job removed"] = "job removed"
    id: str
    reason: str | None = Field(default=None, max_length=1000)
    has_ended: bool = Field(default=False, strict=True)


class JobConfirmed(settings.Settings):
    """A planned job was handed to the scheduler.

    Attributes:
        id: of the plan.
        confirmed_as: the scheduler's id.
    """

    kind: Literal["job confirmed"] = "job confirmed"
    id: str
    confirmed_as: str = Field(min_length=1, max_length=300)


class HostChanged(settings.Settings):
    """A host is drained, goes down or comes back."""

    kind: Literal["host changed"] = "host changed"
    host: HostName
    state: HostState


class Listed(settings.Settings):
    """A scheduler listed all its hosts and jobs: what differs from before, see `listed`.

    Attributes:
        source: the scheduler.
        hosts: those that are new or changed.
        gone_hosts: those that are listed no more.
        jobs: those that are new or changed.
        gone_jobs: ids of those that are listed no more, and of planned ones that are replaced.
        drift: where the listing contradicts what was known, see `drift`.
    """

    kind: Literal["listed"] = "listed"
    source: Source | None
    hosts: dict[HostName, HostState] = Field(default={})
    gone_hosts: tuple[str, ...] = ()
    jobs: tuple[HeldJob, ...] = ()
    gone_jobs: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()


Change = JobAdded | JobRemoved | JobConfirmed | HostChanged | Listed
CHANGE: TypeAdapter[Change] = TypeAdapter(Annotated[Change, Field(discriminator="kind")])
"""Reads a change."""


def changed(state: ClusterState, change: Change) -> ClusterState:
    """Return the state after a change.

    Raises:
        StateError: a job to add whose id exists or whose device is held, an unknown job to remove, or a host that is not
            listed.
    """
    if isinstance(change, JobAdded):
        return _with(state, change.job)
    if isinstance(change, JobRemoved):
        other_jobs = tuple(job for job in state.jobs if job.id != change.id)
        if len(other_jobs) == len(state.jobs):
            raise _no_job(state, change.id)
        return state.model_copy(update={"jobs": other_jobs})
    if isinstance(change, JobConfirmed):
        result = state.planned(change.id)
        if result is None:
            raise _no_job(state, change.id)
        if result.confirmed_as not in (None, change.confirmed_as):
            problem = f"was handed over as {result.confirmed_as} already"
            raise ConflictError(problem, field=f"job {change.id}", value=change.confirmed_as)
        confirmed = result.model_copy(update={"confirmed_as": change.confirmed_as})
        return state.model_copy(update={"jobs": tuple(confirmed if job is result else job for job in state.jobs)})
    if isinstance(change, HostChanged):
        known = state.hosts.get(change.host)
        if known is None and (state.source is not None or change.state.condition == "up"):
            by = f"{state.source} lists no such host" if state.source is not None else "there is no such host"
            raise StateError(by, field="host", value=change.host, choices=state.hosts)
        new = change.state
        if known is not None and new.num_devices is None:
            new = new.model_copy(update={"num_devices": known.num_devices})
        return state.model_copy(update={"hosts": {**state.hosts, change.host: new}})
    gone = {*change.gone_jobs, *(job.id for job in change.jobs)}
    hosts = {**state.hosts, **change.hosts}
    return ClusterState.model_construct(
        schema_version=state.schema_version,
        source=change.source,
        hosts={name: host for name, host in hosts.items() if name not in change.gone_hosts},
        jobs=(*(job for job in state.jobs if job.id not in gone), *change.jobs),
    )


def listed(state: ClusterState, listing: ClusterState, ended: Collection[str] = ()) -> Listed:
    """Return the changes by a listing: the scheduler is right, and its listing replaces every earlier one.

    Planned jobs that were added stay until a listed job has their id, names them as its ``decision``, or holds one of their
    devices. A listing without changes is an empty change.

    Args:
        state: before.
        listing: all hosts and jobs that the scheduler knows of.
        ended: ids of planned jobs that the scheduler had before the listing and no longer knows; they are removed too.

    Raises:
        StateError: the listing names a job twice, or two jobs on one device.
    """
    before, now = {job.id: job for job in state.jobs}, {job.id: job for job in listing.jobs}
    held = _checked(listing.jobs)
    decided = {job.decision for job in listing.jobs}
    gone = [
        job.id
        for job in state.jobs
        if job.id not in now and (job.source != "plan" or job.id in decided or job.id in ended or _met(job, held))
    ]
    return Listed.model_construct(
        kind="listed",
        source=listing.source,
        hosts={name: host for name, host in listing.hosts.items() if state.hosts.get(name) != host},
        gone_hosts=tuple(name for name in state.hosts if name not in listing.hosts),
        jobs=tuple(job for job in listing.jobs if before.get(job.id) != job),
        gone_jobs=tuple(gone),
        drift=tuple(drift(state, listing)),
    )


def drift(before: ClusterState, listing: ClusterState) -> list[str]:
    """Return the contradictions of a listing to what was known, a sentence each with both values: the listing is right.

    Jobs that came and went since the last listing are no contradiction.
    """
    differences = []
    now = {job.id: job for job in listing.jobs}
    of_decision = {job.decision: job for job in listing.jobs if job.decision is not None}
    held = _by_device(listing.jobs)
    for job in before.jobs:
        same = of_decision.get(job.id) if job.source == "plan" else None
        if same is not None and same.devices != job.devices:
            differences.append(f"{same.id} runs on {places(same.devices)}, planned as {job.id} was {places(job.devices)}")
        elif same is None and job.source == "plan" and (others := _met(job, held)):
            names = ", ".join(others)
            differences.append(f"{names} runs on devices of the plan {job.id}, which is dropped: {places(job.devices)}")
        elif job.id in now and job.source == now[job.id].source and now[job.id].devices != job.devices:
            differences.append(f"{job.id} runs on {places(now[job.id].devices)}, was on {places(job.devices)}")
    for name, host in listing.hosts.items():
        known = before.hosts.get(name)
        if known is not None and known.condition != host.condition:
            differences.append(f"{name} is {host.condition}, was {known.condition}" + (f": {host.reason}" if host.reason else ""))
    gone = [name for name in before.hosts if name not in listing.hosts] if before.source == listing.source else []
    return differences + [f"{name} is listed no more, was {before.hosts[name].condition}" for name in gone]


def host_changed(host: str, condition: Condition, reason: str | None = None) -> HostChanged:
    """Return a host that takes no new jobs, or takes jobs again.

    Raises:
        StateError: a device of a host is named, as `places` writes it.
    """
    if "/" in host:
        verb = "resume" if condition == "up" else "drain"
        problem = f"{verb} the whole host, or hold single devices with a job: `meshwright state add`"
        raise StateError(problem, field="host", value=host)
    data = {"host": host, "state": {"condition": condition, "reason": reason}}
    return settings.build_settings(HostChanged, data)


def places(devices: Mapping[str, Sequence[int]]) -> str:
    """Return the devices on hosts in words, as ``node1/0-3, node2/0``."""
    return some([f"{host}/{runs(local)}" for host, local in sorted(devices.items())])


def runs(numbers: Sequence[int]) -> str:
    """Return the numbers as runs, as ``0-3+6``."""
    results: list[list[int]] = []
    for number in sorted(numbers):
        if results and results[-1][-1] == number - 1:
            results[-1].append(number)
        else:
            results.append([number])
    return "+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in results)


def _no_job(state: ClusterState, name: str) -> StateError:
    return StateError("there is no such job", field="job", value=name, choices=[job.id for job in state.jobs])


def _with(state: ClusterState, job: HeldJob) -> ClusterState:
    if any(other.id == job.id for other in state.jobs):
        raise StateError("there is such a job already; name another with --as, or remove it", field="job", value=job.id)
    if others := _met(job, _by_device(state.jobs)):
        other = next(one for one in state.jobs if one.id == others[0])
        shared = {host: sorted({*local} & {*other.devices.get(host, ())}) for host, local in job.devices.items()}
        held = places({host: local for host, local in shared.items() if local} or other.devices)
        raise StateError(f"{other.id} holds {held}; plan anew with --state", field="job", value=job.id)
    for host in job.devices:
        if host in state.hosts and state.hosts[host].condition != "up":
            why = state.hosts[host].reason
            message = f"{host} is {state.hosts[host].condition}" + (f" ({why})" if why else "")
            raise StateError(f"{message} and takes no jobs; plan anew with --state", field="job", value=job.id)
    return state.model_copy(update={"jobs": (*state.jobs, job)})


_WHOLE = -1
"""In place of an index: all devices of a host."""


def _by_device(jobs: Sequence[HeldJob]) -> dict[str, dict[int, str]]:
    """Return the job that holds each device of each host, by id; `_WHOLE` where it holds the host whole."""
    held: dict[str, dict[int, str]] = {}
    for job in jobs:
        _hold(held, job)
    return held


def _checked(jobs: Sequence[HeldJob]) -> dict[str, dict[int, str]]:
    """Return `_by_device` of jobs; no two may have one id or hold one device."""
    ids: set[str] = set()
    held: dict[str, dict[int, str]] = {}
    for number, job in enumerate(jobs):
        if job.id in ids:
            raise StateError("the id appears twice", field=f"jobs.{number}.id", value=job.id)
        if others := _met(job, held):
            raise StateError(f"{others[0]} and {job.id} hold one device", field=f"jobs.{number}.devices")
        ids.add(job.id)
        _hold(held, job)
    return held


def _hold(held: dict[str, dict[int, str]], job: HeldJob) -> None:
    for host, local in job.devices.items():
        held.setdefault(host, {}).update(dict.fromkeys((_WHOLE,) if job.whole_hosts else local, job.id))


def _met(job: HeldJob, held: Mapping[str, Mapping[int, str]]) -> list[str]:
    """Return the ids of the jobs that hold a device of a job's, in order."""
    results: dict[str, None] = {}
    for host, local in job.devices.items():
        here = held.get(host, {})
        target = here if job.whole_hosts else [*local, _WHOLE]
        results.update(dict.fromkeys(here[one] for one in target if one in here))
    return list(results)
