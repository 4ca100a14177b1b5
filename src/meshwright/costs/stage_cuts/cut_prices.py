"""What the cuts of a pipeline cost: the time of the step of each, without describing it.

Legend: ``u`` units that stay whole, ``p`` stages, ``v`` chunks of a stage, ``k = p v`` chunks, ``f`` cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...plans.partition import Layout
from ..pipelines.schedule_kernel import play_tasks
from ..pipelines.schedules import MAX_TASKS, orders
from ..pipelines.steady_steps import PlayedPipeline, chunk_step_s, step_s
from ..pipelines.tasks import BACKWARD, FORWARD
from ..process_groups.group_network import GroupNetwork, PlacedNetwork
from ..process_groups.lanes import PlacedGroups
from ..training_step.graph_tails import (
    Parts,
    Pieces,
    chunk_tails,
    gather_parts,
    hide_between_chunks,
    messages_of,
    messages_s,
    run_tails_s,
    stage_tail_s,
    sync_parts,
)
from ..work.graph_memory import flights
from ..work.graph_work import GraphWork
from .cut_family import least_busy
from .cut_labels import PlainPipeline, cut_by_labels
from .cut_memory import CutMemory
from .unit_chain import Chain

FEW_LABELS, MANY_LABELS, MOST_LABELS = 6, 10**9, 400_000
"""Labels of a place in the search for a limit, and after it; labels of all places."""

SLACKS = (0.0, 0.1, 0.5)
"""By how much the busiest stage of a first guess may be busier, so that less is sent."""

BETTER = 1e-12
"""Relative. Less by no more is rounding."""

BOUND_ROUNDING = 1e-9
"""Relative. A bound adds in another order than what it bounds, and must not pass it by a rounding error."""

Skips = tuple[NDArray[np.float64], NDArray[np.int64]]


class CutPricer:
    """Prices cuts of one layout.

    Args:
        layout: the pipeline.
        chain: what is cut.
        transfer_s: seconds in which a micro-batch goes past each place behind each chunk, ``(k, u + 1)``.
        wires: prices messages.
        order: how ranks are numbered.
        slowdown: factor on computing and sending that run side by side.
        skips: see `PlainPipeline.skips_s` and ``way_of``; by default outputs are relayed.
    """

    def __init__(
        self,
        layout: Layout,
        chain: Chain,
        transfer_s: NDArray[np.float64],
        wires: GroupNetwork,
        order: str,
        slowdown: float,
        skips: Skips | None = None,
    ) -> None:
        self.layout, self.chain, self.transfer_s = layout, chain, transfer_s
        self.wires, self.order, self.slowdown = wires, order, slowdown
        self.memory = CutMemory.of(layout, chain)
        self.skips = skips or (np.zeros((2, 0, 0, 0)), np.zeros(layout.pp, np.int64))

    def shortest(self, capacity_bytes: float) -> tuple[NDArray[np.int64] | None, bool]:
        """The cut of the shortest step of a plain pipeline among those that fit, and whether the search came to its end."""
        cuts, best_s, found = np.zeros(self.layout.pp + 1, np.int64), np.inf, None
        for one in self._guesses():
            if self.memory.peaks_bytes(one[None])[0] <= capacity_bytes and (seconds := self.step_s(one)) < best_s:
                best_s, found = seconds, one
        limit_s = best_s * (1 - BETTER)
        pipe = self.plain(capacity_bytes, limit_s)
        for most in (FEW_LABELS, MANY_LABELS):
            seconds, is_done = cut_by_labels(pipe, limit_s, most, MOST_LABELS, cuts)
            if seconds < limit_s:
                limit_s, found = seconds * (1 - BETTER), cuts.copy()
        return found, bool(is_done)

    def plain(self, capacity_bytes: float, limit_s: float) -> PlainPipeline:
        """The pipeline as `cut_labels` cuts it for a step below a limit."""
        layout, chain = self.layout, self.chain
        passes = chain.backward_ops, chain.forward_ops
        prices = chain.family.prices
        busy_s, most_s = chain.forward_s + chain.backward_s, limit_s / layout.num_micro_batches
        tails_s = run_tails_s(layout, self.wires, self.order, self.slowdown, chain.starts, passes, prices, busy_s, most_s)
        return PlainPipeline(
            layout.schedule == "gpipe",
            layout.num_micro_batches,
            chain.forward_s,
            chain.backward_s,
            self.transfer_s,
            *self.skips,
            layout.overlap_pp,
            tails_s,
            bool(tails_s.any()),
            *self.memory.held,
            np.array([flights(layout, stage) for stage in range(layout.pp)]),
            layout.recompute == "full",
            capacity_bytes,
        )

    def best(self, capacity_bytes: float) -> NDArray[np.int64] | None:
        """The first of the compared cuts whose step is shortest among those that fit."""
        cuts = self.memory.compared[self.memory.compared_bytes <= capacity_bytes]
        spans_s, ends_s = self._first_spans_s(cuts), self._least_ends_s(cuts)
        best_s, best = np.inf, None
        for place in np.argsort(spans_s, kind="stable").tolist():
            if spans_s[place] >= best_s:
                break
            if ends_s[place] * (1 - BOUND_ROUNDING) >= best_s:
                continue
            seconds = float(spans_s[place]) if self.layout.copies == 1 else self.step_s(cuts[place])
            if seconds < best_s:
                best_s, best = seconds, cuts[place]
        return best

    def _least_ends_s(self, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
        """At most the step of each cut: what a stage waits for parameters, does and then has to send, by itself, ``(f,)``.

        A chunk's first forward pass ends no sooner than the parameters of the chunks up to it have come, and their gradients are
        sent no sooner than its last backward pass begins; either is a part of the stage's messages by its bytes.
        """
        layout, chain, found = self.layout, self.chain, np.zeros(len(cuts))
        num_chunks = layout.virtual_stages
        if not len(cuts) or layout.copies == 1 or layout.num_micro_batches * layout.pp * num_chunks * 2 > MAX_TASKS:
            return found
        shape = len(cuts), num_chunks, layout.pp
        pass_s = [np.diff(each[cuts], axis=1).reshape(shape) for each in (chain.forward_s, chain.backward_s)]
        gather_s, sync_s = (
            self._part_s(cuts, parts, sizes)
            for parts, (_, sizes) in ((gather_parts, chain.forward_ops), (sync_parts, chain.backward_ops))
        )
        tasks = orders(layout.schedule, layout.pp, num_chunks, layout.num_micro_batches)
        hides = hide_between_chunks(layout) and self.slowdown <= 2  # else the last pass alone says what is left
        for stage in range(layout.pp):
            own_s = [seconds[:, :, stage] for seconds in pass_s]
            waited_s = np.zeros(len(cuts)) if layout.overlap_dp else gather_s[:, -1, stage]
            for chunk in range(num_chunks if layout.overlap_dp else 0):
                waited_s = np.maximum(waited_s, gather_s[:, chunk, stage] - _done_s(tasks[stage], own_s, FORWARD, chunk, 0))
            for chunk in range(num_chunks if hides else 1):
                shown_s = sync_s[:, -1, stage]
                if layout.overlap_dp:
                    shown_s = np.maximum(0.0, sync_s[:, chunk, stage] - own_s[1][:, chunk])
                found = np.maximum(found, waited_s + _done_s(tasks[stage], own_s, BACKWARD, chunk, -1) + shown_s)
        return found

    def _part_s(self, cuts: NDArray[np.int64], parts: Parts, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds of the longest message of each stage, as far as it is of the chunks up to each one, ``(f, v, p)``."""
        held = np.append(0.0, np.cumsum(sizes))[self.chain.starts]
        shape = len(cuts), self.layout.virtual_stages, self.layout.pp
        of_chunks = np.cumsum(np.diff(held[cuts], axis=1).reshape(shape), axis=1)
        known, place = np.unique(of_chunks[:, -1:], return_inverse=True)
        pricing = self.layout, self.wires, self.order
        whole_s = [max(messages_s(messages_of(parts, self.layout, size), *pricing), default=0.0) for size in known.tolist()]
        shares = of_chunks / np.maximum(of_chunks[:, -1:], 1.0)
        found: NDArray[np.float64] = shares * np.array(whole_s)[place.reshape(len(cuts), 1, self.layout.pp)]
        return found

    def best_placed(
        self,
        capacity_bytes: float,
        wires: PlacedNetwork,
        work: GraphWork,
        lanes_s: Sequence[NDArray[np.float64]],
        step_s: Callable[[GraphWork], float],
    ) -> NDArray[np.int64] | None:
        """The best of the compared cuts where hosts are not alike: each is priced on its own devices.

        No stage takes less than its passes and what follows them by themselves, so that most cuts are passed by.

        Args:
            capacity_bytes: memory of a device.
            wires: prices messages.
            work: the job under some cut of the layout.
            lanes_s: as ``transfer_s``, of each lane.
            step_s: prices the job under a cut.
        """
        cuts = self.memory.compared[self.memory.compared_bytes <= capacity_bytes]
        alone_s = np.zeros((len(cuts), self.layout.pp))
        for transfer_s in lanes_s:
            lane = CutPricer(self.layout, self.chain, transfer_s, wires, self.order, self.slowdown)
            alone_s = np.maximum(alone_s, lane.alone_s(cuts))
        bounds_s = (alone_s + self._least_tails_s(cuts, wires)).max(axis=1, initial=0.0)
        best_s, best = np.inf, None
        for place in np.argsort(bounds_s, kind="stable").tolist():
            if bounds_s[place] * (1 - BOUND_ROUNDING) >= best_s:
                break
            starts = self.chain.starts[cuts[place]]
            chunks = tuple(work.graph.order[first:last] for first, last in pairwise(starts))
            sent, given = self._sizes(cuts[place])
            seconds = step_s(replace(work, chunks=chunks, boundary_bytes=sent, given_bytes=given))
            if seconds < best_s:
                best_s, best = seconds, cuts[place]
        return best

    def alone_s(self, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds that each stage of each cut is busy, of the first from its first to its last pass, ``(f, p)``."""
        layout, p, v = self.layout, self.layout.pp, self.layout.virtual_stages
        found: NDArray[np.float64] = self._own_s(cuts).reshape(len(cuts), v, p).sum(axis=1) * layout.num_micro_batches
        if layout.num_micro_batches * p * v * 2 <= MAX_TASKS and len(cuts) and not self.chain.is_direct:
            passes = self.chain.forward_s, self.chain.backward_s, self.transfer_s
            tasks, none_s = orders(layout.schedule, p, v, layout.num_micro_batches), np.zeros(len(cuts))
            spans_s = _spans_s(tasks, v, layout.num_micro_batches, cuts, *passes, layout.overlap_pp, False, none_s)
            found[:, 0] = np.maximum(found[:, 0], spans_s)
        return found

    def _least_tails_s(self, cuts: NDArray[np.int64], wires: PlacedNetwork) -> NDArray[np.float64]:
        """At most what follows the passes of each stage, ``(f, p)``; nothing where chunks hide it between each other."""
        layout, chain = self.layout, self.chain
        found = np.zeros((len(cuts), layout.pp))
        if hide_between_chunks(layout):
            return found
        placed, kinds = wires.layout(layout, self.order), (sync_parts, gather_parts)
        for parts, (seconds, sizes) in zip(kinds, (chain.backward_ops, chain.forward_ops), strict=True):
            before, passed = (np.append(0.0, np.cumsum(each))[chain.starts] for each in (sizes, seconds))
            chunks = len(cuts), layout.virtual_stages, layout.pp
            held, own_s = (np.diff(each[cuts], axis=1).reshape(chunks).sum(axis=1) for each in (before, passed))
            if parts is sync_parts and not layout.overlap_pp:
                own_s = own_s + self.transfer_s[0].max()  # which the last transfer may hide too
            for stage in range(layout.pp):
                known, place = np.unique(held[:, stage], return_inverse=True)
                whole_s = np.zeros(len(known))
                for number, size in enumerate(known.tolist()):
                    for message in messages_of(parts, layout, size):
                        groups = [PlacedGroups(len(one.devices[0]), (one,)) for one in placed.groups(message.axis)[stage]]
                        whole_s[number] += min(wires.group_s(message.operation, message.payload_bytes, one) for one in groups)
                shown_s = whole_s[place] - own_s[:, stage] if layout.overlap_dp else whole_s[place]
                found[:, stage] += np.maximum(0.0, shown_s)
        return found

    def _first_spans_s(self, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Time of each cut's first stage, at most that of its step; infinite where another one takes less, ``(f,)``."""
        layout, chain = self.layout, self.chain
        p, v, m = layout.pp, layout.virtual_stages, layout.num_micro_batches
        if p * v * m * 2 > MAX_TASKS or self.chain.is_direct:
            return np.array([float(self._played(one).played.span_s[0]) for one in cuts])
        bounds_s = self._bounds_s(cuts)
        passes = chain.forward_s, chain.backward_s, self.transfer_s
        spans_s: NDArray[np.float64] = _spans_s(
            orders(layout.schedule, p, v, m), v, m, cuts, *passes, layout.overlap_pp, layout.copies == 1, bounds_s
        )
        return spans_s

    def step_s(self, cuts: NDArray[np.int64]) -> float:
        """Seconds of a step, as `GraphPricer.step_s` says."""
        layout, pricing = self.layout, (self.layout, self.wires, self.order, self.slowdown)
        if layout.copies == 1:  # nothing follows the passes
            return step_s(self._played(cuts), dict.fromkeys(range(layout.pp), 0.0))[0]
        stages = [self._pieces(cuts, stage) for stage in range(layout.pp)]
        if hide_between_chunks(layout):
            return chunk_step_s(self._played(cuts), chunk_tails(*pricing, stages))[0]
        tails_s = {stage: sum(stage_tail_s(*pricing, *pieces)) for stage, pieces in enumerate(stages)}
        return step_s(self._played(cuts), tails_s)[0]

    def _played(self, cuts: NDArray[np.int64]) -> PlayedPipeline:
        layout = self.layout
        own = np.stack([np.diff(self.chain.forward_s[cuts]), np.diff(self.chain.backward_s[cuts])], axis=1)
        task_s = np.zeros((layout.pp, layout.virtual_stages, 3))
        if self.chain.is_direct:  # a stage is kept by all that it sends
            own += np.stack(self._direct_s(cuts), axis=1)
            task_s[:, 0, :2] = own
            return PlayedPipeline.of(layout, task_s, np.zeros(len(own)))
        task_s[:, :, :2] = own.reshape(layout.virtual_stages, layout.pp, 2).swapaxes(0, 1)
        return PlayedPipeline.of(layout, task_s, self.transfer_s[np.arange(len(own)), cuts[1:]])

    def _bounds_s(self, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
        """At most the step of each cut: to a stage, all that it does, and back, ``(f,)``."""
        layout, p, v, own = self.layout, self.layout.pp, self.layout.virtual_stages, self._own_s(cuts)
        busy = own.reshape(len(cuts), v, p).sum(axis=1)
        before = np.cumsum(own[:, :p], axis=1) - own[:, :p]
        bounds: NDArray[np.float64] = (before + layout.num_micro_batches * busy).max(axis=1, initial=0.0)
        return bounds

    def _own_s(self, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds of a micro-batch on each chunk of each cut, with its transfers, ``(f, k)``."""
        own: NDArray[np.float64] = np.diff(self.chain.forward_s[cuts] + self.chain.backward_s[cuts], axis=1)
        if self.chain.is_direct and not self.skips[0].size:  # of a lane by itself: what is sent is left out of its bound
            return own
        if self.chain.is_direct:
            kept: NDArray[np.float64] = own + np.array([sum(self._direct_s(one)) for one in cuts]).reshape(own.shape)
            return kept
        if not self.layout.overlap_pp:
            ways = self.transfer_s[np.arange(own.shape[1]), cuts[:, 1:]]
            own = own + ways + np.pad(ways, ((0, 0), (1, 0)))[:, :-1]
        return own

    def _direct_s(self, cuts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds for which each stage of a cut is kept by what it sends directly, forward and backward, ``(p,)`` each."""
        (forward, backward), way_of = self.skips
        sent: NDArray[np.float64] = forward[way_of, cuts[:-1], cuts[1:]]
        returned: NDArray[np.float64] = backward[np.append(0, way_of[:-1]), cuts[:-1], cuts[1:]]
        return sent, returned

    def _sizes(self, cuts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Bytes that each chunk of a cut brings on and, sent directly, gets, ``(k,)`` each."""
        if not self.chain.is_direct:
            return self.chain.crossing_bytes[cuts[1:]], None
        sent, given = self.chain.skips
        return sent[cuts[:-1], cuts[1:]], given[cuts[:-1], cuts[1:]]

    def _guesses(self) -> list[NDArray[np.int64]]:
        """Some cuts that may be good, so that there is a limit."""
        p, chain = self.layout.pp, self.chain
        found = [self.memory.leanest]
        found += [chain.evenest(p, slack) for slack in SLACKS]
        for slack in SLACKS:
            cuts = np.zeros(p + 1, np.int64)
            least_busy(chain.busy_s, self.transfer_s[0], p, slack, cuts)
            found.append(cuts)
        return list({cuts.tobytes(): cuts for cuts in found}.values())

    def _pieces(self, cuts: NDArray[np.int64], stage: int) -> tuple[Pieces, Pieces]:
        """Seconds and bytes of the ops of each chunk of a stage, backward and forward."""
        starts = self.chain.starts[cuts]
        ranges = [slice(starts[chunk], starts[chunk + 1]) for chunk in range(stage, len(cuts) - 1, self.layout.pp)]
        backward, forward = (
            [(seconds[ops], sizes[ops]) for ops in ranges] for seconds, sizes in (self.chain.backward_ops, self.chain.forward_ops)
        )
        return backward, forward


def _done_s(
    tasks: NDArray[np.int32], own_s: Sequence[NDArray[np.float64]], kind: int, chunk: int, which: int
) -> NDArray[np.float64]:
    """Seconds of the passes of a stage, of each cut, up to the first or the last one of a kind of a chunk, ``(f,)``."""
    kinds, chunks = tasks[:, 0], tasks[:, 1]
    end = np.flatnonzero((kinds == kind) & (chunks == chunk))[which] + 1
    found = np.zeros(len(own_s[0]))
    for one, seconds in zip((FORWARD, BACKWARD), own_s, strict=True):
        found += seconds @ np.bincount(chunks[:end][kinds[:end] == one], minlength=seconds.shape[1])
    return found


@njit()
def _spans_s(tasks, v, m, cuts, forward_s, backward_s, transfer_s, hides, are_steps, bounds_s):  # type: ignore[no-untyped-def]
    """Play every cut, the most promising first; where nothing follows the passes, those that take longer are left out."""
    p = len(tasks)
    spans, least = np.full(len(cuts), np.inf), np.inf
    task_s, send_s, starts_s = np.zeros((p, v, 3)), np.zeros(p * v), np.zeros(p)
    for one in np.argsort(bounds_s):
        if are_steps and bounds_s[one] * (1.0 - 1e-9) >= least:
            break
        for chunk in range(p * v):
            first, last = cuts[one, chunk], cuts[one, chunk + 1]
            task_s[chunk % p, chunk // p, 0] = forward_s[last] - forward_s[first]
            task_s[chunk % p, chunk // p, 1] = backward_s[last] - backward_s[first]
            send_s[chunk] = transfer_s[chunk, last]
        spans[one] = play_tasks(tasks, v, m, task_s, send_s, hides, starts_s)[0][0]
        least = min(least, spans[one])
    return spans
