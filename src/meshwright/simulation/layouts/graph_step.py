"""A pipeline of any job graph as the lowering reads it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...costs.pipelines.schedules import FORWARD
from ...costs.process_groups.group_network import GroupNetwork, PlacedNetwork
from ...costs.process_groups.lanes import Stand
from ...costs.work.graph_memory import graph_stage_memory, kept_bytes, most_kept_bytes
from ...costs.work.graph_work import GraphWork
from ...costs.work.memory import FRAGMENTATION
from ...costs.work.operations import Message
from ...plans.partition import Layout
from .pass_segments import Segments, Template


@dataclass(frozen=True, eq=False)
class GraphStep:
    """A job graph under a layout; see `step_model.Step`.

    Attributes:
        work: what the stages do.
        wires: prices messages.
    """

    work: GraphWork
    wires: GroupNetwork
    _templates: dict[tuple[int, int, bool], Template] = field(default_factory=dict, repr=False)

    @property
    def layout(self) -> Layout:
        """How the job is cut."""
        return self.work.layout

    def template(self, chunk: int, kind: int, *, cut: bool) -> Template:
        """The ops of a chunk, one after the other; a block each."""
        key = chunk, kind, cut
        if key not in self._templates:
            work, graph = self.work, self.work.graph
            is_forward = kind == FORWARD
            seconds, size = (work.forward_s, graph.parameter_bytes) if is_forward else (work.backward_s, work.gradient_bytes)
            flops = graph.forward_flops if is_forward else graph.backward_flops
            share = work.share
            made = Segments(f"chunk {chunk}", lambda message: False, cut)
            for op in (work.chunks[chunk] if is_forward else work.chunks[chunk][::-1]).tolist():
                moved = share * float(graph.moved_bytes[op]) + (1 - share) * float(graph.parameter_bytes[op])
                made.begin()
                made.run(graph.op_names[op], float(seconds[op]), share * float(flops[op]), (1 if is_forward else 2) * moved)
                made.end(graph.op_names[op], float(size[op]))
            self._templates[key] = made.template()
        return self._templates[key]

    def boundary(self, chunk: int, kind: int) -> tuple[Message, ...]:
        """What goes to the next chunk, or its gradient to the one before."""
        return self.work.boundary(chunk if kind == FORWARD else chunk - 1)

    def sync(self, stage: int) -> tuple[Message, ...]:
        """Gradients."""
        return self.work.sync(stage)

    def gather(self, stage: int) -> tuple[Message, ...]:
        """Parameters."""
        return self.work.gather(stage)

    def optimizer_s(self, stage: int) -> float:
        """None is counted, as for op splits."""
        return 0.0

    def on(self, devices: NDArray[np.int64]) -> GraphStep:
        """The same step of ranks that stand on these devices, in the layout's own numbering."""
        return replace(self, wires=self.wires.on(devices)) if isinstance(self.wires, PlacedNetwork) else self

    def message_s(self, message: Message, group: Stand) -> float:
        """As the analytic path prices it."""
        return self.wires.group_s(message.operation, message.payload_bytes, group)

    def held_bytes(self, stage: int) -> float:
        """Everything but what micro-batches keep for their backward passes; see `costs.work.graph_memory`."""
        return graph_stage_memory(self.work, stage).total - (1 + FRAGMENTATION) * most_kept_bytes(self.work, stage)

    def kept_bytes(self, chunk: int) -> float:
        """Activations of a chunk that a micro-batch keeps for its backward pass, with what an allocator cannot reuse of them."""
        return (1 + FRAGMENTATION) * kept_bytes(self.work, chunk)
