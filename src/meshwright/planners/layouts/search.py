"""Branch and bound over the layouts of a transformer: the best ones, and the Pareto front of time, memory and devices.

No rule of thumb leaves anything out. The layouts of a node of the tree (`space.LayoutFamily`) with one ZeRO stage, or one of
them, are skipped only where

- a rank of it does not fit a device: its memory, or that of the leanest one, is above the capacity; or
- a lower bound of its time (`costs.training_step.bounds`) is above the times of the results so far, see `results.Findings`.

The leanest layout is 1F1B with one chunk a stage. It keeps at most ``min(m, p - s)`` micro-batches on stage ``s``, and no
schedule keeps fewer:

- GPipe ``m``, zero bubble ``min(m, p)`` and ``min(m, 2 p - 1)``;
- ``v`` chunks in rounds of ``n >= min(m, p)`` at least ``min(m, ((v - 1) n + 2 (p - s) - 1) / v)``.

A schedule that defers weight gradients has as many micro-batches waiting as 1F1B before the first backward pass. All other memory
is that of the ZeRO stage. The memory of a level's nodes follows from the first one's
layouts, see `LeanestLayouts.growth`; where a node has others, they count by themselves.

A layout that does not fit without recomputation is replaced by one that recomputes some layers of each chunk
(``recompute_method=block``). The fewest with which it fits are taken: with more a step takes no less. The layout without
recomputation bounds each. One that does not fit with every layer recomputed by itself is replaced by the leanest with groups of
layers (``recompute_num_layers``). All groups take the same time; those of ``k`` keep ``1 / k`` of the inputs and ``k`` layers at
once, which is convex in ``k``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Any

from ...costs.collectives.libraries.calibrated import is_line_known
from ...costs.host_update import kept_bytes
from ...costs.process_groups.group_network import GroupNetwork, HostNetwork
from ...costs.training_step.bounds import BoundedPricer
from ...costs.training_step.kernels import KernelModel, kernel_model
from ...costs.training_step.lower_bound import LowerBound
from ...costs.training_step.passes import OVERLAP_SLOWDOWN
from ...costs.training_step.stage_crossings import Resharding
from ...costs.training_step.uncertainty import HOST, KNOWN_SOFTWARE, of_idle_kernels
from ...costs.work.work import LayoutWork, describe, rescheduled
from ...devices import DeviceType
from ...errors import PlanError
from ...plans.partition import Layout
from ...plans.pipelines.layers import less_layers
from .branches import BranchStage, LayoutBranch, OrderBound
from .leanest import Held, LeanestLayouts
from .results import Counts, Findings, RankedLayout, Searched, in_words
from .space import LayoutFamily, LayoutSpace, Leaf
from .stage_devices import FastestKernels, StageDevices
from .ties import FARTHEST, Busy, widest_tie

_BUT_SCHEDULE = itemgetter(*(Layout.model_fields.keys() - {"schedule"}))
"""The keys of a layout other than its schedule."""

FIRST_LEVELS = 8
"""Of so many levels of the tree, those of the most promising degrees, a layout each is priced for an early answer.

