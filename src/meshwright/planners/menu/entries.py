"""The entries of one type of jobs on one number of devices: found, priced in every class of placements, and chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...clusters.topologies.clos import ClosTopology
from ...costs.settings import CostSettings
from ...costs.work.operations import BETWEEN_STAGES
from ...errors import PlanError
from ...plans.partition import Layout
from ...simulation.decision_space.splitting import SplitSettings
from .choice import worthwhile
from .job_types import JobType, Where
from .named_entry import NamedEntrySettings, multiplier_of
from .placement_classes import PlacementClass, PlacementClasses
from .settings import MenuSettings
from .strategies import Trained
from .traffic import SlotTraffic, Traffic

MOST_OF_A_FRONT = 6
"""Layouts of a search that are priced in all situations: the fastest of its front of time and memory."""

FASTER = 16.0
"""Times the network's bandwidth with which layouts are looked for that send less than synchronous training."""

SHARED = 0.5
"""Share of the network that is left to a job where another one sends as much over the same links."""


class Situation(NamedTuple):
    """The devices that a job runs on, and the jobs that run at the same time.

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
        named: what it is of; None: of what the search finds by itself.
    """

    job_type: int
    layout: Layout
    order: str
    memory_bytes: float
    named: NamedEntrySettings | None = None


class SplitEntry(NamedTuple):
    """A type of jobs whose ops are split, on a number of devices.

    Attributes:
        job_type: number of the type.
        layout: how far each op is split.
        degree: devices.
        memory_bytes: of the fullest rank.
        named: None, see `MenuEntry`.
    """

    job_type: int
    layout: SplitSettings
    degree: int
    memory_bytes: float
    named: None = None


class PricedEntry(NamedTuple):
    """An entry with its figures.

    Attributes:
        entry: the layout.
        step_s, hidden_s: as in a `MenuTable`, ``(D, G, H)``.
        traffic: by binary logarithm of the devices of a host; None where there is no room.
        exposed: share of a step in which nothing is computed while something is sent, ``(D, G, H)``.
    """

    entry: MenuEntry
    step_s: NDArray[np.float64]
    hidden_s: NDArray[np.float64]
    traffic: list[SlotTraffic | None]
    exposed: NDArray[np.float64]


class BreakEven(NamedTuple):
    """A named entry that is legal for a type on a number of devices, against what the search finds, packed and alone.

    Attributes:
        job_type: number of the type.
        degree: devices.
        name: of the entry.
        step_s: seconds of a step, not times any multiplier; infinite where it does not fit.
        exact_s: of the best exact step on as many devices.
        multiplier: declared, None where nobody has.
    """

    job_type: int
    degree: int
    name: str
    step_s: float
    exact_s: float
    multiplier: float | None

    @property
    def break_even(self) -> float:
        """The break-even ``rho*``: the entry is faster only if it needs fewer than this many times the steps."""
        return self.exact_s / self.step_s


