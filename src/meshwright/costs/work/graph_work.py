"""Any job graph under data and pipeline parallelism: the work of its stages, by cut.

Ops of the topological order are in contiguous chunks: where `graph_cuts` puts them, or of balanced time (`plans.stages`). A
micro-batch of ``b`` samples takes of each op what a share of ``b`` of the graph's samples takes (`costs.compute`). An output
for a later chunk goes from chunk to chunk, also through chunks that do not use it, as PipeDream passes it on. With
``pipeline_skips: direct`` it goes once from the chunk that makes it to those that read it. All that a chunk sends then
occupies it, at the pace of the way to the next one. So do the gradients of all that it is given, at the pace of the way to the
one before. As for op splits, the update of the weights is not counted.

A rank holds weights, gradients and optimizer as for op splits (`plans.memory`), activations by the schedule as for
transformers (`memory`). Full recomputation keeps a chunk's inputs and, during its backward pass, its own activations once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...devices import DeviceType
from ...errors import PlanError
from ...jobs.graph import JobGraph
from ...plans.document import Stage
from ...plans.frameworks.defaults import BIDIRECTIONAL
from ...plans.memory import STATE_BYTES_PER_WEIGHT_BYTE
from ...plans.partition import ZERO_BUBBLE, Layout
from ...plans.stage_meshes import value_text
from ...plans.stages import layout_stages
from ...plans.strategies.trained_state import MOMENT_BYTES
from .. import compute
from ..compression import Matrix
from ..pipelines.schedules import orders
from ..pipelines.tasks import FORWARD
from ..settings import CostSettings
from .activations.stage_activations import kept_at_once
from .halos import ERRORS_AND_OUTPUTS, VolumeCut, cut_volumes, parts_of
from .memory import FRAGMENTATION, RUNTIME_BYTES, StageMemory
from .operations import Message
from .stage_work import gather_parts, messages_of, sync_parts
from .step_work import ModelParts, StepWork

GRADIENT_NUMBER_BYTES = 4.0
"""Bytes of a number of the gradients of a job graph, whose numbers are not known."""

WEIGHT_NUMBER_BYTES = 2.0
"""Of a parameter of a job graph, see `plans.memory.STATE_BYTES_PER_WEIGHT_BYTE`."""


@dataclass(frozen=True, eq=False)
class GraphWork(StepWork):
    """The work of the stages of a job graph in a step.

    Attributes:
        graph: the job, ``n`` ops.
        layout: how it is cut.
        chunks: ops of each chunk, in topological order; chunk ``k`` is on stage ``k mod pp``.
        share: of the graph's samples that a micro-batch has.
        is_profiled: whether times are a profile's, and not a roofline's.
        forward_s, backward_s: of a micro-batch, the second with recomputation, ``(n,)``.
        gradient_bytes: of each op, ``(n,)``.
        boundary_bytes: of a micro-batch from each chunk to the next or, sent directly, to all later ones, ``(pp v,)``; zero
            for the last.
        given_bytes: of a micro-batch from all earlier chunks to each, sent directly, ``(pp v,)``. None where it is relayed:
            the boundary of the chunk before.
        volume: exchanges of the ranks of a volume; None where no volume is cut. Waiting for them is not in the seconds.
    """

    graph: JobGraph
    layout: Layout
    chunks: tuple[NDArray[np.int64], ...]
    share: float
    is_profiled: bool
    forward_s: NDArray[np.float64]
    backward_s: NDArray[np.float64]
    gradient_bytes: NDArray[np.float64]
    boundary_bytes: NDArray[np.float64]
    given_bytes: NDArray[np.float64] | None = None
    volume: VolumeCut | None = None

    def chunks_of(self, stage: int) -> list[int]:
        """Return the chunks on a stage."""
        return list(range(stage, len(self.chunks), self.layout.pp))

    def ops_of(self, stage: int) -> NDArray[np.int64]:
        """Return the ops on a stage, chunk by chunk."""
        return np.concatenate([self.chunks[chunk] for chunk in self.chunks_of(stage)])

    @property
    def is_direct(self) -> bool:
        """Whether outputs go past chunks that do not read them."""
        return self.given_bytes is not None

    def received_bytes(self, chunk: int) -> float:
        """Return the bytes of a micro-batch that a chunk gets from others."""
        if self.given_bytes is not None:
            return float(self.given_bytes[chunk])
        return float(self.boundary_bytes[chunk - 1]) if chunk else 0.0

    @property
    def activation_bytes(self) -> NDArray[np.float64]:
        """A rank's bytes of the output of each op for a micro-batch, ``(n,)``."""
        return rank_activation_bytes(self.graph, self.layout)

    @property
    def kept_bytes(self) -> NDArray[np.float64]:
        """Bytes that a rank keeps of each op for its backward pass of a micro-batch, ``(n,)``."""
        return kept_activation_bytes(self.graph, self.layout)

    @property
    def amount(self) -> tuple[int, Literal["tokens", "samples"]]:
        """See `StepWork.amount`."""
        return self.layout.global_batch, "samples"

    @property
    def weights(self) -> float:
        """Bytes of the gradients of all ops, see `StepWork.weights`."""
        return float(self.gradient_bytes.sum())

    @property
    def gradient_number_bytes(self) -> float:
        """See `StepWork.gradient_number_bytes`."""
        return GRADIENT_NUMBER_BYTES

    @property
    def op_cuts(self) -> tuple[int, ...]:
        """See `StepWork.op_cuts`."""
        return tuple(len(ops) for ops in self.chunks)

    @property
    def weight_parts(self) -> ModelParts:
        """A part for each op, see `StepWork.weight_parts`."""
        sizes = (self.graph.parameter_bytes[self.graph.order] / WEIGHT_NUMBER_BYTES).tolist()
        ends = [0, *accumulate(len(ops) for ops in self.chunks)]
        return ModelParts(tuple(sizes), tuple(pairwise(ends)), WEIGHT_NUMBER_BYTES)

    def gradient_bytes_on(self, stage: int) -> float:
        """See `StepWork.gradient_bytes_on`."""
        return float(self.gradient_bytes[self.ops_of(stage)].sum())

    def with_gradient_share(self, share: float) -> GraphWork:
        """See `StepWork.with_gradient_share`."""
        return replace(self, gradient_bytes=self.gradient_bytes * share)

    def matrices(self, stage: int, message: Message) -> tuple[Matrix, ...]:
        """Return a square one for each op with weights, an assumption."""
        sizes = self.gradient_bytes[self.ops_of(stage)] / GRADIENT_NUMBER_BYTES
        return tuple(Matrix(float(size) ** 0.5, float(size) ** 0.5) for size in sizes if size >= 1)

    def sent(self, chunk: int) -> tuple[Message, ...]:
        """Return the message from a chunk to the next one, or to later ones; relayed, its gradient goes back."""
        return self._message(float(self.boundary_bytes[chunk]))

    def returned(self, chunk: int) -> tuple[Message, ...]:
        """Return the gradients that a chunk sends to where it got the activations from."""
        return self._message(self.received_bytes(chunk))

    @property
    def last_output(self) -> tuple[Message, ...]:
        """The output of the last op, see `StepWork.last_output`."""
        return (Message("activations", "send_recv", "pp", float(self.activation_bytes[self.graph.order[-1]])),)

    def _message(self, size: float) -> tuple[Message, ...]:
        return (Message("activations", "send_recv", "pp", size),) if self.layout.pp > 1 and size > 0 else ()

    def sync(self, stage: int) -> tuple[Message, ...]:
        """Return the gradients of a stage, over the replicas."""
        return messages_of(sync_parts, self.layout, self.gradient_bytes_on(stage))

    def summed(self, stage: int) -> tuple[Message, ...]:
        """Return the messages of `sync`; all of them sum gradients."""
        return self.sync(stage)

    def gather(self, stage: int) -> tuple[Message, ...]:
        """Return the parameters of a stage, where the replicas update a part each."""
        return messages_of(gather_parts, self.layout, float(self.graph.parameter_bytes[self.ops_of(stage)].sum()))

    def memory(self, stage: int) -> StageMemory:
        """See `StepWork.memory`."""
        layout, ops, chunks = self.layout, self.ops_of(stage), self.chunks_of(stage)
        weights = float(self.graph.parameter_bytes[ops].sum())
        activations = self.most_kept_bytes(stage)
        if layout.recompute == "full":
            activations += max(float(self.kept_bytes[self.chunks[chunk]].sum()) for chunk in chunks)
        buffers = self.share * float(self.graph.workspace_bytes[ops].max())
        if self.volume is not None:  # the planes of both neighbours and its own part
            buffers += self.volume.halo_bytes
        if layout.pp > 1:  # one message each way
            buffers += max(self.received_bytes(chunk) for chunk in chunks)
            buffers += max(float(self.boundary_bytes[chunk]) for chunk in chunks)
        runtime = RUNTIME_BYTES + FRAGMENTATION * (activations + buffers)
        return StageMemory(weights, weights, weights * (state_factor(layout) - 2.0), activations, buffers, runtime)

    def chunk_kept_bytes(self, chunk: int) -> float:
        """Return bytes that a micro-batch keeps of a chunk for its backward pass."""
        return self.received_bytes(chunk) if self.layout.recompute == "full" else float(self.kept_bytes[self.chunks[chunk]].sum())

    def most_kept_bytes(self, stage: int) -> float:
        """Return the most bytes that a stage keeps at once; of several chunks by the schedule's own order."""
        layout = self.layout
        stored_bytes = np.array([self.chunk_kept_bytes(chunk) for chunk in self.chunks_of(stage)])
        if layout.pp == 1 or layout.virtual_stages == 1:
            return kept_at_once(layout, stage) * float(stored_bytes.sum())
        tasks = orders(layout.schedule, layout.pp, layout.virtual_stages, layout.num_micro_batches)[stage]
        change = np.where(tasks[:, 0] == FORWARD, 1.0, -1.0) * stored_bytes[tasks[:, 1]]
        return float(np.cumsum(change).max())


