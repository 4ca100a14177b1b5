"""Prices of the cuts of a pipeline: the time of the step of each, without describing it.

Legend: ``u`` units that stay whole, ``p`` stages, ``v`` chunks of a stage, ``k = p v`` chunks, ``f`` cuts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...plans.partition import Layout
from ..pipelines.schedule_kernel import play_chunks
from ..pipelines.schedules import MAX_TASKS, round_size, turns_of
from ..pipelines.steady_steps import PlayedPipeline, chunk_step_s, step_s
from ..process_groups.group_network import GroupNetwork, lanes_of, payloads_s, slowest_group, whole_lane
from ..process_groups.lanes import Lane, PlacedGroups, ProcessGroup
from ..training_step.graph_step_time import is_uneven
from ..training_step.trailing_collectives import Pieces, chunk_tails, hide_between_chunks, run_tails_s, stage_tail_s
from ..work.graph_work import GraphWork
from ..work.stage_work import gather_parts, sync_parts
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


class CutPricer:
    """Prices cuts of one layout.

    Args:
        layout: the pipeline.
        chain: what is cut.
        wires: prices messages.
        order: how ranks are numbered.
        slowdown: factor on computing and sending that run side by side.
        capacity_bytes: memory of a device.
    """

    def __init__(
        self, layout: Layout, chain: Chain, wires: GroupNetwork, order: str, slowdown: float, capacity_bytes: float
    ) -> None:
        self.layout, self.chain, self.wires, self.order, self.slowdown = layout, chain, wires, order, slowdown
        self.memory = CutMemory.from_chain(layout, chain)
        lane = whole_lane(wires, layout, order)
        self.pipe = CutPipeline(
            layout.schedule == "gpipe",
            layout.num_micro_batches,
            chain.forward_s,
            chain.backward_s,
            self._transfers_s(lane),
            *self._skips_s(lane),
            layout.overlap_pp,
            self.memory.held,
            capacity_bytes,
        )

    def shortest(self) -> tuple[NDArray[np.int64] | None, bool]:
        """Return the cut of the shortest step of a plain pipeline among those that fit, and whether the search was complete."""
        layout, chain, pipe = self.layout, self.chain, self.pipe
        best_s, result = np.inf, None
        guesses = [self.memory.leanest, *chain.evenest(layout.pp, SLACKS)]
        guesses += evenest(chain.busy_s, pipe.transfer_s[0], layout.pp, SLACKS)
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

    def best(self, seconds: Callable[[NDArray[np.int64]], float], below_s: float = np.inf) -> NDArray[np.int64] | None:
        """Return the compared cut of the shortest step among those that fit; of equal ones the leanest and then the first.

        Args:
            seconds: the step of a cut; what cannot be better is not asked.
            below_s: it takes less.
        """
        cuts = self.memory.compared[self.memory.compared_bytes <= self.pipe.capacity_bytes]
        bounds_s = self._bounds_s(cuts) * (1 - BOUND_ROUNDING)
        best: tuple[float, float, int] = (below_s, -np.inf, -1)
        for place in np.argsort(bounds_s, kind="stable").tolist():
            if bounds_s[place] > best[0]:
                break
            if (found_s := seconds(cuts[place])) <= best[0]:
                best = min(best, (found_s, float(self.memory.peaks_bytes(cuts[place][None])[0]), place))
        return None if best[-1] < 0 else cuts[best[-1]]

    def _bounds_s(self, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return at most the time of each cut's step but for rounding, ``(f,)``.

        A stage is busy with all its passes, the first one from its first to its last pass, and messages follow. Without replicas
        none do: the result is then the step's, and infinite for cuts that take longer than another one.
        """
        layout, p, v, m = self.layout, self.layout.pp, self.layout.virtual_stages, self.layout.num_micro_batches
        is_played = m * p * v * 2 <= MAX_TASKS and not self.chain.is_direct
        lanes_s = [self.pipe.transfer_s]
        if is_uneven(self.wires, layout):
            lanes = {id(lane): lane for lane in lanes_of(self.wires, layout, self.order)}
            lanes_s = [self._transfers_s(lane) for lane in lanes.values()]
        tails_s, result = self._least_tails_s(cuts), np.zeros(len(cuts))
        for transfer_s in lanes_s:
            own_s = self._own_s(cuts, transfer_s)
            alone_s = m * self._of_stages(own_s)
            # to a stage, all that it does, and back
            first_s = (np.cumsum(own_s[:, :p], axis=1) - own_s[:, :p] + alone_s).max(axis=1, initial=0.0)
            if is_played:
                pipe, turns = self.pipe._replace(transfer_s=transfer_s), turns_of(layout.schedule, p, v, m)
                first_s = _spans_s(pipe, turns, cuts, layout.copies == 1, first_s)
            if not hide_between_chunks(layout):  # there bubbles may hide messages too
                alone_s[:, 0] = first_s
            result = np.max([result, first_s, (alone_s + tails_s).max(axis=1)], axis=0)
        return result

    def _least_tails_s(self, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return at most what messages add to the passes of each stage, ``(f, p)``.

        Where chunks hide messages between each other, the longest one of gradients begins when the backward passes of the last
        chunk begin to end. Those of a round are left then, and transfers that passes hold, which it may hide behind.
        """
        layout, hides, result = self.layout, hide_between_chunks(self.layout), np.zeros((len(cuts), self.layout.pp))
        if hides and (self.slowdown > 2 or is_uneven(self.wires, layout)):
            return result
        for parts, ops in ((sync_parts, self.chain.backward_ops), (gather_parts, self.chain.forward_ops))[: 1 if hides else 2]:
            before = (np.append(0.0, np.cumsum(one))[self.chain.starts] for one in ops)
            hiding_s, held = (self._of_stages(np.diff(one[cuts], axis=1)) for one in before)
            if hides:
                waits_s = self._own_s(cuts, self.pipe.transfer_s) - np.diff(self.chain.busy_s[cuts], axis=1)
                hiding_s = round_size(layout.pp, layout.num_micro_batches) * (hiding_s + self._of_stages(waits_s))
            elif parts is sync_parts and not layout.overlap_pp:
                hiding_s += self.pipe.transfer_s[0].max()  # which the last transfer may hide too
            for stage in range(layout.pp):
                known, place = np.unique(held[:, stage], return_inverse=True)
                is_sent, messages_s = known > 0, np.zeros((len(parts(layout)), len(known)))
                for message_s, part in zip(messages_s, parts(layout), strict=True):
                    sizes, groups = known[is_sent] / part.divisor, self._groups(part.axis, stage)
                    message_s[is_sent] = np.min([payloads_s(self.wires, part.operation, sizes, one) for one in groups], axis=0)
                whole_s = (messages_s.max(axis=0, initial=0.0) if hides else messages_s.sum(axis=0))[place]
                result[:, stage] += np.maximum(0.0, whole_s - hiding_s[:, stage]) if layout.overlap_dp else whole_s
        return result

    def _groups(self, axis: str, stage: int) -> list[ProcessGroup]:
        """Return the groups of a stage along an axis; where hosts are equal the slowest one."""
        if not is_uneven(self.wires, self.layout):
            return [slowest_group(self.wires, self.layout, axis, self.order)]
        groups = self.wires.layout(self.layout, self.order).groups(axis)[stage]
        return [PlacedGroups(len(one.devices[0]), (one,)) for one in groups]

    def placed_step_s(self, work: GraphWork, step_s: Callable[[GraphWork], float], cuts: NDArray[np.int64]) -> float:
        """Return the seconds of a step on the devices of the ranks themselves.

        Args:
            work: the job under some cut of the layout.
            step_s: prices the job under a cut.
            cuts: the cut that is meant.
        """
        chain, first, last = self.chain, cuts[:-1], cuts[1:]
        sent, received = (each[first, last] for each in chain.skips) if chain.is_direct else (chain.crossing_bytes[last], None)
        chunks = tuple(work.graph.order[begin:end] for begin, end in pairwise(chain.starts[cuts]))
        return step_s(replace(work, chunks=chunks, boundary_bytes=sent, given_bytes=received))

    def _of_stages(self, of_chunks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sums over the chunks of each stage, ``(f, p)``, of what each chunk has, ``(f, k)``."""
        sums: NDArray[np.float64] = of_chunks.reshape(len(of_chunks), self.layout.virtual_stages, self.layout.pp).sum(axis=1)
        return sums

    def step_s(self, cuts: NDArray[np.int64]) -> float:
        """Return the seconds of a step, as `GraphPricer.step_s` says."""
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
        return PlayedPipeline.play(layout, task_s, self.pipe.transfer_s[np.arange(len(own)), cuts[1:]])

    def _own_s(self, cuts: NDArray[np.int64], transfer_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the seconds of a micro-batch on each chunk of each cut, with its transfers unless direct, ``(f, k)``."""
        own: NDArray[np.float64] = np.diff(self.chain.busy_s[cuts], axis=1)
        if not (self.layout.overlap_pp or self.chain.is_direct):
            ways = transfer_s[np.arange(own.shape[1]), cuts[:, 1:]]
            own = own + ways + np.pad(ways, ((0, 0), (1, 0)))[:, :-1]
        return own

    def _transfers_s(self, lane: Lane) -> NDArray[np.float64]:
        """Return seconds in which a micro-batch, or its gradient, passes each place behind each chunk of a lane, ``(k, u + 1)``.

        Nothing goes past the last one.
        """
        p, num_chunks = self.layout.pp, self.layout.pp * self.layout.virtual_stages
        result = np.zeros((num_chunks, self.chain.num_units + 1))
        for chunk in range(num_chunks - 1):
            result[chunk] = self._sent_s(tuple(way[chunk % p] for way in lane.ways), self.chain.crossing_bytes)
        return result

    def _skips_s(self, lane: Lane) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return seconds of direct messages on each kind of way of a lane, and the kind of each stage's way."""
        p = self.layout.pp
        if not self.chain.is_direct:
            return np.zeros((2, 0, 0, 0)), np.zeros(p, np.int64)
        ways = list(zip(*(way[:p] for way in lane.ways), strict=True))
        kinds = list(dict.fromkeys(ways))
        seconds = np.stack([self._sent_s(both, np.stack(self.chain.skips)) for both in kinds], axis=1)
        return seconds, np.array([kinds.index(both) for both in ways], np.int64)

    def _sent_s(self, ways: tuple[ProcessGroup, ...], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the seconds of transfers there or back, whichever take longer; prices take the one that is meant."""
        known, key = self.chain.known, (self.wires, ways, sizes.ndim)
        if key not in known:
            each, place = np.unique(sizes, return_inverse=True)
            seconds = [
                max(self.wires.group_s("send_recv", size, way) for way in ways) if size > 0 else 0.0 for size in each.tolist()
            ]
            known[key] = np.array(seconds)[place.reshape(sizes.shape)]
        result: NDArray[np.float64] = known[key]
        return result

    def _pieces(self, cuts: NDArray[np.int64], stage: int) -> tuple[Pieces, Pieces]:
        """Return the seconds and bytes of the ops of each chunk of a stage, backward and forward."""
        starts = self.chain.starts[cuts]
        ranges = [slice(starts[chunk], starts[chunk + 1]) for chunk in range(stage, len(cuts) - 1, self.layout.pp)]
        backward, forward = (
            [(seconds[ops], sizes[ops]) for ops in ranges] for seconds, sizes in (self.chain.backward_ops, self.chain.forward_ops)
        )
        return backward, forward


@njit()
def span_s(pipe, turns, num_played, cuts):  # type: ignore[no-untyped-def]
    """Return the seconds of the pipeline: its first micro-batches as played, and the busiest stage for each one after them."""
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
