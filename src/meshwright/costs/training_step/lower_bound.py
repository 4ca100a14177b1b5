"""A lower bound of a step's time in any rank order.

`LowerBound` prices every message as the best place of its ranks on the hosts would have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...plans.partition import Layout
from ..block_times.block_times import BlockTimes
from ..block_times.chunk_times import chunk_task_s
from ..collectives.groups import Group
from ..process_groups.group_network import FabricNetwork, PlacedNetwork
from ..process_groups.lanes import Lane, ProcessGroup, regular_lane
from ..process_groups.regular_groups import degrees_of, groups_of
from ..work.layer import BlockWork
from ..work.operations import BETWEEN_STAGES, Axis, Message
from ..work.work import LayoutWork
from .bounds import ROUNDING, BoundedPricer, joined_parts
from .uncertainty import fused_attention_s


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
    _gathering: dict[tuple[int, bool], tuple[object, float]] = field(default_factory=dict, repr=False, compare=False)
    _busy: dict[int, dict[str, tuple[float, float, float, float]]] = field(default_factory=dict, repr=False, compare=False)

    def lanes(self, work: LayoutWork) -> tuple[Lane, ...]:
        """Return one, by the size of whose groups alone messages are priced here."""
        return (regular_lane(work.layout, self.wires.devices_per_host, self.order),)

    def bound_s(self, work: LayoutWork) -> float:
        """Return at most the step in any rank order; for devices of several kinds of any other spread of layers over stages.

        Bidirectional schedules keep their spread.
        """
        if self.models and not work.layout.is_bidirectional:
            return self.node_s(work)
        return self._shared_bound_s(work)

    def message_s(self, message: Message, layout: Layout, group: ProcessGroup | None = None) -> float:
        """Return the least time over all regular groups of the same size; on unequal hosts over all that some order gives."""
        size = (group or groups_of(layout, self.wires.devices_per_host, self.order)[message.axis]).size
        is_flat = message.axis == "shard" and layout.zero >= 3 and not layout.is_fsdp2
        is_pipeline = message.axis == "pp" or message.axis in BETWEEN_STAGES
        key: tuple[object, ...] = message.operation, message.payload_bytes, size, is_pipeline, is_flat
        if isinstance(self.wires, PlacedNetwork):
            key = (*key, message.axis, degrees_of(layout))
        if key not in self._least:
            groups = (
                self.wires.process_groups(layout, message.axis)
                if isinstance(self.wires, PlacedNetwork)
                else self._groups(size, is_pipeline)
            )
            self._least[key] = min(super(LowerBound, self).message_s(message, layout, g) for g in groups)
        return self._least[key]

    def _most_hidden(self, work: LayoutWork, lane: Lane) -> float:
        """Return infinity for several chunks: with passes that take longer the bound would fall."""
        return math.inf if work.layout.virtual_stages > 1 else super()._most_hidden(work, lane)

    def place(self, group: ProcessGroup, layout: Layout) -> object:
        """Return what messages are priced by: on equal hosts the group's size, on others the degrees of the layout."""
        return (group, degrees_of(layout)) if isinstance(self.wires, PlacedNetwork) else group.size

    def node_s(self, work: LayoutWork) -> float:
        """Return at most the step of every layout that differs in schedule and virtual stages alone.

        The busiest of the first, second and last stage works through ``m`` micro-batches, one after the other. The one with
        the most layers may put some weight gradients off, and no more chunks are legal then. Cut into more chunks passes take
        as long, and with weight gradients apart they take no less. For the time of a block is a norm of
        the device's and the host's share (`passes.HOST_POWER`). A norm of a sum is at most the sum of norms. Messages hide
        behind all kernels no worse than each behind a part of them. A higher ZeRO stage adds messages to passes and removes
        none, so the bound holds for those too. With a slowdown above 2, hiding may cost more than
        it hides, and parts of a pass may take less: the mean of what they compute counts.

        Layers of several kinds are spread otherwise over more chunks, and layers on devices of several kinds otherwise over
        stages. But the busiest stage never has less than the mean. Of the kinds the fastest counts for each kernel.

        Args:
            work: with schedule 1F1B and one chunk a stage.
        """
        m, pp = work.layout.num_micro_batches, work.layout.pp
        if self.slowdown > 2:
            return self.mean_s(work) * (1 - ROUNDING)
        if not self.models and len(work.block_weights) == 3:
            blocks, (joined, _, fullest, _) = self._family(work).blocks, self._joined_parts(work)
            least_s = m * max(sum(chunk_task_s(blocks, parts)) for parts in joined.values())
            if fullest:
                least_s = max(least_s, max(0.0, m - self._put_off(work.layout)) * sum(chunk_task_s(blocks, fullest)))
            return least_s * (1 - ROUNDING)
        whole_s = sum(map(sum, self._tasks(work, self.lanes(work)[0])))
        if self.models:
            return m * whole_s / self._stages_of_fastest(work) * (1 - ROUNDING)
        return m * (whole_s / pp) * (1 - ROUNDING)

    def gathering_s(self, work: LayoutWork) -> float:
        """Return at most the step of layouts under ZeRO-3 that differ in schedule and virtual stages alone; of others 0.

        Each micro-batch gathers the weights of each block for its passes, one after the other. Those of experts are gathered
        over their own groups at the same time. No pass ends before either.

        Args:
            work: with schedule 1F1B and one chunk a stage.
        """
        layout = work.layout
        if layout.zero < 3 or self.models or len(work.block_weights) > 3 or layout.lora_rank is not None:
            return 0.0
        is_again = layout.recompute == "full" and not layout.is_fsdp2
        known = id(work.stages), is_again  # the stages stay with their seconds, so that the id stays theirs
        if known not in self._gathering:
            self._gathering[known] = work.stages, self._gathered_s(work, is_again=is_again)
        return layout.num_micro_batches * self._gathering[known][1] * (1 - ROUNDING)

    def _gathered_s(self, work: LayoutWork, *, is_again: bool) -> float:
        """Return the seconds in which the stage with most weights gathers them for the passes of a micro-batch."""
        layout, groups = work.layout, self.lanes(work)[0].at(0)
        axes: dict[Axis, dict[str, float]] = {"shard": {}, "expert_dp": {}}
        for name, block in work.block_weights.items():
            times = 3 if is_again and name in work.layer_shapes else 2
            for (axis, block_s), parameters in zip(axes.items(), (block.dense_parameters, block.expert_parameters), strict=True):
                message = Message("parameters", "all_gather", axis, layout.number_bytes * parameters)
                block_s[name] = times * self.message_s(message, layout, groups[axis]) if parameters else 0.0
        held = self._joined_parts(work)[0].values()
        return max(sum(number * block_s[name] for name, number in parts) for parts in held for block_s in axes.values())

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
        each_s = sum(n * (known[name][0] + known[name][3]) for name, n in joined_parts(work.chunks))
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
        """Return the seconds of the tensor-parallel messages of a block for which its kernels wait."""
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
        """Yield every regular group of so many ranks."""
        hosted = self.wires.devices_per_host
        used = min(self.world, hosted)
        hosts = self.world // used
        if is_pipeline:
            if size <= used:
                yield Group(size, size, 1, max(1, used // 2))
            if hosts > 1 or size == 1:
                yield from (Group(size, 1, hosted, others) for others in range(1, used + 1) if used % others == 0)
            return
        for per_host in (n for n in range(1, min(size, used) + 1) if size % n == 0 and size // n <= hosts):
            groups_at_once = max(1, used // per_host)
            apart = range(1, groups_at_once + 1) if per_host > 1 and isinstance(self.wires, FabricNetwork) else (1,)
            yield from (Group(size, per_host, stride, groups_at_once) for stride in apart if groups_at_once % stride == 0)
