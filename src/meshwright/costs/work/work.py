"""The work of every rank of a layout in one step: the one description that the analytic and the event path both read.

`describe` gives, for a transformer and a layout, the passes of each kind of layer, the embedding and the head for one
micro-batch (`blocks`). It also gives the blocks of each model chunk, the messages from chunk to chunk, and the tail behind the
last micro-batch. The tail is gradient synchronisation, optimizer, gathering of parameters. All ranks of a stage do the same.

A reader lowers it as follows. Stage ``p`` works through its chunks' passes in the order of the schedule (`schedules.orders`).
The forward pass of a chunk is embedding, layers, head as far as it has them. The backward pass is the reverse, with
``recompute`` before each block's ``backward``. Under a zero-bubble schedule ``recompute`` and `operations.input_part` are one
pass, `operations.weight_part` is another. ``boundary`` is between chunks on different stages. Then ``sync``,
``optimizer_parameters`` swept once, ``gather``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise
from operator import attrgetter, is_, itemgetter
from typing import Any, Literal

from ...errors import PlanError
from ...jobs.transformer import TransformerShape
from ...plans.partition import Layout
from ...plans.pipelines.layers import less_layers
from ..compression import Matrix
from . import layer as blocks
from .layer import BlockWork
from .memory import StageMemory, peak_memory, stage_memory
from .model_chunks import ChunkWork, check, forward_and_backward, spread
from .operations import Message
from .stage_work import BlockWeights, StageWork, once, optimizer_bytes, stages_of, stored_bytes
from .step_work import SUMMED, ModelParts, StepWork

MOST_WORKS = 16_384
"""Families of works that are kept, each with the works of its ZeRO stages, some 20 kB, and weights that ranks hold.