def state_factor(layout: Layout) -> float:
    """Return the bytes of weights, gradients and optimizer for each byte of weights; the optimizer is what replicas may share."""
    return 2.0 + (STATE_BYTES_PER_WEIGHT_BYTE - 2.0) / layout.num_shards


def describe_graph(
    graph: JobGraph,
    layout: Layout,
    device: DeviceType,
    costs: CostSettings | None = None,
    *,
    stages: Sequence[Stage] = (),
    cuts: Sequence[int] = (),
) -> GraphWork:
    """Return the work of a job graph under a layout of data and pipeline parallelism.

    Args:
        graph: the job; its figures hold for ``samples_per_step`` samples, where it does not say for the global batch.
        layout: ``dp``, ``pp``, ``virtual_stages``, ``schedule``, ``micro_batch``, ``recompute`` (none or full), ZeRO-1 and the
            overlaps are read.
        device: on which it runs.
        costs: chooses the compute model and the size of gradients.
        stages: of a plan; by default balanced by time, see `plans.stages.layout_stages`.
        cuts: in place of stages, the first op of each chunk by its place in the topological order and, last, ``n``.

    Raises:
        PlanError: an axis that a graph of ops cannot be cut along, or a micro-batch that is no share of the graph's batch.
        GraphError: the graph cannot be timed on the device.
    """
    costs = costs or CostSettings()
    forward_s, backward_s = op_times_s(graph, layout, device, costs)
    chunks = _chunks(graph, layout, stages, cuts)
    boundary_bytes, given_bytes = crossing_bytes(graph, layout, chunks, is_direct=costs.pipeline_skips == "direct")
    return GraphWork(
        graph=graph,
        layout=layout,
        chunks=chunks,
        share=share_of(graph, layout),
        is_profiled=graph.source == "measured" and compute.model_named(costs.compute, graph).provenance == "measured",
        forward_s=forward_s,
        backward_s=backward_s,
        gradient_bytes=graph.parameter_bytes * costs.gradient_bytes_per_parameter_byte,
        boundary_bytes=boundary_bytes,
        given_bytes=given_bytes,
        volume=cut_volumes(graph, layout),
    )


