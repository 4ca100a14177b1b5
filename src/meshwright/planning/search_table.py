"""What a search over layouts found, as rows for tables, for every kind of job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from .. import files
from ..clusters.cluster import Cluster
from ..costs.pipelines.waits import bubble_time_fraction
from ..costs.training_step.idle_keys import remarks
from ..costs.training_step.step_figures import StepTime
from ..costs.training_step.step_pricer import StepPricer
from ..devices import DeviceType
from ..errors import PlanError
from ..planners.layouts.graph_search import GraphSearch
from ..planners.layouts.nearby_batches import CLEARLY_BETTER, nearby_batches
from ..planners.layouts.request import SearchRequest
from ..planners.layouts.results import RankedLayout, Searched
from ..planners.layouts.search import LayoutSearch
from ..planners.layouts.ties import COMPARED_UNCERTAINTY, FARTHEST, are_tied, simplicity, tie_width
from ..plans import PlacementPlan
from ..plans.document import Figure
from ..plans.memory import tight_text
from ..plans.training import Masked
from .job_work import JobWork
from .search_strategies import Strategies, price_strategies, with_phases, with_strategy


@dataclass(frozen=True)
class LayoutRow:
    """A layout with its figures.

    Attributes:
        found: the layout.
        step: what its step consists of.
        rate: name and value of what a second brings.
        on_front: whether no other layout beats it in time, memory and devices at once.
        is_tight: whether it may not fit, see `plans.memory.is_tight`.
    """

    found: RankedLayout
    step: StepTime
    rate: tuple[str, float]
    on_front: bool
    is_tight: bool

    @property
    def bubble_share(self) -> float:
        """Share of the step that the schedule leaves idle on the stage that ends last; see `costs.pipelines.waits`."""
        return self.step.breakdown_s["bubble"] / self.step.step_s

    @property
    def exposed_share(self) -> float:
        """Share of the step in which it waits for messages."""
        names = ("pipeline transfers", "gradient sync", "parameter gather")
        waits = [s for name, s in self.step.breakdown_s.items() if name.startswith("exposed ") or name in names]
        return sum(waits) / self.step.step_s

    def figures(self) -> tuple[Figure, ...]:
        """What is predicted of it; all of it estimated."""
        values = [
            ("step_s", self.step.step_s, "s"),
            ("step_s_uncertainty", self.step.uncertainty, "1"),
            (*self.rate, "1/s"),
            ("mfu", self.step.mfu, "1"),
            ("hfu", self.step.hfu, "1"),
            ("memory_bytes", self.found.memory_bytes, "bytes"),
            ("bubble_share", self.bubble_share, "1"),
            ("bubble_time_fraction", bubble_time_fraction(self.step.breakdown_s), "1"),
            ("exposed_communication_share", self.exposed_share, "1"),
        ]
        return tuple(Figure.predicted(n, v, u) for n, v, u in values if v is not None)


class BetterBatch(NamedTuple):
    """A nearby batch that brings more.

    Attributes:
        global_batch: sequences, or samples, of a step.
        gain: relative, in what a second brings.
        row: its fastest layout.
    """

    global_batch: int
    gain: float
    row: LayoutRow


@dataclass(frozen=True)
class RankedLayouts:
    """What a search found.

    Attributes:
        maker: the job on its cluster, with the choices of the cost model.
        search: what priced its layouts.
        searched: ranking, front and counts.
        request: what was asked.
        sizes: where each number of devices was searched by itself, what became of each, for people.
        device_counts: numbers of devices that were searched.
    """

    maker: JobWork
    search: LayoutSearch | GraphSearch
    searched: Searched
    request: SearchRequest
    sizes: tuple[str, ...] = ()
    device_counts: tuple[int, ...] = ()

    @classmethod
    def of(cls, maker: JobWork, request: SearchRequest, device_counts: Sequence[int]) -> RankedLayouts:
        """Search and rank the layouts of a request.

        Raises:
            PlanError: no batch, or no layout is legal or fits.
            MeshwrightError: the job cannot be priced on the cluster.
        """
        search = maker.search(replace(request, tied_within=FARTHEST))
        return cls(maker, search, search.run(device_counts), request, device_counts=tuple(device_counts))

    @property
    def name(self) -> str:
        """The job's name."""
        return self.maker.name

    @property
    def cluster(self) -> Cluster:
        """The cluster that was searched."""
        return self.maker.cluster

    @property
    def remarks(self) -> tuple[str, ...]:
        """The parts of the job or the best layout that do not count, and figures of other devices, for people."""
        told = remarks(self.best.layout, has_layers=self.maker.has_layers, asked=self.request.kept)
        return *self.maker.remarks, *told, *self.sizes

    @property
    def batch_text(self) -> str:
        """The batch of a step, in words."""
        return self.maker.batch_text(self.search.global_batch)

    @property
    def batch(self) -> dict[str, int]:
        """The batch of a step, for JSON."""
        return {**self.maker.sizes, "global_batch": self.search.global_batch}

    @property
    def capacity_bytes(self) -> float:
        """Memory of a device."""
        return self.maker.capacity_bytes

    @property
    def tried_orders(self) -> tuple[str, ...]:
        """Rank orders that were looked at, of the layouts of all sizes that were asked for."""
        return self.search.tried_orders

    def row(self, found: RankedLayout) -> LayoutRow:
        """A layout with its figures."""
        pricer: StepPricer = self.search.pricer(found.order)
        step = pricer.price_work(self.search.work(found.layout, found.order))
        return LayoutRow(found, step, step.rate, found[:3] in self.front, bool(self._tight(found)))

    @cached_property
    def plan(self) -> PlacementPlan:
        """The plan of the best layout."""
        winner = self.strategies.winner
        found = self.best if winner is None else winner.found
        joint = None if winner is None else winner.joint
        work = self.search.work(found.layout, found.order) if joint is None else joint.full.work
        why = self.why
        if winner is not None:
            told = (winner.price.told(self.strategies.exact_s), self._tight(found, winner.price.extra_bytes))
            why = f"{winner.price.text}: {'; '.join(filter(None, told))}"
        plan = self.maker.plan(work, found.order, self.request.num_steps, self.row(found).figures(), why)
        if joint is not None and isinstance(joint.price.training, Masked):
            first = self.maker.plan(joint.core.work, joint.core.found.order, self.request.num_steps, (), why)
            plan = with_phases(plan, first, joint.price.training)
        plan = plan.model_copy(update={"framework": self.request.framework and self.request.framework.name})
        return plan if winner is None else with_strategy(plan, winner.price)

    @cached_property
    def strategies(self) -> Strategies:
        """The strategies that were asked for, each with its best layout."""
        return price_strategies(
            self.maker, self.request, self.best, lambda one: self.search.work(one.layout, one.order), self.device_counts
        )

    def with_batch(self, batch: int) -> LayoutRow:
        """The fastest layout with another batch, on as many devices as the fastest.

        Raises:
            PlanError: no layout is legal or fits.
        """
        request = replace(self.request, batch=batch, top=1, on_best=SearchRequest.on_best)
        maker = self.maker.with_samples(self.search.global_batch, batch)
        search = maker.search(request)
        other = RankedLayouts(maker, search, search.run([self.best.devices]), request)
        return other.row(other.best)

    @cached_property
    def better_batches(self) -> tuple[BetterBatch, ...]:
        """Nearby batches with which a second clearly brings more, the best first; they are searched when this is first read."""
        here, found = self.row(self.best).rate, []
        for batch in nearby_batches(self.batch["global_batch"], self.best.devices):
            try:
                row = self.with_batch(batch)
            except PlanError:
                continue
            gain = row.rate[1] / here[1] - 1
            if gain >= CLEARLY_BETTER:
                found.append(BetterBatch(batch, gain, row))
        return tuple(sorted(found, key=lambda one: -one.gain))

    @property
    def device(self) -> DeviceType:
        """What each rank runs on."""
        return self.cluster.device_types[0]

    @property
    def best(self) -> RankedLayout:
        """The fastest layout; of equal ones the one with the least memory."""
        return self.searched.ranking[0]

    @property
    def why(self) -> str:
        """Why the best layout was chosen, for people."""
        counts = self.searched.counts
        return (
            f"fastest of {counts.legal:,} legal layouts: {counts.examined:,} priced, {counts.pruned:,} passed by because their "
            f"bounds are worse, {counts.infeasible:,} too large for a device; ranks in the order {self.best.order}"
            + "".join(f"; {remark}" for remark in (self._tight(self.best), *self._tied_text(), *self.remarks) if remark)
        )

    def rows(self, num_rows: int) -> list[LayoutRow]:
        """The first of the ranking."""
        return [self.row(found) for found in self.searched.ranking[:num_rows]]

    @cached_property
    def by_time(self) -> list[RankedLayout]:
        """All layouts that were priced, the best first; the ranking is their beginning."""
        return sorted(self.searched.examined, key=lambda one: one[:4])

    @cached_property
    def ties(self) -> frozenset[int]:
        """Places by time of all priced layouts, from 0, that predictions cannot separate from the fastest; 0 is one.

        They do not depend on how many layouts are ranked. See `planners.layouts.ties`.
        """
        fastest_s, tied = self.best.step_s, []
        for place, found in enumerate(self.by_time):
            if not are_tied(fastest_s, found.step_s, FARTHEST):
                break
            if are_tied(fastest_s, found.step_s, COMPARED_UNCERTAINTY) or are_tied(
                fastest_s, found.step_s, self.tie_width(found)
            ):
                tied.append(place)
        return frozenset(tied)

    def tie_width(self, found: RankedLayout) -> float:
        """Logarithm of the ratio of a layout's step and the fastest up to which they tie."""
        doubts = self._doubts_of_best, self.row(found).step.uncertainty_terms
        return tie_width(*(doubts if self.best.step_s <= found.step_s else reversed(doubts)))

    @cached_property
    def _doubts_of_best(self) -> dict[str, float]:
        return self.row(self.best).step.uncertainty_terms

    @cached_property
    def simplest(self) -> int:
        """Place by time of the simplest layout that ties with the fastest."""
        return min(self.ties, key=lambda place: simplicity(self.by_time[place]))

    def simplest_first(self, num_rows: int) -> list[int]:
        """The first places by time and that of the simplest tie: ties by how simple they are, then the others."""
        places = [*range(min(num_rows, len(self.searched.ranking)))]
        places += [self.simplest] if self.simplest >= len(places) and places else []
        tied = sorted((p for p in places if p in self.ties), key=lambda p: simplicity(self.by_time[p]))
        return tied + [p for p in places if p not in self.ties]

    def tight_text(self, num_rows: int) -> str:
        """That the best layout is a tight fit, and the next of the first rows that is as fast and is none; else empty."""
        told = self._tight(self.best)
        if not told:
            return ""
        ranking, rows = self.by_time, (place for place in sorted(self.ties) if place < num_rows)
        roomy = next((place for place in rows if not self._tight(ranking[place])), None)
        if roomy is None:
            return told
        return f"{told}; ={roomy + 1} is as fast and needs {ranking[roomy].memory_bytes / 1e9:.1f} GB"

    def _tight(self, found: RankedLayout, extra_bytes: float = 0.0) -> str:
        if self.maker.stage_devices is None:
            return tight_text(found.memory_bytes + extra_bytes, self.capacity_bytes)
        return self.maker.tight_text(self.search.work(found.layout, found.order), found.order, extra_bytes)

    def _tied_text(self) -> tuple[str, ...]:
        """A remark where other layouts tie with the fastest."""
        others = len(self.ties) - 1
        if not others:
            return ()
        simplest = self.by_time[self.simplest]
        slower = simplest.step_s / self.best.step_s - 1
        told = "it is the simplest" if self.simplest == 0 else f"the simplest is {simplest.text} (+{slower:.1%})"
        as_fast = f"{others} other layout{'s are' if others > 1 else ' is'} as fast"
        return (f"as far as predictions can tell {as_fast}; {told}",)

    @cached_property
    def front(self) -> frozenset[tuple[float, float, int]]:
        """Time, memory and devices of the layouts on the Pareto front."""
        return frozenset(found[:3] for found in self.searched.front)

    def table(self) -> list[dict[str, Any]]:
        """The whole ranking as plain rows."""
        front, first = {found[:4] for found in self.searched.front}, self.row(self.best)
        rate, step_s, mfu = first.rate, first.step.step_s, first.step.mfu
        rows = []
        for place, found in enumerate(self.searched.ranking, start=1):
            figures: dict[str, Any] = {"rank": place, "step_s": found.step_s, rate[0]: rate[1] * step_s / found.step_s}
            if mfu is not None:
                figures["mfu"] = mfu * step_s / found.step_s * self.best.devices / found.devices
            figures |= {
                "ties_with_fastest": place - 1 in self.ties,
                "memory_bytes": found.memory_bytes,
                "is_tight": bool(self._tight(found)),
                "devices": found.devices,
                "on_front": found[:4] in front,
                "order": found.order,
            }
            rows.append(figures | found.layout.model_dump(mode="json"))
        return rows

    def to_data(self) -> dict[str, Any]:
        """The whole ranking with what became of the other layouts, for JSON."""
        counts = self.searched.counts
        placed = {} if self.cluster.hosts_are_alike else {"rank_orders": list(self.tried_orders)}
        return {
            "job": self.name,
            "cluster": self.cluster.name,
            **self.batch,
            "remarks": list(self.remarks),
            "better_batches": [
                {
                    "global_batch": one.global_batch,
                    "gain": one.gain,
                    "layout": one.row.found.text,
                    one.row.rate[0]: one.row.rate[1],
                }
                for one in self.better_batches
            ],
            **placed,
            "counts": counts.__dict__ | {"legal": counts.legal},
            **self._strategy_data(),
            "layouts": self.table(),
        }

    def _strategy_data(self) -> dict[str, Any]:
        """The strategies, where any was asked for."""
        exact_s, rows, refused = self.strategies
        if not rows and not refused:
            return {}
        told = [
            row.price.to_data(exact_s)
            | {"layout": row.found.text, "order": row.found.order}
            | ({} if row.joint is None else row.joint.to_data())
            for row in rows
        ]
        return {"exact_step_s": exact_s, "strategies": told, "strategies_refused": list(refused)}

    def to_csv(self) -> str:
        """The whole ranking as CSV."""
        rows = self.table()
        return files.csv_text(list(rows[0]), [list(row.values()) for row in rows])
