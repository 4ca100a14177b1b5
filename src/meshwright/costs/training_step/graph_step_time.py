"""The analytic time of one step of any job graph under a layout, and what it consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ...plans.partition import Layout
from ..pipelines.steady_steps import ChunkTails, PlayedPipeline, chunk_step_s, step_s
from ..pipelines.waits import waits
from ..process_groups.group_network import GroupNetwork, PlacedNetwork, lanes_of
from ..process_groups.lanes import Lane, Stand
from ..work.graph_work import GraphWork
from ..work.halos import OpExchange
from .graph_tails import Pieces, chunk_gaps_s, chunk_tails, hide_between_chunks, shown_s, stage_tail_s
from .step_figures import StepTime
from .step_pricer import PlacedMessage, StepPricer
from .uncertainty import uncertainty_terms
from .uneven_steps import Passes, Tails, UnevenStep, uneven_step

PROFILED_UNCERTAINTY = 0.05
"""Relative standard deviation of a profiled step that is run as it was profiled: what repeated runs differ by. An assumption."""

DIVIDED_UNCERTAINTY = 0.2
"""The same where a micro-batch has fewer samples than the profile: its ops are taken to cost their share, which small
kernels exceed. An assumption."""

ROOFLINE_UNCERTAINTY = 0.4
"""The same of a roofline. The five transformers of the zoo, whose kernels are priced by a calibrated model too, take 0.5 to 1.5
times what the roofline says; this is the root mean square of these factors' logarithms, rounded up."""


