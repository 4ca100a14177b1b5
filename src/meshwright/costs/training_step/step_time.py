"""The analytic time of one step of a layout, and what it consists of.

Passes are priced once for each block (`passes`), chunks are sums of blocks, the pipeline is played exactly
(`steady_steps`), then gradients are synchronised and parameters updated. Everything that layouts share is kept, so that
a search over thousands of layouts prices each in well under a millisecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...devices import DeviceType
from ...jobs.transformer import TransformerShape
from ...plans.partition import Layout
from ..block_times.block_times import BlockTimes
from ..block_times.chunk_times import ChunkTimes, Done, both_ways_s, done_both_ways
from ..pipelines.bidirectional import num_tasks
from ..pipelines.schedules import orders
from ..pipelines.steady_steps import PlayedPipeline, ends_s, step_s
from ..pipelines.waits import waits
from ..process_groups.device_kinds import DeviceKinds
from ..process_groups.group_network import GroupNetwork, PlacedNetwork, lanes_of, whole_lane
from ..process_groups.lanes import Lane, Stand
from ..settings import CostSettings
from ..work.layer import BlockWork
from ..work.model_chunks import Parts
from ..work.operations import BETWEEN_STAGES, Message, Pass
from ..work.work import LayoutWork, describe
from .gradient_overlap import exposed_after, exposed_before, stage_spans
from .kernels import KernelModel, device_kinds, kernel_model
from .passes import PassTime, pass_time
from .placed_steps import placed_step
from .stage_crossings import Resharding, ways_s
from .step_figures import StepTime, step_flops
from .step_pricer import PlacedMessage, StepPricer
from .uncertainty import RUN_UNCERTAINTY, fused_attention_s, operations, per_step, uncertainty_terms
from .uneven_steps import UnevenStep


class _Run(NamedTuple):
    """A pipeline as played, and the times of the blocks of each stage."""

    pipeline: PlayedPipeline
    blocks: list[dict[str, BlockTimes]]


@dataclass(frozen=True)
class Pricer(StepPricer):
    """Prices layouts of any transformer; what layouts share is worked out once.

    Attributes:
        kernels: prices kernels; by default by the device's own constants.
        resharding: how micro-batches are brought to stages of another mesh.
        models: what prices kernels on each kind of device; by default on the only one.
        kinds: which kind each rank has; None where all have the first.
    """

    kernels: KernelModel | None = None
    resharding: Resharding = field(default_factory=Resharding)
    models: tuple[KernelModel, ...] = ()
    kinds: DeviceKinds | None = None
    _blocks: dict[object, dict[str, BlockTimes]] = field(default_factory=dict, repr=False, compare=False)
    _chunks: dict[object, ChunkTimes] = field(default_factory=dict, repr=False, compare=False)
    _passes: dict[object, tuple[Pass, PassTime]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        costs: CostSettings,
        wires: GroupNetwork | None = None,
        devices: NDArray[np.int64] | None = None,
    ) -> Self:
        """See `StepPricer.of`."""
        models, of_device = device_kinds(cluster, costs)
        made = replace(super().of(cluster, costs, wires, devices), kernels=models[0], resharding=Resharding.of(costs))
        return made if len(models) == 1 else replace(made, models=models, kinds=DeviceKinds(of_device, devices))

    @cached_property
    def model(self) -> KernelModel:
        """What prices kernels, of the first kind of device."""
        return self.kernels or kernel_model(self.device)

    def model_of(self, kind: int) -> KernelModel:
        """What prices kernels of a kind of device."""
        return self.models[kind] if self.models else self.model

    def is_uneven(self, work: LayoutWork, lanes: tuple[Lane, ...]) -> bool:
        """Whether hosts or devices are not alike, so that each lane is played by itself; stages of unequal meshes have one."""
        return isinstance(self.wires, PlacedNetwork) or (bool(lanes[0].kinds) and not work.meshes)

    def price(self, shape: TransformerShape, layout: Layout, sequence_length: int | None = None) -> StepTime:
        """The time of one step, and what it consists of.

        Raises:
            PlanError: the model cannot be cut so.
        """
        return self.price_work(describe(shape, layout, sequence_length))

    def step_s(self, work: LayoutWork) -> float:
        """Seconds of one step of a described layout; what `price_work` says, without the breakdown."""
        lanes = self.lanes(work)
        if self.is_uneven(work, lanes):
            return placed_step(self, work).step_s
        return self._step(work, lanes[0], self._run(work, lanes[0]))[0]

    def price_work(self, work: LayoutWork) -> StepTime:
        """The time of one step of a described layout, and what it consists of."""
        ended = placed_step(self, work) if self.is_uneven(work, self.lanes(work)) else self._alike(work)
        step_s, last, number, waiting_s, sync_s, gather_s, optimizer_s = ended
        layout, lane = work.layout, self.lanes(work)[number]
        models = [self.model_of(kind) for kind in lane.kinds_at(last)]
        uncertain = max(models, key=lambda one: one.constants.uncertainty)
        passes, tasks_s = self._done(work, last, self.blocks_of(work, lane))
        total, issued_s = {"compute": 0.0, "recompute": 0.0}, 0.0
        for times, name, one in passes:
            total[name] += times * one.kernels_s
            for axis, seconds in one.exposed_s.items():
                total[f"exposed {axis}"] = total.get(f"exposed {axis}", 0.0) + times * seconds
            issued_s -= times * one.device_s
        total |= {
            "host": issued_s + tasks_s,
            **waiting_s,
            "gradient sync": sync_s,
            "parameter gather": gather_s,
            "optimizer": optimizer_s,
        }
        model_flops, hardware_flops = step_flops(work)
        return StepTime(
            step_s=step_s,
            breakdown_s=total,
            model_flops=model_flops,
            hardware_flops=hardware_flops,
            amount=layout.global_batch * work.sequence_length,
            unit="tokens",
            uncertainty_terms=uncertainty_terms(
                kernels=uncertain.constants.uncertainty,
                step_s=step_s,
                **self.link_waits_s(layout, total),
                fused_attention_s=per_step(work.at(last), last, lambda items: fused_attention_s(items, uncertain)),
                hidden_s=self._hidden_s(work, last, lane, passes, sync_s + gather_s),
                utilisation=per_step(work.at(last), last, operations) / (step_s * uncertain.device.peak_flops_per_s),
                runs=RUN_UNCERTAINTY,
                steps=uncertain.step_uncertainty,
            ),
            peak_flops_per_s=self._peak_flops_per_s(layout),
        )

    def lanes(self, work: LayoutWork) -> tuple[Lane, ...]:
        """The places of the groups of a layout, see `lanes`."""
        found = lanes_of(self.wires, work.layout, self.order, pass_axes=work.pass_axes)
        return found if self.kinds is None else self.kinds.lanes(found, work.layout, self.order, work.pass_axes)

    def passes_s(self, work: LayoutWork) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `StepPricer.passes_s`."""
        task_s = self.task_s(work, self.blocks_of(work, self.lanes(work)[0]))[:, 0]
        return task_s[:, 0], task_s[:, 1:].sum(axis=1)

    def backward_blocks(self, work: LayoutWork, stage: int) -> list[tuple[float, float]]:
        """See `StepPricer.backward_blocks`; a block is a layer, the embedding or the head."""
        blocks = self.blocks_of(work, self._whole(work))[stage]
        seconds = {name: times.task_s()[1 + work.layout.parts_gradients] for name, times in blocks.items()}
        spans = stage_spans(work, stage, seconds, is_backward=True)
        return [(span.seconds, span.dense) for span in spans for _ in range(span.num_blocks)]

    def update_s(self, work: LayoutWork, stage: int) -> float:
        """See `StepPricer.update_s`; of the slowest device."""
        return self.optimizer_s(work, stage, self._whole(work).kinds_at(stage))

    def coding_devices(self, work: LayoutWork, stage: int) -> tuple[DeviceType, ...]:
        """See `StepPricer.coding_devices`."""
        return tuple(self.model_of(kind).device for kind in self._whole(work).kinds_at(stage))

    def in_order(self, order: str, wires: GroupNetwork | None = None) -> Self:
        """See `StepPricer.in_order`; nothing that is known is shared."""
        kinds = self.kinds
        if kinds is not None and isinstance(wires, PlacedNetwork) and wires.devices is not None:
            kinds = kinds.on(wires.devices)
        wires = wires or self.wires
        return type(self)(self.device, wires, self.slowdown, order, self.kernels, self.resharding, self.models, kinds)

    def on(self, devices: NDArray[np.int64]) -> Self:
        """See `StepPricer.on`."""
        placed = super().on(devices)
        return placed if self.kinds is None else replace(placed, kinds=self.kinds.on(devices, are_in_rank_order=False))

    def messages(self, work: LayoutWork, lane: Lane) -> Iterator[PlacedMessage]:
        """See `StepPricer.messages`."""
        numbers: Counter[str] = Counter()
        for chunk in work.chunks:
            numbers.update(dict(chunk.parts))
        for name, block in work.blocks.items():
            times = numbers[name]
            passes = (*block.forward, *block.recompute, *block.backward)
            sent = [item for item in passes if isinstance(item, Message)]
            yield from (PlacedMessage(f"exposed {item.axis}", item, times, lane.at(0)[item.axis]) for item in sent)
        for item in () if work.meshes else work.boundary:  # what is resharded is told with what it takes in all
            yield PlacedMessage("pipeline transfers", item, 1, lane.at(0)[item.axis])
        for stage, held in enumerate(work.stages):
            for part, items in (("gradient sync", held.sync), ("parameter gather", held.gather)):
                yield from (PlacedMessage(part, item, 1, lane.at(stage)[item.axis]) for item in items)

    def optimizer_s(self, work: LayoutWork, stage: int, kinds: Iterable[int] = (0,)) -> float:
        """Seconds in which a rank of a stage updates what it holds, the slowest of some kinds."""
        parameters, width = work.stages[stage].optimizer_parameters, work.layout.gradient_bytes
        return max(self.model_of(kind).optimizer_s(parameters, width) for kind in kinds)

    def _whole(self, work: LayoutWork) -> Lane:
        """All lanes as one, each stage on the slowest of its devices."""
        lane = whole_lane(self.wires, work.layout, self.order)
        return lane if self.kinds is None else self.kinds.whole(lane, work.layout, self.order)

    def _step(self, work: LayoutWork, lane: Lane, run: _Run) -> tuple[float, int]:
        """Seconds of a step, and the stage that decides.

        Of the stages the first, the second and the last are looked at; each other one is a copy that ends no later, unless
        layers are of several kinds, where all are looked at. The first and the last of a model with a tied table wait for each
        other before they sum it.
        """
        last = work.layout.pp - 1
        are_alike = len(work.block_weights) == 3 and not work.meshes and not lane.kinds and work.layout.stage_layers is None
        are_alike &= not work.layout.is_bidirectional
        looked_at = sorted({0, min(1, last), last}) if are_alike else range(last + 1)
        tails_s = {stage: sum(self._tail(work, stage, lane, run.blocks)) for stage in looked_at}
        return step_s(run.pipeline, tails_s, work.partners)

    def _alike(self, work: LayoutWork) -> UnevenStep:
        """The step of the stage that decides, where hosts are alike."""
        (lane,) = self.lanes(work)
        run = self._run(work, lane)
        seconds, last = self._step(work, lane, run)
        sync_s, gather_s, optimizer_s = self._tail(work, last, lane, run.blocks)
        unsent = run.pipeline.unsent.played
        unsent_s = ends_s(unsent, {last: 0.0}, work.partners)[last]
        waiting_s = waits(seconds - sync_s - gather_s - optimizer_s, unsent_s, unsent.busy_s, last)
        return UnevenStep(seconds, last, 0, waiting_s, sync_s, gather_s, optimizer_s)

    def _run(self, work: LayoutWork, lane: Lane) -> _Run:
        """The pipeline as it is played."""
        blocks = self.blocks_of(work, lane)
        return _Run(PlayedPipeline.of(work.layout, self.task_s(work, blocks), self._sends(work, lane)), blocks)

    def blocks_of(self, work: LayoutWork, lane: Lane) -> list[dict[str, BlockTimes]]:
        """The times of the blocks of each stage."""
        blocks = [self._block_times(work.at(n), groups, lane.kinds_at(n)) for n, groups in enumerate(lane.stages)]
        return blocks * work.layout.pp if lane.are_stages_alike else blocks

    def task_s(self, work: LayoutWork, blocks: list[dict[str, BlockTimes]]) -> NDArray[np.float64]:
        """Seconds of the tasks of each chunk, ``(p, v, 3)``."""
        task_s = np.empty((work.layout.pp, work.layout.chunks_per_rank, 5 if work.layout.is_bidirectional else 3))
        known: dict[tuple[object, ...], tuple[float, ...]] = {}
        for chunk in work.chunks:
            of_stage, other = blocks[chunk.stage], work.other_chunk(chunk)
            kind = (
                (id(of_stage), chunk.parts) if other is None else (id(of_stage), chunk.runs, chunk.parts, other.runs, other.parts)
            )
            if kind not in known:
                known[kind] = (
                    self._chunk_times(of_stage, chunk.parts).task_s if other is None else both_ways_s(of_stage, chunk, other)
                )
            task_s[chunk.stage, chunk.place] = known[kind]
        return task_s

    def _done(self, work: LayoutWork, stage: int, blocks: list[dict[str, BlockTimes]]) -> tuple[list[Done], float]:
        """What a stage does in a step, and how long it is busy with that."""
        layout, m, mine = work.layout, work.layout.num_micro_batches, [chunk for chunk in work.chunks if chunk.stage == stage]
        if layout.is_bidirectional:
            numbers = num_tasks(orders(layout.schedule, layout.pp, 2, m))[stage]
            passes = [
                one for chunk, n in zip(mine, numbers, strict=True) for one in done_both_ways(work, chunk, blocks[stage], n)
            ]
            return passes, float((numbers * self.task_s(work, blocks)[stage]).sum())
        held = [self._chunk_times(blocks[stage], chunk.parts) for chunk in mine]
        return [one for chunk in held for one in chunk.done(m)], m * sum(sum(chunk.task_s) for chunk in held)

    def _sends(self, work: LayoutWork, lane: Lane) -> NDArray[np.float64]:
        """Seconds of a transfer between each chunk of the model and the next one, ``(p v,)``, or both ways, ``(2 p v,)``."""
        if not work.has_plain_boundary:
            return ways_s(work, lane, self.wires, self.resharding, self.message_s)
        layout, total = work.layout, np.zeros(work.layout.pp)
        for item in work.boundary:
            known = {group: self.message_s(item, layout, group) for group in lane.transfers} if item.axis == "pp" else {}
            total += [known[g] for g in lane.boundary] if known else self.message_s(item, layout, lane.at(0)[item.axis])
        if layout.is_bidirectional:  # there and back again; at the fold nothing is sent
            return np.concatenate([total[:-1], [0.0], total[-2::-1], [0.0]])
        return np.tile(total, layout.virtual_stages)

    def _chunk_times(self, blocks: dict[str, BlockTimes], held: Parts) -> ChunkTimes:
        if (key := (id(blocks), held)) not in self._chunks:  # the blocks stay in `_blocks`, so that the id stays theirs
            self._chunks[key] = ChunkTimes.of(blocks, held)
        return self._chunks[key]

    def _block_times(
        self, work: LayoutWork, at: Mapping[str, Stand] | None = None, kinds: tuple[int, ...] = (0,)
    ) -> dict[str, BlockTimes]:
        layout, groups = work.layout, self.lanes(work)[0].at(0) if at is None else at
        layers = {name: work.blocks[name] for name in work.layer_shapes} if layout.is_bidirectional else None
        # Besides the work itself the groups' places on the hosts decide, and whether a tied head sends its table on its own.
        weights = ("shard", "expert_dp") if layout.zero >= 3 or layout.reduces_in_passes else ()
        places = tuple(self.place(groups[name]) for name in ("tp", "cp", "ep", *weights))
        key = (work.shape, work.key, layout.parts_gradients, layout.is_bidirectional, kinds, places, weights and layout.pp > 1)
        if key not in self._blocks:

            def seconds(item: Message) -> float:
                return self.message_s(item, layout, groups[item.axis])

            def times(block: BlockWork, kind: int) -> BlockTimes:
                def time(items: Pass) -> PassTime:
                    known = id(items), kind, places  # the passes stay, so that the id stays theirs
                    if known not in self._passes:
                        made = pass_time(items, self.model_of(kind), seconds, layout.number_bytes, self.slowdown)
                        self._passes[known] = items, made
                    return self._passes[known][1]

                return BlockTimes.of(block, time, parts=layout.parts_gradients, others=layers)

            self._blocks[key] = {n: BlockTimes.slowest([times(one, kind) for kind in kinds]) for n, one in work.blocks.items()}
        return self._blocks[key]

    def _tail(self, work: LayoutWork, stage: int, lane: Lane, blocks: list[dict[str, BlockTimes]]) -> tuple[float, float, float]:
        """Exposed seconds of gradient synchronisation and of parameter gathering, and the optimizer's.

        With ``overlap_dp`` the gradients of a layer, of the embedding or of the head go as soon as the last micro-batch's
        backward pass has made them, and a part of the parameters is wanted when the first forward pass gets there: what is
        made last, or wanted first, hides behind nothing. The two copies of a tied table are summed when all that is done.
        """
        layout, held, groups = work.layout, work.stages[stage], lane.at(stage)
        sync, gather = (
            [(str(m.axis), self.message_s(m, layout, groups[m.axis])) for m in items] for items in (held.sync, held.gather)
        )
        sync_s, gather_s = (sum(seconds for _, seconds in messages) for messages in (sync, gather))
        if layout.overlap_dp and sync_s > 0:
            by_block = [(axis, seconds) for axis, seconds in sync if axis not in BETWEEN_STAGES]
            last_s = sum(seconds for axis, seconds in sync if axis in BETWEEN_STAGES)
            sync_s = last_s + self.exposed_s(work.at(stage), stage, blocks[stage], by_block, sync_s - last_s, is_backward=True)
        if layout.overlap_dp and gather_s > 0:
            gather_s = self.exposed_s(work.at(stage), stage, blocks[stage], gather, gather_s, is_backward=False)
        return sync_s, gather_s, self.optimizer_s(work, stage, lane.kinds_at(stage))

    def exposed_s(
        self,
        work: LayoutWork,
        stage: int,
        blocks: dict[str, BlockTimes],
        messages: list[tuple[str, float]],
        whole_s: float,
        *,
        is_backward: bool,
        way_s: float = 0.0,
    ) -> float:
        """Seconds of messages that go block by block: what passes do not hide, and what the rest slows them down.

        Args:
            work: the layout.
            stage: which.
            blocks: times of its blocks.
            messages: axis and seconds of each.
            whole_s: seconds of all.
            is_backward: whether they follow the last backward passes, else the first forward ones wait for them.
            way_s: of a transfer between two chunks of the stage.
        """
        kind = (2 if work.layout.parts_gradients else 1) if is_backward else 0
        seconds = {name: times.task_s()[kind] for name, times in blocks.items()}
        spans = stage_spans(work, stage, seconds, is_backward=is_backward, way_s=way_s)
        shown_s = (exposed_after if is_backward else exposed_before)(spans, messages)
        return shown_s + (self.slowdown - 1) * max(0.0, whole_s - shown_s)

    def _hidden_s(self, work: LayoutWork, stage: int, lane: Lane, passes: Sequence[Done], tail_s: float) -> float:
        """Seconds of communication in a step that a stage is taken to hide, as no run did that was predicted.

        Those of input gradients beside weight gradients were hidden in such runs; they do not count.
        """
        layout, held = work.layout, work.stages[stage]
        hidden_s = 0.0
        for times, _, one in passes:
            hidden_s += times * sum(s for axis, s in one.hidden_s.items() if axis != "tp" or layout.overlap_tp)
        if layout.overlap_pp and layout.pp > 1:
            ends = ((stage == 0) + (stage == layout.pp - 1)) * (2 if layout.is_bidirectional else 1)
            sends = layout.micro_batches_per_chunk * (2 * layout.chunks_per_rank - ends)
            sent_s = self._sends(work, lane)
            hidden_s += sends * float(sent_s.sum() / (2 * (layout.pp - 1)) if layout.is_bidirectional else sent_s.mean())
        if layout.overlap_dp:
            whole_s = sum(self.message_s(item, layout, lane.at(stage)[item.axis]) for item in (*held.sync, *held.gather))
            hidden_s += max(0.0, whole_s - tail_s)
        return hidden_s

    def _peak_flops_per_s(self, layout: Layout) -> float:
        """Peaks of all ranks together."""
        if self.kinds is None:
            return layout.world * self.device.peak_flops_per_s
        counts = np.bincount(np.concatenate(self.kinds.of_ranks(layout, self.order)), minlength=len(self.models))
        return sum(int(number) * one.device.peak_flops_per_s for number, one in zip(counts, self.models, strict=True))
