"""Prices of the cuts of a pipeline: the time of the step of each, without describing it.

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
from ..pipelines.schedule_kernel import play_chunks
from ..pipelines.schedules import MAX_TASKS, round_size, turns_of
from ..pipelines.steady_steps import PlayedPipeline, chunk_step_s, step_s
from ..process_groups.group_network import GroupNetwork, PlacedNetwork, slowest_group
from ..process_groups.lanes import PlacedGroups
from ..training_step.trailing_collectives import Pieces, chunk_tails, hide_between_chunks, run_tails_s, stage_tail_s
from ..work.graph_work import GraphWork
from ..work.stage_work import gather_parts, messages_of, sync_parts
from .cut_family import evenest
from .cut_labels import CutPipeline, cut_by_labels
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
        skips: see `CutPipeline.skips_s` and ``way_of``; None where outputs are relayed.
        capacity_bytes: memory of a device.
    """

    def __init__(
        self,
        layout: Layout,
        chain: Chain,
        transfer_s: NDArray[np.float64],
        wires: GroupNetwork,
        order: str,
        slowdown: float,
        skips: Skips | None,
        capacity_bytes: float,
    ) -> None:
        self.layout, self.chain, self.transfer_s = layout, chain, transfer_s
        self.wires, self.order, self.slowdown = wires, order, slowdown
        self.memory = CutMemory.from_chain(layout, chain)
        is_gpipe, m, hides = layout.schedule == "gpipe", layout.num_micro_batches, layout.overlap_pp
        passes_s, (skips_s, way_of) = (
            (chain.forward_s, chain.backward_s),
            skips or (np.zeros((2, 0, 0, 0)), np.zeros(layout.pp, np.int64)),
        )
        self.pipe = CutPipeline(is_gpipe, m, *passes_s, transfer_s, skips_s, way_of, hides, self.memory.held, capacity_bytes)

    def shortest(self) -> tuple[NDArray[np.int64] | None, bool]:
        """The cut of the shortest step of a plain pipeline among those that fit, and whether the search came to its end."""
        layout, chain, pipe = self.layout, self.chain, self.pipe
        best_s, result = np.inf, None
        guesses = [self.memory.leanest, *chain.evenest(layout.pp, SLACKS)]
        guesses += evenest(chain.busy_s, self.transfer_s[0], layout.pp, SLACKS)
        for one in {guess.tobytes(): guess for guess in guesses}.values():
            if self.memory.peaks_bytes(one[None])[0] <= pipe.capacity_bytes and (seconds := self.step_s(one)) < best_s:
                best_s, result = seconds, one
        limit_s, cuts = best_s * (1 - BETTER), np.zeros(layout.pp + 1, np.int64)
        pricing, passes = (layout, self.wires, self.order, self.slowdown), (chain.backward_ops, chain.forward_ops)
        most_s = limit_s / layout.num_micro_batches
        tails_s = run_tails_s(*pricing, chain.starts, passes, chain.family.prices, chain.busy_s, most_s)
        for most in (FEW_LABELS, MANY_LABELS):
            seconds, is_done = cut_by_labels(pipe, tails_s, limit_s, most, MOST_LABELS, cuts)
            if seconds < limit_s:
                limit_s, result = seconds * (1 - BETTER), cuts.copy()
        return result, bool(is_done)

    def best(self, below_s: float = np.inf) -> NDArray[np.int64] | None:
        """The compared cut of the shortest step among those that fit and take less than ``below_s``, see `_best_of`."""
        cuts = self.memory.compared[self.memory.compared_bytes <= self.pipe.capacity_bytes]
        spans_s = self._first_spans_s(cuts)
        if self.layout.copies == 1:
            return self._best_of(cuts, spans_s, lambda place: float(spans_s[place]), below_s)
        spans_s = np.maximum(spans_s, self._synced_s(cuts))
        return self._best_of(cuts, spans_s, lambda place: self.step_s(cuts[place]), below_s)

    def best_placed(
        self, wires: PlacedNetwork, work: GraphWork, lanes_s: Sequence[NDArray[np.float64]], step_s: Callable[[GraphWork], float]
    ) -> NDArray[np.int64] | None:
        """Return the best of the compared cuts where hosts differ: each is priced on its own devices.

        Args:
            wires: prices messages.
            work: the job under some cut of the layout.
            lanes_s: as ``transfer_s``, of each lane.
            step_s: prices the job under a cut.
        """
        cuts = self.memory.compared[self.memory.compared_bytes <= self.pipe.capacity_bytes]
        alone_s = np.max([self._alone_s(cuts, transfer_s) for transfer_s in lanes_s], axis=0)
        bounds_s = (alone_s + self._least_tails_s(cuts, wires)).max(axis=1, initial=0.0)

        def seconds(place: int) -> float:
            starts, (sent, received) = self.chain.starts[cuts[place]], self._sizes(cuts[place])
            chunks = tuple(work.graph.order[first:last] for first, last in pairwise(starts))
            return step_s(replace(work, chunks=chunks, boundary_bytes=sent, given_bytes=received))

        return self._best_of(cuts, bounds_s * (1 - BOUND_ROUNDING), seconds)

    def _best_of(
        self, cuts: NDArray[np.int64], bounds_s: NDArray[np.float64], seconds: Callable[[int], float], below_s: float = np.inf
    ) -> NDArray[np.int64] | None:
        """Return the cut of the shortest step, of equal ones the leanest and then the first; what cannot be better is skipped.

        Args:
            cuts: that fit, ``(f, k + 1)``.
            bounds_s: their steps take no less, ``(f,)``.
            seconds: the step of a cut by its place.
            below_s: it takes less.
        """
        best: tuple[float, float, int] = (below_s, -np.inf, -1)
        for place in np.argsort(bounds_s, kind="stable").tolist():
            if bounds_s[place] > best[0]:
                break
            if (found_s := seconds(place)) <= best[0]:
                best = min(best, (found_s, float(self.memory.peaks_bytes(cuts[place][None])[0]), place))
        return None if best[-1] < 0 else cuts[best[-1]]

    def _alone_s(self, cuts: NDArray[np.int64], transfer_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds that each stage of each cut is busy on a lane, of the first from its first to its last pass, ``(f, p)``."""
        layout, p, v, m = self.layout, self.layout.pp, self.layout.virtual_stages, self.layout.num_micro_batches
        own_s = np.diff(self.chain.busy_s[cuts], axis=1) if self.chain.is_direct else self._own_s(cuts, transfer_s)
        result: NDArray[np.float64] = own_s.reshape(len(cuts), v, p).sum(axis=1) * m
        if m * p * v * 2 <= MAX_TASKS and not self.chain.is_direct:
            pipe = self.pipe._replace(transfer_s=transfer_s)
            spans_s = _spans_s(pipe, turns_of(layout.schedule, p, v, m), cuts, False, np.zeros(len(cuts)))
            result[:, 0] = np.maximum(result[:, 0], spans_s)
        return result

    def _least_tails_s(self, cuts: NDArray[np.int64], wires: PlacedNetwork) -> NDArray[np.float64]:
        """At most what follows the passes of each stage, ``(f, p)``; nothing where chunks hide it between each other."""
        layout, chain, result = self.layout, self.chain, np.zeros((len(cuts), self.layout.pp))
        if hide_between_chunks(layout):
            return result
        placed, passes = wires.layout(layout, self.order), (chain.backward_ops, chain.forward_ops)
        shape = len(cuts), layout.virtual_stages, layout.pp
        for parts, each in zip((sync_parts, gather_parts), passes, strict=True):
            own_s, held = (
                np.diff(np.append(0.0, np.cumsum(one))[chain.starts][cuts], axis=1).reshape(shape).sum(axis=1) for one in each
            )
            if parts is sync_parts and not layout.overlap_pp:
                own_s = own_s + self.transfer_s[0].max()  # which the last transfer may hide too
            for stage in range(layout.pp):
                known, place = np.unique(held[:, stage], return_inverse=True)
                whole_s = np.zeros(len(known))
                for number, size in enumerate(known.tolist()):
                    for message in messages_of(parts, layout, size):
                        groups = [PlacedGroups(len(one.devices[0]), (one,)) for one in placed.groups(message.axis)[stage]]
                        whole_s[number] += min(wires.group_s(message.operation, message.payload_bytes, group) for group in groups)
                shown_s = whole_s[place] - own_s[:, stage] if layout.overlap_dp else whole_s[place]
                result[:, stage] += np.maximum(0.0, shown_s)
        return result

    def _synced_s(self, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Least time of each cut's step by the gradients of a stage, ``(f,)``.

        The longest message of a stage begins when the backward passes of its last chunk begin to end. Those of a round are left
        then, and transfers that passes hold, which it may hide behind.
        """
        layout, p, v, m = self.layout, self.layout.pp, self.layout.virtual_stages, self.layout.num_micro_batches
        if self.slowdown > 2:
            return np.zeros(len(cuts))
        shape = len(cuts), v, p
        hiding_s, held = (
            np.diff(np.append(0.0, np.cumsum(one))[self.chain.starts][cuts], axis=1).reshape(shape).sum(axis=1)
            for one in self.chain.backward_ops
        )
        known, place = np.unique(held, return_inverse=True)
        longest_s = np.zeros(len(known))
        for number, size in enumerate(known.tolist()):
            for item in messages_of(sync_parts, layout, size):
                group = slowest_group(self.wires, layout, item.axis, self.order)
                longest_s[number] = max(longest_s[number], self.wires.group_s(item.operation, item.payload_bytes, group))
        own_s, alone_s = (
            one.reshape(shape).sum(axis=1)
            for one in (self._own_s(cuts, self.transfer_s), np.diff(self.chain.busy_s[cuts], axis=1))
        )
        left_s = (round_size(p, m) if v > 1 else 1) * (hiding_s + own_s - alone_s) if layout.overlap_dp else 0.0
        left_s = np.maximum(0.0, longest_s[place].reshape(len(cuts), p) - left_s)
        least_s: NDArray[np.float64] = (m * own_s + left_s).max(axis=1, initial=0.0) * (1 - BOUND_ROUNDING)
        return least_s

    def _first_spans_s(self, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Time of each cut's first stage, at most that of its step; infinite where another one takes less, ``(f,)``."""
        layout, p, v, m = self.layout, self.layout.pp, self.layout.virtual_stages, self.layout.num_micro_batches
        if p * v * m * 2 > MAX_TASKS or self.chain.is_direct:
            return np.array([float(self._played(cut).played.span_s[0]) for cut in cuts])
        # to a stage, all that it does, and back
        own = self._own_s(cuts, self.transfer_s)
        way = np.cumsum(own[:, :p], axis=1) - own[:, :p]
        bounds_s = (way + m * own.reshape(len(cuts), v, p).sum(axis=1)).max(axis=1, initial=0.0)
        spans_s: NDArray[np.float64] = _spans_s(self.pipe, turns_of(layout.schedule, p, v, m), cuts, layout.copies == 1, bounds_s)
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
            way_of, (forward, backward) = self.pipe.way_of, self.pipe.skips_s
            own[:, 0] += forward[way_of, cuts[:-1], cuts[1:]]
            own[:, 1] += backward[np.append(0, way_of[:-1]), cuts[:-1], cuts[1:]]
            task_s[:, 0, :2] = own
            return PlayedPipeline.play(layout, task_s, np.zeros(len(own)))
        task_s[:, :, :2] = own.reshape(layout.virtual_stages, layout.pp, 2).swapaxes(0, 1)
        return PlayedPipeline.play(layout, task_s, self.transfer_s[np.arange(len(own)), cuts[1:]])

    def _own_s(self, cuts: NDArray[np.int64], transfer_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds of a micro-batch on each chunk of each cut, with its transfers, ``(f, k)``."""
        own: NDArray[np.float64] = np.diff(self.chain.busy_s[cuts], axis=1)
        if not self.layout.overlap_pp:
            ways = transfer_s[np.arange(own.shape[1]), cuts[:, 1:]]
            own = own + ways + np.pad(ways, ((0, 0), (1, 0)))[:, :-1]
        return own

    def _sizes(self, cuts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Bytes that each chunk of a cut brings on and, sent directly, gets, ``(k,)`` each."""
        if not self.chain.is_direct:
            return self.chain.crossing_bytes[cuts[1:]], None
        sent, received = self.chain.skips
        return sent[cuts[:-1], cuts[1:]], received[cuts[:-1], cuts[1:]]

    def _pieces(self, cuts: NDArray[np.int64], stage: int) -> tuple[Pieces, Pieces]:
        """Seconds and bytes of the ops of each chunk of a stage, backward and forward."""
        starts = self.chain.starts[cuts]
        ranges = [slice(starts[chunk], starts[chunk + 1]) for chunk in range(stage, len(cuts) - 1, self.layout.pp)]
        backward, forward = (
            [(seconds[ops], sizes[ops]) for ops in ranges] for seconds, sizes in (self.chain.backward_ops, self.chain.forward_ops)
        )
        return backward, forward


@njit()
def span_s(pipe, turns, num_played, cuts):  # type: ignore[no-untyped-def]
    """Seconds of the pipeline: its first micro-batches as played, and the busiest stage for each one after them."""
    pp, v = len(pipe.way_of), (len(cuts) - 1) // len(pipe.way_of)
    task_s, send_s, busy_s = np.zeros((pp, v, 3)), np.zeros(pp * v), np.zeros(pp)
    for chunk in range(pp * v):
        first, last = cuts[chunk], cuts[chunk + 1]
        forward, backward = pipe.forward_s[last] - pipe.forward_s[first], pipe.backward_s[last] - pipe.backward_s[first]
        task_s[chunk % pp, chunk // pp, 0], task_s[chunk % pp, chunk // pp, 1] = forward, backward
        send_s[chunk] = pipe.transfer_s[chunk, last]
        busy_s[chunk % pp] += forward + backward
        if not pipe.hides:
            busy_s[chunk % pp] += send_s[chunk] + (send_s[chunk - 1] if chunk > 0 else 0.0)
    waits_s, lasts_s = np.zeros((pp, v)), np.zeros((pp, v))
    played = play_chunks(turns, v, num_played, task_s, send_s, pipe.hides, np.zeros(pp), waits_s, lasts_s, False, False)
    played_s = played[0][0]
    return played_s + (pipe.num_micro_batches - num_played) * busy_s.max()


@njit()
def _spans_s(pipe, turns, cuts, are_steps, bounds_s):  # type: ignore[no-untyped-def]
    """Play every cut, the most promising first; where nothing follows the passes, those that take longer are left out."""
    spans, least = np.full(len(cuts), np.inf), np.inf
    for one in np.argsort(bounds_s):
        if are_steps and bounds_s[one] * (1.0 - 1e-9) >= least:
            break
        spans[one] = span_s(pipe, turns, pipe.num_micro_batches, cuts[one])
        least = min(least, spans[one])
    return spans