With a quarter of them a search of 1,024 devices makes some again, which takes 2 % longer.
"""

_LAYERS = attrgetter("layers")
_WORKS: dict[object, tuple[dict[int, LayoutWork], dict[object, Any]]] = {}
_IN_TIME = {"schedule", "overlap_pp", "virtual_stages", "recompute_num_layers"}
_FAMILY = itemgetter(*(Layout.model_fields.keys() - _IN_TIME - {"zero"}))
"""The keys of a layout that layouts of one family share, in addition to the ZeRO stage; they share the layers of their stages
too.
"""

_HELD: dict[object, tuple[Mapping[str, BlockWeights], tuple[StageWork, ...], dict[object, Any]]] = {}
_OF_WEIGHTS = itemgetter(*(Layout.model_fields.keys() - _IN_TIME - {"micro_batch", "global_batch", "recompute"}))
"""The keys of a layout on which the weights that ranks hold depend, and more."""

_UNCUT = {
    **dict.fromkeys(("tp", "cp", "pp", "ep", "dp", "virtual_stages"), 1),
    **dict.fromkeys(("zero", "first_stage_less_layers", "last_stage_less_layers"), 0),
    **dict.fromkeys(("sequence_parallel", "distributed_optimizer"), False),
    "schedule": "1f1b",
}


@dataclass(frozen=True)
class LayoutWork(StepWork):
    """The step of a transformer under a layout.

    Attributes:
        shape: the model.
        layout: how it is cut.
        sequence_length: tokens of a sequence.
        block_weights: parameters of the blocks by name, ``layer`` for those of the main kind, ``embedding`` and ``head`` last.
        chunks: in model order, ``pp * virtual_stages`` of them; those of DualPipe twice.
        stages: by pipeline stage.
        boundary: what brings one micro-batch's activations, or gradients, from chunk to chunk, as the first stage has them
            where stages have meshes of their own.
        key: what of the layout the work on one micro-batch depends on, see `layer.micro_batch_key`.
        meshes: of each stage the work as if all had its mesh; none where they have one. Blocks and boundary are the first one's.
        make_blocks: makes `blocks`.
        shared: see `once`.
        of_weights: what is worked out once for all layouts whose ranks hold the same weights.
        of_passes: what is worked out once for all layouts that differ in ZeRO stage and order of passes alone.
    """

    shape: TransformerShape
    layout: Layout
    sequence_length: int
    block_weights: Mapping[str, BlockWeights]
    chunks: tuple[ChunkWork, ...]
    stages: tuple[StageWork, ...]
    boundary: tuple[Message, ...]
    key: tuple[object, ...]
    make_blocks: Callable[[], Mapping[str, BlockWork]] = field(compare=False)
    meshes: tuple[LayoutWork, ...] = ()
    shared: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    of_weights: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    of_passes: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def blocks(self) -> Mapping[str, BlockWork]:
        """The blocks by name, as `block_weights` has them; their passes are made when they are first asked for."""
        block_works: Mapping[str, BlockWork] = self.once("blocks", self.make_blocks)
        return block_works

    def at(self, stage: int) -> LayoutWork:
        """Return the work as if all stages had the mesh of this one; itself where they do."""
        return self.meshes[stage] if self.meshes else self

    def once(self, key: object, make: Callable[[], Any]) -> Any:
        """Return the value of a key that is made once for all layouts that differ in the order of passes alone."""
        return once(self.shared, key, make)

    def other_chunk(self, chunk: ChunkWork) -> ChunkWork | None:
        """Return the other chunk of the same rank under a bidirectional schedule; None under others."""
        return self.chunks[-1 - self.layout.chunk_at(chunk.stage, chunk.place)] if self.layout.is_bidirectional else None

    def carried(self, chunk: int) -> int:
        """Return the residual streams that go from a chunk to the next one: its own, and long skips past it."""
        if self.shape.long_skips is None:
            return 1
        return 1 + self.shape.skips_behind(sum(one.num_layers for one in self.chunks[: chunk + 1]))

    @property
    def partners(self) -> Mapping[int, int]:
        """The stage with which each stage sums gradients behind its passes, where there is one.

        These are the ends of a pipeline with two copies of a table, and of DualPipe every two stages of the same layers.
        """
        last = self.layout.pp - 1
        if self.layout.has_mirrored_stages:
            return {stage: last - stage for stage in range(last + 1)}
        return {0: last, last: 0} if any(item.axis == "ends" for item in self.stages[0].sync) else {}

    @property
    def amount(self) -> tuple[int, Literal["tokens", "samples"]]:
        """See `StepWork.amount`."""
        return self.layout.global_batch * self.sequence_length, "tokens"

    @property
    def weights(self) -> float:
        """Parameters of a rank of each stage, see `StepWork.weights`."""
        return float(sum(stage.parameters for stage in self.stages))

    @property
    def gradient_number_bytes(self) -> float:
        """See `StepWork.gradient_number_bytes`."""
        return self.layout.gradient_bytes

    @property
    def weight_parts(self) -> ModelParts:
        """Embedding, each layer and head, see `StepWork.weight_parts`; a tied table counts with the embedding."""
        layout = self.layout
        whole = describe(self.shape, layout.model_copy(update=_UNCUT), self.sequence_length, checks=False)
        (chunk,) = whole.chunks
        held, head = whole.block_weights, whole.block_weights["head"].dense_parameters
        layers = [held[name].dense_parameters for name, number in chunk.runs for _ in range(number)]
        tied = held["embedding"].largest_weight if self.shape.is_head_tied else 0.0
        once = self.chunks[: layout.pp * layout.virtual_stages]
        ends = [0, *(1 + end for end in accumulate(one.num_layers for one in once))]
        ends[-1] += 1
        return ModelParts(
            (held["embedding"].dense_parameters, *layers, head - tied),
            tuple(pairwise(ends)) * (2 if layout.has_mirrored_stages else 1),
            4.0 if layout.is_fsdp2 else float(stored_bytes(layout)),
            optimizer_bytes(layout),
        )

    def gradient_bytes_on(self, stage: int) -> float:
        """See `StepWork.gradient_bytes_on`."""
        return float(self.stages[stage].parameters * self.layout.gradient_bytes)

    def with_gradient_share(self, share: float) -> LayoutWork:
        """See `StepWork.with_gradient_share`."""
        stages = []
        for held in self.stages:
            messages = [one for one in held.sync if share or one.axis not in SUMMED]
            sync = (replace(one, payload_bytes=one.payload_bytes * share) if one.axis in SUMMED else one for one in messages)
            stages.append(replace(held, sync=tuple(sync)))
        return replace(self, stages=tuple(stages))

    def matrices(self, stage: int, message: Message) -> tuple[Matrix, ...]:
        """Return the weight matrices of the layers of a message, cut by ``tp``; those of experts are not known."""
        shape, tp, count = self.shape, self.layout.tp, self.stages[stage].num_layers
        if message.axis != "dp_cp":
            return ()
        hidden, queries = shape.hidden, shape.num_heads * shape.head_dim
        keys = shape.num_key_value_heads * (shape.head_dim + shape.value_head_dim)
        results = [Matrix(hidden, queries / tp, count), Matrix(hidden, keys / tp, count), Matrix(queries / tp, hidden, count)]
        if shape.num_experts <= 1:
            results += [Matrix(hidden, shape.feed_forward / tp, count * (3 if shape.is_gated else 2))]
        return tuple(results)

    def pass_messages(self) -> Iterator[tuple[Message, int, int]]:
        """See `StepWork.pass_messages`."""
        for chunk in self.chunks:
            for name, number in chunk.parts:
                block = self.blocks[name]
                for item in (*block.forward, *block.recompute, *block.backward):
                    if isinstance(item, Message):
                        yield item, chunk.stage, number

    def sent(self, chunk: int) -> tuple[Message, ...]:
        """See `StepWork.sent`, where the stages of both chunks have one mesh."""
        sent, carried = self.at(self.layout.stage_of(chunk)).boundary, self.carried(chunk)
        return sent if carried == 1 else tuple(replace(one, payload_bytes=carried * one.payload_bytes) for one in sent)

    @property
    def last_output(self) -> tuple[Message, ...]:
        """The input of the head, taken for its output, see `StepWork.last_output`."""
        last = self.layout.pp * self.layout.virtual_stages - 1
        return self.sent(last - 1) if last > 0 else ()

    def returned(self, chunk: int) -> tuple[Message, ...]:
        """See `StepWork.returned`."""
        return self.sent(chunk - 1)

    def sync(self, stage: int) -> tuple[Message, ...]:
        """See `StepWork.sync`."""
        return self.stages[stage].sync

    def gather(self, stage: int) -> tuple[Message, ...]:
        """See `StepWork.gather`."""
        return self.stages[stage].gather

    def memory(self, stage: int) -> StageMemory:
        """See `StepWork.memory`."""
        return stage_memory(self, stage)

    def peak_memory(self) -> tuple[int, StageMemory]:
        """See `StepWork.peak_memory`; worked out once for layouts that share what decides it."""
        return peak_memory(self)

    @property
    def has_plain_boundary(self) -> bool:
        """Whether the same goes from each chunk to the next one, from rank to rank."""
        return not self.meshes and self.shape.long_skips is None

    @property
    def layer_shapes(self) -> Mapping[str, TransformerShape]:
        """The kind of layers of each block that is neither embedding nor head."""
        return {name: self.shape.kinds[n % len(self.shape.kinds)] for n, name in enumerate(list(self.block_weights)[:-2])}

    @property
    def layer(self) -> BlockWork:
        """A layer of the main kind."""
        return self.blocks["layer"]

    @property
    def pass_axes(self) -> frozenset[str]:
        """Axes of the messages that belong to passes; ``tp``, ``cp`` and ``ep`` unless weights or gradients travel there too."""
        passes = (items for block in self.blocks.values() for items in (block.forward, block.recompute, block.backward))
        axes = (item.axis for items in passes for item in items if isinstance(item, Message))
        result: frozenset[str] = self.once("pass axes", lambda: frozenset(axes))
        return result


def describe(shape: TransformerShape, layout: Layout, sequence_length: int | None = None, *, checks: bool = True) -> LayoutWork:
    """Return the work of a layout.

    Args:
        shape: the model.
        layout: how it is cut.
        sequence_length: tokens of a sequence; by default the model's own, 2,048 at most.
        checks: whether the layout may be illegal.

    Raises:
        PlanError: the model cannot be cut so, see `check`.
    """
    length = shape.default_sequence_length if sequence_length is None else sequence_length
    if layout.is_meshed:
        known = {mesh: describe(shape, mesh, length, checks=checks) for mesh in map(layout.at, range(layout.pp))}
        meshes = tuple(known[layout.at(stage)] for stage in range(layout.pp))
        stages_held = tuple(one.stages[stage] for stage, one in enumerate(meshes))
        if shape.is_head_tied and meshes[0] is not meshes[-1]:
            problem = f"{shape.name} sums its table between the first and the last stage, whose meshes must be one"
            raise PlanError(problem, field="layout.stage_meshes")
        return replace(meshes[0], layout=layout, stages=stages_held, meshes=meshes)
    if checks:
        check(shape, layout, length)
    again = layout.recompute_num_layers if layout.keeps_some_layers else None
    sizes = layout.stage_layers
    chunks_of = shape.num_layers, shape.other_layers, layout.pp, layout.virtual_stages, less_layers(layout), again, sizes
    chunks, layers = spread(*chunks_of)
    apart: object = None
    if layout.is_bidirectional:
        chunks, layers = forward_and_backward(layout.schedule, layout.pp, chunks_of)
        apart = layout.schedule
    elif layout.is_fsdp2 or shape.long_skips is not None:
        apart = layout.virtual_stages
    family = shape, length, apart, id(layers), _FAMILY(vars(layout))
    if (shared := _WORKS.get(family)) is None:
        if len(_WORKS) >= MOST_WORKS:
            _WORKS.clear()
        shared = _WORKS[family] = {}, {}
    of_zero, of_passes = shared
    if (known_work := of_zero.get(layout.zero)) is None:
        key = blocks.micro_batch_key(layout, length)
        weights, stages, of_weights = _held(shape, layout, layers, apart)
        boundary, make_blocks = _boundary(layout, length, shape.hidden), partial(blocks.blocks_of, shape, layout, length, key)
        known_work = LayoutWork(shape, layout, length, weights, chunks, stages, boundary, key, make_blocks)
        vars(known_work).update(of_weights=of_weights, of_passes=of_passes)
        of_zero[layout.zero] = known_work
    work = object.__new__(LayoutWork)
    vars(work).update(vars(known_work), layout=layout, chunks=chunks)
    return work


def rescheduled(work: LayoutWork, layout: Layout) -> LayoutWork:
    """Return the work of a layout that differs in schedule and chunks; it shares with ``work`` what it can."""
    old = work.layout
    has_own = layout.is_bidirectional or old.is_bidirectional or layout.is_fsdp2 or layout.overlap_dp != old.overlap_dp
    if has_own or layout.zero != old.zero or work.meshes or work.shape.long_skips is not None:
        return describe(work.shape, layout, work.sequence_length, checks=False)
    again = layout.recompute_num_layers if layout.keeps_some_layers else None
    cut = work.shape.num_layers, work.shape.other_layers, layout.pp, layout.virtual_stages, less_layers(layout), again
    chunks, layers = spread(*cut, layout.stage_layers)
    if not all(map(is_, map(_LAYERS, work.stages), layers)):
        return describe(work.shape, layout, work.sequence_length, checks=False)
    made = object.__new__(LayoutWork)
    vars(made).update(vars(work), layout=layout, chunks=chunks)
    return made


def _held(
    shape: TransformerShape, layout: Layout, layers: tuple[Mapping[str, int], ...], apart: object
) -> tuple[Mapping[str, BlockWeights], tuple[StageWork, ...], dict[object, Any]]:
    """Return the parameters of blocks and what stages hold of them, once for all sizes of a micro-batch, and `of_weights`."""
    key = shape, apart, id(layers), layout.keeps_some_layers, _OF_WEIGHTS(vars(layout))
    if (known := _HELD.get(key)) is None:
        if len(_HELD) >= MOST_WORKS:
            _HELD.clear()
        weights = blocks.weights_of(shape, layout)
        known = _HELD[key] = weights, stages_of(shape, layout, layers, weights), {}
    return known


def with_blocks(work: LayoutWork, blocks: Mapping[str, BlockWork], key: object) -> LayoutWork:
    """Return the work with other blocks of the same names; ``key`` distinguishes it from that of the same shape and layout."""
    stages = stages_of(work.shape, work.layout, [held.layers for held in work.stages], blocks)
    return replace(work, block_weights=blocks, make_blocks=partial(dict, blocks), stages=stages, key=(*work.key, key))


def _boundary(layout: Layout, sequence_length: int, hidden: int) -> tuple[Message, ...]:
    """Let each tensor-parallel rank send its share over its own card; without sequence parallelism they gather it then.

    Source:
        Narayanan et al., "Efficient large-scale language model training on GPU clusters", 2021, section 4.1.
    """
    if layout.pp == 1:
        return ()
    payload = float(layout.number_bytes * layout.micro_batch * sequence_length // layout.cp * hidden)
    send = Message("activations", "send_recv", "pp", payload / layout.tp)
    if layout.tp == 1 or layout.sequence_parallel:
        return (send,)
    return (send, Message("activations", "all_gather", "tp", payload))
