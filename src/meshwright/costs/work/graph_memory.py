"""Memory of the stages of any job graph under a layout.

Weights, gradients and optimizer as for op splits (`plans.memory`), activations by the schedule as for transformers
(`memory`). Full recomputation keeps what a chunk is given and, while it goes backward, its own activations once.
"""

from __future__ import annotations

import numpy as np

from ...plans.memory import STATE_BYTES_PER_WEIGHT_BYTE
from ...plans.partition import Layout
from ..pipelines.schedules import in_flight, orders
from ..pipelines.tasks import FORWARD
from .graph_work import GraphWork
from .memory import FRAGMENTATION, RUNTIME_BYTES, StageMemory


def flights(layout: Layout, stage: int) -> float:
    """Most micro-batches whose activations a stage of one chunk keeps at once."""
    return in_flight(layout.schedule, layout.pp, 1, layout.num_micro_batches, stage) if layout.pp > 1 else 1.0


def state_factor(layout: Layout) -> float:
    """Bytes of weights, gradients and optimizer for each byte of weights; the optimizer is what replicas may share."""
    return 2.0 + (STATE_BYTES_PER_WEIGHT_BYTE - 2.0) / layout.num_shards


def kept_bytes(work: GraphWork, chunk: int) -> float:
    """What a micro-batch keeps of a chunk for its backward pass."""
    if work.layout.recompute == "full":
        return work.given(chunk)
    return float(work.kept_bytes[work.chunks[chunk]].sum())


def most_kept_bytes(work: GraphWork, stage: int) -> float:
    """What a stage keeps at its worst moment; of several chunks, which differ in size, by the schedule's own order."""
    layout = work.layout
    kept = np.array([kept_bytes(work, chunk) for chunk in work.chunks_of(stage)])
    if layout.pp == 1 or layout.virtual_stages == 1:
        return flights(layout, stage) * float(kept.sum())
    tasks = orders(layout.schedule, layout.pp, layout.virtual_stages, layout.num_micro_batches)[stage]
    change = np.where(tasks[:, 0] == FORWARD, 1.0, -1.0) * kept[tasks[:, 1]]
    return float(np.cumsum(change).max())


def graph_stage_memory(work: GraphWork, stage: int) -> StageMemory:
    """Memory of a rank of one stage."""
    layout, graph, ops = work.layout, work.graph, work.ops_of(stage)
    weights = float(graph.parameter_bytes[ops].sum())
    chunks = work.chunks_of(stage)
    activations = most_kept_bytes(work, stage)
    if layout.recompute == "full":
        activations += max(float(work.kept_bytes[work.chunks[chunk]].sum()) for chunk in chunks)
    buffers = work.share * float(graph.workspace_bytes[ops].max())
    if work.volume is not None:  # the planes of both neighbours beside its own part
        buffers += work.volume.halo_bytes
    if layout.pp > 1:  # one message each way
        buffers += max(work.given(chunk) for chunk in chunks)
        buffers += max(float(work.boundary_bytes[chunk]) for chunk in chunks)
    return StageMemory(
        parameters=weights,
        gradients=weights,
        optimizer=weights * (state_factor(layout) - 2.0),
        activations=activations,
        buffers=buffers,
        runtime=RUNTIME_BYTES + FRAGMENTATION * (activations + buffers),
    )


def graph_peak_memory(work: GraphWork) -> tuple[int, StageMemory]:
    """The stage whose ranks need most, and what they hold."""
    found = [graph_stage_memory(work, stage) for stage in range(work.layout.pp)]
    peak = int(np.argmax([one.total for one in found]))
    return peak, found[peak]
