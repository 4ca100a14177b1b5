"""Whether a launched job runs where its plan says: what the ranks report is compared with the plan, rank by rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..plans import legality
from ..plans.document import PlacementPlan, Rank
from .options import ExportOptions
from .probe import AXES, Place
from .writer import front_of, made_for, target_of


@dataclass(frozen=True)
class Verification:
    """The places of a launched job, compared with its plan.

    Attributes:
        num_ranks: ranks of the plan.
        elsewhere: each misplaced rank with its mistake, in rank order; ranks that the plan does not know come last.
        compared: compared properties other than the host: ``device``, ``coordinates`` (along all axes that the plan cuts),
            ``world``; each where every line has it.
    """

    num_ranks: int
    elsewhere: dict[int, str]
    compared: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether every rank is where the plan puts it."""
        return not self.elsewhere

    @property
    def first(self) -> str | None:
        """The first rank that is elsewhere, in a sentence; None where all agree."""
        return next((f"rank {rank} {problem}" for rank, problem in self.elsewhere.items()), None)

    def to_data(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        elsewhere = [{"rank": rank, "problem": problem} for rank, problem in self.elsewhere.items()]
        return {"agrees": self.agrees, "num_ranks": self.num_ranks, "elsewhere": elsewhere, "compared": list(self.compared)}


def verify(plan: PlacementPlan, target: str, places: Sequence[Place], framework: str | None = None) -> Verification:
    """Compare what the ranks of a launched job report with its plan.

    A host may be named with or without its domain, as long as the plan's hosts stay distinct without theirs. Devices are
    compared where the target names the host's own numbers and the rank prints its device. Where a target numbers ranks in its
    own way, so does the outcome.

    Args:
        plan: the exported plan.
        target: a key of `targets`, by which it was launched.
        places: places of the ranks, from `probe.read_places`; a rank may print the same twice.
        framework: as `writer.export` was given it.

    Raises:
        ExportError: an unknown target, or a plan that the target cannot number.
        PlanError: a plan that contradicts itself.
    """
    launched_by = target_of(target)
    plan = made_for(plan, target, framework)
    legality.check(plan)
    front = front_of(plan, target)
    plan = launched_by.as_launched(plan) if front is None else front.part(plan, ExportOptions()).plan
    names_devices = launched_by.names_devices
    heard: dict[int, list[Place]] = {}
    for place in places:
        heard.setdefault(place.rank, []).append(place)
    counts = Counter(host.partition(".")[0] for host in plan.host_order)
    elsewhere: dict[int, str] = {}
    for rank in plan.ranks:
        problems = [_problem(rank, place, plan, counts, names_devices) for place in heard.pop(rank.rank, [])]
        problem = next((problem for problem in problems if problem is not None), None if problems else "says nothing")
        if problem is not None:
            elsewhere[rank.rank] = problem
    for number in sorted(heard):
        elsewhere[number] = f"is none of the plan's {plan.num_ranks} ranks ({heard[number][0].source})"
    cut = {axis for axis in AXES if any(rank.coordinates and getattr(rank.coordinates, axis) for rank in plan.ranks)}
    details = {
        "device": names_devices and all(place.device is not None for place in places),
        "coordinates": plan.ranks[0].coordinates is not None
        and all(place.coordinates and cut <= place.coordinates.keys() for place in places),
        "world": all(place.world is not None for place in places),
    }
    return Verification(plan.num_ranks, elsewhere, tuple(key for key, is_reported in details.items() if is_reported and places))


def _problem(rank: Rank, place: Place, plan: PlacementPlan, counts: Counter[str], names_devices: bool) -> str | None:
    """Return the mistake in one rank's place, or None."""
    if not _is_same_host(place.host, rank.host, counts):
        return f"is on {place.host}, the plan puts it on {rank.host} ({place.source})"
    if names_devices and place.device not in (None, rank.local_rank):
        return f"uses device {place.device} of {rank.host}, the plan gives it device {rank.local_rank} ({place.source})"
    if place.world not in (None, plan.num_ranks):
        return f"counts {place.world} ranks, the plan has {plan.num_ranks} ({place.source})"
    for axis in AXES if rank.coordinates is not None else ():
        planned = getattr(rank.coordinates, axis)
        if place.coordinates.get(axis, planned) != planned:
            return f"has {axis} {place.coordinates[axis]}, the plan gives it {planned} ({place.source})"
    return None


def _is_same_host(reported: str, planned: str, counts: Counter[str]) -> bool:
    reported, planned = reported.lower(), planned.lower()
    if reported == planned:
        return True
    (reported_label, _, reported_domain), (label, _, domain) = reported.partition("."), planned.partition(".")
    return reported_label == label and counts[label] == 1 and not (reported_domain and domain)
