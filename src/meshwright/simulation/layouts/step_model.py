"""The work of a layout's ranks in a step, as the lowering reads it: `StepModel`, of a transformer and of any other job graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...costs.pipelines.tasks import AHEAD, BACKWARD, FORWARD, INPUT, WEIGHT
from ...costs.process_groups.device_kinds import DeviceKinds
from ...costs.process_groups.group_network import whole_lane
from ...costs.process_groups.lanes import ProcessGroup
from ...costs.resharding.crossings import Crossing
from ...costs.training_step.gradient_overlap import block_parameters
from ...costs.training_step.graph_step_time import GraphPricer
from ...costs.training_step.kernels import KernelModel
from ...costs.training_step.passes import PassTime, pass_time
from ...costs.training_step.step_pricer import StepPricer
from ...costs.training_step.step_time import Pricer
from ...costs.work.graph_work import GraphWork
from ...costs.work.operations import Message, Pass, input_part, side_by_side, weight_part
from ...costs.work.step_work import StepWork
from ...costs.work.work import LayoutWork
from ...plans.partition import Layout
from .pass_segments import Segments, Template


@dataclass(frozen=True, eq=False)
class StepModel(ABC):
    """The work of every stage of a layout.

    Attributes:
        work: what each rank does.
        pricer: prices messages, and kernels where the work has any.
        synced: messages behind the last backward pass of a stage in a step, in place of those that sum gradients; None: these.
        codecs: seconds in which a stage's gradients are encoded before they are sent, and decoded behind that; none unless coded.
        core: of a masked job, a step of its core; None where all steps are the same.
        cycle: steps of the core, and of this one behind them, that follow each other in turn.
    """

    work: StepWork
    pricer: StepPricer
    synced: Callable[[int, int], tuple[Message, ...]] | None = None
    codecs: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    core: StepModel | None = None
    cycle: tuple[int, int] = (0, 1)
    _templates: dict[tuple[int, int, bool], Template] = field(default_factory=dict, repr=False)

    @property
    def layout(self) -> Layout:
        """How the job is cut."""
        return self.work.layout

    def over(
        self, synced: Callable[[int, int], tuple[Message, ...]], codecs: Mapping[int, tuple[float, float]] | None = None
    ) -> Self:
        """Return the steps with other messages in place of those that sum gradients; these hide or not as the work says."""
        return replace(self, synced=synced, codecs=codecs or {})

    def at(self, step: int) -> StepModel:
        """Return the work of one of several steps; the same in each, unless a job has phases."""
        return self if self.core is None or step % sum(self.cycle) >= self.cycle[0] else self.core

    def template(self, chunk: int, kind: int, *, cut: bool) -> Template:
        """Return the pass of a chunk, or a pair by its forward pass; ``kind`` as in `pipelines.bidirectional`, ``cut`` as in
        `pass_segments`."""
        key = chunk, kind, cut
        if key not in self._templates:
            self._templates[key] = self._made(chunk, kind, cut)
        return self._templates[key]

    def rank_seconds(self, chunk: int, kind: int, *, cut: bool) -> NDArray[np.float64] | None:
        """Return seconds of the kernels of each entry of `template` on each rank, ``(entries, w)``; None if all take as long."""
        return None

    def rank_optimizer_s(self, stage: int) -> NDArray[np.float64] | None:
        """Return the seconds of the optimizer of each rank of a stage, ``(1, w)``; None where all take as long."""
        return None

    def on(self, devices: NDArray[np.int64]) -> Self:
        """Return the step of ranks on these devices, in the layout's own numbering."""
        pricer, core = self.pricer.on(devices), None if self.core is None else self.core.on(devices)
        if pricer is self.pricer:
            return self if core is self.core else replace(self, core=core)
        return type(self)(self.work, pricer, self.synced, self.codecs, core, self.cycle)

    def message_s(self, message: Message, group: ProcessGroup) -> float:
        """Return the seconds of a message over a group in its place, as the analytic path prices it."""
        return self.pricer.message_s(message, self.layout, group)

    def boundary(self, chunk: int, kind: int) -> tuple[Message, ...]:
        """Return the messages after a chunk's forward or backward pass; the first goes between stages."""
        return self.work.sent(chunk) if kind == FORWARD else self.work.returned(chunk)

    def crossing(self, chunk: int, kind: int) -> Crossing | None:
        """Return the messages that bring a tensor to a stage of another mesh instead; None where both have one mesh."""
        return None

    def sync(self, stage: int) -> tuple[Message, ...]:
        """Return the messages after the last backward pass of the first step."""
        return self.sync_at(stage, 0)

    def sync_at(self, stage: int, step: int) -> tuple[Message, ...]:
        """Return the messages after the last backward pass of a step; steps differ only where replicas agree now and then."""
        return self.work.sync(stage) if self.synced is None else self.synced(stage, step)

    def codec_s(self, stage: int) -> tuple[float, float]:
        """Return the seconds in which a stage's gradients are encoded, and decoded."""
        return self.codecs.get(stage, (0.0, 0.0))

    def gather(self, stage: int) -> tuple[Message, ...]:
        """Return the messages after the optimizer."""
        return self.work.gather(stage)

    def optimizer_s(self, stage: int) -> float:
        """Return the seconds of the update of what a rank holds; nothing where it is not counted."""
        return self.pricer.optimizer_s(self.work, stage)

    @abstractmethod
    def _made(self, chunk: int, kind: int, cut: bool) -> Template:
        """Return the pass of a chunk, see `template`."""


