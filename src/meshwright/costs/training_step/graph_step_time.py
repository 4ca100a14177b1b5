"""The analytic time of one step of any job graph under a layout, and what it consists of."""

from __future__ import annotations

from typing import TypeGuard, get_args

import numpy as np
from numpy.typing import NDArray

from ...devices import DeviceType
from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER
from ..collectives.prices import Provenance
from ..pipelines.steady_steps import ChunkTails, PlayedPipeline, chunk_step_s, step_s
from ..pipelines.waits import waits
from ..process_groups.group_network import GroupNetwork, PlacedNetwork, lanes_of, whole_lane
from ..process_groups.lanes import Lane, Stand
from ..work.graph_work import GraphWork
from ..work.operations import Message
from .graph_tails import Pieces, chunk_gaps_s, chunk_tails, hide_between_chunks, shown_s, stage_tail_s
from .step_figures import GraphStepTime
from .step_time import MINOR
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


def graph_step_s(work: GraphWork, wires: GroupNetwork, slowdown: float = 1.0, order: str = DEFAULT_ORDER) -> float:
    """Seconds of one step.

    Args:
        work: what the stages do.
        wires: prices messages.
        slowdown: factor on computing and sending that run side by side.
        order: how ranks are numbered, see `plans.rank_order`.
    """
    if is_uneven(wires, work.layout):
        return _placed(work, wires, slowdown, order).step_s
    if hide_between_chunks(work.layout):
        return chunk_step_s(_played(work, wires, order), _chunk_tails(work, wires, slowdown, order))[0]
    tails = [sum(_tail_s(work, stage, wires, slowdown, order)) for stage in range(work.layout.pp)]
    return step_s(_played(work, wires, order), dict(enumerate(tails)))[0]


def is_uneven(wires: GroupNetwork, layout: Layout) -> TypeGuard[PlacedNetwork]:
    """Whether replicas differ and wait for each other; a single one goes at its own pace wherever its stages stand."""
    return isinstance(wires, PlacedNetwork) and layout.dp > 1


def price_graph(
    work: GraphWork, wires: GroupNetwork, device: DeviceType, slowdown: float = 1.0, order: str = DEFAULT_ORDER
) -> GraphStepTime:
    """The time of one step, as `graph_step_s` says, and what it consists of."""
    layout, graph = work.layout, work.graph
    m, again = layout.num_micro_batches, layout.recompute == "full"
    ended = _placed(work, wires, slowdown, order) if is_uneven(wires, layout) else _alike(work, wires, slowdown, order)
    seconds, last, number, waiting_s, sync_s, gather_s, _ = ended
    lane = lanes_of(wires, layout, order)[number]
    ops = work.ops_of(last)
    forward_s, backward_s = float(work.forward_s[ops].sum()), float(work.backward_s[ops].sum())
    breakdown = {
        "compute": m * (forward_s + backward_s - again * forward_s),
        "recompute": m * again * forward_s,
        **waiting_s,
        "gradient sync": sync_s,
        "parameter gather": gather_s,
    }
    forward, backward = float(graph.forward_flops[ops].sum()), float(graph.backward_flops[ops].sum())
    operations = m * work.share * (forward * (1 + again) + backward)
    times = layout.dp * m * work.share
    forward_flops = times * float(graph.forward_flops.sum())
    model_flops = forward_flops + times * float(graph.backward_flops.sum())
    crossing_s = breakdown["pipeline transfers"] + (sync_s + gather_s)
    return GraphStepTime(
        step_s=seconds,
        breakdown_s=breakdown,
        samples=layout.global_batch,
        model_flops=model_flops,
        hardware_flops=model_flops + again * forward_flops,
        uncertainty_terms=uncertainty_terms(
            kernels=op_uncertainty(work),
            step_s=seconds,
            crossing_s=crossing_s,
            fused_attention_s=0.0,
            hidden_s=_hidden_s(work, last, wires, lane, sync_s + gather_s),
            utilisation=operations / (seconds * device.peak_flops_per_s) if seconds > 0 else 0.0,
        ),
        peak_flops_per_s=layout.world * device.peak_flops_per_s,
    )


def graph_provenance(work: GraphWork, wires: GroupNetwork, order: str = DEFAULT_ORDER) -> dict[str, Provenance]:
    """Of each communication of the breakdown: that of its messages, the least sure one where they differ.

    What makes up less than `step_time.MINOR` of its seconds does not count.
    """
    layout, lane = work.layout, whole_lane(wires, work.layout, order)
    found: dict[str, dict[Provenance, float]] = {}
    priced: list[tuple[str, Message, Stand]] = []
    for stage in range(layout.pp):
        groups = lane.at(stage)
        priced += [("gradient sync", message, groups[message.axis]) for message in work.sync(stage)]
        priced += [("parameter gather", message, groups[message.axis]) for message in work.gather(stage)]
    for chunk in range(len(work.chunks)):
        priced += [("pipeline transfers", message, lane.boundary[chunk % layout.pp]) for message in work.boundary(chunk)]
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