@dataclass(frozen=True)
class GraphPricer(StepPricer):
    """Prices layouts of any job graph.

    Attributes:
        peaks_flops_per_s: of each rank's device, in rank order, where they are of several types.
    """

    slowdown: float = 1.0
    peaks_flops_per_s: tuple[float, ...] = field(default=(), kw_only=True)

    def step_s(self, work: GraphWork) -> float:
        """See `StepPricer.step_s`."""
        if is_uneven(self.wires, work.layout):
            return self._placed(work, self.wires).step_s
        if hide_between_chunks(work.layout):
            return chunk_step_s(self._played(work), self._chunk_tails(work))[0]
        tails = [sum(self._tail_s(work, stage)) for stage in range(work.layout.pp)]
        return step_s(self._played(work), dict(enumerate(tails)))[0]

    def price_work(self, work: GraphWork) -> StepTime:
        """See `StepPricer.price_work`."""
        layout, graph = work.layout, work.graph
        m, again = layout.num_micro_batches, layout.recompute == "full"
        ended = self._placed(work, self.wires) if is_uneven(self.wires, layout) else self._alike(work)
        seconds, last, number, waiting_s, sync_s, gather_s, _ = ended
        lane = lanes_of(self.wires, layout, self.order)[number]
        ops = work.ops_of(last)
        forward_s, backward_s = float(work.forward_s[ops].sum()), float(work.backward_s[ops].sum())
        breakdown = {
            "compute": m * (forward_s + backward_s - again * forward_s),
            "recompute": m * again * forward_s,
            **self._halos_s(work, last, lane),
            **waiting_s,
            "gradient sync": sync_s,
            "parameter gather": gather_s,
        }
        forward, backward = float(graph.forward_flops[ops].sum()), float(graph.backward_flops[ops].sum())
        operations = m * work.share * (forward * (1 + again) + backward)
        times = layout.dp * m * work.share
        forward_flops = times * float(graph.forward_flops.sum())
        model_flops = forward_flops + times * float(graph.backward_flops.sum())
        return StepTime(
            step_s=seconds,
            breakdown_s=breakdown,
            amount=layout.global_batch,
            unit="samples",
            model_flops=model_flops,
            hardware_flops=model_flops + again * forward_flops,
            uncertainty_terms=uncertainty_terms(
                kernels=op_uncertainty(work),
                step_s=seconds,
                **self.link_waits_s(layout, breakdown),
                fused_attention_s=0.0,
                hidden_s=self._hidden_s(work, last, lane, sync_s + gather_s),
                utilisation=operations / (seconds * self.device.peak_flops_per_s) if seconds > 0 else 0.0,
            ),
            peak_flops_per_s=sum(self.peaks_flops_per_s[: layout.world]) or layout.world * self.device.peak_flops_per_s,
        )

    def passes_s(self, work: GraphWork) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `StepPricer.passes_s`."""
        found = [(work.forward_s[work.ops_of(s)].sum(), work.backward_s[work.ops_of(s)].sum()) for s in range(work.layout.pp)]
        seconds = np.array(found, np.float64)
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
        for stage in range(work.layout.pp):
            for part, items in (("gradient sync", work.sync(stage)), ("parameter gather", work.gather(stage))):
                yield from (PlacedMessage(part, item, 1, lane.at(stage)[item.axis]) for item in items)
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

    def _alike(self, work: GraphWork) -> UnevenStep:
        """The step of the stage that decides, where hosts are alike."""
        pipeline = self._played(work)
        bare = PlayedPipeline.of(work.layout, self._task_s(work), pipeline.send_s) if work.is_direct else pipeline
        unsent, played = bare.unsent, pipeline.played
        if hide_between_chunks(work.layout):
            hidden = self._chunk_tails(work)
            seconds, last, sync_s = chunk_step_s(pipeline, hidden)
            gather_s = float(hidden.waits_s[last, 0] + hidden.slowed_s[last])
            sync_s = min(sync_s, seconds - gather_s - float(played.busy_s[last]))
        else:
            tails = [self._tail_s(work, stage) for stage in range(work.layout.pp)]
            seconds, last = step_s(pipeline, {stage: sum(tail) for stage, tail in enumerate(tails)})
            sync_s, gather_s = tails[last]
        waiting_s = waits(seconds - sync_s - gather_s, float(unsent.late_spans_s[last]), unsent.played.busy_s, last)
        return UnevenStep(seconds, last, 0, waiting_s, sync_s, gather_s, 0.0)

    def _placed(self, work: GraphWork, wires: PlacedNetwork) -> UnevenStep:
        """The same where hosts are not alike, of the lane that ends last."""
        layout, placed = work.layout, wires.layout(work.layout, self.order)
        known = {id(lane): Passes(*self._kept_s(work, lane), self._task_s(work, lane)) for lane in placed.lanes}
        whole = placed.whole

        def exposed_s(stage: int, lane: int, messages: list[tuple[str, float]], is_backward: bool) -> float:
            whole_s = np.array([seconds for _, seconds in messages])
            pieces = self._pieces(work, stage, placed.lanes[lane])[0 if is_backward else 1]
            return shown_s(pieces, whole_s, self.slowdown, has_ended=is_backward)

        def chunk_gaps(stage: int, messages_s: list[float], is_backward: bool) -> NDArray[np.float64]:
            pieces = self._pieces(work, stage, whole)[0 if is_backward else 1]
            return chunk_gaps_s(pieces, np.array(messages_s), has_ended=is_backward)

        tails = Tails(
            work.sync,
            work.gather,
            lambda stage: 0.0,
            lambda message, groups: self.message_s(message, layout, groups),
            exposed_s,
            chunk_gaps if hide_between_chunks(layout) else None,
            self.slowdown,
        )
        return uneven_step(layout, placed, [known[id(lane)] for lane in placed.lanes], tails)

    def _played(self, work: GraphWork) -> PlayedPipeline:
        (lane,) = lanes_of(self.wires, work.layout, self.order)
        return PlayedPipeline.of(work.layout, *self._kept_s(work, lane))

    def _kept_s(self, work: GraphWork, lane: Lane) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds of the passes of each chunk, ``(p, v, 3)``, and of transfers to the next one, ``(k,)``.

        What is sent directly is in the passes: a stage of one chunk goes on when all is sent.
        """
        task_s, num_chunks = self._task_s(work, lane), len(work.chunks)
        if not work.is_direct:
            return task_s, self._sends_s(work, lane)
        for chunk in range(num_chunks):
            sends = (work.sent(chunk), chunk), (work.returned(chunk), chunk - 1)
            for kind, (messages, way) in enumerate(sends):
                for message in messages:
                    task_s[chunk, 0, kind] += self.message_s(message, work.layout, lane.ways[-kind][way % work.layout.pp])
        return task_s, np.zeros(num_chunks)

    def _sends_s(self, work: GraphWork, lane: Lane) -> NDArray[np.float64]:
        """Seconds of a transfer from each chunk to the next one, ``(k,)``, or forward and then back, ``(2 k,)``."""
        send_s = np.zeros((len(lane.ways), len(work.chunks)))
        for way, groups in enumerate(lane.ways):
            for chunk in range(len(work.chunks)):
                for message in work.sent(chunk):
                    send_s[way, chunk] = self.message_s(message, work.layout, groups[chunk % work.layout.pp])
        return send_s.reshape(-1)

    def _chunk_tails(self, work: GraphWork) -> ChunkTails:
        """Gradients and parameters that hide between chunks."""
        pieces = [self._pieces(work, stage) for stage in range(work.layout.pp)]
        return chunk_tails(work.layout, self.wires, self.order, self.slowdown, pieces)

    def _tail_s(self, work: GraphWork, stage: int) -> tuple[float, float]:
        """Exposed seconds of gradients and of gathered parameters."""
        return stage_tail_s(work.layout, self.wires, self.order, self.slowdown, *self._pieces(work, stage))

    def _passes_s(self, work: GraphWork, lane: Lane | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds of a micro-batch forward and backward through each op, with what its rank waits for others of its volume."""
        volume, again = work.volume, work.layout.recompute == "full"
        if volume is None:
            return work.forward_s, work.backward_s
        lane = lane or lanes_of(self.wires, work.layout, self.order)[0]
        forward_s, backward_s = work.forward_s.copy(), work.backward_s.copy()
        for chunk, ops in enumerate(work.chunks):
            groups = lane.at(chunk % work.layout.pp)

            def own_s(exchange: OpExchange, seconds: float, groups: Mapping[str, Stand] = groups) -> float:
                sent_s = [self.message_s(message, work.layout, groups[message.axis]) for message in exchange.messages]
                inner_s, halo_s = (1 - exchange.boundary) * seconds, sum(sent_s[: len(exchange.halos)])
                beside_s = max(inner_s, halo_s) + (self.slowdown - 1) * min(inner_s, halo_s)
                return beside_s + exchange.boundary * seconds + sum(sent_s[len(exchange.halos) :])

            for op in ops.tolist():
                computed_s = float(work.forward_s[op])
                forward_s[op] = own_s(volume.forward[op], computed_s)
                backward_s[op] = own_s(volume.backward[op], float(work.backward_s[op]) - again * computed_s)
                backward_s[op] += again * forward_s[op]
        return forward_s, backward_s

    def _halos_s(self, work: GraphWork, stage: int, lane: Lane) -> dict[str, float]:
        """Seconds of a step that a rank of a stage waits for others of its volume; nothing where none is cut."""
        if work.volume is None:
            return {}
        ops, (forward_s, backward_s) = work.ops_of(stage), self._passes_s(work, lane)
        waited_s = (forward_s + backward_s - work.forward_s - work.backward_s)[ops].sum()
        return {"halo exchange": work.layout.num_micro_batches * float(waited_s)}

    def _task_s(self, work: GraphWork, lane: Lane | None = None) -> NDArray[np.float64]:
        """Seconds of the passes of each chunk, ``(p, v, 3)``."""
        layout, (forward_s, backward_s) = work.layout, self._passes_s(work, lane)
        task_s = np.zeros((layout.pp, layout.virtual_stages, 3))
        for chunk, ops in enumerate(work.chunks):
            task_s[chunk % layout.pp, chunk // layout.pp, :2] = forward_s[ops].sum(), backward_s[ops].sum()
        return task_s

    def _pieces(self, work: GraphWork, stage: int, lane: Lane | None = None) -> tuple[Pieces, Pieces]:
        """Seconds and bytes of the ops of each chunk of a stage, backward and forward."""
        chunks = [work.chunks[chunk] for chunk in work.chunks_of(stage)]
        forward_s, backward_s = self._passes_s(work, lane)
        backward = [(backward_s[ops], work.gradient_bytes[ops]) for ops in chunks]
        return backward, [(forward_s[ops], work.graph.parameter_bytes[ops]) for ops in chunks]

    def _hidden_s(self, work: GraphWork, stage: int, lane: Lane, tail_s: float) -> float:
        """Seconds of communication in a step that a stage is taken to hide behind its ops."""
        layout, hidden_s = work.layout, 0.0
        if layout.overlap_pp and layout.pp > 1:
            sends = self._sends_s(work, lane)
            sent = [sends[chunk] for chunk in work.chunks_of(stage)]
            sent += [sends[chunk - 1 - len(work.chunks)] for chunk in work.chunks_of(stage) if chunk]
            hidden_s += layout.num_micro_batches * float(sum(sent))
        if layout.overlap_dp:
            groups = lane.at(stage)
            whole_s = sum(self.message_s(m, layout, groups[m.axis]) for m in (*work.sync(stage), *work.gather(stage)))
            hidden_s += max(0.0, whole_s - tail_s)
        return hidden_s


def is_uneven(wires: GroupNetwork, layout: Layout) -> TypeGuard[PlacedNetwork]:
    """Whether replicas differ and wait for each other; a single replica goes at its own pace."""
    return isinstance(wires, PlacedNetwork) and layout.copies > 1


def op_uncertainty(work: GraphWork) -> float:
    """Relative uncertainty of the times of ops, one standard deviation."""
    if not work.is_profiled:
        return ROOFLINE_UNCERTAINTY
    return PROFILED_UNCERTAINTY if work.share == 1 else DIVIDED_UNCERTAINTY
