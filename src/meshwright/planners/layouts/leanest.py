"""Memory of layouts: whether one fits, what the leanest of several holds, and with how many layers computed again it fits.

Without recomputation these are the first layers of each model chunk (``recompute_method=block``). With full recomputation they
are groups of layers that keep the input of the first alone (``recompute_num_layers``), as many in each as divide every chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...costs.pipelines.schedules import in_flight
from ...costs.training_step.bounds import ROUNDING
from ...costs.work.activations.stage_activations import spared_at_most
from ...costs.work.memory import FRAGMENTATION
from ...costs.work.work import LayoutWork
from ...plans.partition import Layout
from .space import LayoutFamily, LayoutSpace, Leaf
from .stage_devices import StageDevices

Held = dict[int | Leaf, float]
"""Least memory of the layouts of a node: by ZeRO stage of those that go one way, by leaf of bidirectional ones."""


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
        """Return the memory of a layout's fullest rank; on several device types what some rank holds in any spread of layers."""
        return work.peak_memory()[1].total if self.stage_devices is None else self.stage_devices.least_bytes(work)

    def by_zero(self, node: LayoutFamily) -> list[Layout]:
        """Return the base of a node with each of its ZeRO stages, its own first."""
        zeros = sorted({leaf.zero for leaf in node.leaves})
        return [node.base, *(node.leanest(zero) for zero in zeros[1:])]

    def growth(self, first: LayoutFamily, works: Sequence[LayoutWork]) -> Callable[[LayoutFamily], Held]:
        """Return a function from a later node of a level to its least memory, which follows from the first node's layouts.

        A stage keeps some micro-batches at once, see `schedules.in_flight`, of ``b`` sequences each. Of all stages the first
        or the last one's share of these grows least with ``b``. Buffers do not shrink, and what else it holds stays.

        Args:
            first: the node, on devices of one type.
            works: of its leanest layout of each ZeRO stage.
        """
        of_zero = [(work.layout.zero, one) for work in works for one in self._leanest(first, work)]
        held = [(key, work, work.peak_memory()[1]) for key, work in (*of_zero, *self._both_ways(first))]
        parts = []
        for key, work, memory in held:
            growing = memory.activations * (1 + FRAGMENTATION)
            parts.append((key, work.layout, (memory.total - growing) * (1 - ROUNDING), growing * (1 - ROUNDING)))

        def least_bytes(node: LayoutFamily) -> Held:
            result: Held = {}
            for key, layout, lasting, growing in parts:
                least = lasting + growing * _growth(layout, node.keys["micro_batch"])
                result[key] = min(result.get(key, math.inf), least)
            return result

        return least_bytes

    def least_bytes(self, node: LayoutFamily, base: LayoutWork) -> float:
        """Return the memory of the leanest layout of one ZeRO stage whose micro-batches all go one way.

        It is the base, unless layers are of several kinds, which more chunks spread otherwise, or FSDP2 reduces by chunks.
        """
        return min(map(self.held, self._leanest(node, base)))

    def _leanest(self, node: LayoutFamily, base: LayoutWork) -> list[LayoutWork]:
        """Return works among which is the leanest of a ZeRO stage."""
        if not self.may_compute_again(base.layout):
            return self._of_chunks(node, self.leanest_groups(base) if self.may_group(base.layout) else base)
        most = max(chunk.num_layers for chunk in base.chunks) - 1
        again = [self.work(again_of(base.layout, most))] if most else []
        return [work for one in (base, *again) for work in self._of_chunks(node, one)]

    def _of_chunks(self, node: LayoutFamily, base: LayoutWork) -> list[LayoutWork]:
        of_zero = [leaf for leaf in node.one_way if leaf.zero == base.layout.zero]
        reduces_by_chunk = base.layout.is_fsdp2 and base.layout.zero == 2 and base.layout.pp > 1  # more chunks hold less
        if not of_zero or not (base.shape.other_layers or reduces_by_chunk):
            return [base]
        changed = {key: getattr(base.layout, key) for key in ("recompute", "recompute_method", "recompute_num_layers")}
        return [self.work(self.space.layout(node, leaf).model_copy(update=changed)) for leaf in of_zero]

    def exact(self, node: LayoutFamily, works: Iterable[LayoutWork]) -> Held:
        """Return a node's least memory by its leanest layout of each ZeRO stage, and of each bidirectional layout by itself."""
        result: Held = {work.layout.zero: self.least_bytes(node, work) for work in works}
        for leaf, work in self._both_ways(node):
            result[leaf] = min(result.get(leaf, math.inf), self.held(work))
        return result

    def _both_ways(self, node: LayoutFamily) -> Iterator[tuple[Leaf, LayoutWork]]:
        """Yield works among which is the leanest of each bidirectional layout."""
        for leaf in node.both_ways:
            work = self.work(self.space.layout(node, leaf))
            yield leaf, self.leanest_groups(work) if self.may_group(work.layout) else work
            most = max(chunk.num_layers for chunk in work.chunks) - 1
            if most and self.may_compute_again(work.layout):
                yield leaf, self.work(again_of(work.layout, most))

    def may_compute_again(self, layout: Layout) -> bool:
        """Return whether some layers of each chunk may be computed again in place of none."""
        is_asked = layout.recompute == "none" and self.space.request.tries_some_layers and self.stage_devices is None
        return is_asked and self.space.is_run(again_of(layout, 1))

    def may_group(self, layout: Layout) -> bool:
        """Return whether layers that are all computed again may be so in groups."""
        is_asked = layout.recompute == "full" and self.space.request.tries_some_layers and self.stage_devices is None
        return is_asked and self.space.is_run(grouped(layout, 1))

    def with_less(self, work: LayoutWork, held_bytes: float) -> LayoutWork:
        """Return the work of a layout that does not fit, recomputing as much as that takes; as it is where not asked."""
        if self.may_compute_again(work.layout):
            return self.fewest_again(work, held_bytes)
        return self.leanest_groups(work) if self.may_group(work.layout) else work

    def least_fitted(self, work: LayoutWork) -> float:
        """Return the memory of a layout that does not fit unless as few layers of each chunk as possible are recomputed.

        See `least_again`: one less does not fit.
        """
        if not self.may_compute_again(work.layout) or work.layout.is_bidirectional:
            return 0.0
        return self.capacity_bytes - (1 + FRAGMENTATION) * spared_at_most(work)[0] * (1 + ROUNDING)

    def leanest_groups(self, work: LayoutWork) -> LayoutWork:
        """Return the work with groups of the size with which its fullest rank holds least."""
        best, best_bytes = work, self.held(work)
        for size in group_sizes(work):
            layout = grouped(work.layout, size)
            made = self.work(layout) if self.space.is_run(layout) else None
            held = math.inf if made is None else self.held(made)
            if made is None or held >= best_bytes:
                break
            best, best_bytes = made, held
        return best

    def fewest_again(self, work: LayoutWork, held_bytes: float) -> LayoutWork:
        """Return the work with the fewest layers of each chunk recomputed with which it fits, with all but one if none does.

        Memory falls about in proportion to them, so that the first guess is seldom far off. Of equal chunks each stage falls
        by as much for each layer, so that the fullest one falls ever less.

        Args:
            work: which does not fit as it is.
            held_bytes: its memory.
        """
        layers = {chunk.num_layers for chunk in work.chunks}
        low, low_bytes, high = 0, held_bytes, max(layers) - 1
        least = self.least_again(work, held_bytes)
        if least < high and not work.layout.parts_gradients:  # then it is seldom too few
            guessed = self.work(again_of(work.layout, least))
            guessed_bytes = self.held(guessed)
            if guessed_bytes <= self.capacity_bytes:
                return guessed
            low, low_bytes = least, guessed_bytes
        best = self.work(again_of(work.layout, high)) if high else work
        high_bytes = self.held(best) if high else math.inf
        while high > max(low + 1, least) and high_bytes <= self.capacity_bytes:
            share = (low_bytes - self.capacity_bytes) / (low_bytes - high_bytes)
            guess = min(max(low + math.ceil(share * (high - low)), low + 1, least), high - 1)
            guessed = self.work(again_of(work.layout, guess))
            guessed_bytes = self.held(guessed)
            if guessed_bytes > self.capacity_bytes:
                low, low_bytes = guess, guessed_bytes
                continue
            each_bytes = (guessed_bytes - high_bytes) / (high - guess)
            best, high, high_bytes = guessed, guess, guessed_bytes
            if len(layers) == 1 and guessed_bytes + each_bytes * (1 - ROUNDING) > self.capacity_bytes:
                break
        return best

    def never_fits(self, work: LayoutWork, held_bytes: float) -> bool:
        """Return whether a layout does not fit, however many of its layers are computed again; False where that is not proven."""
        if not self.may_compute_again(work.layout):
            return False
        return self.least_again(work, held_bytes) > max(chunk.num_layers for chunk in work.chunks) - 1

    def least_again(self, work: LayoutWork, held_bytes: float) -> int:
        """Return the layers of each chunk that are computed again where a layout fits, at least; 1 of bidirectional layouts.

        One more of each chunk spares no more than what they keep but their inputs. One layer is computed again at a time; its
        activations count in each moment but the loss of FSDP2.

        Args:
            work: which does not fit as it is.
            held_bytes: its memory.
        """
        if work.layout.is_bidirectional:
            return 1
        most, least_whole = spared_at_most(work)
        more_bytes = held_bytes - self.capacity_bytes + (0.0 if work.layout.is_fsdp2 else (1 + FRAGMENTATION) * least_whole)
        return max(1, math.ceil(more_bytes / ((1 + FRAGMENTATION) * most) * (1 - ROUNDING)))


