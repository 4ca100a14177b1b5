"""The analytic time of one step of any job graph under a layout, and what it consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ...plans.partition import Layout
from ..pipelines.steady_steps import PlayedPipeline, chunk_step_s
from ..process_groups.group_network import GroupNetwork, PlacedNetwork
from ..process_groups.lanes import Lane, ProcessGroup
from ..work.graph_work import GraphWork
from ..work.halos import OpExchange
from .gradient_overlap import Spans
from .step_pricer import PlacedMessage, StepPricer
from .trailing_collectives import Pieces, chunk_gaps_s, chunk_tails, hide_between_chunks, spans_of
from .uneven_steps import Passes, Tail, UnevenStep

PROFILED_UNCERTAINTY = 0.05
"""Relative standard deviation of a profiled step that is run as it was profiled: what repeated runs differ by. An assumption."""

DIVIDED_UNCERTAINTY = 0.2
"""The same where a micro-batch has fewer samples than the profile: its ops are taken to cost their share, which small
kernels exceed. An assumption."""

ROOFLINE_UNCERTAINTY = 0.4
"""The same of a roofline. The five transformers of the zoo, whose kernels a calibrated model prices too, take 0.5 to 1.5 times
the roofline's time. This is the root mean square of these factors' logarithms, rounded up.
"""


@dataclass(frozen=True)
class GraphPricer(StepPricer):
    """Prices layouts of any job graph.

    Attributes:
        peaks_flops_per_s: of each rank's device, in rank order, where they are of several types.
    """

    counts_update = False
    slowdown: float = 1.0
    peaks_flops_per_s: tuple[float, ...] = field(default=(), kw_only=True)

    def is_uneven(self, work: GraphWork, lanes: tuple[Lane, ...]) -> bool:
        """See `StepPricer.is_uneven`."""
        return is_uneven(self.wires, work.layout)

    def busy(self, work: GraphWork, ended: UnevenStep, lane: Lane) -> tuple[dict[str, float], dict[str, Any]]:
        """See `StepPricer.busy`."""
        layout, graph, ops = work.layout, work.graph, work.ops_of(ended.stage)
        m, again = layout.num_micro_batches, layout.recompute == "full"
        forward_s, backward_s = float(work.forward_s[ops].sum()), float(work.backward_s[ops].sum())
        forward, backward = float(graph.forward_flops[ops].sum()), float(graph.backward_flops[ops].sum())
        operations, seconds = m * work.share * (forward * (1 + again) + backward), ended.step_s
        return {
            "compute": m * (forward_s + backward_s - again * forward_s),
            "recompute": m * again * forward_s,
            **self._halos_s(work, ended.stage, lane),
        }, {
            "kernels": op_uncertainty(work),
            "fused_attention_s": 0.0,
            "hidden_s": self._hidden_s(work, ended.stage, lane, ended.sync_s + ended.gather_s),
            "utilisation": operations / (seconds * self.device.peak_flops_per_s) if seconds > 0 else 0.0,
        }

    def flops(self, work: GraphWork) -> tuple[float, float]:
        """See `StepPricer.flops`."""
        layout, graph = work.layout, work.graph
        times = layout.dp * layout.num_micro_batches * work.share
        forward_flops = times * float(graph.forward_flops.sum())
        model_flops = forward_flops + times * float(graph.backward_flops.sum())
        return model_flops, model_flops + (layout.recompute == "full") * forward_flops

    def peak_flops_per_s(self, layout: Layout) -> float:
        """See `StepPricer.peak_flops_per_s`."""
        return sum(self.peaks_flops_per_s[: layout.world]) or super().peak_flops_per_s(layout)

    def passes_s(self, work: GraphWork) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `StepPricer.passes_s`."""
        results = [(work.forward_s[work.ops_of(s)].sum(), work.backward_s[work.ops_of(s)].sum()) for s in range(work.layout.pp)]
        seconds = np.array(results, np.float64)
        return seconds[:, 0], seconds[:, 1]

    def backward_blocks(self, work: GraphWork, stage: int) -> list[tuple[float, float]]:
        """See `StepPricer.backward_blocks`; a block is an op."""
        ops = work.ops_of(stage)[::-1]
        total = float(work.gradient_bytes[ops].sum()) or 1.0
        return list(zip(work.backward_s[ops].tolist(), (work.gradient_bytes[ops] / total).tolist(), strict=True))

    def in_order(self, order: str, wires: GroupNetwork | None = None) -> Self:
        """See `StepPricer.in_order`."""
        return replace(self, order=order, wires=wires or self.wires)

    def messages(self, work: GraphWork, lane: Lane) -> Iterator[PlacedMessage]:
        """See `StepPricer.messages`."""
        yield from super().messages(work, lane)
        for chunk, ops in enumerate(work.chunks):
            groups = lane.at(chunk % work.layout.pp)
            for exchange in () if work.volume is None else (work.volume.forward, work.volume.backward):
                sent = [message for op in ops.tolist() for message in exchange[op].messages]
                yield from (PlacedMessage("halo exchange", item, 1, groups[item.axis]) for item in sent)
            group = lane.boundary[chunk % work.layout.pp]
            yield from (PlacedMessage("pipeline transfers", item, 1, group) for item in work.sent(chunk))
            if work.is_direct and chunk:
                group = lane.boundary[(chunk - 1) % work.layout.pp]
                yield from (PlacedMessage("pipeline transfers", item, 1, group) for item in work.returned(chunk))

    def ended(self, work: GraphWork, lane: Lane, pipeline: PlayedPipeline) -> tuple[float, int, Tail]:
        """See `StepPricer.ended`; chunks may hide gradients and parameters between each other."""
        if not hide_between_chunks(work.layout):
            seconds, last, (sync_s, gather_s, _) = super().ended(work, lane, pipeline)
            return seconds, last, (float(sync_s), float(gather_s), 0.0)
        stages = [self._pieces(work, stage, lane) for stage in range(work.layout.pp)]
        hidden = chunk_tails(work.layout, self.wires, self.order, self.slowdown, stages)
        seconds, last, sync_s = chunk_step_s(pipeline, hidden)
        gather_s = float(hidden.waits_s[last, 0] + hidden.slowed_s[last])
        return seconds, last, (min(sync_s, seconds - gather_s - float(pipeline.played.busy_s[last])), gather_s, 0.0)

    def spans(self, work: GraphWork, stage: int, lane: Lane, *, is_backward: bool, way_s: float) -> Spans:
        """See `StepPricer.spans`; a block is an op."""
        backward, forward = self._pieces(work, stage, lane)
        return spans_of(backward)[::-1].copy() if is_backward else spans_of(forward)

    def chunk_gaps_s(
        self, work: GraphWork, stage: int, messages_s: list[float], *, is_backward: bool
    ) -> NDArray[np.float64] | None:
        """See `StepPricer.chunk_gaps_s`."""
        if not hide_between_chunks(work.layout):
            return None
        pieces = self._pieces(work, stage, self.whole(work.layout))[0 if is_backward else 1]
        return chunk_gaps_s(pieces, np.array(messages_s), has_ended=is_backward)

    def passes(self, work: GraphWork, lane: Lane) -> Passes:
        """See `StepPricer.passes`; what is sent directly is in the passes: a stage of one chunk continues when all is sent."""
        computed_s, num_chunks = self._task_s(work, lane), len(work.chunks)
        if not work.is_direct:
            return Passes(computed_s, self._sends_s(work, lane), computed_s)
        task_s = computed_s.copy()
        for chunk in range(num_chunks):
            sends = (work.sent(chunk), chunk), (work.returned(chunk), chunk - 1)
            for kind, (messages, way) in enumerate(sends):
                for message in messages:
                    task_s[chunk, 0, kind] += self.message_s(message, work.layout, lane.ways[-kind][way % work.layout.pp])
        return Passes(task_s, np.zeros(num_chunks), computed_s)

    def _sends_s(self, work: GraphWork, lane: Lane) -> NDArray[np.float64]:
        """Return the seconds of a transfer from each chunk to the next one, ``(k,)``, or forward and then back, ``(2 k,)``."""
        send_s = np.zeros((len(lane.ways), len(work.chunks)))
        for way, groups in enumerate(lane.ways):
            for chunk in range(len(work.chunks)):
                for message in work.sent(chunk):
                    send_s[way, chunk] = self.message_s(message, work.layout, groups[chunk % work.layout.pp])
        return send_s.reshape(-1)

    def _passes_s(self, work: GraphWork, lane: Lane) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return seconds of a micro-batch forward and backward through each op, with what its rank waits for in its volume."""
        volume, again = work.volume, work.layout.recompute == "full"
        if volume is None:
            return work.forward_s, work.backward_s
        forward_s, backward_s = work.forward_s.copy(), work.backward_s.copy()
        for chunk, ops in enumerate(work.chunks):
            groups = lane.at(chunk % work.layout.pp)

            def own_s(exchange: OpExchange, seconds: float, groups: Mapping[str, ProcessGroup] = groups) -> float:
                sent_s = [self.message_s(message, work.layout, groups[message.axis]) for message in exchange.messages]
                inner_s, halo_s = (1 - exchange.boundary) * seconds, sum(sent_s[: len(exchange.halos)])
                overlapped_s = max(inner_s, halo_s) + (self.slowdown - 1) * min(inner_s, halo_s)
                return overlapped_s + exchange.boundary * seconds + sum(sent_s[len(exchange.halos) :])

            for op in ops.tolist():
                computed_s = float(work.forward_s[op])
                forward_s[op] = own_s(volume.forward[op], computed_s)
                backward_s[op] = own_s(volume.backward[op], float(work.backward_s[op]) - again * computed_s)
                backward_s[op] += again * forward_s[op]
        return forward_s, backward_s

    def _halos_s(self, work: GraphWork, stage: int, lane: Lane) -> dict[str, float]:
        """Return the seconds of a step that a rank of a stage waits for others of its volume; nothing where none is cut."""
        if work.volume is None:
            return {}
        ops, (forward_s, backward_s) = work.ops_of(stage), self._passes_s(work, lane)
        waited_s = (forward_s + backward_s - work.forward_s - work.backward_s)[ops].sum()
        return {"halo exchange": work.layout.num_micro_batches * float(waited_s)}

    def _task_s(self, work: GraphWork, lane: Lane) -> NDArray[np.float64]:
        """Return the seconds of the passes of each chunk, ``(p, v, 3)``."""
        layout, (forward_s, backward_s) = work.layout, self._passes_s(work, lane)
        task_s = np.zeros((layout.pp, layout.virtual_stages, 3))
        for chunk, ops in enumerate(work.chunks):
            task_s[chunk % layout.pp, chunk // layout.pp, :2] = forward_s[ops].sum(), backward_s[ops].sum()
        return task_s

    def _pieces(self, work: GraphWork, stage: int, lane: Lane) -> tuple[Pieces, Pieces]:
        """Return the seconds and bytes of the ops of each chunk of a stage, backward and forward."""
        chunks = [work.chunks[chunk] for chunk in work.chunks_of(stage)]
        forward_s, backward_s = self._passes_s(work, lane)
        backward = [(backward_s[ops], work.gradient_bytes[ops]) for ops in chunks]
        return backward, [(forward_s[ops], work.graph.parameter_bytes[ops]) for ops in chunks]

    def _hidden_s(self, work: GraphWork, stage: int, lane: Lane, tail_s: float) -> float:
        """Return the seconds of communication in a step that a stage is taken to hide behind its ops."""
        layout, hidden_s = work.layout, 0.0
        if layout.overlap_pp and layout.pp > 1:
            sends = self._sends_s(work, lane)
            sent = [sends[chunk] for chunk in work.chunks_of(stage)]
            sent += [sends[chunk - 1 - len(work.chunks)] for chunk in work.chunks_of(stage) if chunk]
            hidden_s += layout.num_micro_batches * float(sum(sent))
        return hidden_s + self.hidden_tail_s(work, stage, lane, tail_s)


def is_uneven(wires: GroupNetwork, layout: Layout) -> TypeGuard[PlacedNetwork]:
    """Return whether replicas differ and wait for each other; a single replica goes at its own pace."""
    return isinstance(wires, PlacedNetwork) and layout.copies > 1


def op_uncertainty(work: GraphWork) -> float:
    """Return the relative uncertainty of the times of ops, one standard deviation."""
    if not work.is_profiled:
        return ROOFLINE_UNCERTAINTY
    return PROFILED_UNCERTAINTY if work.share == 1 else DIVIDED_UNCERTAINTY