@dataclass(frozen=True, eq=False)
class TransformerStep(StepModel):
    """A transformer under a layout; waits for the host, see `PassTime.seconds`, are at the end of a block."""

    work: LayoutWork
    pricer: Pricer
    _times: dict[tuple[str, int, int, int], PassTime] = field(default_factory=dict, repr=False)

    def crossing(self, chunk: int, kind: int) -> Crossing | None:
        """See `StepModel.crossing`."""
        return self.pricer.resharding.crossing(self.work, chunk, kind, self.pricer.wires) if self.work.meshes else None

    @cached_property
    def kinds(self) -> list[NDArray[np.int64]] | None:
        """The kind of device of each rank of each stage, ``p`` arrays ``(w,)``; None where all are of one."""
        kinds: DeviceKinds | None = self.pricer.kinds
        return None if kinds is None else kinds.of_ranks(self.layout, self.pricer.order)

    def rank_seconds(self, chunk: int, kind: int, *, cut: bool) -> NDArray[np.float64] | None:
        """See `StepModel.rank_seconds`."""
        if self.kinds is None:
            return None
        made = [self._on_kind(chunk, kind, cut, device) for device in range(len(self.pricer.models))]
        seconds = np.array([[entry.seconds for entry in one.entries] for one in made])
        return np.asarray(seconds[self.kinds[self.layout.stage_of(chunk)]].T, np.float64)

    def rank_optimizer_s(self, stage: int) -> NDArray[np.float64] | None:
        """See `StepModel.rank_optimizer_s`."""
        if self.kinds is None:
            return None
        return np.array([[self.pricer.optimizer_s(self.work, stage, (kind,)) for kind in self.kinds[stage].tolist()]])

    def _made(self, chunk: int, kind: int, cut: bool) -> Template:
        return self._on_kind(chunk, kind, cut, 0)

    def _on_kind(self, chunk: int, kind: int, cut: bool, device: int) -> Template:
        """Return the pass of a chunk on a kind of device; its entries are the same on each."""
        model: KernelModel = self.pricer.model_of(device, self.layout)
        stage = self.layout.stage_of(chunk)
        width, groups = self.layout.number_bytes, whole_lane(self.pricer.wires, self.layout, self.pricer.order)
        at = groups.at(stage)
        made = Segments(f"chunk {chunk}", lambda one: one.payload_bytes > 0 and self.message_s(one, at[one.axis]) > 0, cut)
        for label, name, (dense, experts), of_block in self._in_order(chunk, kind):
            made.begin()
            for items in self._passes(name, of_block, stage):
                made.items(label, items, lambda item: model.kernel_s(item, width))
            times = [self._time(name, of_block, stage, other) for other in range(len(self.pricer.models) or 1)]
            if any(time.seconds > time.device_s for time in times):
                made.run(label, times[device].seconds - times[device].device_s)
            made.end(label, dense, experts)
        return made.template()

    def _in_order(self, chunk: int, kind: int) -> list[tuple[str, str, tuple[float, float], int]]:
        """Return `_blocks` in the order of a pass, with the kind of pass of each.

        Of a pair, two layers at a time are side by side, named by both with a tab between.
        """
        if kind != AHEAD:
            blocks = self._blocks(chunk)
            return [(*one, kind) for one in (blocks if kind == FORWARD else blocks[::-1])]
        forward, backward = self._blocks(chunk), self._blocks(2 * self.layout.pp - 1 - chunk)[::-1]
        ends = [
            (*one, of)
            for held, of in ((forward, FORWARD), (backward, BACKWARD))
            for one in held
            if one[1] in ("embedding", "head")
        ]
        layers = [[one for one in held if one[1] not in ("embedding", "head")] for held in (forward, backward)]
        paired = [(f"{a[0]} with {b[0]}", f"{a[1]}\t{b[1]}", (0.0, 0.0), AHEAD) for a, b in zip(*layers, strict=False)]
        left = [(*one, of) for held, of in zip(layers, (FORWARD, BACKWARD), strict=True) for one in held[len(paired) :]]
        return [*ends, *paired, *left]

    def _blocks(self, chunk: int) -> list[tuple[str, str, tuple[float, float]]]:
        """Label, kind and parameters of each block, in forward order."""
        held = self.work.chunks[chunk]
        work = self.work.at(held.stage)
        first = sum(other.num_layers for other in work.chunks[:chunk])
        names = [name for name, number in held.runs for _ in range(number)]
        parameters = {name: (block.dense_parameters, block.expert_parameters) for name, block in work.block_weights.items()}
        blocks = [(f"layer {first + n}", name, parameters[name]) for n, name in enumerate(names)]
        if held.has_embedding:
            blocks.insert(0, ("embedding", "embedding", (work.block_weights["embedding"].dense_parameters, 0.0)))
        if held.has_head:
            blocks.append(("head", "head", (block_parameters(work, held.stage)["head"], 0.0)))
        return blocks

    def _passes(self, name: str, kind: int, stage: int) -> tuple[Pass, ...]:
        blocks = self.work.at(stage).blocks
        if kind == AHEAD:
            forward, backward = (blocks[one] for one in name.split("\t"))
            return (side_by_side(forward.forward, (*backward.recompute, *backward.backward)),)
        block = blocks[name]
        if kind == FORWARD:
            return (block.forward,)
        if kind == WEIGHT:
            return (weight_part(block.backward),)
        parts = self.layout.parts_gradients or kind == INPUT
        return block.recompute, input_part(block.backward) if parts else block.backward

    def _time(self, name: str, kind: int, stage: int, device: int) -> PassTime:
        """Return the time of a block's pass; where hosts differ, with the slowest groups of its stage."""
        lane = whole_lane(self.pricer.wires, self.layout, self.pricer.order)
        key = name, kind, 0 if lane.are_stages_equal else stage, device
        if key not in self._times:
            pricer, layout, groups, total = self.pricer, self.layout, lane.at(stage), PassTime()
            for items in self._passes(name, kind, stage):
                total = total + pass_time(
                    items,
                    pricer.model_of(device, self.layout),
                    lambda item: pricer.message_s(item, layout, groups[item.axis]),
                    self.layout.number_bytes,
                    pricer.slowdown,
                )
            self._times[key] = total
        return self._times[key]


