"""Lower bounds of a step's time, for searches that must not lose the best layout.

`BoundedPricer` leaves out of the pipeline what it cannot know without playing it; see `lower_bound` for any rank order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...plans.partition import ZERO_BUBBLE, Layout
from ..block_times.block_times import BlockTimes
from ..block_times.chunk_times import chunk_task_s
from ..pipelines.bidirectional import num_tasks
from ..pipelines.schedules import in_flight, orders
from ..process_groups.group_network import PlacedNetwork
from ..process_groups.lanes import Lane
from ..work.model_chunks import ChunkWork, Parts
from ..work.operations import BETWEEN_STAGES
from ..work.work import LayoutWork
from .step_time import Pricer

ROUNDING = 1e-9
"""Relative. A bound adds in another order than what it bounds, and must not pass it by a rounding error."""


Task = tuple[float, float, float]
"""Seconds of a forward, a backward and a weight-gradient pass."""

_NO_TASK: Task = 0.0, 0.0, 0.0


class _Parts(NamedTuple):
    """Seconds of the tasks of some chunks of a pipeline, zeros where nothing asks for them.

    Attributes:
        stages: of all chunks of a stage, for some stages.
        ahead: of the first chunks before the last stage.
        first: of the first chunk.
        fullest: of all chunks of a stage with more layers than those of ``stages``.
        whole: of all chunks, where stages have several.
    """

    stages: dict[int, Task]
    ahead: Task
    first: Task
    fullest: Task = _NO_TASK
    whole: Task = _NO_TASK


class _Family(NamedTuple):
    """The parts that layouts share if they differ in the order of passes alone.

    Attributes:
        shared: see `LayoutWork.shared`, which stays with the rest, so that its id stays its own.
        lane: the groups.
        blocks: times of blocks.
        send_s: of the shortest transfer between two chunks.
    """

    shared: Mapping[object, Any]
    lane: Lane
    blocks: dict[str, BlockTimes]
    send_s: float


class _Tail(NamedTuple):
    """Seconds behind the passes of a stage.

    Attributes:
        shown_s: those that no pass hides.
        sync_s: of all messages that the last backward passes may hide, and of the longest one.
        gather_s: the same of the first forward passes.
    """

    shown_s: float
    sync_s: tuple[float, float]
    gather_s: tuple[float, float]


@dataclass(frozen=True)
class BoundedPricer(Pricer):
    """A pricer that also gives, without playing the pipeline, the least that a step can take."""

    _families: dict[tuple[int, bool], _Family] = field(default_factory=dict, repr=False, compare=False)
    _bounds: dict[tuple[object, ...], float] = field(default_factory=dict, repr=False, compare=False)
    _tails: dict[int, tuple[object, _Tail]] = field(default_factory=dict, repr=False, compare=False)
    _parts: dict[int, tuple[object, tuple[dict[int, Parts], Parts, Parts, Parts]]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def sharing(self, other: BoundedPricer) -> BoundedPricer:
        """Return a pricer that shares the priced blocks of another one, which differs in the rank order alone."""
        shared = {name: getattr(other, name) for name in ("_blocks", "_passes", "_steps", "_parts")}
        return replace(self, **shared)

    def with_steps(self, steps: dict[object, Any]) -> Self:
        """Return a pricer that shares the steps of passes with others of equal devices."""
        return replace(self, _steps=steps)

    def bound_s(self, work: LayoutWork) -> float:
        """Return a lower bound on `step_s`.

        The first, second and last stage are busy with all their passes and transfers. The first one also waits:

        - The last stage starts when a forward pass has come through all stages before it, and works through the passes of all
          its chunks. Its last backward pass then goes back through all stages.
        - One micro-batch goes through all chunks and back.
        - The stage with the most layers does its passes between, but for weight gradients that it may put off.

        Each stage then synchronises; what hides of that still slows kernels down.

        On unequal hosts stages do not wait so, and the price itself is taken. Where the devices of a stage are of several
        kinds, no lane takes less by itself. Under a bidirectional schedule each rank is busy with its passes and pairs of
        passes.
        """
        if isinstance(self.wires, PlacedNetwork):
            return self.step_s(work) * (1 - ROUNDING)
        if self.kinds is None and not work.meshes:
            return self._shared_bound_s(work)
        lanes = {id(lane): lane for lane in self.lanes(work)}
        return max(self._least_s(work, lane) for lane in lanes.values()) * (1 - ROUNDING)

    def _shared_bound_s(self, work: LayoutWork) -> float:
        """Return the bound of a layout on equal devices, worked out once for schedules that have the same."""
        layout, family = work.layout, self._family(work)
        schedule = layout.schedule if layout.is_bidirectional else layout.parts_gradients
        key = id(work.shared), schedule, layout.virtual_stages, layout.overlap_pp  # a family keeps what is shared
        if key not in self._bounds:
            self._bounds[key] = self._least_s(work, family.lane, None if work.meshes else family) * (1 - ROUNDING)
        return self._bounds[key]

    def _family(self, work: LayoutWork) -> _Family:
        """Return the parts that a layout on equal devices shares with those that differ in the order of passes alone."""
        key = id(work.shared), work.layout.parts_gradients
        if key not in self._families:
            (lane,) = self.lanes(work)
            send_s = 0.0 if work.layout.pp == 1 or work.layout.is_bidirectional else self._least_send_s(work, lane)
            self._families[key] = _Family(work.shared, lane, self._block_times(work, lane.at(0)), send_s)
        return self._families[key]

    def _least_s(self, work: LayoutWork, lane: Lane, family: _Family | None = None) -> float:
        tails: dict[object, float] = {}
        least_s, hides, are_equal = 0.0, self._most_hidden(work, lane), lane.are_stages_equal
        for stage, (span_s, task) in self._spans_s(work, lane, family).items():
            same = id(work.stages[stage]), task if are_equal else stage
            if same not in tails:
                tails[same] = self._least_tail_s(self._tail(work, stage, lane), work.layout, task, hides)
            least_s = max(least_s, span_s + tails[same])
        return least_s

    def _most_hidden(self, work: LayoutWork, lane: Lane) -> float:
        """Return a stage's passes in its last round, over those of all its chunks, at most; infinite where that is unknown.

        Between two chunks of a stage run the passes of ``p - 1`` micro-batches.
        """
        layout = work.layout
        if layout.is_bidirectional or work.meshes or lane.kinds or isinstance(self.wires, PlacedNetwork):
            return math.inf
        return 1.0 if layout.virtual_stages == 1 else float(layout.pp)

    def _least_tail_s(self, tail: _Tail, layout: Layout, task: Task, hides: float) -> float:
        """Return seconds behind a stage's passes, at least: a message hides behind no more than takes place meanwhile.

        What is hidden slows passes down.
        """
        share, total_s = min(1.0, self.slowdown - 1.0), tail.shown_s
        back_s = task[2] if layout.parts_gradients else task[1]
        for (whole_s, longest_s), pass_s in ((tail.sync_s, back_s), (tail.gather_s, task[0])):
            shown_s = max(0.0, longest_s - hides * pass_s) if hides < math.inf else 0.0
            total_s += shown_s + share * (whole_s - shown_s)
        return total_s

    def _tail(self, work: LayoutWork, stage: int, lane: Lane) -> _Tail:
        """See `_Tail`; worked out once for all layouts whose stages hold the same."""
        if not lane.are_stages_equal or lane.kinds or work.layout.offload != "none":
            return self._made_tail(work, stage, lane)
        held = work.stages[stage]
        if id(held) not in self._tails:  # what is held stays with its tail, so that the id stays its own
            self._tails[id(held)] = held, self._made_tail(work, stage, lane)
        return self._tails[id(held)][1]

    def _made_tail(self, work: LayoutWork, stage: int, lane: Lane) -> _Tail:
        layout, held, groups = work.layout, work.stages[stage], lane.at(stage)
        is_of_host, kinds = layout.offload != "none", lane.kinds_at(stage)
        shown_s = self.offloaded_s(work, stage, kinds, None) if is_of_host else self.optimizer_s(work, stage, kinds)
        hidden_s = []
        for messages in (held.sync, held.gather):
            own_s = [0.0]
            for message in messages:
                seconds = self.message_s(message, layout, groups[message.axis])
                if layout.overlap_dp and message.axis not in BETWEEN_STAGES:
                    own_s.append(seconds)
                else:
                    shown_s += seconds
            hidden_s.append((sum(own_s), max(own_s)))
        return _Tail(shown_s, hidden_s[0], hidden_s[1])

    def _spans_s(self, work: LayoutWork, lane: Lane, family: _Family | None) -> dict[int, tuple[float, Task]]:
        """Return seconds of some stages in a step without what follows their passes, and of the passes of all chunks."""
        layout, v = work.layout, work.layout.virtual_stages
        m, last = layout.num_micro_batches, layout.pp - 1
        if layout.is_bidirectional:
            numbers = _num_tasks(layout.schedule, layout.pp, layout.chunks_per_rank, m)
            busy_s = (numbers * self.task_s(work, self.blocks_of(work, lane))).sum(axis=(1, 2))
            return {stage: (seconds, _NO_TASK) for stage, seconds in enumerate(busy_s.tolist())}
        stages, ahead, first, fullest, whole = self._parts_s(work, lane, family)
        send_s = family.send_s if family is not None else self._least_send_s(work, lane) if last else 0.0
        held_s = 0.0 if layout.overlap_pp else send_s
        spans = {
            stage: m * (sum(of_stage) + (2 * v - (stage == 0) - (stage == last)) * held_s) for stage, of_stage in stages.items()
        }
        if last:
            passes_s = sum(stages[last][:2]) + (2 * v - 1) * held_s
            way_s = sum(ahead[:2]) + 2 * last * send_s
            # The last stage's last backward pass holds its own transfer, the first of the way back.
            waited_s = m * passes_s + way_s - held_s + (first[2] if layout.parts_gradients else 0.0)
            weights = max(0.0, m - self._put_off(layout)) if layout.parts_gradients else m
            between_s = m * (sum(fullest[:2]) + 2 * v * held_s) + weights * fullest[2] + sum(first[:2])
            alone_s = sum(whole[:2]) + 2 * (v * layout.pp - 1) * send_s
            spans[0] = max(spans[0], waited_s, between_s if any(fullest) else 0.0, alone_s)
        return {stage: (span_s, stages[stage]) for stage, span_s in spans.items()}

    @staticmethod
    def _put_off(layout: Layout) -> float:
        """Weight gradients that a stage may owe at the end of its last backward pass under any schedule, at most."""
        return max(in_flight(one, layout.pp, 1, layout.num_micro_batches, 0) for one in ZERO_BUBBLE)

    def _parts_s(self, work: LayoutWork, lane: Lane, family: _Family | None) -> _Parts:
        pp = work.layout.pp
        if family is None:
            tasks = self._tasks(work, lane)
            stages = range(pp) if lane.kinds else end_stages(pp)
            return _Parts({stage: _sum(tasks[stage::pp]) for stage in stages}, _sum(tasks[: pp - 1]), tasks[0])
        blocks, (joined, ahead, fullest, whole) = family.blocks, self._joined_parts(work)
        of_stages = {stage: chunk_task_s(blocks, parts) for stage, parts in joined.items()}
        ahead_s = chunk_task_s(blocks, ahead) if pp > 1 else _NO_TASK
        first_s = chunk_task_s(blocks, work.chunks[0].parts) if work.layout.parts_gradients or fullest else _NO_TASK
        return _Parts(of_stages, ahead_s, first_s, chunk_task_s(blocks, fullest), chunk_task_s(blocks, whole))

    def _joined_parts(self, work: LayoutWork) -> tuple[dict[int, Parts], Parts, Parts, Parts]:
        """Return parts of stages, of first chunks, of the fullest stage, and of all chunks, as `_parts_s` has their seconds."""
        pp, chunks = work.layout.pp, work.chunks
        if id(chunks) not in self._parts:  # the chunks stay with their parts, so that the id stays theirs
            joined = {stage: joined_parts(chunks[stage::pp]) for stage in end_stages(pp)}
            layers = [sum(chunk.num_layers for chunk in chunks[stage::pp]) for stage in range(pp)]
            most = layers.index(max(layers))
            fullest = joined_parts(chunks[most::pp]) if layers[most] > max(layers[stage] for stage in joined) else ()
            whole = joined_parts(chunks) if len(chunks) > pp else ()
            self._parts[id(chunks)] = chunks, (joined, joined_parts(chunks[: pp - 1]), fullest, whole)
        return self._parts[id(chunks)][1]

    def _least_send_s(self, work: LayoutWork, lane: Lane) -> float:
        """Return the seconds of the shortest transfer between two chunks."""
        if not work.has_plain_boundary:
            return float(self._sends(work, lane).min())
        at = lane.at(0)
        return min(
            sum(self.message_s(item, work.layout, group if item.axis == "pp" else at[item.axis]) for item in work.boundary)
            for group in lane.transfers
        )

    def _tasks(self, work: LayoutWork, lane: Lane) -> list[Task]:
        """Return the seconds of the tasks of each chunk, as `Pricer` sums them up."""
        if work.meshes or lane.kinds:
            task_s = self.task_s(work, self.blocks_of(work, lane))
            return [(float(f), float(b), float(w)) for f, b, w in task_s.transpose(1, 0, 2).reshape(-1, 3)]
        blocks = self._family(work).blocks
        return [chunk_task_s(blocks, chunk.parts) for chunk in work.chunks]


@lru_cache(maxsize=4096)
def _num_tasks(schedule: str, pp: int, chunks_per_rank: int, num_micro_batches: int) -> NDArray[np.int64]:
    return num_tasks(orders(schedule, pp, chunks_per_rank, num_micro_batches))


def _sum(tasks: Sequence[Task]) -> Task:
    """Return the sum of some tasks, kind by kind."""
    forward_s, backward_s, weight_s = map(sum, zip((0.0, 0.0, 0.0), *tasks, strict=True))
    return forward_s, backward_s, weight_s


def joined_parts(chunks: Sequence[ChunkWork]) -> Parts:
    """Return the parts of some chunks together."""
    counts: Counter[str] = Counter()
    for chunk in chunks:
        counts.update(dict(chunk.parts))
    return tuple(sorted(counts.items()))


def end_stages(pp: int) -> tuple[int, ...]:
    """Return the stages at which `Pricer.step_s` looks in any case."""
    return tuple(sorted({0, min(1, pp - 1), pp - 1}))
