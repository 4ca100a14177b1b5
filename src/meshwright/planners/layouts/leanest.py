"""Memory of layouts: whether one fits, what the leanest of several holds, and with how many layers computed again it fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ...costs.training_step.bounds import ROUNDING
from ...costs.work.memory import FRAGMENTATION, most_of_layers
from ...costs.work.work import LayoutWork
from ...plans.partition import Layout
from .recomputation import again_of, group_sizes, grouped
from .space import LayoutFamily, LayoutSpace, Leaf
from .stage_devices import StageDevices


@dataclass(frozen=True)
class LeanestLayouts:
    """Memory of the layouts of a space.

    Attributes:
        space: the layouts.
        capacity_bytes: memory of a device, of several types the largest.
        work: describes a layout.
        stage_devices: what ranks run on where devices are of several types.
    """

    space: LayoutSpace
    capacity_bytes: float
    work: Callable[[Layout], LayoutWork]
    stage_devices: StageDevices | None

    def held(self, work: LayoutWork) -> float:
        """Memory of a layout's fullest rank; on devices of several types what some rank holds in any spread of layers."""
        return work.peak_memory()[1].total if self.stage_devices is None else self.stage_devices.least_bytes(work)

    def by_zero(self, node: LayoutFamily) -> list[Layout]:
        """The base of a node with each of its ZeRO stages, its own first."""
        zeros = sorted({leaf.zero for leaf in node.leaves})
        return [node.base, *(node.leanest(zero) for zero in zeros[1:])]

    def may_fit(self, node: LayoutFamily) -> bool:
        """Whether the leanest layout of a node fits, of some ZeRO stage or with a bidirectional schedule."""
        layouts = reversed(self.by_zero(node) if node.one_way else [])
        one_way = (self.least_bytes(node, self.work(layout)) for layout in layouts)
        return any(least <= self.capacity_bytes for least in chain(one_way, (least for _, least, _ in self.both_ways(node))))

    def growth(self, first: LayoutFamily, works: Sequence[LayoutWork]) -> Callable[[LayoutFamily], dict[int, float]]:
        """Return what gives, by ZeRO stage, the least memory of a node by that of the first one of its level.

        A stage that keeps ``w`` micro-batches of ``b`` of its ``M`` sequences at once keeps ``min(M, w b)`` of these. So of all
        stages the first one's activations grow least with ``b``. Buffers do not shrink, and what else it holds stays. FSDP2
        holds no gradients at the loss of a single micro-batch. Nothing is known of layers of several kinds, or devices.

        Args:
            first: the node.
            works: of its leanest layout of each ZeRO stage.
        """
        if self.space.shape.other_layers is not None or self.stage_devices is not None:
            return lambda node: {}
        base, parts, share = first.base, dict[int, list[tuple[float, float]]](), 1 - ROUNDING
        for work in works:
            held = [one.peak_memory()[1] for one in self._leanest(first, work)]
            lasting = [one.total - one.gradients * base.is_fsdp2 for one in held]
            growing = [one.activations * (1 + FRAGMENTATION) for one in held]
            parts[work.layout.zero] = [(share * one, share * more) for one, more in zip(lasting, growing, strict=True)]
        most = base.global_batch // base.dp
        once = min(most, base.pp * base.micro_batch)

        def least_bytes(node: LayoutFamily) -> dict[int, float]:
            more = min(most, base.pp * node.keys["micro_batch"]) / once - 1
            return {zero: min(one + more * growing for one, growing in of_zero) for zero, of_zero in parts.items()}

        return least_bytes

    def least_bytes(self, node: LayoutFamily, base: LayoutWork) -> float:
        """Memory of the leanest layout of one ZeRO stage whose micro-batches all go one way.

        It is the base, unless layers are of several kinds: more chunks then spread them otherwise over the stages.
        """
        return min(map(self.held, self._leanest(node, base)))

    def _leanest(self, node: LayoutFamily, base: LayoutWork) -> list[LayoutWork]:
        """Works of which one is the leanest of a ZeRO stage."""
        if not self.may_compute_again(base.layout):
            return self._of_chunks(node, self.leanest_groups(base) if self.may_group(base.layout) else base)
        most = max(chunk.num_layers for chunk in base.chunks) - 1
        again = [self.work(again_of(base.layout, most))] if most else []
        return [work for one in (base, *again) for work in self._of_chunks(node, one)]

    def _of_chunks(self, node: LayoutFamily, base: LayoutWork) -> list[LayoutWork]:
        of_zero = [leaf for leaf in node.one_way if leaf.zero == base.layout.zero]
        if base.shape.other_layers is None or not of_zero:
            return [base]
        changed = {key: getattr(base.layout, key) for key in ("recompute", "recompute_method", "recompute_num_layers")}
        return [self.work(self.space.layout(node, leaf).model_copy(update=changed)) for leaf in of_zero]

    def both_ways(self, node: LayoutFamily) -> Iterator[tuple[LayoutWork, float, Leaf]]:
        """The bidirectional layouts of a node, each with its memory: what holds for all layouts of a node does not for them."""
        for leaf in (leaf for leaf in node.leaves if leaf not in node.one_way):
            work = self.work(self.space.layout(node, leaf))
            most = max(chunk.num_layers for chunk in work.chunks) - 1
            again = most and self.may_compute_again(work.layout)
            leanest = self.leanest_groups(work) if self.may_group(work.layout) else work
            least_bytes = min(self.held(leanest), self.held(self.work(again_of(work.layout, most))) if again else math.inf)
            yield work, least_bytes, leaf

    def may_compute_again(self, layout: Layout) -> bool:
        """Whether some layers of each chunk may be computed again in place of none."""
        is_asked = layout.recompute == "none" and self.space.request.tries_some_layers and self.stage_devices is None
        return is_asked and self.space.is_run(again_of(layout, 1))

    def may_hold_less(self, layout: Layout) -> bool:
        """Whether more may be computed again."""
        return self.may_compute_again(layout) or self.may_group(layout)

    def may_group(self, layout: Layout) -> bool:
        """Whether layers that are all computed again may be so in groups."""
        is_asked = layout.recompute == "full" and self.space.request.tries_some_layers and self.stage_devices is None
        return is_asked and self.space.is_run(grouped(layout, 1))

    def with_less(self, work: LayoutWork, held_bytes: float) -> LayoutWork:
        """The work of a layout that does not fit with as much computed again as that takes; as it is where that is not asked."""
        if self.may_compute_again(work.layout):
            number = self.fewest_again(work, held_bytes)
            return self.work(again_of(work.layout, number)) if number else work
        return self.leanest_groups(work) if self.may_group(work.layout) else work

    def least_fitted(self, work: LayoutWork) -> float:
        """Memory of a layout that does not fit at least once as few layers of each chunk as possible are computed again.

        One layer more of each chunk spares no more than what these keep, and one less does not fit.
        """
        if not self.may_compute_again(work.layout) or work.layout.is_bidirectional:
            return 0.0
        return self.capacity_bytes - (1 + FRAGMENTATION) * most_of_layers(work)

    def leanest_groups(self, work: LayoutWork) -> LayoutWork:
        """The work with groups of the size with which its fullest rank holds least."""
        best, best_bytes = work, self.held(work)
        for size in group_sizes(work):
            layout = grouped(work.layout, size)
            made = self.work(layout) if self.space.is_run(layout) else None
            held = math.inf if made is None else self.held(made)
            if made is None or held >= best_bytes:
                break
            best, best_bytes = made, held
        return best

    def fewest_again(self, work: LayoutWork, held_bytes: float) -> int:
        """The fewest layers of each chunk of a work computed again with which it fits, all but one where none does.

        Memory falls about in proportion to them, so that the first guess is seldom far off.

        Args:
            work: which does not fit as it is.
            held_bytes: its memory.
        """
        low, low_bytes = 0, held_bytes
        high = most = max(chunk.num_layers for chunk in work.chunks) - 1
        high_bytes = self.held(self.work(again_of(work.layout, most))) if most else held_bytes
        if high_bytes > self.capacity_bytes:
            return most
        while high - low > 1:
            share = (low_bytes - self.capacity_bytes) / (low_bytes - high_bytes)
            guess = min(max(low + math.ceil(share * (high - low)), low + 1), high - 1)
            guessed_bytes = self.held(self.work(again_of(work.layout, guess)))
            if guessed_bytes <= self.capacity_bytes:
                high, high_bytes = guess, guessed_bytes
            else:
                low, low_bytes = guess, guessed_bytes
        return high