@dataclass(frozen=True, eq=False)
class GraphStep(StepModel):
    """A job graph under a layout; as for op splits no optimizer is counted."""

    work: GraphWork
    pricer: GraphPricer

    def _made(self, chunk: int, kind: int, cut: bool) -> Template:
        """Return the ops of a chunk, one after the other; a block each."""
        work, graph, share = self.work, self.work.graph, self.work.share
        is_forward = kind == FORWARD
        seconds, size = (work.forward_s, graph.parameter_bytes) if is_forward else (work.backward_s, work.gradient_bytes)
        flops = graph.forward_flops if is_forward else graph.backward_flops
        made = Segments(f"chunk {chunk}", lambda message: False, cut)
        for op in (work.chunks[chunk] if is_forward else work.chunks[chunk][::-1]).tolist():
            moved = share * float(graph.moved_bytes[op]) + (1 - share) * float(graph.parameter_bytes[op])
            made.begin()
            work_of_op = float(seconds[op]), share * float(flops[op]), (1 if is_forward else 2) * moved
            if work.volume is None:
                made.run(graph.op_names[op], *work_of_op)
            else:
                _exchanged(made, work, op, is_forward, *work_of_op)
            made.end(graph.op_names[op], float(size[op]))
        return made.template()


def _exchanged(
    made: Segments, work: GraphWork, op: int, is_forward: bool, seconds: float, flops: float, moved_bytes: float
) -> None:
    """Lower an op of a cut volume: its inner positions during the exchange of halos, then its borders, then what all wait for."""
    assert work.volume is not None
    parts, name = float(work.volume.parts[op]), work.graph.op_names[op]
    passes = [(work.volume.forward[op], seconds)]
    if not is_forward:
        again_s = float(work.forward_s[op]) if work.layout.recompute == "full" else 0.0
        passes = [(work.volume.backward[op], seconds - again_s)]
        passes = [(work.volume.forward[op], again_s), *passes] if again_s else passes
    for exchange, own_s in passes:
        share = own_s / seconds / parts if seconds else 0.0
        edge = exchange.boundary
        made.exchange(exchange.halos, name, (1 - edge) * own_s, (1 - edge) * share * flops, (1 - edge) * share * moved_bytes)
        if edge:
            made.run(name, edge * own_s, edge * share * flops, edge * share * moved_bytes)
        for message in exchange.waited:
            made.wait(message)
