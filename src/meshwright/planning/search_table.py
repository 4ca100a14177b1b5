"""The result of a search over layouts as rows for tables, for every kind of job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .. import files
from ..clusters.cluster import Cluster
from ..costs.training_step.idle_keys import remarks
from ..costs.training_step.step_figures import StepTime
from ..costs.training_step.step_pricer import StepPricer
from ..errors import PlanError
from ..planners.layouts.graph_search import GraphSearch
from ..planners.layouts.layout_rows import BetterBatch, LayoutRow
from ..planners.layouts.nearby_batches import CLEARLY_BETTER, nearby_batches
from ..planners.layouts.request import SearchRequest
from ..planners.layouts.results import RankedLayout, Searched
from ..planners.layouts.search import LayoutSearch
from ..planners.layouts.space import SEARCHED
from ..planners.layouts.ties import COMPARED_UNCERTAINTY, FARTHEST, Compared, are_tied, plainness
from ..plans import PlacementPlan
from ..plans.frameworks.names import build_of_plan
from ..plans.frameworks.table import frameworks_text
from ..plans.memory import tight_text
from ..plans.partition import Layout
from ..plans.rank_order import DEFAULT_ORDER
from ..plans.stage_meshes import value_text
from ..plans.training import Masked
from .comparisons.mechanisms import Mechanisms, mechanisms_of
from .comparisons.references import ReferenceLayout, references
from .job_work import JobWork
from .search_strategies import Strategies, price_strategies, with_phases, with_strategy


@dataclass(frozen=True)
class RankedLayouts:
    """The result of a search.

    Attributes:
        maker: the job on its cluster, with the choices of the cost model.
        search: the pricer of its layouts.
        searched: ranking, front and counts.
        request: the request.
        sizes: the result of each number of devices that was searched by itself, for people.
        device_counts: numbers of devices that were searched.
        others: of numbers that were each searched by themselves, the searches of the others.
    """

    maker: JobWork
    search: LayoutSearch | GraphSearch
    searched: Searched
    request: SearchRequest
    sizes: tuple[str, ...] = ()
    device_counts: tuple[int, ...] = ()
    others: tuple[RankedLayouts, ...] = ()

    @classmethod
    def from_request(cls, maker: JobWork, request: SearchRequest, device_counts: Sequence[int]) -> RankedLayouts:
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
        """The parts of the job or of the plan's layout that do not count, and figures of other devices, for people."""
        idle = remarks(self.planned.layout, has_layers=self.maker.has_layers, request=self.request.kept_values)
        return *self.maker.remarks, *idle, *self.sizes

    @property
    def batch(self) -> dict[str, int]:
        """The batch of a step, for JSON."""
        return {**self.maker.sizes, "global_batch": self.search.global_batch}

    def row(self, ranked: RankedLayout) -> LayoutRow:
        """Return a layout with its figures."""
        pricer: StepPricer = self.search.pricer(ranked.order)
        step = pricer.price_work(self.search.work(ranked.layout, ranked.order))
        return LayoutRow(ranked, step, self.is_tight(ranked))

    @cached_property
    def plan(self) -> PlacementPlan:
        """The plan of `planned`."""
        winner, planned = self.strategies.winner, self.planned
        joint = None if winner is None else winner.joint
        work = self.search.work(planned.layout, planned.order) if joint is None else joint.full.work
        why = self.why
        if winner is not None:
            reasons = (winner.price.summary(self.strategies.exact_s), self._tight(planned, winner.price.extra_bytes))
            why = f"{winner.price.text}: {'; '.join(filter(None, reasons))}"
        plan = self.maker.plan(work, planned.order, self.request.num_steps, self.row(planned).figures(), why)
        if joint is not None and isinstance(joint.price.training, Masked):
            first = self.maker.plan(joint.core.work, joint.core.ranked.order, self.request.num_steps, (), why)
            plan = with_phases(plan, first, joint.price.training)
        framework = self.request.framework and self.request.framework.name
        plan = plan.model_copy(update={"framework": framework, "taken": self.request.take if winner is None else None})
        return plan if winner is None else with_strategy(plan, winner.price)

    @cached_property
    def strategies(self) -> Strategies:
        """The strategies that were asked for, each with its best layout."""
        return price_strategies(
            self.maker, self.request, self.best, lambda one: self.search.work(one.layout, one.order), self.device_counts
        )

    @cached_property
    def better_batches(self) -> tuple[BetterBatch, ...]:
        """Nearby batches with which a second clearly brings more on as many devices as the fastest takes, the best first.

        They are searched when this is first read.
        """
        here, results = self._best_step.rate, []
        for batch in nearby_batches(self.batch["global_batch"], self.best.devices):
            request = replace(self.request, batch=batch, top=1, on_best=SearchRequest.on_best)
            maker = self.maker.with_samples(self.search.global_batch, batch)
            search = maker.search(request)
            try:
                other = RankedLayouts(maker, search, search.run([self.best.devices]), request)
            except PlanError:
                continue
            row = other.row(other.best)
            gain = row.step.rate[1] / here[1] - 1
            if gain >= CLEARLY_BETTER:
                results.append(BetterBatch(batch, gain, row))
        return tuple(sorted(results, key=lambda one: -one.gain))

    @property
    def best(self) -> RankedLayout:
        """The fastest layout; of equal ones the one with the least memory."""
        return self.searched.ranking[0]

    @property
    def taken(self) -> RankedLayout:
        """The layout that was asked for: the fastest, the plain one of those that tie with it, or a reference.

        Raises:
            PlanError: no such reference, or none that fits.
        """
        take = self.request.take
        if take == "fastest":
            return self.best
        if take == "plain":
            return self.by_time[self.plain]
        known = {reference.name: reference.ranked for reference in self.references}
        if take not in known:
            raise PlanError("no such reference fits this job", field="--take", value=take, choices=("fastest", "plain", *known))
        return known[take]

    @property
    def planned(self) -> RankedLayout:
        """The layout of the plan: that of a strategy that wins, else `taken`."""
        winner = self.strategies.winner
        return self.taken if winner is None else winner.ranked

    @property
    def frameworks_text(self) -> str:
        """One line: which frameworks run the layout of the plan; see `plans.frameworks.table.frameworks_text`."""
        maker, planned = self.maker, self.planned
        return frameworks_text(maker.of_model(planned.layout), planned.order, maker.devices_per_host, has_layers=maker.has_layers)

    @cached_property
    def references(self) -> tuple[ReferenceLayout, ...]:
        """Common layouts without a search, priced on as many devices as the fastest; computed on first access."""
        return references(self)

    @cached_property
    def mechanisms(self) -> Mechanisms:
        """The gain of the plan's layout by each of its mechanisms, and its bottleneck."""
        return mechanisms_of(self)

    def compared(self, other: RankedLayout) -> Compared:
        """Return another layout with the fastest."""
        are_same = (self.best.layout, self.best.order) == (other.layout, other.order)
        return Compared.from_steps(self.row(other).step, self._best_step, are_same=are_same)

    @cached_property
    def _best_step(self) -> StepTime:
        return self.row(self.best).step

    def at(self, layout: Layout, order: str) -> RankedLayout:
        """Return a layout with its price.

        Raises:
            PlanError: the framework that was asked for does not run it, or it is illegal or does not fit.
        """
        framework = self.request.framework
        refusal = None if framework is None else framework.refusal(self.maker.of_model(layout))
        if refusal is not None:
            raise PlanError(refusal.problem, field=f"layout.{refusal.key}", value=refusal.value)
        work = self.maker.work(layout) if self.maker.has_layers else self.search.work(layout, order)
        self.maker.check_fits(work, order)
        return RankedLayout.from_price(self.search.pricer(order).step_s(work), work.peak_memory()[1].total, layout, order)

    def priced(self, keys: Mapping[str, Any], order: str | None = None) -> RankedLayout:
        """Return the fastest layout of these keys, the others as the search has them.

        Args:
            keys: of the layout; those that are absent take their defaults.
            order: of its ranks; by default the one that the request keeps, else the usual one.

        Raises:
            PlanError: none is legal, fits, and is started so by the framework that was asked for.
        """
        request, layouts = self.request, list[Layout]()
        for fixed in request.fixed(SEARCHED):
            requested_keys = (
                fixed | {"virtual_stages": 1, "schedule": "none", "global_batch": self.search.global_batch} | dict(keys)
            )
            requested_keys |= request.as_cut(requested_keys)
            layout = build_of_plan(Layout, requested_keys | request.as_run(requested_keys))
            layouts += [layout] if layout not in layouts else []
        return min((self.at(layout, self._order_of(layout, order)) for layout in layouts), key=lambda one: one[:4])

    def _order_of(self, layout: Layout, order: str | None) -> str:
        orders = self.request.orders_of(layout, self.maker.devices_per_host)
        chosen_order = order or (DEFAULT_ORDER if DEFAULT_ORDER in orders else next(iter(orders), self.request.order))
        if chosen_order is None or chosen_order not in orders:
            raise PlanError(
                f"{self.request.launcher} starts no such layout with its ranks so", field="--set order", value=chosen_order
            )
        return chosen_order

    @property
    def why(self) -> str:
        """Why the layout of the plan was chosen, for people."""
        counts, taken = self.searched.counts, self.taken
        reason = "fastest"
        if self.request.take != "fastest":
            reason = f"{self.request.take}, {taken.step_s / self.best.step_s - 1:+.1%} against the fastest, {self.best.text},"
        return (
            f"{reason} of {counts.legal:,} legal layouts: {counts.examined:,} priced, {counts.pruned:,} passed by because their "
            f"bounds are worse, {counts.infeasible:,} too large for a device; ranks in the order {taken.order}"
            + "".join(f"; {remark}" for remark in (self._tight(taken), *self._tied_text(), *self.remarks) if remark)
        )

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
        for place, result in enumerate(self.by_time):
            if not are_tied(fastest_s, result.step_s, FARTHEST):
                break
            if are_tied(fastest_s, result.step_s, COMPARED_UNCERTAINTY) or not self.compared(result).exceeds_uncertainty:
                tied.append(place)
        return frozenset(tied)

    @cached_property
    def plain(self) -> int:
        """Place by time of the plainest layout that ties with the fastest; tight fits come last."""
        return min(self.ties, key=self._plainness)

    def _plainness(self, place: int) -> tuple[Any, ...]:
        result = self.by_time[place]
        return self.is_tight(result), *plainness(result, self.maker.devices_per_host)

    def plain_first(self, num_rows: int) -> list[int]:
        """Return the first places by time and that of the plainest tie: ties by how plain they are, then the others."""
        places = [*range(min(num_rows, len(self.searched.ranking)))]
        places += [self.plain] if self.plain >= len(places) and places else []
        tied = sorted((place for place in places if place in self.ties), key=self._plainness)
        return tied + [p for p in places if p not in self.ties]

    def tight_text(self, num_rows: int) -> str:
        """Say that the best layout is a tight fit, and the next of the first rows that is as fast and is none; else empty."""
        tight = self._tight(self.best)
        if not tight:
            return ""
        ranking, rows = self.by_time, (place for place in sorted(self.ties) if place < num_rows)
        roomy = next((place for place in rows if not self.is_tight(ranking[place])), None)
        if roomy is None:
            return tight
        return f"{tight}; ={roomy + 1} is as fast and needs {ranking[roomy].memory_bytes / 1e9:.1f} GB"

    def is_tight(self, ranked: RankedLayout) -> bool:
        """Return whether a layout may not fit after all, see `plans.memory.is_tight`."""
        return bool(self._tight(ranked))

    def _tight(self, ranked: RankedLayout, extra_bytes: float = 0.0) -> str:
        if self.maker.stage_devices is None:
            return tight_text(ranked.memory_bytes + extra_bytes, self.maker.capacity_bytes)
        return self.maker.tight_text(self.search.work(ranked.layout, ranked.order), ranked.order, extra_bytes)

    def _tied_text(self) -> tuple[str, ...]:
        """Return a remark where other layouts tie with the fastest."""
        others = len(self.ties) - 1
        if not others:
            return ()
        plain = self.by_time[self.plain]
        slower = plain.step_s / self.best.step_s - 1
        plainest = "it is the plainest" if self.plain == 0 else f"the plainest is {plain.text} (+{slower:.1%})"
        as_fast = f"{others} other layout{'s are' if others > 1 else ' is'} as fast"
        return (f"within the precision of predictions {as_fast}; {plainest}",)

    def table(self) -> list[dict[str, Any]]:
        """Return the whole ranking as plain rows."""
        front, first = {ranked[:4] for ranked in self.searched.front}, self._best_step
        rate, step_s, mfu = first.rate, first.step_s, first.mfu
        rows = []
        for place, result in enumerate(self.searched.ranking, start=1):
            figures: dict[str, Any] = {"rank": place, "step_s": result.step_s, rate[0]: rate[1] * step_s / result.step_s}
            if mfu is not None:
                figures["mfu"] = mfu * step_s / result.step_s * self.best.devices / result.devices
            figures |= {
                "ties_with_fastest": place - 1 in self.ties,
                "memory_bytes": result.memory_bytes,
                "is_tight": self.is_tight(result),
                "devices": result.devices,
                "on_front": result[:4] in front,
                "order": result.order,
            }
            rows.append(figures | result.layout.model_dump(mode="json"))
        return rows

    def to_data(self) -> dict[str, Any]:
        """Return the whole ranking with what became of the other layouts, for JSON."""
        counts = self.searched.counts
        placed = {} if self.cluster.hosts_are_equal else {"rank_orders": list(self.search.tried_orders)}
        return {
            "job": self.name,
            "cluster": self.cluster.name,
            **self.batch,
            "remarks": list(self.remarks),
            "better_batches": [
                {
                    "global_batch": better_batch.global_batch,
                    "gain": better_batch.gain,
                    "layout": better_batch.row.ranked.text,
                    better_batch.row.step.rate[0]: better_batch.row.step.rate[1],
                }
                for better_batch in self.better_batches
            ],
            **placed,
            "counts": counts.__dict__ | {"legal": counts.legal},
            "ties": len(self.ties),
            "plain": self.plain + 1,
            "taken": self.plan.taken,
            "references": [reference.to_data() for reference in self.references],
            "mechanisms": self.mechanisms.to_data(),
            **self._strategy_data(),
            "layouts": self.table(),
        }

    def _strategy_data(self) -> dict[str, Any]:
        """Return the strategies, where any was asked for."""
        exact_s, rows, refused = self.strategies
        if not rows and not refused:
            return {}
        priced = [
            row.price.to_data(exact_s)
            | {"layout": row.ranked.text, "order": row.ranked.order}
            | ({} if row.joint is None else row.joint.to_data())
            for row in rows
        ]
        return {"exact_step_s": exact_s, "strategies": priced, "strategies_refused": list(refused)}

    def to_csv(self) -> str:
        """Return the whole ranking as CSV."""
        rows = self.table()
        cells = [[value_text(value) if isinstance(value, list) else value for value in row.values()] for row in rows]
        return files.csv_text(list(rows[0]), cells)
