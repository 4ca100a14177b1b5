"""Results of a search over layouts: priced layouts, the Pareto front, and counts of the others."""

from __future__ import annotations

import gc
import math
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from ...errors import PlanError
from ...plans.frameworks.defaults import framework_defaults, hidden_unrequested
from ...plans.partition import VOLUMES, Layout
from ...plans.stage_meshes import value_text
from ...quantities import compared_gb
from .request import DEFAULTS, SearchRequest
from .space import SEARCHED

REPORTED_TURNS = 64
"""Branches of a search from one report of its progress to the next."""


class RankedLayout(NamedTuple):
    """A layout as priced in its best rank order; a list has the best first.

    Attributes:
        step_s: time of one step.
        memory_bytes: of the fullest rank.
        devices: how many it uses.
        text: the layout's keys, for ties.
        layout: the layout.
        order: how its ranks are numbered.
    """

    step_s: float
    memory_bytes: float
    devices: int
    text: str
    layout: Layout
    order: str

    @classmethod
    def from_price(cls, step_s: float, memory_bytes: float, layout: Layout, order: str) -> RankedLayout:
        """Return a layout with its price."""
        return cls(step_s, memory_bytes, layout.world, layout_text(layout), layout, order)


@dataclass
class Counts:
    """Counts of the layouts by their fate.

    Attributes:
        illegal: the model cannot be cut so, or the batch, or groups would lie unevenly on hosts.
        infeasible: a rank does not fit a device.
        pruned: neither among the best nor on the front, by their bounds; whether they fit need not be known.
        examined: priced.
        prices: in all rank orders whose prices differ.
        unproven: legal ones that may have a cut that fits. They are interleaved schedules of a job graph for which the search
            for a cut was given up.
    """

    illegal: int = 0
    infeasible: int = 0
    pruned: int = 0
    examined: int = 0
    prices: int = 0
    unproven: int = 0

    @property
    def legal(self) -> int:
        """Number of legal layouts."""
        return self.infeasible + self.pruned + self.examined


@dataclass(frozen=True)
class Searched:
    """The result of a search.

    Attributes:
        ranking: the best layouts, best first; ties go to less memory.
        front: those that no other one beats in time, memory and devices at once, best time first.
        examined: all that were priced.
        counts: what became of the others.
    """

    ranking: tuple[RankedLayout, ...]
    front: tuple[RankedLayout, ...]
    examined: tuple[RankedLayout, ...]
    counts: Counts


class Front:
    """Layouts that no other one beats, by devices: a staircase of rising time and falling memory for each number."""

    def __init__(self) -> None:
        self._stairs: dict[int, list[RankedLayout]] = {}

    def add(self, ranked: RankedLayout) -> None:
        """Add a layout, and drop those of as many devices that it beats."""
        stairs = self._stairs.setdefault(ranked.devices, [])
        if self.dominates(ranked.step_s, ranked.memory_bytes, ranked.devices):
            return
        undominated = [
            o for o in stairs if o.step_s < ranked.step_s or o.memory_bytes < ranked.memory_bytes or o[:2] == ranked[:2]
        ]
        insort(undominated, ranked, key=lambda one: one[:4])
        self._stairs[ranked.devices] = undominated

    def dominates(self, step_s: float, memory_bytes: float, devices: int) -> bool:
        """Return whether a layout takes no more of all three, and of one of them less."""
        for number, stairs in self._stairs.items():
            place = bisect_right(stairs, step_s, key=lambda one: one.step_s) - 1
            if number > devices or place < 0 or stairs[place].memory_bytes > memory_bytes:
                continue
            best = stairs[place]
            if number < devices or best.step_s < step_s or best.memory_bytes < memory_bytes:
                return True
        return False

    def members(self) -> tuple[RankedLayout, ...]:
        """Return the layouts of the front, best time first; of those equal in all three figures the first by name."""
        results: dict[tuple[float, float, int], RankedLayout] = {}
        for one in sorted((stair for stairs in self._stairs.values() for stair in stairs), key=lambda one: one[:4]):
            if not self.dominates(*one[:3]):
                results.setdefault(one[:3], one)
        return tuple(results.values())