def _growth(layout: Layout, micro_batch: int) -> float:
    """Return by how much more activations of a layout are with another micro-batch, at least."""
    ratio = micro_batch / layout.micro_batch
    if layout.recompute == "full" and layout.parts_gradients:
        return 0.0  # two kinds of activations, whose numbers do not go together
    if layout.pp == 1 or layout.is_bidirectional:
        return ratio
    schedule, m = (layout.schedule, layout.pp, layout.virtual_stages), layout.global_batch // (micro_batch * layout.dp)
    kept = (in_flight(*schedule, m, end) / in_flight(*schedule, layout.num_micro_batches, end) for end in (0, layout.pp - 1))
    return ratio * min(1.0, *kept)


def again_of(layout: Layout, number: int) -> Layout:
    """Return the layout that recomputes a number of the first layers of each model chunk."""
    return layout.model_copy(update={"recompute": "full", "recompute_method": "block", "recompute_num_layers": number})


def grouped(layout: Layout, size: int) -> Layout:
    """Return the layout that recomputes all layers in groups of a number of layers."""
    return layout.model_copy(update={"recompute_num_layers": size})


def group_sizes(work: LayoutWork) -> Iterator[int]:
    """Return the sizes above 1 of groups that divide every chunk, rising."""
    shared = math.gcd(*(chunk.num_layers for chunk in work.chunks))
    return (size for size in range(2, shared + 1) if shared % size == 0)