With 24 a search of 175B takes 70 ms more, and that answer is 1 to 8 % better (175B, 70B, a mixture).
"""


@dataclass
class LayoutSearch:
    """A search over the layouts of a transformer.

    Attributes:
        space: the layouts.
        device: what each rank runs on.
        capacity_bytes: memory of a device, of several types the largest.
        wires: prices messages.
        slowdown: factor on kernels and messages that run side by side.
        counts: what became of the layouts.
        kernels: prices kernels; by default by the device's own constants.
        within: layouts that take more than so many times the best one's time are skipped, even on the front. Then nothing is
            priced for an early answer.
        resharding: how micro-batches are brought to stages of another mesh.
        stage_devices: what ranks run on where that is not ``device`` for all.
        hosts: of each rank; None where nothing bounds their memory.
    """

    space: LayoutSpace
    device: DeviceType
    capacity_bytes: float
    wires: GroupNetwork
    slowdown: float = OVERLAP_SLOWDOWN
    counts: Counts = field(default_factory=Counts)
    kernels: KernelModel | None = None
    within: float = math.inf
    resharding: Resharding = field(default_factory=Resharding)
    stage_devices: StageDevices | None = None
    hosts: Sequence[int] | None = None

    def __post_init__(self) -> None:
        models = (self.kernels or kernel_model(self.device),) if self.stage_devices is None else self.stage_devices.models
        self._models: tuple[KernelModel, ...] = models
        self._pricers: dict[str, BoundedPricer] = {}
        self._steps: dict[object, Any] = {}
        self._optimists: dict[int, LowerBound] = {}
        self._known_busy: dict[int, tuple[LayoutFamily, Busy]] = {}
        self._doubts: tuple[RankedLayout | None, Mapping[str, float], float] = None, {}, 0.0
        self._host, self._least_kept_bytes = self._models[0].host, math.inf
        self.memory = LeanestLayouts(self.space, self.capacity_bytes, self.work, self.stage_devices)
        self._findings = Findings(self.space.request, self.counts, proves_front=self.stage_devices is None)

    def run(self, worlds: Sequence[int]) -> Searched:
        """Search layouts of every given number of devices.

        Raises:
            PlanError: no layout is legal, or none fits; the message names the closest one.
        """
        self._findings.branch_and_bound(self._branches(worlds), _bounds, self._examine, self.within, self._widest_tie)
        if not self._findings:
            if self._least_kept_bytes < math.inf:
                self._host.check_fits(self._least_kept_bytes)
            raise self._findings.too_large(self.space.shape.name, worlds, self.capacity_bytes) or self._illegal(worlds)
        return self._findings.searched()

    @property
    def global_batch(self) -> int:
        """Sequences of a step."""
        return self.space.global_batch

    @property
    def tried_orders(self) -> tuple[str, ...]:
        """The rank orders of all layouts so far, each distinct numbering once."""
        return self.space.orders.tried

    def _branches(self, worlds: Sequence[int]) -> Iterator[LayoutBranch]:
        if self.within == math.inf:
            self._dive(worlds[-1])
        number = 0
        for world in worlds:
            optimist = self.optimist(world)
            for node, held_bytes in self._fitting(world):
                base, own = self.work(node.base), [held_bytes[zero] for zero in held_bytes if isinstance(zero, int)]
                if node.one_way:
                    bound_s = optimist.node_s(base)
                    yield LayoutBranch(bound_s, min(own), number, node, node.one_way, BranchStage.NODE, base, held_bytes)
                for place, leaf in enumerate(node.both_ways):
                    if held_bytes[leaf] > self.capacity_bytes:
                        self.counts.infeasible += 1
                    else:
                        bound_s, own_number = optimist.mean_s(base), number + (1 + place) / 32
                        yield LayoutBranch(bound_s, held_bytes[leaf], own_number, node, (leaf,), BranchStage.ZERO, base)
                number += 1

    def _examine(self, branch: LayoutBranch) -> Iterator[LayoutBranch]:
        if branch.stage == BranchStage.NODE:
            yield from self._of_node(branch)
        elif branch.stage == BranchStage.ROUGH:
            bound_s = self.optimist(branch.node.world).node_s(branch.work)
            yield branch._replace(bound_s=max(branch.bound_s, bound_s), stage=BranchStage.ZERO)
        elif branch.stage == BranchStage.ZERO:
            yield from self._equal(branch)
        elif branch.stage == BranchStage.EQUAL:
            yield from self._leaves(branch)
        elif branch.stage == BranchStage.LEAF:
            yield from self._fitted(branch)
        elif branch.stage == BranchStage.FITTING:
            bounds = self._bounds(branch.work)
            if bounds:
                bound_s = max(branch.bound_s, bounds[0].bound_s)
                yield branch._replace(bound_s=bound_s, bounds=tuple(bounds), stage=BranchStage.BOUNDED)
            else:
                self._infeasible(branch.memory_bytes, branch.work.layout)
        else:
            self.counts.examined += 1
            self._findings.take(self._priced(branch.memory_bytes, branch.bounds))

    def _of_node(self, branch: LayoutBranch) -> Iterator[LayoutBranch]:
        """Yield the layouts of a node by ZeRO stage, those that may fit."""
        base = branch.work
        for place, zero in enumerate(sorted({leaf.zero for leaf in branch.leaves})):
            work = base if zero == base.layout.zero else self.work(branch.node.leanest(zero))
            leaves = tuple(leaf for leaf in branch.leaves if leaf.zero == zero)
            known_bytes = branch.held_bytes.get(zero)
            memory_bytes = self.memory.least_bytes(branch.node, work) if known_bytes is None else known_bytes
            if memory_bytes > self.capacity_bytes:
                self.counts.infeasible += len(leaves)
            else:
                stage = BranchStage.ZERO if work.key == base.key and self.stage_devices is None else BranchStage.ROUGH
                number = branch.number + place / 8
                bound_s = max(branch.bound_s, self.optimist(branch.node.world).gathering_s(work))
                changes: dict[str, Any] = {"bound_s": bound_s, "memory_bytes": memory_bytes, "number": number, "stage": stage}
                yield branch._replace(**changes, leaves=leaves, work=work)

    def work(self, layout: Layout, order: str = "") -> LayoutWork:
        """Return the work of every rank of a layout, whatever its order."""
        return describe(self.space.shape, layout, self.space.sequence_length, checks=False)

    def optimist(self, world: int) -> LowerBound:
        """Return the lower bound on layouts of a number of ranks."""
        if world not in self._optimists:
            kernels: KernelModel = self._models[0]
            models: tuple[KernelModel, ...] = ()
            numbers: tuple[int, ...] = ()
            if self.stage_devices is not None:
                kernels = FastestKernels.among(self._models)
                models, numbers = (kernels, *self._models), self.stage_devices.num_of_kind(world)
            made = LowerBound(
                self.device, self.wires, self.slowdown, kernels=kernels, models=models, world=world, num_of_kind=numbers
            )
            if self.stage_devices is None:
                made = made.with_steps(self._steps)
            self._optimists[world] = made
        return self._optimists[world]

    def pricer(self, order: str) -> BoundedPricer:
        """Return the pricer of layouts in a rank order; all orders share blocks, which their groups identify."""
        if order not in self._pricers:
            kinds = None if self.stage_devices is None else self.stage_devices.kinds
            models = () if kinds is None else self._models
            made = BoundedPricer(self.device, self.wires, self.slowdown, order, self._models[0], self.resharding, models, kinds)
            first = next(iter(self._pricers.values()), made.with_steps(self._steps))
            self._pricers[order] = made.sharing(first)
        return self._pricers[order]

    def _dive(self, world: int) -> None:
        """Price some promising layouts, so that there is an answer early.

        They are priced again in their turn; this answer is only reported, never ranked.
        """
        reported_s = math.inf
        for node in (node for level in islice(self.space.levels(world), FIRST_LEVELS) for node in level.nodes[:1]):
            for work in map(self.work, self.memory.by_zero(node)):
                memory_bytes = self.memory.held(work)
                bounds = self._bounds(work) if memory_bytes <= self.capacity_bytes else []
                if bounds and (result := self._priced(memory_bytes, bounds)).step_s < reported_s:
                    reported_s = result.step_s
                    self.space.request.on_best(result, self.counts)
        self.counts.prices = 0

    def _fitting(self, world: int) -> Iterator[tuple[LayoutFamily, Held]]:
        """Yield the nodes that may have a layout that fits, each with the least memory of its layouts, as far as it is known."""
        for level in self.space.levels(world):
            self.counts.illegal += level.num_illegal
            if not level.nodes:
                continue
            first = level.nodes[0]
            if not self.space.rank_orders(first.base, self.wires):
                self.counts.illegal += sum(len(node.leaves) for node in level.nodes)
                continue
            works = [self.work(layout) for layout in self.memory.by_zero(first)]
            exact = self.memory.exact(first, works)
            if min(exact.values()) > self.capacity_bytes:
                least_bytes, work = min(zip(exact.values(), works, strict=False), key=lambda pair: pair[0])
                self._findings.note(least_bytes, work.layout)
            grown = self.memory.growth(first, works) if self.stage_devices is None else None
            for node in level.nodes:
                held_bytes = exact
                if node is not first and grown and (node.leaves is first.leaves or set(node.leaves) <= set(first.leaves)):
                    held_bytes = grown(node)
                elif node is not first:
                    held_bytes = self.memory.exact(node, map(self.work, self.memory.by_zero(node)))
                if min(held_bytes.values()) > self.capacity_bytes:
                    self.counts.infeasible += len(node.leaves)
                else:
                    yield node, held_bytes

    def _equal(self, branch: LayoutBranch) -> Iterator[LayoutBranch]:
        """Yield the layouts of one ZeRO stage by their bound in any rank order, with nothing computed again."""
        optimist = self.optimist(branch.node.world)
        groups: dict[object, tuple[Layout, list[Leaf]]] = {}
        for leaf in branch.leaves:
            layout = self.space.layout(branch.node, leaf)
            key = leaf if layout.is_bidirectional else (layout.parts_gradients, _BUT_SCHEDULE(vars(layout)))
            groups.setdefault(key, (layout, []))[1].append(leaf)
        for place, (layout, leaves) in enumerate(groups.values()):
            bound_s = max(branch.bound_s, optimist.bound_s(rescheduled(branch.work, layout)))
            number = branch.number + place / 1000
            yield branch._replace(bound_s=bound_s, number=number, leaves=tuple(leaves), stage=BranchStage.EQUAL)

    def _leaves(self, branch: LayoutBranch) -> Iterator[LayoutBranch]:
        """Yield the layouts of one bound that may fit, each with its memory."""
        for place, leaf in enumerate(branch.leaves):
            work = rescheduled(branch.work, self.space.layout(branch.node, leaf))
            memory_bytes, stage = self.memory.held(work), BranchStage.FITTING
            if memory_bytes > self.capacity_bytes:
                if not self.memory.may_compute_again(work.layout) and not self.memory.may_group(work.layout):
                    self._infeasible(memory_bytes, work.layout)
                    continue
                memory_bytes, stage = max(branch.memory_bytes, self.memory.least_fitted(work)), BranchStage.LEAF
            number = branch.number + place / 100_000
            yield branch._replace(memory_bytes=memory_bytes, number=number, leaves=(leaf,), stage=stage, work=work)

    def _fitted(self, branch: LayoutBranch) -> Iterator[LayoutBranch]:
        """Yield a layout with as much computed again as it takes to fit, if it can."""
        held_bytes = self.memory.held(branch.work)
        # Without a result yet the error wants the layout that lacks least, and its memory.
        if self._findings and self.memory.never_fits(branch.work, held_bytes):
            self.counts.infeasible += 1
            return
        work = self.memory.with_less(branch.work, held_bytes)
        memory_bytes = self.memory.held(work)
        if memory_bytes > self.capacity_bytes:
            self._infeasible(memory_bytes, work.layout)
        else:
            bound_s = max(branch.bound_s, self.optimist(branch.node.world).bound_s(work))
            yield branch._replace(bound_s=bound_s, memory_bytes=memory_bytes, stage=BranchStage.FITTING, work=work)

    def _infeasible(self, memory_bytes: float, layout: Layout) -> None:
        self._findings.note(memory_bytes, layout)
        self.counts.infeasible += 1

    def _bounds(self, work: LayoutWork) -> list[OrderBound]:
        """Return a bound for each rank order and each spread of layers that fits, the most promising first."""
        result: list[OrderBound] = []
        for order in self.space.rank_orders(work.layout, self.wires):
            pricer = self.pricer(order)
            works = (
                [work] if self.stage_devices is None else self.stage_devices.spreads(work, pricer, self.work, self.space.is_run)
            )
            kept = [kept_bytes(one, order, self.hosts) for one in works]
            self._least_kept_bytes = min([self._least_kept_bytes, *kept])
            works = [one for one, held in zip(works, kept, strict=True) if held <= self._host.memory_bytes]
            result += [OrderBound(pricer.bound_s(one), len(result) + place, order, one) for place, one in enumerate(works)]
        return sorted(result, key=lambda one: one[:2])

    def _priced(self, memory_bytes: float, bounds: Sequence[OrderBound]) -> RankedLayout:
        """Return a layout in its best rank order and spread of layers, of equal ones the first."""
        best_s, best = math.inf, bounds[0]
        for bound in bounds:
            if bound.bound_s > best_s:
                break
            self.counts.prices += 1
            step_s = self.pricer(bound.order).step_s(bound.work)
            if (step_s, bound.number) < (best_s, best.number):
                best_s, best = step_s, bound
        if self.stage_devices is not None:
            memory_bytes = best.work.peak_memory()[1].total
        return RankedLayout.from_price(best_s, memory_bytes, best.work.layout, best.order)

    def _busy(self, node: LayoutFamily) -> Busy:
        """Return the least time of the kernels of a node's layouts that go one way, where known."""
        if self.stage_devices is not None or len(self.space.fixed) > 1 or self.space.request.tied_within == 0:
            return Busy()
        if (known := self._known_busy.get(id(node))) is None:  # the node stays, so that the id stays its own
            work = self.work(node.base)
            has_equal_stages = len(work.block_weights) == 3 and not any(less_layers(work.layout))
            known = self._known_busy[id(node)] = (
                node,
                Busy(*self.optimist(node.world).busy_s(work)) if has_equal_stages else Busy(),
            )
        return known[1]

    def _widest_tie(self, branch: LayoutBranch, fastest: RankedLayout) -> float:
        """See `results.Findings.branch_and_bound`."""
        busy = self._busy(branch.node) if branch.leaves[0] in branch.node.one_way else Busy()
        if busy.kernels_s == 0 or branch.bound_s <= 0:
            return FARTHEST
        if self._doubts[0] is not fastest:
            doubts = self.pricer(fastest.order).price_work(self.work(fastest.layout)).uncertainty_terms
            knows_links = is_line_known(self.device.name) or not isinstance(self.wires, HostNetwork)
            idle = of_idle_kernels(knows_links=knows_links, knows_steps=not doubts.keys().isdisjoint((KNOWN_SOFTWARE, HOST)))
            self._doubts = fastest, doubts, idle
        return widest_tie(self._doubts[1], fastest.step_s, branch.bound_s, busy, self._doubts[2])

    def _illegal(self, worlds: Sequence[int]) -> PlanError:
        problem = f"no layout is legal on {in_words(worlds)}"
        for key, value, why in self.space.kept_in_vain(worlds):
            return PlanError(f"{why}, so that {problem}", field=f"--keep.{key}", value=value)
        if (not_run := self.space.request.not_run(in_words(worlds))) is not None:
            return not_run
        problem += ": tp x cp x pp x dp ranks, dp dividing the batch"
        return PlanError(problem, field="batch", value=self.space.global_batch)


def _bounds(branch: LayoutBranch) -> tuple[float, float, int, int]:
    return branch.bound_s, branch.memory_bytes, branch.node.world, len(branch.leaves)