def _alike(work: GraphWork, wires: GroupNetwork, slowdown: float, order: str) -> UnevenStep:
    """The step of the stage that decides, where hosts are alike."""
    pipeline = _played(work, wires, order)
    unsent, played = pipeline.unsent, pipeline.played
    if hide_between_chunks(work.layout):
        hidden = _chunk_tails(work, wires, slowdown, order)
        seconds, last, sync_s = chunk_step_s(pipeline, hidden)
        gather_s = float(hidden.waits_s[last, 0] + hidden.slowed_s[last])
        sync_s = min(sync_s, seconds - gather_s - float(played.busy_s[last]))
    else:
        tails = [_tail_s(work, stage, wires, slowdown, order) for stage in range(work.layout.pp)]
        seconds, last = step_s(pipeline, {stage: sum(tail) for stage, tail in enumerate(tails)})
        sync_s, gather_s = tails[last]
    waiting_s = waits(seconds - sync_s - gather_s, float(unsent.span_s[last]), unsent.busy_s, last)
    return UnevenStep(seconds, last, 0, waiting_s, sync_s, gather_s, 0.0)


def _placed(work: GraphWork, wires: PlacedNetwork, slowdown: float, order: str) -> UnevenStep:
    """The same where hosts are not alike, of the lane that ends last."""
    layout, placed, task_s = work.layout, wires.layout(work.layout, order), _task_s(work)
    known = {id(lane): Passes(task_s, _sends_s(work, wires, lane), task_s) for lane in placed.lanes}

    def exposed_s(stage: int, lane: int, messages: list[tuple[str, float]], is_backward: bool) -> float:
        whole_s, pieces = np.array([seconds for _, seconds in messages]), _pieces(work, stage)[0 if is_backward else 1]
        return shown_s(pieces, whole_s, slowdown, has_ended=is_backward)

    def chunk_gaps(stage: int, messages_s: list[float], is_backward: bool) -> NDArray[np.float64]:
        return chunk_gaps_s(_pieces(work, stage)[0 if is_backward else 1], np.array(messages_s), has_ended=is_backward)

    tails = Tails(
        work.sync,
        work.gather,
        lambda stage: 0.0,
        lambda m, group: wires.group_s(m.operation, m.payload_bytes, group),
        exposed_s,
        chunk_gaps if hide_between_chunks(layout) else None,
        slowdown,
    )
    return uneven_step(layout, placed, [known[id(lane)] for lane in placed.lanes], tails)


def _played(work: GraphWork, wires: GroupNetwork, order: str) -> PlayedPipeline:
    (lane,) = lanes_of(wires, work.layout, order)
    return PlayedPipeline.of(work.layout, _task_s(work), _sends_s(work, wires, lane))


def _task_s(work: GraphWork) -> NDArray[np.float64]:
    """Seconds of the passes of each chunk, ``(p, v, 3)``."""
    layout = work.layout
    task_s = np.zeros((layout.pp, layout.virtual_stages, 3))
    for chunk, ops in enumerate(work.chunks):
        task_s[chunk % layout.pp, chunk // layout.pp, :2] = work.forward_s[ops].sum(), work.backward_s[ops].sum()
    return task_s


def _sends_s(work: GraphWork, wires: GroupNetwork, lane: Lane) -> NDArray[np.float64]:
    """Seconds of a transfer from each chunk to the next one, ``(k,)``."""
    send_s = np.zeros(len(work.chunks))
    for chunk in range(len(work.chunks)):
        for message in work.boundary(chunk):
            send_s[chunk] = wires.group_s(message.operation, message.payload_bytes, lane.boundary[chunk % work.layout.pp])
    return send_s


def _pieces(work: GraphWork, stage: int) -> tuple[Pieces, Pieces]:
    """Seconds and bytes of the ops of each chunk of a stage, backward and forward."""
    chunks = [work.chunks[chunk] for chunk in work.chunks_of(stage)]
    backward = [(work.backward_s[ops], work.gradient_bytes[ops]) for ops in chunks]
    return backward, [(work.forward_s[ops], work.graph.parameter_bytes[ops]) for ops in chunks]


def _chunk_tails(work: GraphWork, wires: GroupNetwork, slowdown: float, order: str) -> ChunkTails:
    """Gradients and parameters that hide between chunks."""
    return chunk_tails(work.layout, wires, order, slowdown, [_pieces(work, stage) for stage in range(work.layout.pp)])


def _tail_s(work: GraphWork, stage: int, wires: GroupNetwork, slowdown: float, order: str) -> tuple[float, float]:
    """Exposed seconds of gradients and of gathered parameters."""
    return stage_tail_s(work.layout, wires, order, slowdown, *_pieces(work, stage))


def _hidden_s(work: GraphWork, stage: int, wires: GroupNetwork, lane: Lane, tail_s: float) -> float:
    """Seconds of communication in a step that a stage is taken to hide behind its ops."""
    layout, hidden_s = work.layout, 0.0
    if layout.overlap_pp and layout.pp > 1:
        sends = _sends_s(work, wires, lane)
        sent = [sends[chunk] for chunk in work.chunks_of(stage)]
        sent += [sends[chunk - 1] for chunk in work.chunks_of(stage) if chunk]
        hidden_s += layout.num_micro_batches * float(sum(sent))
    if layout.overlap_dp:
        messages, groups = (*work.sync(stage), *work.gather(stage)), lane.at(stage)
        whole_s = sum(wires.group_s(m.operation, m.payload_bytes, groups[m.axis]) for m in messages)
        hidden_s += max(0.0, whole_s - tail_s)
    return hidden_s


def op_uncertainty(work: GraphWork) -> float:
    """Of what ops take, relative, one standard deviation."""
    if not work.is_profiled:
        return ROOFLINE_UNCERTAINTY
    return PROFILED_UNCERTAINTY if work.share == 1 else DIVIDED_UNCERTAINTY