class FoundEntries(NamedTuple):
    """The entries of a type on a number of devices.

    Attributes:
        entries: the fastest on few hosts first.
        break_evens: break-even of each named entry that is legal.
        refused: by name, why no layout can have it.
    """

    entries: list[PricedEntry]
    break_evens: list[BreakEven]
    refused: dict[str, str]


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
    _others: dict[str, EntryMaker] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", PlacementClasses(self.cluster, self.costs))
        object.__setattr__(self, "traffic", Traffic(self.cluster, self.costs))

    def entries(self, number: int, job: JobType, degree: int) -> FoundEntries:
        """Return the entries of a type on a number of devices, the fastest on few hosts first.

        Raises:
            PlanError: the search finds no layout that is legal and fits, or can be trained as the jobs are.
        """
        situations = [
            Situation(place, share)
            for place in self.classes.of(degree)
            for share in ((1.0, SHARED) if self.classes.can_share(place, degree) else (1.0,))
        ]
        result = self._candidates(number, job, degree, situations, job.own)
        seconds = np.array([[self._step_s(job, entry, at) for at in situations] for entry in result])
        memory_bytes = np.array([entry.memory_bytes for entry in result])
        taken = worthwhile(seconds, memory_bytes, self.menu.layouts, self.menu.least_gain)
        is_alone = [at.share == 1 for at in situations]
        by_time = sorted(taken, key=lambda one: (seconds[one, is_alone].min(), memory_bytes[one]))
        alone = [at for at in situations if at.share == 1]
        priced = [self._priced(job, result[one], alone) for one in by_time]
        break_evens: list[BreakEven] = []
        refused: dict[str, str] = {}
        there_s = seconds[taken].min(axis=0)
        for named in (*self.menu.entries, *self.menu.unranked) if job.own is None else ():
            try:
                more, one = self._maker_of(named)._named(number, job, degree, situations, named, there_s)
            except PlanError as error:
                refused[named.name] = str(error)
                continue
            priced += more
            break_evens.append(one)
        if self.menu.has_strategies:
            priced.sort(key=lambda one: float(one.step_s.min()))
        return FoundEntries(priced, break_evens, refused)

    def _maker_of(self, named: NamedEntrySettings) -> EntryMaker:
        """Return the pricer of a named entry: its own collectives in place of those of the costs."""
        algorithm = self.costs.collectives if named.collectives is None else named.collectives
        if algorithm == self.costs.collectives:
            return self
        if algorithm not in self._others:
            costs = self.costs.model_copy(update={"collectives": algorithm})
            self._others[algorithm] = EntryMaker(self.cluster, self.menu, costs)
        return self._others[algorithm]

    def _named(
        self,
        number: int,
        job: JobType,
        degree: int,
        situations: list[Situation],
        named: NamedEntrySettings,
        there_s: NDArray[np.float64],
    ) -> tuple[list[PricedEntry], BreakEven]:
        """Return the named entry's layouts that are worth an entry next to the others, and its break-even.

        Raises:
            PlanError: no layout of the type can have it, or fits.
        """
        result = self._candidates(number, job, degree, situations, named)
        seconds = np.array([[self._step_s(job, entry, at) for at in situations] for entry in result])
        break_even = BreakEven(number, degree, named.name, float(seconds[:, 0].min()), float(there_s[0]), named.steps_multiplier)
        if named.steps_multiplier is None:
            return [], break_even
        seconds *= named.steps_multiplier
        memory_bytes = np.array([entry.memory_bytes for entry in result])
        taken = worthwhile(seconds, memory_bytes, named.layouts, self.menu.least_gain, there_s)
        return [self._priced(job, result[one], [at for at in situations if at.share == 1]) for one in taken], break_even

    def _candidates(
        self, number: int, job: JobType, degree: int, situations: list[Situation], named: NamedEntrySettings | None = None
    ) -> list[MenuEntry]:
        """Return, of each device type, fronts where a job is on the fewest hosts, alone and not, and where it is on the most.

        What sends less than synchronous training is looked for where the network is faster, too.

        Raises:
            PlanError: nothing is legal, or fits.
        """
        results: dict[tuple[Layout, str], MenuEntry] = {}
        refusal: PlanError | None = None
        for kind in range(len(self.cluster.device_types)):
            own = [at for at in situations if at.place.device_type == kind]
            packed = [at for at in own if at.place == own[0].place]
            if named is not None and not named.is_layout_alone:
                packed += [at._replace(share=FASTER) for at in packed if at.share == SHARED]
            for at in dict.fromkeys([*packed, *own[-1:]]):
                where = self._where(at, degree)
                try:
                    front = job.front(degree, where, self.menu, named)
                except PlanError as error:
                    refusal = error
                    continue
                for one in front[:MOST_OF_A_FRONT]:
                    entry = MenuEntry(number, one.layout, one.order, one.memory_bytes, named)
                    if named is not None and not named.is_layout_alone and (one.layout, one.order) not in results:
                        try:
                            entry = self._trained(job, entry, where)
                        except PlanError as error:
                            refusal = error
                            continue
                    results.setdefault((one.layout, one.order), entry)
        if not results:
            raise refusal or PlanError(f"{self.cluster.name} has no room for {degree} devices of one type", field="degrees")
        return list(results.values())

    def _trained(self, job: JobType, entry: MenuEntry, where: Where) -> MenuEntry:
        """Return an entry with what its strategy holds.

        Raises:
            PlanError: its layout cannot be trained so.
        """
        assert entry.named is not None
        if entry.named.num_servers > 0 and not isinstance(self.cluster.topology, ClosTopology):
            message = f"wants servers above the leaf switches of a clos, which {self.cluster.name} is not"
            raise PlanError(message, field="training.kind", value=entry.named.training.kind)
        trained = Trained(job, entry.named, entry.layout, entry.order, where)
        trained.check()
        return entry._replace(memory_bytes=entry.memory_bytes + trained.step().extra_bytes)

    def _where(self, at: Situation, degree: int) -> Where:
        device = self.cluster.device_types[at.place.device_type]
        wires, per_host = self.classes.wires(at.place, degree, at.share), at.place.devices_per_host
        return Where(device, wires, per_host, self.costs, self.classes.server_cards(per_host))

    def _fits(self, entry: MenuEntry, at: Situation) -> bool:
        return entry.memory_bytes <= self.cluster.device_types[at.place.device_type].memory_bytes

    def _step_s(self, job: JobType, entry: MenuEntry, at: Situation) -> float:
        """Return the seconds of a step; infinite where the entry does not fit the device type."""
        if not self._fits(entry, at):
            return math.inf
        where = self._where(at, entry.layout.world)
        if entry.named is None or entry.named.is_layout_alone:
            return job.step_s(entry.layout, entry.order, where)
        return Trained(job, entry.named, entry.layout, entry.order, where).step().step_s

    def _priced(self, job: JobType, entry: MenuEntry, alone: list[Situation]) -> PricedEntry:
        """Return the figures of an entry that was taken."""
        shape, degree = self.classes.shape, entry.layout.world
        step_s, hidden_s, exposed = np.full(shape, math.inf), np.zeros(shape), np.zeros(shape)
        traffic: list[SlotTraffic | None] = [None] * shape[1]
        rho = multiplier_of(entry.named)
        for at in alone:
            place = at.place
            position = self.classes.position(place)
            sent = traffic[position[1]]
            if sent is None:
                sent = traffic[position[1]] = self._sent(job, entry, at, rho)
            if self._fits(entry, at):
                busy_s = self.classes.link_s(place, degree, sent.sent_bytes, sent.served_bytes)
                own_s, shown_s, all_shown_s = self._shown(job, entry, at, sent.axes)
                step_s[position] = rho * own_s
                hidden_s[position] = max(0.0, busy_s - rho * shown_s)
                exposed[position] = min(1.0, all_shown_s / own_s)
        # No job is ever placed in a class without a representative, and none may stop it from being built elsewhere.
        most_s = np.where(np.isfinite(step_s), step_s, 0.0).max(axis=2, keepdims=True)
        step_s = np.where(np.isinf(step_s) & (most_s > 0), most_s, step_s)
        return PricedEntry(entry, step_s, hidden_s, traffic, exposed)

    def _sent(self, job: JobType, entry: MenuEntry, at: Situation, rho: float) -> SlotTraffic:
        """Return the traffic of an entry for each synchronous step."""
        where, place = self._where(at, entry.layout.world), at.place
        devices = self.classes.devices(place, entry.layout.world)
        if entry.named is None or entry.named.is_layout_alone:
            work = job.work(entry.layout, where.device, self.costs)
            return self.traffic.between_slots(work, entry.order, devices, place.devices_per_host)
        work, coded, served_bytes = Trained(job, entry.named, entry.layout, entry.order, where).traffic()
        return self.traffic.between_slots(work, entry.order, devices, place.devices_per_host, coded, served_bytes).times(rho)

    def _shown(self, job: JobType, entry: MenuEntry, at: Situation, axes: frozenset[str]) -> tuple[float, float, float]:
        """Return the seconds of a step, and of them those that sending between hosts shows, and all sending."""
        where = self._where(at, entry.layout.world)
        if entry.named is None or entry.named.is_layout_alone:
            step = job.step(entry.layout, entry.order, where)
            return step.step_s, exposed_s(step.breakdown_s, axes), exposed_s(step.breakdown_s)
        trained = Trained(job, entry.named, entry.layout, entry.order, where).step()
        more_s = max(0.0, trained.step_s - trained.local_s)
        return trained.step_s, more_s + exposed_s(trained.breakdown_s, axes), more_s + exposed_s(trained.breakdown_s)


def exposed_s(breakdown_s: dict[str, float], axes: frozenset[str] | None = None) -> float:
    """Return the seconds of a step in which nothing is computed while something is sent.

    Args:
        breakdown_s: of the step.
        axes: along which messages count, as those between hosts; None: all.
    """
    if axes is None:
        axes = frozenset(name.removeprefix("exposed ") for name in breakdown_s) | {"pp", "dp_cp"}
    total_s = 0.0
    for name, seconds in breakdown_s.items():
        if name.startswith("exposed "):
            total_s += seconds * (name.removeprefix("exposed ") in axes)
        elif name == "pipeline transfers":
            total_s += seconds * ("pp" in axes)
        elif name in ("gradient sync", "parameter gather"):
            total_s += seconds * bool(axes & {"dp_cp", "expert_dp", "shard", "replica", *BETWEEN_STAGES})
    return total_s