def crossing_bytes(
    graph: JobGraph, layout: Layout, chunks: Sequence[NDArray[np.int64]], *, is_direct: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return bytes that a micro-batch brings from each chunk on, and those that it gives each chunk, see `GraphWork`.

    Args:
        graph: the job.
        layout: how it is cut.
        chunks: ops of each.
        is_direct: whether outputs go past chunks that do not read them.

    Raises:
        PlanError: a chunk reads what a later one makes.
    """
    chunk_of = np.empty(graph.num_ops, np.int64)
    for chunk, ops in enumerate(chunks):
        chunk_of[ops] = chunk
    backward_edges = np.flatnonzero(chunk_of[graph.edges[:, 0]] > chunk_of[graph.edges[:, 1]])
    for source, target in graph.edges[backward_edges[:1]].tolist():
        problem = f"{graph.op_names[target]} is in an earlier chunk than {graph.op_names[source]}, whose output it needs"
        raise PlanError(problem, field="stages")
    made_bytes = rank_activation_bytes(graph, layout)
    last_use = chunk_of.copy()
    np.maximum.at(last_use, graph.edges[:, 0], chunk_of[graph.edges[:, 1]])
    crossing = [(chunk_of <= chunk) & (last_use > chunk) for chunk in range(len(chunks))]
    sent, received = crossing, None
    if is_direct:
        sent = [cross & (chunk_of == chunk) for chunk, cross in enumerate(crossing)]
        received = np.zeros(len(chunks))
        reads = np.unique(np.stack([graph.edges[:, 0], chunk_of[graph.edges[:, 1]]], axis=1), axis=0)
        reads = reads[chunk_of[reads[:, 0]] != reads[:, 1]]
        np.add.at(received, reads[:, 1], made_bytes[reads[:, 0]])
    return np.array([float(made_bytes[cross].sum()) for cross in sent]), received


def share_of(graph: JobGraph, layout: Layout) -> float:
    """Return the part of the graph's samples that a micro-batch has."""
    return layout.micro_batch / (graph.samples_per_step or layout.global_batch)


def rank_activation_bytes(graph: JobGraph, layout: Layout) -> NDArray[np.float64]:
    """Return a rank's bytes of the output of each op for a micro-batch: its share, or its part of a volume, ``(n,)``."""
    made: NDArray[np.float64] = share_of(graph, layout) * graph.activation_bytes / parts_of(graph, layout)
    return made


def kept_activation_bytes(graph: JobGraph, layout: Layout) -> NDArray[np.float64]:
    """Return bytes that a rank keeps of each op until its backward pass; of volumes the gradient too, ``(n,)``."""
    stored_bytes: NDArray[np.float64] = rank_activation_bytes(graph, layout) * (
        1.0 if graph.volumes is None else ERRORS_AND_OUTPUTS
    )
    return stored_bytes


def op_times_s(
    graph: JobGraph, layout: Layout, device: DeviceType, costs: CostSettings
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the seconds of a micro-batch's forward pass, and of its backward pass with recomputation, through each op, ``(n,)``.

    Raises:
        PlanError, GraphError: as `describe_graph`.
    """
    samples = graph.samples_per_step or layout.global_batch
    _check(graph, layout, samples)
    if costs.pipeline_skips == "direct" and layout.pp > 1 and (layout.virtual_stages > 1 or layout.overlap_pp):
        problem = "is for gpipe and 1f1b without overlap_pp, whose stages wait until all is sent"
        raise PlanError(problem, field="pipeline_skips", value="direct")
    parts, model = parts_of(graph, layout), compute.model_named(costs.compute, graph)
    splits = np.full(graph.num_ops, samples // layout.micro_batch)
    forward_s, backward_s = model.share_s(graph, splits * parts, device)
    if layout.sp > 1:  # no part of a kernel takes less than a launch
        whole_s = model.share_s(graph, splits, device)
        launch_s = np.where(parts > 1, device.kernel_launch_s, 0.0)
        forward_s = np.maximum(forward_s, np.minimum(whole_s[0], launch_s))
        backward_s = np.maximum(backward_s, np.minimum(whole_s[1], launch_s))
    rate = costs.file_system_gbytes_per_s
    if graph.volumes is not None and rate is not None:
        sources = np.bincount(graph.edges[:, 1], minlength=graph.num_ops) == 0
        read_s = layout.micro_batch * graph.volumes.sample_bytes / (rate * 1e9)
        forward_s = forward_s + np.where(sources, read_s / parts, 0.0)
    return forward_s, backward_s + (forward_s if layout.recompute == "full" else 0.0)


def _chunks(graph: JobGraph, layout: Layout, stages: Sequence[Stage], cuts: Sequence[int]) -> tuple[NDArray[np.int64], ...]:
    """Return the ops of each chunk."""
    if len(cuts):
        chunks = tuple(graph.order[first:last] for first, last in pairwise(cuts))
    else:
        names = {name: op for op, name in enumerate(graph.op_names)}
        held = sorted(stages or layout_stages(graph, layout), key=lambda stage: (stage.chunk, stage.stage))
        chunks = tuple(np.array([names[name] for name in stage.ops if name in names], np.int64) for stage in held)
    if sum(map(len, chunks)) != graph.num_ops or len(chunks) != layout.pp * layout.virtual_stages:
        raise PlanError("do not hold each op of the job once, in as many chunks as the layout has", field="stages")
    return chunks


def _check(graph: JobGraph, layout: Layout, samples: int) -> None:
    layers, schedules = "cuts layers, which a graph of ops does not have", (*ZERO_BUBBLE, *BIDIRECTIONAL)
    if layout.is_meshed:
        raise PlanError(layers, field="layout.stage_meshes", value=value_text(layout.stage_meshes or ()))
    parted = "parts the gradients of weights from those of inputs, which a graph of ops does not"
    for bad, field, problem in (
        *((getattr(layout, axis) > 1, axis, layers) for axis in ("tp", "cp", "ep")),
        (layout.optimizer_bytes < MOMENT_BYTES, "optimizer_bytes", "a graph counts 4 bytes a moment"),
        (layout.offload != "none", "offload", layers),
        (layout.precision == "autocast", "precision", "casts weights, which a graph of ops does not have"),
        (layout.trainable != "all", "trainable", layers),
        (layout.zero >= 2, "zero", "gathers and scatters layer by layer, and a graph of ops has no layers"),
        (layout.recompute.startswith("selective"), "recompute", "is about attention, which a graph of ops does not have"),
        (layout.schedule in schedules, "schedule", parted),
        (samples % layout.micro_batch != 0, "micro_batch", f"does not divide the {samples} samples of a step of {graph.name}"),
    ):
        if bad:
            raise PlanError(problem, field=f"layout.{field}", value=getattr(layout, field))