class Findings:
    """The layouts that a search has priced so far: the best, the front, and all.

    Args:
        request: the length of the ranking, how near to the fastest all are priced, and a callback for each new fastest one.
        counts: what became of the layouts; the search counts in it.
        proves_front: whether none is passed by that may be on the front; else the front is that of what was priced.
    """

    def __init__(self, request: SearchRequest, counts: Counts, *, proves_front: bool = True) -> None:
        self._proves_front = proves_front
        self._top, self._on_best, self._counts = request.top, request.on_best, counts
        self._nearest = math.exp(request.tied_within)
        self._ranking: list[RankedLayout] = []
        self._examined: list[RankedLayout] = []
        self._front = Front()
        self._closest: tuple[float, Layout] | None = None
        self._progress = request.progress

    def __bool__(self) -> bool:
        """Return whether anything was found."""
        return bool(self._ranking)

    @property
    def best_s(self) -> float:
        """Seconds of the best layout so far; infinite without one."""
        return self._ranking[0].step_s if self._ranking else math.inf

    def branch_and_bound(
        self,
        branches: Iterable[Any],
        bounds: Callable[[Any], tuple[float, float, int, int]],
        examine: Callable[[Any], Iterable[Any]],
        within: float = math.inf,
        widest_tie: Callable[[Any, RankedLayout], float] = lambda branch, fastest: math.inf,
    ) -> None:
        """Examine layouts in the order of their bounds on time and memory.

        They are skipped only where two conditions hold. The bound is above the time of the last layout of the ranking and too far
        from the fastest for a tie. A priced layout takes no more time than the bound, no more memory and no more devices, and
        less of one. The first puts them behind the ranking and all ties, the second off the front.

        Args:
            branches: one layout or several each; tuples that begin with the bound on time, and then decide between equal ones.
            bounds: least time and memory of a branch, its number of devices, and how many layouts it has.
            examine: those that cannot be passed by in parts, or bounded more tightly; nothing where they are priced, see `take`.
            within: layouts that take more than so many times the best one's time are passed by too.
            widest_tie: the logarithm of the ratio to the fastest beyond which no layout of a branch ties with it. Those passed by
                for that alone are looked at again where a faster layout is found.
        """
        collects = gc.isenabled()
        gc.disable()  # nothing here refers to itself, and walking over what is kept costs a quarter of the time
        try:
            waiting, total = [], 0
            for branch in branches:
                waiting.append(branch)
                total += bounds(branch)[3]
                if len(waiting) % REPORTED_TURNS == 0:
                    self._progress("layouts bounded", total, None)
            total += self._counts.legal
            heapify(waiting)
            apart: list[Any] = []
            turns = 0
            while waiting:
                if turns % REPORTED_TURNS == 0:
                    self._progress("layouts decided", self._counts.legal, total)
                turns += 1
                branch = heappop(waiting)
                bound_s, memory_bytes, num_devices, num_layouts = bounds(branch)
                if bound_s > within * self.best_s:
                    self._counts.pruned += num_layouts
                    continue
                fastest = self._ranking[0] if self._ranking else None
                if fastest is not None and self._are_better_than(bound_s, memory_bytes, num_devices):
                    if bound_s > self._nearest * fastest.step_s:
                        self._counts.pruned += num_layouts
                        continue
                    if bound_s > math.exp(widest_tie(branch, fastest)) * fastest.step_s:
                        apart.append(branch)
                        continue
                for part in examine(branch):
                    heappush(waiting, part)
                if apart and self._ranking[0] is not fastest:
                    for branch in apart:
                        heappush(waiting, branch)
                    apart.clear()
            self._counts.pruned += sum(bounds(one)[3] for one in apart)
        finally:
            if collects and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # both together put what is kept among the oldest objects, which are seldom walked over
            if collects:
                gc.enable()

    def take(self, ranked: RankedLayout) -> None:
        """Add a priced layout."""
        if not self._ranking or ranked.step_s < self._ranking[0].step_s:
            self._on_best(ranked, self._counts)
        self._examined.append(ranked)
        insort(self._ranking, ranked, key=lambda one: one[:4])
        if self._top is not None:
            del self._ranking[self._top :]
        self._front.add(ranked)

    def _are_better_than(self, bound_s: float, memory_bytes: float, devices: int) -> bool:
        """Return whether a layout that takes at least so much of each is neither among the best nor on the front."""
        if self._top is None or len(self._ranking) < self._top or bound_s <= self._ranking[-1].step_s:
            return False
        return not self._proves_front or self._front.dominates(bound_s, memory_bytes, devices)

    def note(self, memory_bytes: float, layout: Layout) -> None:
        """Note a layout that does not fit."""
        if self._closest is None or memory_bytes < self._closest[0]:
            self._closest = memory_bytes, layout

    def too_large(self, name: str, worlds: Sequence[int], capacity_bytes: float) -> PlanError | None:
        """Return the error where no layout of a job fits, with the closest one; None where none was legal."""
        if self._closest is None:
            return None
        need, has, short = compared_gb(self._closest[0], capacity_bytes)
        problem = (
            f"no layout of {name} fits {in_words(worlds)}; closest is {layout_text(self._closest[1])}, "
            f"which needs {need} where a device has {has}: {short} short"
        )
        return PlanError(problem, field="memory")

    def searched(self) -> Searched:
        """Return the result of the search."""
        return Searched(tuple(self._ranking), self._front.members(), tuple(self._examined), self._counts)


def in_words(worlds: Sequence[int]) -> str:
    """Return the numbers of devices, the first and the last, as ``8-64 devices``."""
    return "-".join(str(world) for world in sorted({worlds[0], worlds[-1]})) + " device" + "s" * (worlds[-1] > 1)


def unasked(layout: Layout) -> dict[str, Any]:
    """Return the defaults of a layout's keys, those of its framework where it names one."""
    usual = DEFAULTS | hidden_unrequested(layout.virtual_stages, layout.schedule)
    of_framework = framework_defaults(layout.framework, vars(layout))
    return usual | {key: value for key, value in of_framework.items() if key not in ("zero", "overlap_dp", "overlap_pp")}


def layout_text(layout: Layout) -> str:
    """Return a layout in short, for tables: degrees, and the other keys that are not at their defaults, without the batch."""
    words = [f"{axis}={getattr(layout, axis)}" for axis in ("tp", "cp", "pp", "dp", "ep", *VOLUMES) if getattr(layout, axis) > 1]
    if layout.pp > 1:
        words.append(f"{layout.schedule}:{layout.virtual_stages}" if layout.virtual_stages > 1 else layout.schedule)
    words.append(f"mb={layout.micro_batch}")
    words += ["sp"] if layout.sequence_parallel else []
    words += [f"recompute={layout.recompute}"] if layout.recompute != "none" else []
    words += [f"zero={layout.zero}"] if layout.zero else []
    usual = unasked(layout) | {"framework": None, "global_batch": layout.global_batch}
    others = {name: getattr(layout, name) for name in Layout.model_fields if name not in SEARCHED and name not in VOLUMES}
    words += [f"{name}={value_text(value)}" for name, value in others.items() if value != usual[name]]
    return " ".join(words)
