"""What the ranks of a layout do in a step, as the lowering reads it: a transformer's `LayoutWork`, priced.

`StepModel` is the form; a pipeline of any job graph has it too, see `graph_step`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...costs.pipelines.schedules import BACKWARD, FORWARD
from ...costs.process_groups.group_network import whole_lane
from ...costs.process_groups.lanes import Stand
from ...costs.training_step.gradient_overlap import block_parameters
from ...costs.training_step.passes import PassTime, pass_time
from ...costs.training_step.step_time import Pricer
from ...costs.work import memory
from ...costs.work.memory import FRAGMENTATION, activation_bytes, stage_memory
from ...costs.work.operations import Message, Pass, input_part, weight_part
from ...costs.work.work import LayoutWork
from ...plans.partition import Layout
from .pass_segments import Segments, Template


class StepModel(Protocol):
    """The work of every stage of a layout."""

    @property
    def layout(self) -> Layout:
        """How the job is cut."""
        ...

    def template(self, chunk: int, kind: int, *, cut: bool) -> Template:
        """The pass of a chunk; ``kind`` as in `costs.pipelines.schedules`, ``cut`` as in `pass_segments`."""
        ...

    def boundary(self, chunk: int, kind: int) -> tuple[Message, ...]:
        """What goes on when a chunk's forward or backward pass is done; the first goes between stages."""
        ...

    def sync(self, stage: int) -> tuple[Message, ...]:
        """What follows the last backward pass."""
        ...

    def gather(self, stage: int) -> tuple[Message, ...]:
        """What follows the optimizer."""
        ...

    def optimizer_s(self, stage: int) -> float:
        """Seconds of the optimizer."""
        ...

    def message_s(self, message: Message, group: Stand) -> float:
        """Seconds of a message over a group that stands so."""
        ...

    def held_bytes(self, stage: int) -> float:
        """What a rank holds all the time."""
        ...

    def kept_bytes(self, chunk: int) -> float:
        """Activations of a chunk that a micro-batch keeps for its backward pass."""
        ...


@dataclass(frozen=True, eq=False)
class TransformerStep:
    """A transformer under a layout.

    Attributes:
        work: what each rank does.
        pricer: prices kernels and messages.
    """

    work: LayoutWork
    pricer: Pricer
    _templates: dict[tuple[int, int, bool], Template] = field(default_factory=dict, repr=False)
    _times: dict[tuple[str, int, int], PassTime] = field(default_factory=dict, repr=False)

    @property
    def layout(self) -> Layout:
        """How the model is cut."""
        return self.work.layout

    def template(self, chunk: int, kind: int, *, cut: bool) -> Template:
        """The pass of a chunk, see `StepModel.template`.

        What the kernels of a block wait for the host, see `PassTime.seconds`, stands at its end.
        """
        key = chunk, kind, cut
        if key not in self._templates:
            self._templates[key] = self._made(chunk, kind, cut)
        return self._templates[key]

    def boundary(self, chunk: int, kind: int) -> tuple[Message, ...]:
        """The activations of a micro-batch, or their gradients."""
        return self.work.boundary

    def sync(self, stage: int) -> tuple[Message, ...]:
        """Gradients, see `work.StageWork`."""
        return self.work.stages[stage].sync

    def gather(self, stage: int) -> tuple[Message, ...]:
        """Parameters, see `work.StageWork`."""
        return self.work.stages[stage].gather

    def optimizer_s(self, stage: int) -> float:
        """Seconds of the update of what a rank holds."""
        return self.pricer.optimizer_s(self.work, stage)

    def on(self, devices: NDArray[np.int64]) -> TransformerStep:
        """The same step of ranks that stand on these devices, in the layout's own numbering."""
        pricer = self.pricer.on(devices)
        return self if pricer is self.pricer else replace(self, pricer=pricer, _templates={}, _times={})

    def message_s(self, message: Message, group: Stand) -> float:
        """As the analytic path prices it."""
        return self.pricer.message_s(message, self.layout, group)

    def held_bytes(self, stage: int) -> float:
        """Everything but the activations of layers; see `costs.work.memory`."""
        return stage_memory(self.work, stage).total - (1 + FRAGMENTATION) * activation_bytes(self.work, stage)

    def kept_bytes(self, chunk: int) -> float:
        """Activations of a chunk's layers, with what an allocator cannot reuse of them."""
        return (1 + FRAGMENTATION) * self.work.chunks[chunk].num_layers * memory.kept_bytes(self.work)

    def put_off_bytes(self, chunk: int) -> float:
        """What of them a weight gradient that is put off keeps."""
        return (1 + FRAGMENTATION) * self.work.chunks[chunk].num_layers * memory.put_off_bytes(self.work)

    def _made(self, chunk: int, kind: int, cut: bool) -> Template:
        blocks = self._blocks(chunk) if kind == FORWARD else self._blocks(chunk)[::-1]
        width = self.layout.number_bytes
        made = Segments(f"chunk {chunk}", self._moves, cut)
        for label, name, (dense, experts) in blocks:
            made.begin()
            for items in self._passes(name, kind):
                made.items(label, items, lambda item: self.pricer.model.kernel_s(item, width))
            time = self._time(name, kind, chunk % self.layout.pp)
            if time.seconds > time.device_s:
                made.run(label, time.seconds - time.device_s)
            made.end(label, dense, experts)
        return made.template()

    def _blocks(self, chunk: int) -> list[tuple[str, str, tuple[float, float]]]:
        """Label, kind and parameters of each block, in forward order."""
        work, held = self.work, self.work.chunks[chunk]
        first = sum(other.num_layers for other in work.chunks[:chunk])
        layer = work.layer.dense_parameters, work.layer.expert_parameters
        blocks = [(f"layer {first + n}", "layer", layer) for n in range(held.num_layers)]
        if held.has_embedding:
            blocks.insert(0, ("embedding", "embedding", (work.embedding.dense_parameters, 0.0)))
        if held.has_head:
            blocks.append(("head", "head", (block_parameters(work, held.stage)["head"], 0.0)))
        return blocks

    def _passes(self, name: str, kind: int) -> tuple[Pass, ...]:
        block = {"layer": self.work.layer, "embedding": self.work.embedding, "head": self.work.head}[name]
        if kind == FORWARD:
            return (block.forward,)
        if not self.layout.parts_gradients:
            return block.recompute, block.backward
        return (block.recompute, input_part(block.backward)) if kind == BACKWARD else (weight_part(block.backward),)

    def _time(self, name: str, kind: int, stage: int) -> PassTime:
        """Of a block; where hosts are not alike, with the slowest groups of its stage."""
        lane = whole_lane(self.pricer.wires, self.layout, self.pricer.order)
        key = name, kind, 0 if lane.are_stages_alike else stage
        if key not in self._times:
            pricer, layout, groups, total = self.pricer, self.layout, lane.at(stage), PassTime()
            for items in self._passes(name, kind):
                total = total + pass_time(
                    items,
                    pricer.model,
                    lambda item: pricer.message_s(item, layout, groups[item.axis]),
                    self.layout.number_bytes,
                    pricer.slowdown,
                )
            self._times[key] = total
        return self._times[key]

    def _moves(self, message: Message) -> bool:
        return message.payload_bytes > 0 and self.pricer.message_s(message, self.layout) > 0
