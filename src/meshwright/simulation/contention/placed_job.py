"""A job on its devices, ready to run at the same time as others, and the rules for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...costs.routing import SHORTEST_PATH, Routing
from ...errors import GraphError, PlanError
from ..step.deadlines import deadlines_s
from ..step.execution import ExecutionGraph
from ..step.messages import Messages
from .fair_sharing import LATEST_S

Times = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Start and finish of every task of a job in seconds since the job's own start, two arrays ``(t,)``."""


@dataclass(frozen=True, eq=False)
class PlacedJob:
    """One step of a job on its devices.

    Attributes:
        execution: what its ranks do.
        devices: device of each rank, in rank order.
        start_s: when it starts, on the clock that all jobs share.
        is_fair: whether its messages share links; otherwise each one takes its duration and disturbs nobody.
        overlap_slowdown: factor on what a rank does while it sends and computes at once.
        routing: which paths its messages take.
        flows_priority: which of its flows get the links first, see `costs.settings`.

    Raises:
        PlanError: fewer or more devices than ranks, a start that is not finite, a slowdown below 1.
    """

    execution: ExecutionGraph
    devices: NDArray[np.int64]
    start_s: float = 0.0
    is_fair: bool = True
    overlap_slowdown: float = 1.0
    routing: Routing = SHORTEST_PATH
    flows_priority: Literal["fair", "priority", "edf"] = "fair"

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", np.array(self.devices, np.int64))
        if len(self.devices) != self.execution.num_ranks:
            raise PlanError(f"{self.execution.num_ranks} ranks for {len(self.devices)} devices", field="devices")
        if not math.isfinite(self.start_s):
            raise PlanError("must be finite", field="start_s", value=str(self.start_s))
        if not 1 <= self.overlap_slowdown < math.inf:
            raise PlanError("must be finite and at least 1", field="overlap_slowdown", value=str(self.overlap_slowdown))


def offsets_s(jobs: Sequence[PlacedJob]) -> list[float]:
    """Start of each job after the first one."""
    origin_s = min((job.start_s for job in jobs), default=0.0)
    return [job.start_s - origin_s for job in jobs]


def flow_classes(job: PlacedJob, messages: Messages) -> NDArray[np.int64]:
    """Return the class of each flow, the most urgent 0: flows of a class share what those before it leave, ``(f,)``.

    Args:
        job: whose flows they are.
        messages: as `routed` says.
    """
    if job.flows_priority == "fair":
        return np.zeros(messages.num_flows, np.int64)
    urgency = job.execution.priority if job.flows_priority == "priority" else deadlines_s(job.execution)
    return np.unique(urgency[messages.flow_task], return_inverse=True)[1].astype(np.int64)


def check_devices(jobs: Sequence[PlacedJob], cluster: Cluster) -> None:
    """Refuse devices that are absent or taken.

    Raises:
        PlanError: either.
    """
    owner: dict[int, int] = {}
    for number, job in enumerate(jobs):
        for device in job.devices.tolist():
            if not 0 <= device < cluster.num_devices:
                raise PlanError(f"{cluster.name} has devices 0..{cluster.num_devices - 1}", field="devices", value=device)
            if owner.setdefault(device, number) != number:
                raise PlanError(f"jobs {owner[device]} and {number} both own a device", field="devices", value=device)
        if len(set(job.devices.tolist())) < len(job.devices):
            raise PlanError("a device is named twice", field="devices", value=job.devices.tolist())


def check_times(finish_s: NDArray[np.float64], where: str = "") -> None:
    """Refuse a schedule in which a task never ends.

    Raises:
        GraphError: a cycle, or times beyond `LATEST_S`.
    """
    never = int(np.isnan(finish_s).sum())
    if never:
        raise GraphError("the tasks form a cycle", field=f"{where}edges", value=f"{never} tasks never start")
    if not (finish_s < LATEST_S).all():
        raise GraphError("its times are too large to be distinguished", field=f"{where}tasks")


def routed(job: PlacedJob, cluster: Cluster) -> tuple[Messages, list[tuple[int, ...]]]:
    """Return the messages of a job and the links that each of their flows crosses.

    A flow that is spread over several paths becomes that many flows, one on each, with equal parts of its bytes.

    Raises:
        ConfigError: too many paths, see `costs.routing.MAX_PARTS`.
    """
    messages, devices = job.execution.messages, job.devices
    pairs = list(zip(messages.sender.tolist(), messages.receiver.tolist(), strict=True))
    paths = {(a, b): job.routing.paths(cluster, int(devices[a]), int(devices[b])) for a, b in set(pairs)}
    counts = np.fromiter((len(paths[pair]) for pair in pairs), np.int64, count=len(pairs))
    return messages.parted(counts), [path for pair in pairs for path in paths[pair]]
