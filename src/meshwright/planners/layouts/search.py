"""Branch and bound over the layouts of a transformer: the best ones, and the Pareto front of time, memory and devices.

Nothing is left out by a rule of thumb. The layouts of a node of the tree (`space.LayoutFamily`) with one ZeRO stage, or one of
them, are passed by only where

- a rank of it does not fit a device: its memory, or that of the leanest one, is above the capacity; or
- its time is bounded from below (`costs.training_step.bounds`) by more than what was found takes, see `results.Findings`.

The leanest layout: 1F1B with one chunk a stage keeps at most ``min(m, p - s)`` micro-batches on stage ``s``, and no schedule
keeps fewer (``m`` for GPipe, ``min(m, p)`` and ``min(m, 2 p - 1)`` with zero bubble, and with ``v`` chunks in rounds of ``n``
at least ``min(m, ((v - 1) n + 2 (p - s) - 1) / v)``, where ``n >= min(m, p)``); one that puts weight gradients off has as many
waiting as 1F1B before the first gradient comes back. All other memory is that of the ZeRO stage. Memory grows with the
micro-batch of ``b`` sequences: ``b min(B / b, p - s)`` does, and everything else that depends on it is in proportion to it. So
behind the first node of a level that does not fit no other fits.

A layout that does not fit without recomputation gives its place to that with the fewest layers of each chunk computed again with
which it fits (``recompute_method=block``). With more of them a step takes no less and a rank holds no more, so that no other
number makes a faster layout that fits; each is bounded by the layout that computes nothing again. One that does not fit with
every layer computed again by itself gives its place to the leanest with groups of layers (``recompute_num_layers``). All of them
take the same time; groups of ``k`` keep ``1 / k`` of the inputs and ``k`` layers at once, which is convex in ``k``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ...costs.process_groups.group_network import GroupNetwork
from ...costs.training_step.bounds import BoundedPricer, FastestKernels, LowerBound, RememberedKernels
from ...costs.training_step.kernels import KernelModel, kernel_model
from ...costs.training_step.passes import OVERLAP_SLOWDOWN
from ...costs.training_step.stage_crossings import Resharding
from ...costs.work.work import LayoutWork, describe
from ...devices import DeviceType
from ...errors import PlanError
from ...plans.frameworks.defaults import BIDIRECTIONAL
from ...plans.partition import Layout
from .recomputation import again_of, group_sizes, grouped
from .results import Counts, Findings, RankedLayout, Searched, in_words
from .space import LayoutFamily, LayoutSpace, Leaf
from .stage_devices import StageDevices

FIRST_LEVELS = 24
"""Of so many levels of the tree, those of the most promising degrees, a layout each is priced for an early answer."""


class _Bound(NamedTuple):
    """What a layout takes at least in a rank order; ``number`` tells those of one layout apart, ``work`` says its layers."""

    bound_s: float
    number: int
    order: str
    work: LayoutWork


class _Waiting(NamedTuple):
    """The layouts of a node with one ZeRO stage, or one of them, that are still to be looked at; the least bound is next.

    Attributes:
        bound_s: no layout of it takes less.
        memory_bytes: none needs less.
        number: with a fraction for a layout by itself: no two are alike.
        node: the node.
        leaves: of the node, as far as they are meant.
        again: of a layout by itself, layers of each chunk that are computed again, or of a group, 0 as it is; None for several.
        bounds: by rank order and spread of layers, see `LayoutSearch._bounds`; empty as long as the bound is that of any.
        is_rough: whether the bound is that of a lower ZeRO stage, whose passes send no more.
    """

    bound_s: float
    memory_bytes: float
    number: float
    node: LayoutFamily
    leaves: tuple[Leaf, ...]
    again: int | None
    bounds: tuple[_Bound, ...]
    is_rough: bool = False


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
        within: layouts that take more than so many times the best one's time are passed by, also where they would be on the
            front; then nothing is priced for an early answer.
        resharding: how micro-batches are brought to stages of another mesh.
        stage_devices: what ranks run on where that is not ``device`` for all.
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

    def __post_init__(self) -> None:
        models = (self.kernels or kernel_model(self.device),) if self.stage_devices is None else self.stage_devices.models
        self._models = tuple(RememberedKernels.of(model) for model in models)
        self._pricers: dict[str, BoundedPricer] = {}
        self._optimists: dict[int, LowerBound] = {}
        self._found = Findings(self.space.request, self.counts, proves_front=self.stage_devices is None)

    def run(self, worlds: Sequence[int]) -> Searched:
        """Search layouts of every given number of devices.

        Raises:
            PlanError: no layout is legal, or none fits; the message names the closest one.
        """
        self._found.branch_and_bound(self._branches(worlds), _bounds, self._examine, self.within)
        if not self._found:
            raise self._found.too_large(self.space.shape.name, worlds, self.capacity_bytes) or self._illegal(worlds)
        return self._found.searched()

    @property
    def global_batch(self) -> int:
        """Sequences of a step."""
        return self.space.global_batch

    @property
    def tried_orders(self) -> tuple[str, ...]:
        """The rank orders of all layouts so far, those that number ranks alike once."""
        return self.space.orders.tried

    def _branches(self, worlds: Sequence[int]) -> Iterator[_Waiting]:
        if self.within == math.inf:
            self._dive(worlds[-1])
        number, known, last = 0, dict[object, float](), None
        for world in worlds:
            for node, leaves, work, memory_bytes in self._fitting(world):
                if node is not last:
                    known, last = {}, node
                is_rough = bool(known) and work.key not in known and self.stage_devices is None
                if work.layout.is_bidirectional:
                    bound_s, is_rough = self.optimist(world).bound_s(work), False
                elif is_rough:
                    bound_s = max(known.values())
                else:
                    bound_s = known[work.key] = self.optimist(world).node_s(work)
                yield _Waiting(bound_s, memory_bytes, number, node, leaves, None, (), is_rough)
                number += 1

    def _examine(self, one: _Waiting) -> Iterator[_Waiting]:
        if one.is_rough:
            work = self.work(one.node.leanest(one.leaves[0].zero))
            bound_s = self.optimist(one.node.world).node_s(work)
            yield one._replace(bound_s=max(one.bound_s, bound_s), is_rough=False)
        elif one.again is None:
            yield from self._leaves(one)
        elif not one.bounds:
            work = self._of_leaf(one.node, one.leaves[0], one.again)
            bounds = self._bounds(work)
            if bounds:
                yield one._replace(bound_s=max(one.bound_s, bounds[0].bound_s), bounds=tuple(bounds))
            else:
                self._found.note(one.memory_bytes, work.layout)
                self.counts.infeasible += 1
        else:
            self.counts.examined += 1
            self._found.take(self._priced(one.memory_bytes, one.bounds))

    def _of_leaf(self, node: LayoutFamily, leaf: Leaf, again: int = 0) -> LayoutWork:
        """The work of a layout, with a number of layers that are computed again where it leaves that open."""
        layout = self.space.layout(node, leaf)
        if again:
            layout = grouped(layout, again) if layout.recompute == "full" else again_of(layout, again)
        return self.work(layout)

    def work(self, layout: Layout, order: str = "") -> LayoutWork:
        """What every rank of a layout does, whatever its order."""
        return describe(self.space.shape, layout, self.space.sequence_length, checks=False)

    def optimist(self, world: int) -> LowerBound:
        """The lower bound on layouts of a number of ranks."""
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
            self._optimists[world] = made
        return self._optimists[world]

    def pricer(self, order: str) -> BoundedPricer:
        """What prices layouts in a rank order; blocks are shared by all orders, since their groups identify them."""
        if order not in self._pricers:
            kinds = None if self.stage_devices is None else self.stage_devices.kinds
            models = () if kinds is None else self._models
            made = BoundedPricer(self.device, self.wires, self.slowdown, order, self._models[0], self.resharding, models, kinds)
            first = next(iter(self._pricers.values()), made)
            self._pricers[order] = made.sharing(first)
        return self._pricers[order]

    def _dive(self, world: int) -> None:
        """Price some promising layouts, so that there is an answer early.

        They are priced again in their turn; what is said now is only told, and never ranked.
        """
        told_s = math.inf
        for level in islice(self.space.levels(world), FIRST_LEVELS):
            for node in level.nodes[:1]:
                works = [self.work(self.space.layout(node, leaf)) for leaf in node.leaves]
                fits = [(work, memory_bytes) for work in works if (memory_bytes := self._held(work)) <= self.capacity_bytes]
                if not fits:
                    continue
                work, memory_bytes = min(fits, key=lambda pair: self.optimist(world).bound_s(pair[0]))
                bounds = self._bounds(work)
                if bounds and (found := self._priced(memory_bytes, bounds)).step_s < told_s:
                    told_s = found.step_s
                    self.space.request.on_best(found, self.counts)
        self.counts.prices = 0

    def _fitting(self, world: int) -> Iterator[tuple[LayoutFamily, tuple[Leaf, ...], LayoutWork, float]]:
        """Leaves of one ZeRO stage of which one may fit, each with the work and the memory of the leanest such layout."""
        for level in self.space.levels(world):
            self.counts.illegal += level.num_illegal
            for place, node in enumerate(level.nodes):
                if place == 0 and not self.space.rank_orders(node.base, self.wires):
                    self.counts.illegal += sum(len(other.leaves) for other in level.nodes)
                    break
                works = [self.work(layout) for layout in self._by_zero(node)]
                needs = [self._least_bytes(node, work) for work in works]
                least = min(needs)
                if least > self.capacity_bytes:
                    self._found.note(least, works[needs.index(least)].layout)
                    self.counts.infeasible += sum(len(other.leaves) for other in level.nodes[place:])
                    break
                for work, memory_bytes in [*zip(works, needs, strict=True), *self._both_ways(node)]:
                    leaves = tuple(leaf for leaf in node.leaves if leaf.zero == work.layout.zero)
                    if work.layout.is_bidirectional:
                        leaves = tuple(leaf for leaf in leaves if leaf.schedule == work.layout.schedule)
                    else:
                        leaves = tuple(leaf for leaf in leaves if leaf.schedule not in BIDIRECTIONAL or node.base.pp == 1)
                    if not leaves:
                        continue
                    if memory_bytes <= self.capacity_bytes:
                        yield node, leaves, work, memory_bytes
                    else:
                        self.counts.infeasible += len(leaves)

    def _least_bytes(self, node: LayoutFamily, base: LayoutWork) -> float:
        """Memory of the leanest layout of one ZeRO stage: the base, unless layers are of several kinds.

        More chunks then spread them otherwise over the stages. So do bidirectional schedules, which always count by themselves.
        """
        if self._may_compute_again(base.layout):
            most = max(chunk.num_layers for chunk in base.chunks) - 1
            again = [self.work(again_of(layout, most)) for layout in (base.layout,) if most]
            return min(self._leanest_bytes(node, one) for one in (base, *again))
        if self._may_group(base.layout):
            return self._leanest_bytes(node, self._leanest_groups(base)[1])
        return self._leanest_bytes(node, base)

    def _leanest_bytes(self, node: LayoutFamily, base: LayoutWork) -> float:
        least = self._held(base)
        alike = base.shape.other_layers is None
        of_zero = [leaf for leaf in node.leaves if leaf.zero == base.layout.zero]
        changed = {key: getattr(base.layout, key) for key in ("recompute", "recompute_method", "recompute_num_layers")}
        layouts = (self.space.layout(node, leaf) for leaf in of_zero if not alike or leaf.schedule in BIDIRECTIONAL)
        works = (self.work(layout.model_copy(update=changed)) for layout in layouts)
        return min([least, *map(self._held, works)] if alike else list(map(self._held, works)), default=least)

    def _both_ways(self, node: LayoutFamily) -> Iterator[tuple[LayoutWork, float]]:
        """The bidirectional layouts of a node, each with its memory: what holds for all layouts of a node does not for them."""
        for leaf in node.leaves:
            if leaf.schedule in BIDIRECTIONAL and node.base.pp > 1:
                work = self.work(self.space.layout(node, leaf))
                most = max(chunk.num_layers for chunk in work.chunks) - 1
                again = most and self._may_compute_again(work.layout)
                leanest = self._leanest_groups(work)[1] if self._may_group(work.layout) else work
                yield work, min(self._held(leanest), self._held(self.work(again_of(work.layout, most))) if again else math.inf)

    def _held(self, work: LayoutWork) -> float:
        """Memory of a layout's fullest rank; on devices of several types what some rank holds in any spread of layers."""
        return work.peak_memory()[1].total if self.stage_devices is None else self.stage_devices.least_bytes(work)

    def _by_zero(self, node: LayoutFamily) -> list[Layout]:
        """The base of a node with each of its ZeRO stages, its own first."""
        zeros = sorted({leaf.zero for leaf in node.leaves})
        return [node.base, *(node.leanest(zero) for zero in zeros[1:])]

    def _leaves(self, one: _Waiting) -> Iterator[_Waiting]:
        """The layouts that fit, each with its bound in any rank order."""
        optimist = self.optimist(one.node.world)
        for place, leaf in enumerate(one.leaves):
            work, again = self._of_leaf(one.node, leaf), 0
            memory_bytes = self._held(work)
            if memory_bytes > self.capacity_bytes and self._may_compute_again(work.layout):
                again = self._fewest_again(work)
            elif memory_bytes > self.capacity_bytes and self._may_group(work.layout):
                again = self._leanest_groups(work)[0]
            if again:
                work = self._of_leaf(one.node, leaf, again)
                memory_bytes = self._held(work)
            if memory_bytes > self.capacity_bytes:
                self._found.note(memory_bytes, work.layout)
                self.counts.infeasible += 1
            else:
                bound_s = max(one.bound_s, optimist.bound_s(work))
                yield _Waiting(bound_s, memory_bytes, one.number + place / 1000, one.node, (leaf,), again, ())

    def _may_compute_again(self, layout: Layout) -> bool:
        """Whether some layers of each chunk may be computed again in place of none."""
        is_asked = layout.recompute == "none" and self.space.request.tries_some_layers and self.stage_devices is None
        return is_asked and self.space.is_run(again_of(layout, 1))

    def _may_group(self, layout: Layout) -> bool:
        """Whether layers that are all computed again may be so in groups."""
        is_asked = layout.recompute == "full" and self.space.request.tries_some_layers and self.stage_devices is None
        return is_asked and self.space.is_run(grouped(layout, 1))

    def _leanest_groups(self, work: LayoutWork) -> tuple[int, LayoutWork]:
        """The size of groups with which the fullest rank of a work holds least, 0 as it is, and the work with those."""
        best, best_bytes = (0, work), self._held(work)
        for size in group_sizes(work):
            layout = grouped(work.layout, size)
            made = self.work(layout) if self.space.is_run(layout) else None
            held = math.inf if made is None else self._held(made)
            if made is None or held >= best_bytes:
                break
            best, best_bytes = (size, made), held
        return best

    def _fewest_again(self, work: LayoutWork) -> int:
        """The fewest layers of each chunk of a work computed again with which it fits, all but one where none does."""
        fewest, most = 1, max(chunk.num_layers for chunk in work.chunks) - 1
        while fewest < most:
            middle = (fewest + most) // 2
            if self._held(self.work(again_of(work.layout, middle))) <= self.capacity_bytes:
                most = middle
            else:
                fewest = middle + 1
        return most

    def _bounds(self, work: LayoutWork) -> list[_Bound]:
        """A bound for each rank order and each spread of layers that fits, the most promising first."""
        found: list[_Bound] = []
        for order in self.space.rank_orders(work.layout, self.wires):
            pricer = self.pricer(order)
            works = [work] if self.stage_devices is None else self.stage_devices.spreads(work, pricer, self.work)
            found += [_Bound(pricer.bound_s(one), len(found) + place, order, one) for place, one in enumerate(works)]
        return sorted(found, key=lambda one: one[:2])

    def _priced(self, memory_bytes: float, bounds: Sequence[_Bound]) -> RankedLayout:
        """A layout in its best rank order and spread of layers, of equal ones the first."""
        best_s, best = math.inf, bounds[0]
        for one in bounds:
            if one.bound_s > best_s:
                break
            self.counts.prices += 1
            step_s = self.pricer(one.order).step_s(one.work)
            if (step_s, one.number) < (best_s, best.number):
                best_s, best = step_s, one
        if self.stage_devices is not None:
            memory_bytes = best.work.peak_memory()[1].total
        return RankedLayout.of(best_s, memory_bytes, best.work.layout, best.order)

    def _illegal(self, worlds: Sequence[int]) -> PlanError:
        problem = f"no layout is legal on {in_words(worlds)}"
        for key, value, why in self.space.kept_in_vain(worlds):
            return PlanError(f"{why}, so that {problem}", field=f"--keep.{key}", value=value)
        if (not_run := self.space.request.not_run(in_words(worlds))) is not None:
            return not_run
        problem += ": tp x cp x pp x dp ranks, dp dividing the batch"
        return PlanError(problem, field="batch", value=self.space.global_batch)


def _bounds(one: _Waiting) -> tuple[float, float, int, int]:
    return one.bound_s, one.memory_bytes, one.node.world, len(one.leaves)
