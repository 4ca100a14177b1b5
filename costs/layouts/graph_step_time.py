"""The analytic time of one step of any job graph under a layout, and what it consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from ...devices import DeviceType
from ...plans.rank_order import DEFAULT_ORDER
from ..collectives.prices import Provenance
from .doubts import doubts, uncertainty
from .graph_tails import stage_tail_s
from .graph_work import GraphWork
from .items import Message
from .steady_steps import PlayedPipeline, step_s
from .step_time import MINOR
from .waits import waits
from .wires import Wiring, boundary_groups, group_of

PROFILED_UNCERTAINTY = 0.05
"""Relative standard deviation of a profiled step that is run as it was profiled: what repeated runs differ by. An assumption."""

DIVIDED_UNCERTAINTY = 0.2
"""The same where a micro-batch has fewer samples than the profile: its ops are taken to cost their share, which small
kernels exceed. An assumption."""

ROOFLINE_UNCERTAINTY = 0.4
"""The same of a roofline. The five transformers of the zoo, whose kernels are priced by a calibrated model too, take 0.5 to 1.5
times what the roofline says; this is the root mean square of these factors' logarithms, rounded up."""


@dataclass(frozen=True)
class GraphStepTime:
    """One step.

    Attributes:
        step_s: the whole.
        breakdown_s: what the stage that ends last does: ``compute``, ``recompute``, ``pipeline transfers``, ``bubble``,
            ``imbalance`` (see `waits`), ``gradient sync``, ``parameter gather``; sums to ``step_s``. The update of the weights
            is not counted.
        samples: of one step.
        model_flops: of one step over all ranks, without recomputation; zero where the graph does not tell.
        hardware_flops: with recomputation.
        doubts: what the uncertainty is made of, see `doubts.doubts`.
        peak_flops_per_s: of all devices together.
    """

    step_s: float
    breakdown_s: dict[str, float]
    samples: int
    model_flops: float
    hardware_flops: float
    doubts: dict[str, float]
    peak_flops_per_s: float

    @property
    def uncertainty(self) -> float:
        """Relative, one standard deviation."""
        return uncertainty(self.doubts)

    @property
    def samples_per_s(self) -> float:
        """Samples in a second over all ranks."""
        return self.samples / self.step_s

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation; None where the graph tells no operations."""
        return self.model_flops / self.step_s / self.peak_flops_per_s if self.model_flops else None

    @property
    def hfu(self) -> float | None:
        """Hardware FLOPs utilisation; None where the graph tells no operations."""
        return self.hardware_flops / self.step_s / self.peak_flops_per_s if self.model_flops else None


def graph_step_s(work: GraphWork, wires: Wiring, slowdown: float = 1.0, order: str = DEFAULT_ORDER) -> float:
    """Seconds of one step.

    Args:
        work: what the stages do.
        wires: prices messages.
        slowdown: factor on computing and sending that run side by side.
        order: how ranks are numbered, see `plans.rank_order`.
    """
    tails = [sum(_tail_s(work, stage, wires, slowdown, order)) for stage in range(work.layout.pp)]
    return step_s(_played(work, wires, order), dict(enumerate(tails)))[0]


def price_graph(
    work: GraphWork, wires: Wiring, device: DeviceType, slowdown: float = 1.0, order: str = DEFAULT_ORDER
) -> GraphStepTime:
    """The time of one step, as `graph_step_s` says, and what it consists of."""
    layout, graph = work.layout, work.graph
    m, again = layout.num_micro_batches, layout.recompute == "full"
    pipeline = _played(work, wires, order)
    unsent = pipeline.unsent
    tails = [_tail_s(work, stage, wires, slowdown, order) for stage in range(layout.pp)]
    seconds, last = step_s(pipeline, {stage: sum(tail) for stage, tail in enumerate(tails)})
    ops = work.ops_of(last)
    forward_s, backward_s = float(work.forward_s[ops].sum()), float(work.backward_s[ops].sum())
    breakdown = {
        "compute": m * (forward_s + backward_s - again * forward_s),
        "recompute": m * again * forward_s,
        **waits(seconds - sum(tails[last]), float(unsent.span_s[last]), unsent.busy_s, last),
        "gradient sync": tails[last][0],
        "parameter gather": tails[last][1],
    }
    forward, backward = float(graph.forward_flops[ops].sum()), float(graph.backward_flops[ops].sum())
    operations = m * work.share * (forward * (1 + again) + backward)
    times = layout.dp * m * work.share
    forward_flops = times * float(graph.forward_flops.sum())
    model_flops = forward_flops + times * float(graph.backward_flops.sum())
    crossing_s = breakdown["pipeline transfers"] + sum(tails[last])
    return GraphStepTime(
        step_s=seconds,
        breakdown_s=breakdown,
        samples=layout.global_batch,
        model_flops=model_flops,
        hardware_flops=model_flops + again * forward_flops,
        doubts=doubts(
            kernels=op_uncertainty(work),
            step_s=seconds,
            crossing_s=crossing_s,
            fused_attention_s=0.0,
            hidden_s=_hidden_s(work, last, wires, order, sum(tails[last])),
            utilisation=operations / (seconds * device.peak_flops_per_s) if seconds > 0 else 0.0,
        ),
        peak_flops_per_s=layout.world * device.peak_flops_per_s,
    )


def graph_provenance(work: GraphWork, wires: Wiring, order: str = DEFAULT_ORDER) -> dict[str, Provenance]:
    """Of each communication of the breakdown: that of its messages, the least sure one where they differ.

    What makes up less than `step_time.MINOR` of its seconds does not count.
    """
    layout = work.layout
    found: dict[str, dict[Provenance, float]] = {}
    messages: list[tuple[str, Message]] = []
    for stage in range(layout.pp):
        messages += [("gradient sync", message) for message in work.sync(stage)]
        messages += [("parameter gather", message) for message in work.gather(stage)]
    priced = [(name, message, group_of(message.axis, layout, wires.devices_per_host, order)) for name, message in messages]
    groups = boundary_groups(layout, wires.devices_per_host, order)
    for chunk in range(len(work.chunks)):
        priced += [("pipeline transfers", message, groups[chunk % layout.pp]) for message in work.boundary(chunk)]
    for name, message, group in priced:
        if group.size > 1 and message.payload_bytes > 0:
            told = wires.provenance(message.operation, message.payload_bytes, group)
            part = found.setdefault(name, {})
            part[told] = part.get(told, 0.0) + wires.group_s(message.operation, message.payload_bytes, group)
    ranked: tuple[Provenance, ...] = get_args(Provenance)
    return {
        name: max((told for told, s in part.items() if s >= MINOR * sum(part.values())), key=ranked.index)
        for name, part in found.items()
    }


def _played(work: GraphWork, wires: Wiring, order: str) -> PlayedPipeline:
    layout = work.layout
    task_s = np.zeros((layout.pp, layout.virtual_stages, 3))
    for chunk, ops in enumerate(work.chunks):
        task_s[chunk % layout.pp, chunk // layout.pp, :2] = work.forward_s[ops].sum(), work.backward_s[ops].sum()
    return PlayedPipeline.of(layout, task_s, _sends_s(work, wires, order))


def _sends_s(work: GraphWork, wires: Wiring, order: str) -> NDArray[np.float64]:
    """Seconds of a transfer from each chunk to the next one, ``(k,)``."""
    groups, send_s = boundary_groups(work.layout, wires.devices_per_host, order), np.zeros(len(work.chunks))
    for chunk in range(len(work.chunks)):
        for message in work.boundary(chunk):
            send_s[chunk] = wires.group_s(message.operation, message.payload_bytes, groups[chunk % work.layout.pp])
    return send_s


def _tail_s(work: GraphWork, stage: int, wires: Wiring, slowdown: float, order: str) -> tuple[float, float]:
    """Exposed seconds of gradients and of gathered parameters."""
    chunks = [work.chunks[chunk] for chunk in work.chunks_of(stage)]
    backward = [(work.backward_s[ops], work.gradient_bytes[ops]) for ops in chunks]
    forward = [(work.forward_s[ops], work.graph.parameter_bytes[ops]) for ops in chunks]
    return stage_tail_s(work.layout, wires, order, slowdown, backward, forward)


def _hidden_s(work: GraphWork, stage: int, wires: Wiring, order: str, tail_s: float) -> float:
    """Seconds of communication in a step that a stage is taken to hide behind its ops."""
    layout, hidden_s = work.layout, 0.0
    if layout.overlap_pp and layout.pp > 1:
        sends = _sends_s(work, wires, order)
        sent = [sends[chunk] for chunk in work.chunks_of(stage)]
        sent += [sends[chunk - 1] for chunk in work.chunks_of(stage) if chunk]
        hidden_s += layout.num_micro_batches * float(sum(sent))
    if layout.overlap_dp:
        whole_s = 0.0
        for message in (*work.sync(stage), *work.gather(stage)):
            group = group_of(message.axis, layout, wires.devices_per_host, order)
            whole_s += wires.group_s(message.operation, message.payload_bytes, group)
        hidden_s += max(0.0, whole_s - tail_s)
    return hidden_s


def op_uncertainty(work: GraphWork) -> float:
    """Of what ops take, relative, one standard deviation."""
    if not work.is_profiled:
        return ROOFLINE_UNCERTAINTY
    return PROFILED_UNCERTAINTY if work.share == 1 else DIVIDED_UNCERTAINTY
