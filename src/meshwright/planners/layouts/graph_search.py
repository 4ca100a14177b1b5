"""Every layout of any job graph on a number of devices: data parallelism and a pipeline of its ops, the best first.

A layout is ``dp`` x ``pp``, for a network on volumes also x ``sp``. It has a micro-batch size, a schedule, and recomputation and
ZeRO-1 or not. Its stages are cut where its step takes least (`costs.stage_cuts.graph_cuts`), those of cut volumes where their
computation alone takes least. No rule of thumb leaves anything out. A layout is skipped only if a stage does not fit a device, or
if its busiest stage takes too long, see `results.Findings`.

Where a cut is known to fit, bounds are first those of any cut, so that many layouts are skipped before one is searched. A cut of
an interleaved schedule that fits may take long to find. The search for it gets `QUICK_STEPS` at first, and more only if the
layout cannot be skipped. Layouts for which `costs.stage_cuts.tight_cuts.MOST_STEPS` was too few count as unproven.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import NamedTuple

from ...costs.process_groups.group_network import GroupNetwork
from ...costs.settings import CostSettings
from ...costs.stage_cuts.graph_cuts import find_cuts, least_of
from ...costs.stage_cuts.mixed_cuts import MixedDevices
from ...costs.stage_cuts.unit_chain import Chain
from ...costs.training_step.graph_step_time import GraphPricer
from ...costs.work.graph_work import GraphWork, describe_graph
from ...devices import DeviceType
from ...errors import PlanError
from ...jobs.graph import JobGraph
from ...plans.frameworks.defaults import EAGER
from ...plans.partition import VOLUMES, Layout
from ...plans.stages import layer_starts
from .request import SearchRequest
from .results import Counts, Findings, RankedLayout, Searched, in_words, layout_text
from .space import RegularOrders, divisors

SCHEDULES = ("1f1b", EAGER, "gpipe", "interleaved")
RECOMPUTATIONS = ("none", "full")

MAX_VIRTUAL_STAGES = 8
"""Chunks of a stage that are tried unless others are kept."""

QUICK_STEPS = 1e7
"""Steps of a search for a cut, a tenth of a second, before it is put off."""

ROUNDING = 1e-9
"""Relative. A bound adds in another order than what it bounds, and must not pass it by a rounding error."""

UNCUT = ("tp", "cp", "ep")
"""Axes along which a graph of ops cannot be cut."""


class _Cut(NamedTuple):
    """A layout in a rank order, cut for it.

    Attributes:
        order: how its ranks are numbered.
        work: what its stages do.
        memory_bytes: of the fullest rank.
    """

    order: str
    work: GraphWork
    memory_bytes: float


class _Branch(NamedTuple):
    """A layout that waits to be priced.

    Attributes:
        bound_s: a step takes no less.
        number: unique.
        memory_bytes: the fullest rank holds no less.
        layout: the layout.
        orders: its rank orders.
        works: it in each of them, as far as it fits; None where the best cut is still to be found.
    """

    bound_s: float
    number: int
    memory_bytes: float
    layout: Layout
    orders: tuple[str, ...]
    works: tuple[_Cut, ...] | None = None


@dataclass
class GraphSearch:
    """A search over the layouts of an op graph.

    Attributes:
        graph: the job; its figures hold for ``samples_per_step`` samples, where it does not say for the global batch.
        global_batch: samples of a step.
        device: what each rank runs on.
        capacity_bytes: memory of a device.
        devices_per_host: devices of a host.
        wires: prices messages.
        costs: chooses the compute model, and the slowdown of what runs side by side.
        request: what is asked: the values that are kept, the rank orders that are tried, how many layouts are ranked.
        mixed: what the ranks run on where devices are of several types; ``device`` is then the slowest one.

    Raises:
        PlanError: an axis is kept along which a graph of ops cannot be cut.
    """

    graph: JobGraph
    global_batch: int
    device: DeviceType
    capacity_bytes: float
    devices_per_host: int
    wires: GroupNetwork
    costs: CostSettings = field(default_factory=CostSettings)
    request: SearchRequest = field(default_factory=SearchRequest)
    counts: Counts = field(default_factory=Counts)
    mixed: MixedDevices | None = None

    def __post_init__(self) -> None:
        self.keep = self.request.kept_values
        framework = self.request.framework
        if framework is not None and framework.needs_layers:
            problem = (
                f"{framework.title} is planned for transformers here, {self.graph.name} is a graph of ops; deepspeed takes it"
            )
            raise PlanError(problem, field="--for", value=framework.name)
        self.request.refuse(UNCUT, "cuts layers, which a graph of ops does not have; it is cut by dp and pp")
        if self.graph.volumes is None:
            self.request.refuse(VOLUMES, f"cuts volumes, and {self.graph.name} has none")
        self._chains: dict[tuple[int, str, tuple[int, int, int]], Chain] = {}
        self._orders = RegularOrders(self.devices_per_host, self.request)
        self._findings = Findings(self.request, self.counts)
        self._put_off: dict[tuple[Layout, str], _Cut | None] = {}  # of which the cut took long to find

    def run(self, worlds: Sequence[int]) -> Searched:
        """Search layouts of every given number of devices.

        Raises:
            PlanError: no layout is legal, or none fits; the message names the closest one.
            GraphError: the graph cannot be timed on the device.
        """
        self._findings.branch_and_bound(self._branches(worlds), _bounds, self._examine)
        if not self._findings:
            raise self._findings.too_large(self.graph.name, worlds, self.capacity_bytes) or self._illegal(worlds)
        return self._findings.searched()

    @property
    def tried_orders(self) -> tuple[str, ...]:
        """The rank orders of all layouts so far, each distinct numbering once."""
        return self._orders.tried

    def _branches(self, worlds: Sequence[int]) -> Iterator[_Branch]:
        number = 0
        for world in worlds:
            for layout in self.layouts(world):
                orders = self._orders.of(layout, self.wires)
                if not orders:
                    self.counts.illegal += 1
                    continue
                one = _Branch(0.0, number, 0.0, layout, orders)
                if (bounded := self._uncut(one) or self._bounded(one, QUICK_STEPS)) is not None:
                    yield bounded
                    number += 1

    def _examine(self, branch: _Branch) -> Iterator[_Branch]:
        if branch.works is None:
            if (bounded := self._bounded(branch, None)) is not None:
                yield bounded
        else:
            self.counts.examined += 1
            self._findings.take(min((self._priced(work) for work in branch.works), key=lambda result: result[:2]))

    def layouts(self, world: int) -> Iterator[Layout]:
        """Yield all legal layouts of a number of ranks."""
        batch, samples = self.global_batch, self.graph.samples_per_step or self.global_batch
        num_units = len(layer_starts(self.graph))
        others = self.request.fixed(_SEARCHED)
        for pp, volume in product(self.request.values_for("pp", divisors(world)), self._volumes(world)):
            dp = world // pp // prod(volume)
            if dp * prod(volume) * pp != world:
                continue
            if pp > num_units or batch % dp or dp not in self.request.values_for("dp", [dp]):
                self.counts.illegal += 1
                continue
            sizes = [size for size in self.request.values_for("micro_batch", divisors(batch // dp)) if samples % size == 0]
            copies = dp * prod(volume)
            zeros = self.request.sharded_by(self.request.values_for("zero", [0, 1] if copies > 1 else [0]), copies > 1)
            again = self.request.values_for("recompute", list(RECOMPUTATIONS))
            for other, size, zero, recompute in product(others, sizes, zeros, again):
                shards = other["shard_group"]
                if shards is not None and (copies % shards or not (zero or other["distributed_optimizer"])):
                    self.counts.illegal += 1
                    continue
                for schedule, chunks in self._pipelines(pp, num_units):
                    keys = other | {"dp": dp, "pp": pp, "micro_batch": size, "global_batch": batch, "zero": zero}
                    keys |= {"schedule": schedule, "virtual_stages": chunks, "recompute": recompute}
                    keys |= dict(zip(VOLUMES, volume, strict=True))
                    keys |= self.request.as_cut(keys) | self.request.as_run(keys)
                    if schedule == EAGER and pp > 1 and not keys["overlap_pp"]:
                        self.counts.illegal += 1
                        continue
                    layout = Layout(**keys)
                    if not self.request.is_run(layout):
                        self.counts.illegal += 1
                        continue
                    yield layout

    def work(self, layout: Layout, order: str) -> GraphWork:
        """Return the work of the stages of a layout with a known cut.

        Raises:
            PlanError: no cut of it fits.
        """
        key = layout, order
        result = self._put_off[key] if key in self._put_off else self._fitting(layout, order)[0]
        if result is None:
            raise PlanError("no cut of the pipeline fits the devices", field="layout", value=layout_text(layout))
        return result.work

    def pricer(self, order: str) -> GraphPricer:
        """Return the pricer of layouts in a rank order."""
        peaks = () if self.mixed is None else self.mixed.peaks_flops_per_s
        return GraphPricer(self.device, self.wires, self.costs.overlap_slowdown, order, peaks_flops_per_s=peaks)

    def _volumes(self, world: int) -> list[tuple[int, int, int]]:
        """Return the cuts of depth, height and width of a volume that divide the ranks and the network's input.

        Of a cube, whose dimensions are equivalent, the first ones are cut into most parts unless others are kept.
        """
        shape = self.graph.volumes
        extent = (1, 1, 1) if shape is None else shape.extent
        tried = [[n for n in divisors(world) if length % n == 0] for length in extent]
        cuts = product(*(self.keep.get(key, values) for key, values in zip(VOLUMES, tried, strict=True)))
        is_cube = len(set(extent)) == 1 and not any(key in self.keep for key in VOLUMES)
        return [(d, h, w) for d, h, w in cuts if world % (d * h * w) == 0 and (d >= h >= w or not is_cube)]

    def _pipelines(self, pp: int, num_units: int) -> list[tuple[str, int]]:
        """Yield schedules, each with numbers of chunks of a stage."""
        if pp == 1:
            has_one = 1 in self.request.values_for("virtual_stages", [1])
            return [(next(iter(self.keep.get("schedule", SCHEDULES))), 1)] if has_one else []
        result = []
        schedules = [one for one in SCHEDULES if self.costs.pipeline_skips == "relayed" or one not in ("interleaved", EAGER)]
        for schedule in self.request.values_for("schedule", schedules):
            most = num_units // pp
            is_cut = schedule == "interleaved"
            tried = list(self.keep.get("virtual_stages", range(2, MAX_VIRTUAL_STAGES + 1) if is_cut else (1,)))
            result += [(schedule, v) for v in tried if v <= most and (v > 1) == is_cut]
        return result

    def _uncut(self, branch: _Branch) -> _Branch | None:
        """Return a layout that is known to have a cut that fits, with bounds for every cut; None where that is not known."""
        layout = branch.layout
        if self.mixed is not None:
            return None
        least = least_of(layout, self._chain(layout), self.capacity_bytes)
        if least is None:
            return None
        busiest_s, held_bytes = least
        bound_s = layout.num_micro_batches * busiest_s * (1 - ROUNDING)
        return branch._replace(bound_s=bound_s, memory_bytes=held_bytes * (1 - ROUNDING))

    def _bounded(self, branch: _Branch, most_steps: float | None) -> _Branch | None:
        """Return a layout with its bounds; None, and counted, where it does not fit.

        Args:
            branch: a legal layout with its rank orders.
            most_steps: of a search for a cut, after which the bounds hold for every cut; None: as many as there may be at all.
        """
        layout = branch.layout
        works, open_bytes, below_s = [], [], math.inf
        for order in branch.orders:
            work, least_bytes = self._fitting(layout, order, most_steps, below_s)
            if most_steps is None and (work is not None or below_s == math.inf):  # an order may be passed over for its time alone
                self._put_off[layout, order] = work
            if work is not None and most_steps is None and len(branch.orders) > 1:
                below_s = min(below_s, self.pricer(order).step_s(work.work) * (1 + ROUNDING))
            if work is not None:
                works.append(work)
            if least_bytes is not None:
                open_bytes.append(least_bytes)
        if open_bytes and most_steps is not None:
            computed_s = self._chain(layout).busy_s[-1] / layout.pp
            bound_s = layout.num_micro_batches * float(computed_s) * (1 - ROUNDING)
            return branch._replace(bound_s=bound_s, memory_bytes=min(open_bytes + [work.memory_bytes for work in works]))
        if open_bytes:
            self.counts.unproven += 1
        if not works:
            self.counts.infeasible += 1
            return None
        bound_s, memory_bytes = min(_bound_s(work.work) for work in works), min(work.memory_bytes for work in works)
        return branch._replace(bound_s=bound_s, memory_bytes=memory_bytes, works=tuple(works))

    def _chain(self, layout: Layout) -> Chain:
        volume = layout.sp_d, layout.sp_h, layout.sp_w
        key = layout.micro_batch, layout.recompute, volume
        if key not in self._chains:
            known = next((chain for (_, _, cut), chain in self._chains.items() if cut == volume), None)
            family = None if known is None else known.family
            self._chains[key] = Chain.from_graph(self.graph, layout, self.device, self.costs, family)
        return self._chains[key]

    def _fitting(
        self, layout: Layout, order: str, most_steps: float | None = None, below_s: float = math.inf
    ) -> tuple[_Cut | None, float | None]:
        """Return a layout cut where it is best, None where none was found that fits; and what any cut needs if not proven.

        None too where another rank order takes ``below_s`` and this one no less.
        """
        if self.mixed is not None:
            made = self.mixed.work(self.graph, layout, self.wires, self.costs, order, self._chain(layout))
            held_bytes = made.peak_memory()[1].total
            if self.mixed.missing_bytes(made, order) <= 0:
                return _Cut(order, made, held_bytes), None
            self._findings.note(held_bytes, layout)
            return None, None
        chain, least_bytes = self._chain(layout), None
        work: GraphWork | None = None
        for capacity_bytes in (self.capacity_bytes, float("inf")):
            cuts = find_cuts(
                self.graph,
                layout,
                self.device,
                self.wires,
                self.costs,
                order=order,
                capacity_bytes=capacity_bytes,
                chain=chain,
                most_steps=most_steps,
                below_s=below_s,
            )
            if cuts.places is None and below_s < math.inf:
                return None, None
            if not cuts.is_proven:
                least_bytes = cuts.least_bytes
            if cuts.places is not None:
                work = describe_graph(self.graph, layout, self.device, self.costs, cuts=cuts.places)
                break
        assert work is not None  # without bounds every cut fits
        memory_bytes = work.peak_memory()[1].total
        if memory_bytes <= self.capacity_bytes:
            return _Cut(order, work, memory_bytes), least_bytes
        self._findings.note(memory_bytes, layout)
        return None, least_bytes

    def _priced(self, cut: _Cut) -> RankedLayout:
        self.counts.prices += 1
        step_s = self.pricer(cut.order).step_s(cut.work)
        return RankedLayout.from_price(step_s, cut.memory_bytes, cut.work.layout, cut.order)

    def _illegal(self, worlds: Sequence[int]) -> PlanError:
        ranks = "dp x pp" if self.graph.volumes is None else "dp x pp x sp"
        problem = f"no layout of {self.graph.name} is legal on {in_words(worlds)}: {ranks} ranks, dp dividing the batch"
        return self.request.not_run(in_words(worlds)) or PlanError(problem, field="batch", value=self.global_batch)


_SEARCHED = ("pp", "dp", "micro_batch", "schedule", "virtual_stages", "recompute", "zero", *UNCUT, *VOLUMES)


def _bounds(branch: _Branch) -> tuple[float, float, int, int]:
    return branch.bound_s, branch.memory_bytes, branch.layout.world, 1


def _bound_s(work: GraphWork) -> float:
    """Return the seconds that the busiest stage computes in a step: no schedule takes less."""
    total_s = work.forward_s + work.backward_s
    busiest_s = max(float(total_s[work.ops_of(stage)].sum()) for stage in range(work.layout.pp))
    return work.layout.num_micro_batches * busiest_s * (1 - ROUNDING)
