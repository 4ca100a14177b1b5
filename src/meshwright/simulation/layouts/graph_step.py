"""A pipeline of any job graph as the lowering reads it."""

from __future__ import annotations

from dataclasses import dataclass

from ...costs.pipelines.tasks import FORWARD
from ...costs.training_step.graph_step_time import GraphPricer
from ...costs.work.graph_work import GraphWork
from .pass_segments import Segments, Template
from .step_model import StepModel


@dataclass(frozen=True, eq=False)
class GraphStep(StepModel):
    """A job graph under a layout; as for op splits no optimizer is counted."""

    work: GraphWork
    pricer: GraphPricer

    def _made(self, chunk: int, kind: int, cut: bool) -> Template:
        """The ops of a chunk, one after the other; a block each."""
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
    """An op of a cut volume: its inner positions beside its halos, then its borders, then what all wait for."""
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
