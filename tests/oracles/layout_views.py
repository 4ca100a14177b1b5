"""Views of a layout that ran: memory of each rank, moment by moment, and the time of a step.

A rank holds model state and buffers all the time. The forward pass of a micro-batch through a chunk adds the chunk's
activations from its start. The last pass that needs them (of weight gradients, where these are put off) frees them at its end.
A backward pass that computes them again holds more than the forward pass left. So the peak is that of the played schedule;
`costs.work.memory` counts the same by formula.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshwright.clusters.cluster import Cluster
from meshwright.costs.pipelines.tasks import BACKWARD, FORWARD, WEIGHT
from meshwright.costs.settings import CostSettings
from meshwright.costs.work import memory
from meshwright.costs.work.activations import stage_activations
from meshwright.costs.work.work import LayoutWork
from meshwright.simulation.layouts.running import LayoutRun, layout_step, run_layout
from meshwright.simulation.layouts.stage_tasks import Row
from meshwright.simulation.layouts.step_model import GraphStep, StepModel, TransformerStep
from meshwright.simulation.step.chrome_trace import MemoryOverTime

WASTE = 1 + memory.FRAGMENTATION


def layout_memory(step: StepModel, run: LayoutRun) -> MemoryOverTime:
    """Memory in use on each rank of the steps that ran.

    Args:
        step: what was lowered.
        run: how it went.
    """
    layout = step.layout
    width = layout.world // layout.pp
    start_s, finish_s = run.timeline.start_s, run.timeline.finish_s
    time_s: list[NDArray[np.float64]] = []
    memory_bytes: list[NDArray[np.float64]] = []
    for stage in range(layout.pp):
        held = float(held_bytes(step, stage))
        passes = [passed for passed in run.lowered.passes if passed.stage == stage]
        at_s = np.stack([_first(start_s, p.starts) if p.kind == FORWARD else _last(finish_s, p.ends) for p in passes])
        change = np.array([_change(step, passed.chunk, passed.kind) for passed in passes])
        for rank in range(width):
            # What ends when another pass begins is freed first.
            order = np.lexsort((change, at_s[:, rank]))
            time_s.append(np.append(0.0, at_s[order, rank]))
            memory_bytes.append(held + np.append(0.0, np.cumsum(change[order])))
    start = np.cumsum([0, *map(len, time_s)])
    return MemoryOverTime(start, np.concatenate(time_s), np.concatenate(memory_bytes))


def simulated_step_s(
    work: LayoutWork, cluster: Cluster, costs: CostSettings | None = None, devices: ArrayLike | None = None
) -> float:
    """Seconds of a step of a transformer under a layout, by the event path.

    Unlike on the analytic path, ``contention``, ``priority``, ``gradient_bucket_bytes``, ``message_chunk_bytes`` and the
    places of the ranks count.

    Raises:
        PlanError, ConfigError: as `layout_step` and `run_layout`.
    """
    return run_layout(layout_step(work, cluster, costs), cluster, devices, costs).step_s


def held_bytes(step: StepModel, stage: int) -> float:
    """Bytes that a rank holds all the time: everything but the activations that micro-batches keep for their backward passes."""
    if isinstance(step, TransformerStep):
        return memory.stage_memory(step.work, stage).total - WASTE * stage_activations.activation_bytes(step.work, stage)
    if isinstance(step, GraphStep):
        return step.work.memory(stage).total - WASTE * step.work.most_kept_bytes(stage)
    return step.held_bytes(stage)


def kept_bytes(step: StepModel, chunk: int) -> float:
    """Activations of a chunk that a micro-batch keeps for its backward pass, with what an allocator cannot reuse of them."""
    if isinstance(step, TransformerStep):
        return WASTE * step.work.chunks[chunk].num_layers * stage_activations._of_layers(step.work)["layer"].stored_bytes
    return WASTE * step.work.chunk_kept_bytes(chunk) if isinstance(step, GraphStep) else step.kept_bytes(chunk)


def put_off_bytes(step: TransformerStep, chunk: int) -> float:
    """Bytes of these activations that a delayed weight gradient keeps."""
    return WASTE * step.work.chunks[chunk].num_layers * stage_activations._of_layers(step.work)["layer"].put_off


def _change(step: StepModel, chunk: int, kind: int) -> float:
    """By how much the memory changes when a forward pass begins, or when another one is done."""
    stored = kept_bytes(step, chunk)
    put_off = put_off_bytes(step, chunk) if isinstance(step, TransformerStep) and step.layout.parts_gradients else 0.0
    return {FORWARD: stored, BACKWARD: put_off - stored, WEIGHT: -put_off}[kind]


def _first(start_s: NDArray[np.float64], rows: list[Row]) -> NDArray[np.float64]:
    first: NDArray[np.float64] = np.stack([start_s[row] for row in rows]).min(axis=0)
    return first


def _last(finish_s: NDArray[np.float64], rows: list[Row]) -> NDArray[np.float64]:
    last: NDArray[np.float64] = np.stack([finish_s[row] for row in rows]).max(axis=0)
    return last
