"""Lower bounds of a step's time, for searches that must not lose the best layout.

`BoundedPricer` leaves out of the pipeline what it cannot know without playing it. `LowerBound` also prices every message as
the best place of its ranks on the hosts would have it, in whatever order the ranks are numbered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...plans.partition import Layout
from ..block_times.block_times import BlockTimes
from ..block_times.chunk_times import chunk_task_s
from ..collectives.groups import Group
from ..pipelines.bidirectional import num_tasks
from ..pipelines.schedules import orders
from ..process_groups.group_network import FabricNetwork, PlacedNetwork
from ..process_groups.lanes import Lane, Stand, regular_lane
from ..process_groups.regular_groups import degrees_of, groups_of
from ..work.layer import BlockWork
from ..work.model_chunks import ChunkWork, Parts
from ..work.operations import BETWEEN_STAGES, Message
from ..work.work import LayoutWork
from .step_time import Pricer
from .uncertainty import fused_attention_s

ROUNDING = 1e-9
"""Relative. A bound adds in another order than what it bounds, and must not pass it by a rounding error."""


Task = tuple[float, float, float]
"""Seconds of a forward, a backward and a weight-gradient pass."""


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


@dataclass(frozen=True)
class BoundedPricer(Pricer):
    """A pricer that also gives, without playing the pipeline, the least that a step can take."""

    _families: dict[tuple[int, bool], _Family] = field(default_factory=dict, repr=False, compare=False)
    _tails: dict[int, tuple[object, float]] = field(default_factory=dict, repr=False, compare=False)
    _parts: dict[int, tuple[object, dict[int, Parts], Parts]] = field(default_factory=dict, repr=False, compare=False)

    def sharing(self, other: BoundedPricer) -> BoundedPricer:
        """A pricer that shares the priced blocks of another one, which differs in the rank order alone."""
        shared = {name: getattr(other, name) for name in ("_blocks", "_passes", "_steps", "_parts")}
        return replace(self, **shared)

    def with_steps(self, steps: dict[object, Any]) -> Self:
        """A pricer that shares the steps of passes with others of equal devices."""
        return replace(self, _steps=steps)

    def bound_s(self, work: LayoutWork) -> float:
        """Return a lower bound on `step_s`.

        The first, second and last stage are busy with all their passes and transfers. The first one also waits. The last stage
        starts when a forward pass has come through all stages before it, and works through the passes of all its chunks. Its
        last backward pass then goes back through all stages. Each stage then synchronises; what hides of that still slows
        kernels down.

        On unequal hosts stages do not wait so, and the price itself is taken. Where the devices of a stage are of several
        kinds, no lane takes less by itself. Under a bidirectional schedule each rank is busy with its passes and pairs of
        passes.
        """
        if isinstance(self.wires, PlacedNetwork):
            return self.step_s(work) * (1 - ROUNDING)
        if self.kinds is None and not work.meshes:
            return self._least_s(work, self._family(work).lane) * (1 - ROUNDING)
        lanes = {id(lane): lane for lane in self.lanes(work)}
        return max(self._least_s(work, lane) for lane in lanes.values()) * (1 - ROUNDING)

    def _family(self, work: LayoutWork) -> _Family:
        """The parts that a layout on equal devices shares with those that differ in the order of passes alone."""
        key = id(work.shared), work.layout.parts_gradients
        if key not in self._families:
            (lane,) = self.lanes(work)
            send_s = 0.0 if work.layout.pp == 1 or work.layout.is_bidirectional else self._least_send_s(work, lane)
            self._families[key] = _Family(work.shared, lane, self._block_times(work, lane.at(0)), send_s)
        return self._families[key]

    def _least_s(self, work: LayoutWork, lane: Lane) -> float:
        tails: dict[object, float] = {}
        least_s = 0.0
        for stage, span_s in self._spans_s(work, lane).items():
            same = id(work.stages[stage]) if lane.are_stages_equal else stage
            if same not in tails:
                tails[same] = self._known_tail_s(work, stage, lane)
            least_s = max(least_s, span_s + tails[same])
        return least_s

    def _known_tail_s(self, work: LayoutWork, stage: int, lane: Lane) -> float:
        """Seconds behind the passes of a stage, worked out once for all layouts whose stages hold the same."""
        if not lane.are_stages_equal or lane.kinds or work.layout.offload != "none":
            return self._tail_bound_s(work, stage, lane)
        held = work.stages[stage]
        if id(held) not in self._tails:  # what is held stays with its tail, so that the id stays its own
            self._tails[id(held)] = held, self._tail_bound_s(work, stage, lane)
        return self._tails[id(held)][1]

    def _spans_s(self, work: LayoutWork, lane: Lane) -> dict[int, float]:
        """Seconds of some stages in a step without what follows their passes."""
        layout, v = work.layout, work.layout.virtual_stages
        m, last = layout.num_micro_batches, layout.pp - 1
        if layout.is_bidirectional:
            numbers = _num_tasks(layout.schedule, layout.pp, layout.chunks_per_rank, m)
            busy_s = (numbers * self.task_s(work, self.blocks_of(work, lane))).sum(axis=(1, 2))
            return dict(enumerate(busy_s.tolist()))
        stages, ahead, first = self._parts_s(work, lane)
        is_shared = not (work.meshes or lane.kinds)
        send_s = self._family(work).send_s if is_shared else self._least_send_s(work, lane) if last else 0.0
        held_s = 0.0 if layout.overlap_pp else send_s
        spans = {
            stage: m * (sum(of_stage) + (2 * v - (stage == 0) - (stage == last)) * held_s) for stage, of_stage in stages.items()
        }
        if last:
            passes_s = sum(stages[last][:2]) + (2 * v - 1) * held_s
            way_s = sum(ahead[:2]) + 2 * last * send_s
            # The last stage's last backward pass holds its own transfer, the first of the way back.
            waited_s = m * passes_s + way_s - held_s + (first[2] if layout.parts_gradients else 0.0)
            spans[0] = max(spans[0], waited_s)
        return spans

    def _parts_s(self, work: LayoutWork, lane: Lane) -> tuple[dict[int, Task], Task, Task]:
        """Seconds of the tasks of all chunks of some stages, of the first chunks before the last stage, and of the first one."""
        pp = work.layout.pp
        if work.meshes or lane.kinds:
            tasks = self._tasks(work, lane)
            stages = range(pp) if lane.kinds else _ends(pp)
            return {stage: _sum(tasks[stage::pp]) for stage in stages}, _sum(tasks[: pp - 1]), tasks[0]
        if id(work.chunks) not in self._parts:  # the chunks stay with their parts, so that the id stays theirs
            joined = {stage: _joined(work.chunks[stage::pp]) for stage in _ends(pp)}
            self._parts[id(work.chunks)] = work.chunks, joined, _joined(work.chunks[: pp - 1])
        blocks, (_, joined, ahead) = self._family(work).blocks, self._parts[id(work.chunks)]
        of_stages = {stage: chunk_task_s(blocks, parts) for stage, parts in joined.items()}
        return of_stages, chunk_task_s(blocks, ahead), chunk_task_s(blocks, work.chunks[0].parts)

    def _least_send_s(self, work: LayoutWork, lane: Lane) -> float:
        """Seconds of the shortest transfer between two chunks."""
        if not work.has_plain_boundary:
            return float(self._sends(work, lane).min())
        at = lane.at(0)
        return min(
            sum(self.message_s(item, work.layout, group if item.axis == "pp" else at[item.axis]) for item in work.boundary)
            for group in lane.transfers
        )

    def _tasks(self, work: LayoutWork, lane: Lane) -> list[Task]:
        """Seconds of the tasks of each chunk, as `Pricer` sums them up."""
        if work.meshes or lane.kinds:
            task_s = self.task_s(work, self.blocks_of(work, lane))
            return [(float(f), float(b), float(w)) for f, b, w in task_s.transpose(1, 0, 2).reshape(-1, 3)]
        blocks = self._family(work).blocks
        return [chunk_task_s(blocks, chunk.parts) for chunk in work.chunks]

    def _tail_bound_s(self, work: LayoutWork, stage: int, lane: Lane) -> float:
        layout, held, groups = work.layout, work.stages[stage], lane.at(stage)
        is_of_host, kinds = layout.offload != "none", lane.kinds_at(stage)
        total_s = self.offloaded_s(work, stage, kinds, None) if is_of_host else self.optimizer_s(work, stage, kinds)
        least_share = min(1.0, self.slowdown - 1.0) if layout.overlap_dp else 1.0
        for message in (*held.sync, *held.gather):
            seconds = self.message_s(message, layout, groups[message.axis])
            total_s += seconds * (1.0 if message.axis in BETWEEN_STAGES else least_share)
        return total_s


@dataclass(frozen=True)
class LowerBound(BoundedPricer):
    """A pricer that is never above one of any rank order.

    Every price that it makes is at most that of a `Pricer` whose groups are regular. First, a pass takes no less time when one
    of its messages takes longer. Later tasks wait longer, and a hidden message becomes exposed or, where it still hides, slows
    kernels down longer. Second, each message is priced for the best of all regular groups of its size. `bound_s` therefore
    holds for every rank order. It also holds on unequal hosts. There a step takes no less than any rank's own work, and the
    first stage no less than its passes with their waiting (`uneven_steps`).

    Attributes:
        world: ranks; those that share a host share its cards.
        num_of_kind: where ``models`` are the fastest for each kernel and then those of several kinds, ranks on each of these.
    """

    world: int = 1
    num_of_kind: tuple[int, ...] = ()
    _least: dict[tuple[object, ...], float] = field(default_factory=dict, repr=False, compare=False)
    _busy: dict[int, dict[str, tuple[float, float, float, float]]] = field(default_factory=dict, repr=False, compare=False)

    def lanes(self, work: LayoutWork) -> tuple[Lane, ...]:
        """One, by the size of whose groups alone messages are priced here."""
        return (regular_lane(work.layout, self.wires.devices_per_host, self.order),)

    def bound_s(self, work: LayoutWork) -> float:
        """At most the step in any rank order; with devices of several kinds also of any other spread of layers over stages.

        Bidirectional schedules keep their spread.
        """
        if self.models and not work.layout.is_bidirectional:
            return self.node_s(work)
        (lane,) = self.lanes(work)
        return self._least_s(work, lane) * (1 - ROUNDING)

    def message_s(self, message: Message, layout: Layout, group: Stand | None = None) -> float:
        """Return the least time over all regular groups of the same size; on unequal hosts over all that some order gives."""
        size = (group or groups_of(layout, self.wires.devices_per_host, self.order)[message.axis]).size
        is_flat = message.axis == "shard" and layout.zero >= 3 and not layout.is_fsdp2
        is_pipeline = message.axis == "pp" or message.axis in BETWEEN_STAGES
        key: tuple[object, ...] = message.operation, message.payload_bytes, size, is_pipeline, is_flat
        if isinstance(self.wires, PlacedNetwork):
            key = (*key, message.axis, degrees_of(layout))
        if key not in self._least:
            groups = (
                self.wires.stands(layout, message.axis)
                if isinstance(self.wires, PlacedNetwork)
                else self._groups(size, is_pipeline)
            )
            self._least[key] = min(super(LowerBound, self).message_s(message, layout, g) for g in groups)
        return self._least[key]

    def place(self, group: Stand) -> object:
        """Return the group's size, by which alone messages are priced here on equal hosts."""
        return group if isinstance(self.wires, PlacedNetwork) else group.size

    def node_s(self, work: LayoutWork) -> float:
        """Return at most the step of every layout that differs in schedule and virtual stages alone.

        The busiest of the first, second and last stage works through ``m`` micro-batches, one after the other. Cut into more
        chunks its passes take as long, and with weight gradients apart they take no less. For the time of a block is a norm of
        the device's and the host's share (`passes.HOST_POWER`). A norm of a sum is at most the sum of norms. Messages hide
        behind all kernels no worse than each behind a part of them. A higher ZeRO stage adds messages to passes and removes
        none, so the bound holds for those too.

        Layers of several kinds are spread otherwise over more chunks, and layers on devices of several kinds otherwise over
        stages. But the busiest stage never has less than the mean. Of the kinds the fastest counts for each kernel.

        Args:
            work: with schedule 1F1B and one chunk a stage.
        """
        lane, m, pp = self.lanes(work)[0], work.layout.num_micro_batches, work.layout.pp
        if not self.models and len(work.block_weights) == 3:
            return m * max(map(sum, self._parts_s(work, lane)[0].values())) * (1 - ROUNDING)
        whole_s = sum(map(sum, self._tasks(work, lane)))
        if self.models:
            return m * whole_s / self._stages_of_fastest(work) * (1 - ROUNDING)
        return m * (whole_s / pp) * (1 - ROUNDING)

    def busy_s(self, work: LayoutWork) -> tuple[float, float, float]:
        """Return seconds of kernels of a stage in a step, at least, and of those in fused attention at least and at most.

        They hold for every layout that differs only in ZeRO stage, schedule, virtual stages and the layers that are computed
        again. In all of these each stage must have as many layers.

        Args:
            work: with schedule 1F1B, one chunk a stage and as few layers computed again as any.
        """
        known = self._busy_blocks_s(work)
        every = {chunk.parts for chunk in work.chunks}
        of_stages = [[sum(n * known[name][kind] for name, n in parts) for parts in every] for kind in range(3)]
        m = work.layout.num_micro_batches
        return m * min(of_stages[0]), m * min(of_stages[1]), m * max(of_stages[2])

    def mean_s(self, work: LayoutWork) -> float:
        """Return at most the step of every layout that differs only in ZeRO stage, schedule and what is computed again.

        The busiest rank has no less than the mean of the kernels and of the tensor-parallel messages that nothing hides,
        whichever way micro-batches go.

        Args:
            work: as of `busy_s`, but stages may have any layers.
        """
        if self.models:
            return 0.0
        known, layout = self._busy_blocks_s(work), work.layout
        each_s = sum(n * (known[name][0] + known[name][3]) for name, n in _joined(work.chunks))
        return layout.num_micro_batches * each_s / layout.pp

    def _busy_blocks_s(self, work: LayoutWork) -> dict[str, tuple[float, float, float, float]]:
        _, lane, blocks, _ = self._family(work)
        if id(blocks) not in self._busy:  # the blocks stay in `_blocks`, so that the id stays theirs
            self._busy[id(blocks)] = {
                name: (*self._block_busy_s(work.blocks[name], times), self._blocking_s(work.blocks[name], work.layout, lane))
                for name, times in blocks.items()
            }
        return self._busy[id(blocks)]

    def _blocking_s(self, block: BlockWork, layout: Layout, lane: Lane) -> float:
        """Seconds of the tensor-parallel messages of a block for which its kernels wait."""
        items = (item for items in (block.forward, block.recompute, block.backward) for item in items)
        sent = (item for item in items if isinstance(item, Message) and item.axis == "tp" and not item.num_concurrent)
        return sum(self.message_s(item, layout, lane.at(0)["tp"]) for item in sent) * (1 - ROUNDING)

    def _block_busy_s(self, block: BlockWork, times: BlockTimes) -> tuple[float, float, float]:
        ahead_s, again_s, back_s = (
            fused_attention_s(one, self.model) for one in (block.forward, block.recompute, block.backward)
        )
        kernels_s = sum(one.kernels_s for one in (times.forward, times.recompute, times.backward))
        return kernels_s * (1 - ROUNDING), (again_s + ahead_s + back_s) * (1 - ROUNDING), (2 * ahead_s + back_s) * (1 + ROUNDING)

    def _stages_of_fastest(self, work: LayoutWork) -> float:
        """Return how many stages of the fastest devices those of a layout count as, at most.

        A stage waits for its slowest device. ``d`` devices that take so much longer, or more, for everything slow down at
        least ``d / w`` stages of ``w`` ranks, rounded up. Each of these stages counts as the reciprocal of that.
        """
        at = self.lanes(work)[0].at(0)
        times = [self._block_times(work, at, (kind,)) for kind in range(len(self.models))]
        total_s = [{name: sum(one.task_s) for name, one in blocks.items()} for blocks in times]
        slower = [min(own[name] / total_s[0][name] for name in own if total_s[0][name] > 0) for own in total_s[1:]]
        left, count, devices = work.layout.pp, 0.0, 0
        for longer, number in sorted(zip(slower, self.num_of_kind, strict=True), reverse=True):
            devices += number
            stages = min(left, -(-devices // (work.layout.world // work.layout.pp)) - (work.layout.pp - left))
            count, left = count + stages / longer, left - stages
        return count + left

    def _groups(self, size: int, is_pipeline: bool) -> Iterator[Group]:
        """Every regular group of so many ranks."""
        hosted = self.wires.devices_per_host
        used = min(self.world, hosted)
        hosts = self.world // used
        if is_pipeline:
            if size <= used:
                yield Group(size, size, 1, max(1, used // 2))
            if hosts > 1 or size == 1:
                yield from (Group(size, 1, hosted, beside) for beside in range(1, used + 1) if used % beside == 0)
            return
        for per_host in (n for n in range(1, min(size, used) + 1) if size % n == 0 and size // n <= hosts):
            groups_at_once = max(1, used // per_host)
            apart = range(1, groups_at_once + 1) if per_host > 1 and isinstance(self.wires, FabricNetwork) else (1,)
            yield from (Group(size, per_host, stride, groups_at_once) for stride in apart if groups_at_once % stride == 0)


@lru_cache(maxsize=4096)
def _num_tasks(schedule: str, pp: int, chunks_per_rank: int, num_micro_batches: int) -> NDArray[np.int64]:
    return num_tasks(orders(schedule, pp, chunks_per_rank, num_micro_batches))


def _sum(tasks: Sequence[Task]) -> Task:
    """The sum of some tasks, kind by kind."""
    forward_s, backward_s, weight_s = map(sum, zip((0.0, 0.0, 0.0), *tasks, strict=True))
    return forward_s, backward_s, weight_s


def _joined(chunks: Sequence[ChunkWork]) -> Parts:
    """The parts of some chunks together."""
    counts: Counter[str] = Counter()
    for chunk in chunks:
        counts.update(dict(chunk.parts))
    return tuple(sorted(counts.items()))


def _ends(pp: int) -> tuple[int, ...]:
    """The stages at which `Pricer.step_s` looks in any case."""
    return tuple(sorted({0, min(1, pp - 1), pp - 1}))
