"""The entries of one type of jobs on one number of devices: found, priced in every class of placements, and chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...costs.settings import CostSettings
from ...errors import PlanError
from ...plans.partition import Layout
from ...simulation.decision_space.splitting import SplitSettings
from .choice import worthwhile
from .job_types import JobType, Where
from .placement_classes import PlacementClass, PlacementClasses
from .settings import MenuSettings
from .traffic import SlotTraffic, Traffic

MOST_OF_A_FRONT = 6
"""Layouts of a search that are priced in all situations: the fastest of its front of time and memory."""

SHARED = 0.5
"""Share of the network that is left to a job where another one sends as much over the same links."""


class Situation(NamedTuple):
    """Where and beside whom a job runs.

    Attributes:
        place: the class of its placement.
        share: of the network's bandwidth that it has.
    """

    place: PlacementClass
    share: float


class MenuEntry(NamedTuple):
    """A layout of a type of jobs.

    Attributes:
        job_type: number of the type.
        layout: how the job is cut.
        order: of its ranks.
        memory_bytes: of the fullest rank.
    """

    job_type: int
    layout: Layout
    order: str
    memory_bytes: float


class SplitEntry(NamedTuple):
    """A type of jobs whose ops are split, on a number of devices.

    Attributes:
        job_type: number of the type.
        layout: how far each op is split.
        degree: devices.
        memory_bytes: of the fullest rank.
    """

    job_type: int
    layout: SplitSettings
    degree: int
    memory_bytes: float


class PricedEntry(NamedTuple):
    """An entry with its figures.

    Attributes:
        entry: the layout.
        step_s, hidden_s: as in a `MenuTable`, ``(D, G, H)``.
        traffic: by binary logarithm of the devices of a host; None where there is no room.
    """

    entry: MenuEntry
    step_s: NDArray[np.float64]
    hidden_s: NDArray[np.float64]
    traffic: list[SlotTraffic | None]


@dataclass(frozen=True, eq=False)
class EntryMaker:
    """Makes entries.

    Attributes:
        cluster: where jobs run.
        menu: how far layouts are looked for.
        costs: choices of the cost model, as layouts are priced.
    """

    cluster: Cluster
    menu: MenuSettings
    costs: CostSettings
    classes: PlacementClasses = field(init=False)
    traffic: Traffic = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", PlacementClasses(self.cluster, self.costs))
        object.__setattr__(self, "traffic", Traffic(self.cluster, self.costs))

    def entries(self, number: int, job: JobType, degree: int) -> list[PricedEntry]:
        """The entries of a type on so many devices, the fastest on few hosts first.

        Raises:
            PlanError: no layout is legal, or none fits.
        """
        situations = list(self._situations(degree))
        found = self._candidates(number, job, degree, situations)
        seconds = np.array([[self._step_s(job, entry, at) for at in situations] for entry in found])
        memory_bytes = np.array([entry.memory_bytes for entry in found])
        taken = worthwhile(seconds, memory_bytes, self.menu.layouts, self.menu.least_gain)
        is_alone = [at.share == 1 for at in situations]
        by_time = sorted(taken, key=lambda one: (seconds[one, is_alone].min(), memory_bytes[one]))
        return [self._priced(job, found[one], [at for at in situations if at.share == 1]) for one in by_time]

    def _situations(self, degree: int) -> Iterator[Situation]:
        """All classes of placements, with the network alone and with a share of it."""
        for place in self.classes.of(degree):
            yield Situation(place, 1.0)
            if self.classes.can_share(place, degree):
                yield Situation(place, SHARED)

    def _candidates(self, number: int, job: JobType, degree: int, situations: list[Situation]) -> list[MenuEntry]:
        """Of each device type, fronts where a job is on the fewest hosts, alone and not, and where it is on the most."""
        found: dict[tuple[Layout, str], MenuEntry] = {}
        refusal: PlanError | None = None
        for kind in range(len(self.cluster.device_types)):
            own = [at for at in situations if at.place.device_type == kind]
            packed = [at for at in own if at.place == own[0].place]
            for at in dict.fromkeys([*packed, *own[-1:]]):
                try:
                    front = job.front(degree, self._where(at, degree), self.menu)
                except PlanError as error:
                    refusal = error
                    continue
                for one in front[:MOST_OF_A_FRONT]:
                    found.setdefault((one.layout, one.order), MenuEntry(number, one.layout, one.order, one.memory_bytes))
        if not found:
            raise refusal or PlanError(f"{self.cluster.name} has no room for {degree} devices of one type", field="degrees")
        return list(found.values())

    def _where(self, at: Situation, degree: int) -> Where:
        device = self.cluster.device_types[at.place.device_type]
        return Where(device, self.classes.wires(at.place, degree, at.share), at.place.devices_per_host, self.costs)

    def _fits(self, entry: MenuEntry, at: Situation) -> bool:
        return entry.memory_bytes <= self.cluster.device_types[at.place.device_type].memory_bytes

    def _step_s(self, job: JobType, entry: MenuEntry, at: Situation) -> float:
        """Seconds of a step; infinite where the entry does not fit the device type."""
        if not self._fits(entry, at):
            return math.inf
        return job.step_s(entry.layout, entry.order, self._where(at, entry.layout.world))

    def _priced(self, job: JobType, entry: MenuEntry, alone: list[Situation]) -> PricedEntry:
        """The figures of an entry that was taken."""
        shape, degree = self.classes.shape, entry.layout.world
        step_s, hidden_s = np.full(shape, math.inf), np.zeros(shape)
        traffic: list[SlotTraffic | None] = [None] * shape[1]
        for at in alone:
            place, device = at.place, self.cluster.device_types[at.place.device_type]
            position = self.classes.position(place)
            level = position[1]
            sent = traffic[level]
            if sent is None:
                devices, work = self.classes.devices(place, degree), job.work(entry.layout, device, self.costs)
                sent = traffic[level] = self.traffic.between_slots(work, entry.order, devices, place.devices_per_host)
            if self._fits(entry, at):
                step = job.step(entry.layout, entry.order, self._where(at, degree))
                busy_s = self.classes.link_s(place, degree, sent.sent_bytes)
                step_s[position] = step.step_s
                hidden_s[position] = max(0.0, busy_s - exposed_s(step.breakdown_s, sent.axes))
        # No job is ever placed in a class without a representative, and none may stop it from being built elsewhere.
        most_s = np.where(np.isfinite(step_s), step_s, 0.0).max(axis=2, keepdims=True)
        step_s = np.where(np.isinf(step_s) & (most_s > 0), most_s, step_s)
        return PricedEntry(entry, step_s, hidden_s, traffic)


def exposed_s(breakdown_s: dict[str, float], axes: frozenset[str]) -> float:
    """Seconds of a step in which nothing is computed while something is sent between hosts.

    Args:
        breakdown_s: of the step.
        axes: along which anything is sent between hosts.
    """
    total_s = 0.0
    for name, seconds in breakdown_s.items():
        if name.startswith("exposed "):
            total_s += seconds * (name.removeprefix("exposed ") in axes)
        elif name == "pipeline transfers":
            total_s += seconds * ("pp" in axes)
        elif name in ("gradient sync", "parameter gather"):
            total_s += seconds * bool(axes & {"dp_cp", "expert_dp", "shard", "replica", "ends"})
    return total_s
