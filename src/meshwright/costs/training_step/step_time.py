"""The analytic time of one step of a transformer under a layout, and what it consists of, see `StepPricer`.

Passes are priced once for each block (`passes`), chunks are sums of blocks. Everything that layouts share is kept, so that
a search over thousands of layouts prices each in well under a millisecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...clusters.cluster import Cluster
from ...devices import DeviceType
from ...errors import PlanError
from ...jobs.transformer import TransformerShape
from ...plans.frameworks.defaults import TRAITS
from ...plans.partition import Layout
from ..block_times.block_times import BlockTimes
from ..block_times.chunk_times import Done, both_ways_s, chunk_task_s, done, done_both_ways
from ..host_update import shared_parameters
from ..pipelines.bidirectional import num_tasks
from ..pipelines.schedules import orders
from ..pipelines.steady_steps import PlayedPipeline, ends_s
from ..process_groups.device_kinds import DeviceKinds
from ..process_groups.group_network import GroupNetwork, PlacedNetwork
from ..process_groups.lanes import Lane, ProcessGroup
from ..settings import CostSettings
from ..work.layer import BlockWork
from ..work.operations import Message, Pass, axes_of
from ..work.stage_work import once
from ..work.work import LayoutWork, describe
from .gradient_overlap import Spans, stage_spans
from .kernels import KernelModel, device_kinds, kernel_model
from .passes import PassTime, Steps, steps_of, time_of
from .stage_crossings import Resharding, ways_s
from .step_figures import StepTime, step_flops
from .step_pricer import PlacedMessage, StepPricer
from .uncertainty import RUN_UNCERTAINTY, fused_attention_s, operations, per_step, steps_under
from .uneven_steps import Passes, UnevenStep


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
    _passes: dict[object, PassTime] = field(default_factory=dict, repr=False, compare=False)
    _steps: dict[object, tuple[Pass, tuple[str, ...], Steps]] = field(default_factory=dict, repr=False, compare=False)
    _times: dict[object, tuple[Any, ...]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_cluster(
        cls,
        cluster: Cluster,
        costs: CostSettings,
        wires: GroupNetwork | None = None,
        devices: NDArray[np.int64] | None = None,
    ) -> Self:
        """See `StepPricer.from_cluster`."""
        models, of_device = device_kinds(cluster, costs)
        made = replace(
            super().from_cluster(cluster, costs, wires, devices), kernels=models[0], resharding=Resharding.from_settings(costs)
        )
        return made if len(models) == 1 else replace(made, models=models, kinds=DeviceKinds(of_device, devices))

    @cached_property
    def model(self) -> KernelModel:
        """The kernel model of the first kind of device."""
        return self.kernels or kernel_model(self.device)

    def model_of(self, kind: int, layout: Layout) -> KernelModel:
        """Return the kernel model of a layout's framework on a kind of device."""
        return (self.models[kind] if self.models else self.model).under(layout.framework)

    def is_uneven(self, work: LayoutWork, lanes: tuple[Lane, ...]) -> bool:
        """Return whether hosts or devices differ, so that each lane is played by itself; stages of unequal meshes have one."""
        return isinstance(self.wires, PlacedNetwork) or (bool(lanes[0].kinds) and not work.meshes)

    def price(self, shape: TransformerShape, layout: Layout, sequence_length: int | None = None) -> StepTime:
        """Return the time of one step, and what it consists of.

        Raises:
            PlanError: the model cannot be cut so.
        """
        return self.price_work(describe(shape, layout, sequence_length))

    def busy(self, work: LayoutWork, ended: UnevenStep, lane: Lane) -> tuple[dict[str, float], dict[str, Any]]:
        """See `StepPricer.busy`."""
        stage, models = ended.stage, [self.model_of(kind, work.layout) for kind in lane.kinds_at(ended.stage)]
        uncertain = max(models, key=lambda one: one.constants.uncertainty)
        passes, tasks_s = self._done(work, stage, self.blocks_of(work, lane))
        total, issued_s = {"compute": 0.0, "recompute": 0.0}, 0.0
        for times, name, one in passes:
            total[name] += times * one.kernels_s
            for axis, seconds in one.exposed_s.items():
                total[f"exposed {axis}"] = total.get(f"exposed {axis}", 0.0) + times * seconds
            issued_s -= times * one.device_s
        total["host"] = issued_s + tasks_s
        known = steps_under(work.layout, work.shape.num_experts, uncertain.constants)
        doubts: dict[str, Any] = {
            "kernels": uncertain.constants.uncertainty,
            "fused_attention_s": per_step(work.at(stage), stage, lambda items: fused_attention_s(items, uncertain)),
            "hidden_s": self._hidden_s(work, stage, lane, passes, ended.sync_s + ended.gather_s),
            "utilisation": per_step(work.at(stage), stage, operations) / (ended.step_s * uncertain.device.peak_flops_per_s),
            "host_s": (0.0 if known is None else total["host"]) + (work.layout.offload != "none") * ended.optimizer_s,
            "runs": RUN_UNCERTAINTY,
            "steps": known if uncertain.step_uncertainty is None else uncertain.step_uncertainty,
        }
        if known is not None and TRAITS[work.layout.framework].hides_in_known_runs:
            doubts |= dict.fromkeys(("hidden_s", "utilisation"), 0.0)
        return total, doubts

    def flops(self, work: LayoutWork) -> tuple[float, float]:
        """See `StepPricer.flops`."""
        return step_flops(work)

    def lanes(self, work: LayoutWork) -> tuple[Lane, ...]:
        """Return the places of the groups of a layout, see `lanes`."""
        result = super().lanes(work)
        return result if self.kinds is None else self.kinds.lanes(result, work.layout, self.order, work.pass_axes)

    def passes_s(self, work: LayoutWork) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `StepPricer.passes_s`."""
        task_s = self.task_s(work, self.blocks_of(work, self.lanes(work)[0]))[:, 0]
        return task_s[:, 0], task_s[:, 1:].sum(axis=1)

    def backward_blocks(self, work: LayoutWork, stage: int) -> list[tuple[float, float]]:
        """See `StepPricer.backward_blocks`; a block is a layer, the embedding or the head."""
        blocks = self.blocks_of(work, self.whole(work.layout))[stage]
        seconds = {name: times.task_s[1 + work.layout.parts_gradients] for name, times in blocks.items()}
        spans = stage_spans(work, stage, seconds, is_backward=True)
        return [(own_s, dense) for number, own_s, dense, _ in spans.tolist() for _ in range(int(number))]

    def coding_devices(self, work: LayoutWork, stage: int) -> tuple[DeviceType, ...]:
        """See `StepPricer.coding_devices`."""
        return tuple(self.model_of(kind, work.layout).device for kind in self.whole(work.layout).kinds_at(stage))

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
        for item in () if work.meshes else work.boundary:  # what is resharded is reported with all that it takes
            yield PlacedMessage("pipeline transfers", item, 1, lane.at(0)[item.axis])
        yield from super().messages(work, lane)

    def optimizer_s(self, work: LayoutWork, stage: int, kinds: Iterable[int] = (0,)) -> float:
        """Return the seconds in which a rank of a stage updates what it holds, the slowest of some kinds."""
        layout, parameters = work.layout, work.stages[stage].optimizer_parameters
        widths, models = (layout.gradient_bytes, layout.optimizer_bytes), [self.model_of(kind, layout) for kind in kinds]
        if layout.offload == "optimizer":
            return self.offloaded_s(work, stage, kinds, self.order)
        return max(model.optimizer_s(parameters, *widths) for model in models)

    def offloaded_s(self, work: LayoutWork, stage: int, kinds: Iterable[int], order: str | None) -> float:
        """Return the seconds of `optimizer_s` where hosts do it; with no order of ranks at least, of their processors alone."""
        layout, host = work.layout, (self.models or (self.model,))[-1].host
        most = host.num_devices if isinstance(self.wires, PlacedNetwork) else min(host.num_devices, self.wires.devices_per_host)
        shared = shared_parameters(work, stage, order, most)
        if order is None:
            return host.update_s(0.0, shared, layout, self.device)
        held, models = work.stages[stage].optimizer_parameters, [self.model_of(kind, layout) for kind in kinds]
        slowest_s = max(host.update_s(held, shared, layout, model.device) for model in models)
        return slowest_s + max(model.constants.step_overhead_ms for model in models) / 1e3

    def whole(self, layout: Layout) -> Lane:
        """See `StepPricer.whole`."""
        lane = super().whole(layout)
        return lane if self.kinds is None else self.kinds.whole(lane, layout, self.order)

    def deciding_stages(self, work: LayoutWork, lane: Lane) -> Iterable[int]:
        """Return the first, the second and the last stage, or all where layers are of several kinds, see
        `StepPricer.deciding_stages`.
        """
        last = work.layout.pp - 1
        are_alike = len(work.block_weights) == 3 and not work.meshes and not lane.kinds and work.layout.stage_layers is None
        are_alike &= not work.layout.is_bidirectional and work.layout.offload == "none"
        return sorted({0, min(1, last), last}) if are_alike else range(last + 1)

    def unsent_span_s(self, work: LayoutWork, pipeline: PlayedPipeline, stage: int) -> float:
        """See `StepPricer.unsent_span_s`; the first and the last of a model with a tied table wait for each other."""
        return ends_s(pipeline.played, {stage: 0.0}, work.partners)[stage]

    def even_passes(self, work: LayoutWork, lane: Lane) -> Passes:
        """See `StepPricer.even_passes`; what the receiving ranks gather is a part of transfers."""
        task_s = self.task_s(work, self.blocks_of(work, lane))
        return Passes(task_s, self._sends(work, lane), task_s)

    def placed(self, work: LayoutWork) -> UnevenStep:
        """See `StepPricer.placed`.

        Raises:
            PlanError: long skips.
        """
        if work.shape.long_skips is not None:
            problem = "long skips are priced on equal hosts and devices only"
            raise PlanError(problem, field="long_skips", value=work.shape.long_skips)
        return super().placed(work)

    def passes(self, work: LayoutWork, lane: Lane) -> Passes:
        """See `StepPricer.passes`; what the receiving ranks gather counts where they are."""
        layout, pp, v = work.layout, work.layout.pp, work.layout.virtual_stages
        computed_s = self.task_s(work, self.blocks_of(work, lane))
        send_s, gather_s, task_s = np.zeros((len(lane.ways), pp)), np.zeros(pp), computed_s.copy()
        for item in work.boundary:
            if item.axis == "pp":
                send_s += [[self.message_s(item, layout, group) for group in way] for way in lane.ways]
            else:
                gather_s += [self.message_s(item, layout, groups[item.axis]) for groups in lane.stages]
        if layout.overlap_pp:
            send_s += np.maximum(np.roll(gather_s, -1), gather_s)  # forward on the one side, backward on the other
        else:  # the first chunk is given nothing forward, the last one nothing backward
            task_s[:, :, :2] += gather_s[:, None, None]
            task_s[0, 0, 0] -= gather_s[0]
            task_s[-1, v - 1, 1] -= gather_s[-1]
        if layout.is_bidirectional:  # at the fold nothing is sent
            forward_s, backward_s = send_s[0, :-1], send_s[-1, :-1]
            ways = [[forward_s, backward_s[::-1]], [backward_s, forward_s[::-1]]][: len(send_s)]
            return Passes(task_s, np.concatenate([[*first, 0.0, *then, 0.0] for first, then in ways]), computed_s)
        return Passes(task_s, np.tile(send_s, v).reshape(-1), computed_s)

    def blocks_of(self, work: LayoutWork, lane: Lane) -> list[dict[str, BlockTimes]]:
        """Return the times of the blocks of each stage."""
        blocks = [self._block_times(work.at(n), groups, lane.kinds_at(n)) for n, groups in enumerate(lane.stages)]
        return blocks * work.layout.pp if lane.are_stages_equal else blocks

    def task_s(self, work: LayoutWork, blocks: list[dict[str, BlockTimes]]) -> NDArray[np.float64]:
        """Return the seconds of the tasks of each chunk, ``(p, v, 3)``."""
        task_s = np.empty((work.layout.pp, work.layout.chunks_per_rank, 5 if work.layout.is_bidirectional else 3))
        known: dict[tuple[object, ...], tuple[float, ...]] = {}
        for chunk in work.chunks:
            of_stage, other = blocks[chunk.stage], work.other_chunk(chunk)
            kind = (
                (id(of_stage), chunk.parts) if other is None else (id(of_stage), chunk.runs, chunk.parts, other.runs, other.parts)
            )
            if kind not in known:
                known[kind] = chunk_task_s(of_stage, chunk.parts) if other is None else both_ways_s(of_stage, chunk, other)
            task_s[chunk.stage, chunk.place] = known[kind]
        return task_s

    def _done(self, work: LayoutWork, stage: int, blocks: list[dict[str, BlockTimes]]) -> tuple[list[Done], float]:
        """Return the passes of a stage in a step, and how long it is busy with them."""
        layout, m, mine = work.layout, work.layout.num_micro_batches, [chunk for chunk in work.chunks if chunk.stage == stage]
        if layout.is_bidirectional:
            numbers = num_tasks(orders(layout.schedule, layout.pp, 2, m))[stage]
            passes = [
                one for chunk, n in zip(mine, numbers, strict=True) for one in done_both_ways(work, chunk, blocks[stage], n)
            ]
            return passes, float((numbers * self.task_s(work, blocks)[stage]).sum())
        passes = [one for chunk in mine for one in done(blocks[stage], chunk.parts, m)]
        return passes, m * sum(sum(chunk_task_s(blocks[stage], chunk.parts)) for chunk in mine)

    def _sends(self, work: LayoutWork, lane: Lane) -> NDArray[np.float64]:
        """Return seconds of a transfer between each chunk of the model and the next, ``(p v,)``, or both ways, ``(2 p v,)``."""
        if not work.has_plain_boundary:
            return ways_s(work, lane, self.wires, self.resharding, self.message_s)
        layout, total = work.layout, np.zeros(work.layout.pp)
        for item in work.boundary:
            known = {group: self.message_s(item, layout, group) for group in lane.transfers} if item.axis == "pp" else {}
            total += [known[g] for g in lane.boundary] if known else self.message_s(item, layout, lane.at(0)[item.axis])
        if layout.is_bidirectional:  # there and back again; at the fold nothing is sent
            return np.concatenate([total[:-1], [0.0], total[-2::-1], [0.0]])
        return np.tile(total, layout.virtual_stages)

    def _block_times(
        self, work: LayoutWork, at: Mapping[str, ProcessGroup] | None = None, kinds: tuple[int, ...] = (0,)
    ) -> dict[str, BlockTimes]:
        layout, groups = work.layout, self.lanes(work)[0].at(0) if at is None else at
        layers = {name: work.blocks[name] for name in work.layer_shapes} if layout.is_bidirectional else None
        # Besides the work itself the groups' places on the hosts decide, and whether a tied head sends its table on its own.
        weights = ("shard", "expert_dp") if layout.zero >= 3 or layout.reduces_in_passes else ()
        placed = {name: self.place(groups[name], layout) for name in ("tp", "cp", "ep", "etp", *weights)}
        places, parts = tuple(placed.values()), layout.parts_gradients
        key = (work.shape, work.key, parts, layout.is_bidirectional, kinds, places, weights and layout.pp > 1)
        if key not in self._blocks:

            def seconds(item: Message) -> float:
                return self.message_s(item, layout, groups[item.axis])

            def times(block: BlockWork, kind: int) -> BlockTimes:
                at = places if layers else tuple(placed[axis] for axis in block.axes)
                own = id(block), kind, at, parts, layers and tuple(map(id, layers.values()))
                made = once(self._times, own, lambda: (block, layers, priced(block, kind)))  # what an id names stays
                result: BlockTimes = made[-1]
                return result

            def priced(block: BlockWork, kind: int) -> BlockTimes:
                def time(items: Pass) -> PassTime:
                    of_items = id(items), kind  # the items stay, so that the id stays theirs
                    if of_items not in self._steps:
                        model = self.model_of(kind, layout)
                        self._steps[of_items] = items, axes_of(items), steps_of(items, model, layout.number_bytes)
                    _, axes, steps = self._steps[of_items]
                    known = *of_items, *[placed[axis] for axis in axes]
                    if (made := self._passes.get(known)) is None:
                        made = self._passes[known] = time_of(steps, self.model_of(kind, layout), seconds, self.slowdown)
                    return made

                return BlockTimes.from_work(block, time, parts=parts, others=layers)

            self._blocks[key] = {n: BlockTimes.slowest([times(one, kind) for kind in kinds]) for n, one in work.blocks.items()}
        return self._blocks[key]

    def spans(self, work: LayoutWork, stage: int, lane: Lane, *, is_backward: bool, way_s: float) -> Spans:
        """See `StepPricer.spans`; a block is a layer, the embedding or the head."""
        work = work.at(stage)
        kind = (2 if work.layout.parts_gradients else 1) if is_backward else 0
        blocks = self._block_times(work, lane.at(stage), lane.kinds_at(stage))
        seconds = {name: times.task_s[kind] for name, times in blocks.items()}
        return stage_spans(work, stage, seconds, is_backward=is_backward, way_s=way_s)

    def _hidden_s(self, work: LayoutWork, stage: int, lane: Lane, passes: Sequence[Done], tail_s: float) -> float:
        """Return seconds of communication in a step that a stage is taken to hide, as no run did that was predicted.

        Such runs did hide messages of input gradients behind weight gradients; these do not count.
        """
        layout, hidden_s = work.layout, 0.0
        for times, _, one in passes:
            hidden_s += times * sum(s for axis, s in one.hidden_s.items() if axis != "tp" or layout.overlap_tp)
        if layout.overlap_pp and layout.pp > 1:
            ends = ((stage == 0) + (stage == layout.pp - 1)) * (2 if layout.is_bidirectional else 1)
            sends = layout.micro_batches_per_chunk * (2 * layout.chunks_per_rank - ends)
            sent_s = self._sends(work, lane)
            hidden_s += sends * float(sent_s.sum() / (2 * (layout.pp - 1)) if layout.is_bidirectional else sent_s.mean())
        return hidden_s + self.hidden_tail_s(work, stage, lane, tail_s)

    def peak_flops_per_s(self, layout: Layout) -> float:
        """See `StepPricer.peak_flops_per_s`."""
        if self.kinds is None:
            return super().peak_flops_per_s(layout)
        counts = np.bincount(np.concatenate(self.kinds.of_ranks(layout, self.order)), minlength=len(self.models))
        return sum(int(number) * one.device.peak_flops_per_s for number, one in zip(counts, self.models, strict=True))
