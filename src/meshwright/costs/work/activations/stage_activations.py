"""Activations that a layer, and a stage of a pipeline by its schedule and kinds of layers, keeps, computes again and sends.

Legend: ``s`` tokens of a sequence on a rank of ``cp``, ``b`` sequences of a micro-batch, ``t`` tensor-parallel degree,
``h`` hidden width, ``a`` heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....jobs.transformer import TransformerShape
from ....plans.frameworks.defaults import TRAITS
from ....plans.partition import Layout
from ...pipelines.kept import kept_together
from ...pipelines.schedules import in_flight
from ..elementwise import PLAIN_LOSS_NUMBERS, SPREAD_PLAIN_LOSS_NUMBERS
from ..model_chunks import KEPT, end_stages
from ..stage_work import once
from .selective_ops import kept_bytes

if TYPE_CHECKING:
    from ..work import LayoutWork

Passing = tuple[float, float, float]
"""Bytes kept from forward to backward passes, bytes that are computed again, and buffers without those of sharding."""


def layer_activation_bytes(shape: TransformerShape, layout: Layout, sequence_length: int, recompute: str) -> float:
    """Return bytes that one layer keeps of one micro-batch for its backward pass.

    Without recomputation, whole unless cut by sequence: inputs of both norms, of the joint projection and of the feed-forward
    layer, two dropout masks. Sharded by ``t``: queries, keys and values, softmax, its dropout mask and output, the context,
    the input and output of the activation. For a GPT that is ``s b h (10 + 24 / t + 5 a s / (h t))``, and all of it over ``t``
    under sequence parallelism. Selective recomputation keeps nothing of attention's inside. Full recomputation keeps the
    layer's input alone. It is whole on every rank without sequence parallelism, ``2 s b h``, and cut by sequence with it, ``2
    s b h / t``. Fused attention keeps a float32 statistic for each query instead of the scores. Latent attention keeps its
    narrow vectors before and after their norm too, norms of outputs and of heads their inputs.

    Inputs that are gathered by sequence may be kept whole. A GELU of operators keeps both factors of its product and its tanh
    as well, a gated activation of operators both factors of its product. Compiled code computes these again. Norms count as one
    kernel, as PyTorch's newest and torchtitan's are. Root-mean-square norms of transformers, whose models DeepSpeed trains, also
    keep their input in float32. With fp8 inputs of linear layers may be kept in a byte; attention then keeps its context in 16
    bits too. Where experts are cut less than ``tp``, their tokens are divided among ranks of ``tp`` also without sequence
    parallelism.

    Args:
        shape: the model.
        layout: how it is cut.
        sequence_length: tokens of a sequence; each query may see all of them.
        recompute: as in the layout; a layer of one layout may be recomputed or not.

    Source:
        Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022, section 4.
    """
    tp, width, hidden = layout.tp, layout.number_bytes, shape.hidden
    tokens, split = layout.micro_batch * sequence_length // layout.cp, tp if layout.sequence_parallel else 1
    if recompute == "selective-ops":
        return kept_bytes(shape, layout, tokens)
    if recompute == "full":
        return float(width * tokens * hidden / split)
    mask = 1 if shape.has_dropout else 0
    norms = 1 if shape.is_parallel else 2
    queries = shape.num_heads * shape.head_dim
    keys_and_values = max(shape.num_key_value_heads, tp) * (shape.head_dim + shape.value_head_dim)
    into_linear = 1 if layout.keeps_fp8 else width
    is_of_transformers = layout.framework == "deepspeed" and not layout.compile
    into_norm = width + 4 * (is_of_transformers and shape.norm_vectors == 1)
    gathered = norms * width * hidden if layout.keeps_gathered else 0.0
    stream = (norms * (into_norm + into_linear) + norms * mask) * hidden / split + gathered
    stream += 2 * width * (shape.narrow_width + (hidden if shape.has_output_norms else 0)) / split
    routed = shape.experts_per_token if shape.num_experts > 1 else 1
    of_activation = 3 if shape.is_gated else 2
    if layout.runs_operators or is_of_transformers:
        of_activation = 4 if shape.is_gated else 5 if shape.has_gelu_of_operators else 2
    inner = (routed * shape.feed_forward + (shape.shared_feed_forward or 0)) / tp * ((of_activation - 1) * width + into_linear)
    extra = (width + into_linear) * routed * hidden / max(split, tp // layout.expert_tp) if shape.num_experts > 1 else 0.0
    attended = (width * (queries + keys_and_values) + width * shape.num_heads * shape.value_head_dim) / tp
    attended += layout.keeps_fp8 * shape.num_heads * shape.value_head_dim / tp
    if shape.has_head_norms:  # queries and keys before their norms as well
        attended += into_norm * (queries + max(shape.num_key_value_heads, tp) * shape.head_dim) / tp
    if layout.attention == "fused" or shape.window_form == "linear":
        attended += 4 * shape.num_heads / tp
    elif recompute != "selective":
        attended += ((2 * width + mask) if mask else width) * shape.num_heads * sequence_length / tp
    return tokens * (stream + inner + extra + attended)


class _OfStage(NamedTuple):
    """Bytes of a stage that layouts share if they differ in the order of passes alone.

    Attributes:
        layers: number, bytes kept until the backward pass, and until a weight gradient that is put off, of each kind of layer.
        dropout: tokens, numbers of each, and ranks among which these are split, of the embedding's mask; none without one.
        head_bytes: kept by the head: inputs of its norm and of its product.
        again_bytes: computed again at once.
        buffer_bytes: of messages and logits.
    """

    layers: list[tuple[int, float, float]]
    dropout: tuple[int, int, int] | None
    head_bytes: float
    again_bytes: float
    buffer_bytes: float

    @classmethod
    def from_work(cls, work: LayoutWork, stage: int) -> _OfStage:
        """Make it of a stage of a layout whose stages have one mesh."""
        layout, shape, of_layer = work.layout, work.shape, _of_layers(work)
        with_embedding, with_head = end_stages(layout)
        tokens, split = layout.micro_batch * work.sequence_length // layout.cp, layout.tp if layout.sequence_parallel else 1
        layers = [(n, of_layer[name].stored_bytes, of_layer[name].put_off) for name, n in work.stages[stage].layers.items()]
        dropout = (tokens, shape.hidden, split) if stage in with_embedding and shape.has_dropout else None
        head_bytes, buffers = 0.0, message_buffers(work, stage)
        if stage in with_head:
            of_product = 1 if layout.keeps_gathered else split
            head_bytes = layout.number_bytes * tokens * shape.hidden * (1 / split + 1 / of_product)
            buffers += logits_bytes(work)
        return cls(layers, dropout, head_bytes, _again_bytes(work, stage, of_layer), buffers)


class _OfLayer(NamedTuple):
    """Bytes of one layer and micro-batch: kept until its backward pass, and until a weight gradient that is put off.

    ``whole`` is without recomputation, ``selective`` with the selective one (op by op where that is chosen).
    """

    stored_bytes: float
    put_off: float
    whole: float
    selective: float

    @classmethod
    def from_work(cls, work: LayoutWork) -> dict[str, _OfLayer]:
        """Make it by the names of the layers' blocks."""
        made = {}
        for name, shape in work.layer_shapes.items():
            recompute = "none" if name.endswith(KEPT) else work.layout.recompute
            puts_off = computes_again(work.layout) and recompute == "full"
            part = "selective" if puts_off or recompute == "selective" else recompute
            of = {one: layer_activation_bytes(shape, work.layout, work.sequence_length, one) for one in {recompute, "none", part}}
            held_bytes, whole, selective = of[recompute], of["none"], of[part]
            made[name] = cls(held_bytes, selective if puts_off else held_bytes, whole, selective)
        return made


def _of_layers(work: LayoutWork) -> dict[str, _OfLayer]:
    layers: dict[str, _OfLayer] = once(work.of_passes, computes_again(work.layout), lambda: _OfLayer.from_work(work))
    return layers


def passing_bytes(work: LayoutWork, stage: int) -> Passing:
    """See `Passing`, of a stage of a layout whose stages have one mesh."""
    layout, of_stage = work.layout, _of_stage(work, stage)
    held_bytes = activation_bytes(work, stage)
    if of_stage.dropout is not None:
        tokens, numbers, split = of_stage.dropout
        held_bytes += kept_at_once(layout, stage) * tokens * numbers / split
    num_again = 1 if layout.keeps_some_layers else layout.recompute_num_layers
    return held_bytes + of_stage.head_bytes, of_stage.again_bytes * num_again, of_stage.buffer_bytes


def _of_stage(work: LayoutWork, stage: int) -> _OfStage:
    made: _OfStage = once(work.of_passes, (stage, computes_again(work.layout)), lambda: _OfStage.from_work(work, stage))
    return made


def spared_at_most(work: LayoutWork) -> tuple[float, float]:
    """Return what one layer more of each chunk spares a stage if it is computed again, at most, and a layer's bytes at least.

    The first stage keeps no fewer micro-batches than others, and the inputs of the layer stay.
    """
    layout, layers = work.layout, _of_layers(work).values()
    kept = kept_at_once(layout, 0) * layout.virtual_stages
    inputs = layer_activation_bytes(work.shape, layout, work.sequence_length, "full")
    return kept * (max(layer.stored_bytes for layer in layers) - inputs), min(layer.whole for layer in layers)


def computes_again(layout: Layout) -> bool:
    """Return whether what is kept for a weight gradient is not what was kept for the backward pass."""
    return layout.recompute == "full" and (layout.parts_gradients or layout.is_bidirectional)


def activation_bytes(work: LayoutWork, stage: int = 0) -> float:
    """Return activations of the layers alone that a stage keeps, without embedding, head and the block that is recomputed.

    A weight gradient that a zero-bubble schedule puts off keeps its activations. Of a layer that is computed again as a whole
    these are the ones of selective recomputation, since the inside of attention holds no weights.
    """
    layout, inputs, of_stage = work.layout, _group_inputs(work, stage), _of_stage(work, stage)
    if layout.is_bidirectional:
        of_layer = _of_layers(work)
        own = sorted((chunk for chunk in work.chunks if chunk.stage == stage), key=lambda chunk: chunk.place)
        sizes = [
            total
            for chunk in own
            for total in (
                inputs * sum(number * of_layer[name].stored_bytes for name, number in chunk.runs),
                sum(number * of_layer[name].put_off for name, number in chunk.runs),
            )
        ]
        return max(sum(n * size for n, size in zip(numbers, sizes, strict=True)) for numbers in kept_together(layout, stage))
    if computes_again(layout):
        return max(
            sum(number * (before * (inputs * stored) + after * put_off) for number, stored, put_off in of_stage.layers)
            for before, after in kept_together(layout, stage)
        )
    most, total = kept_at_once(layout, stage), 0.0
    for number, stored, _ in of_stage.layers:
        total += number * (most * (inputs * stored))
    return total


def _group_inputs(work: LayoutWork, stage: int) -> float:
    """Return groups of layers that are computed again together, with one kept input each, over the layers of a stage.

    1 where each layer is alone.
    """
    size = work.layout.recompute_num_layers
    if size == 1 or work.layout.keeps_some_layers:
        return 1.0
    chunks = work.chunks[stage :: work.layout.pp] if not work.layout.is_bidirectional else work.chunks
    own = [chunk.num_layers for chunk in chunks if chunk.stage == stage]
    return sum(-(-number // size) for number in own) / max(1, sum(own))


def kept_at_once(layout: Layout, stage: int) -> float:
    """Return the most micro-batches whose activations a stage keeps at once; of several chunks the mean of these."""
    return in_flight(layout.schedule, layout.pp, layout.virtual_stages, layout.num_micro_batches, stage) if layout.pp > 1 else 1.0


def _again_bytes(work: LayoutWork, stage: int, of_layer: dict[str, _OfLayer]) -> float:
    """Return the most that a layer computes again before its backward pass."""
    layout, names = work.layout, work.stages[stage].layers
    if layout.recompute == "full":
        return max((of_layer[name].whole for name in names if not name.endswith(KEPT)), default=0.0)
    if layout.recompute == "selective-ops" or (layout.recompute == "selective" and layout.attention == "unfused"):
        return max(0.0, *(of_layer[name].whole - of_layer[name].selective for name in names))
    return 0.0


def message_buffers(work: LayoutWork, stage: int) -> float:
    """Return bytes of activations that are sent or received."""
    layout = work.layout
    stream = float(layout.number_bytes * layout.micro_batch * work.sequence_length // layout.cp * work.shape.hidden)
    total = 2 * stream if layout.tp > 1 else 0.0  # a gathered input and a sum
    if layout.pp > 1:
        carried = 1
        if work.shape.long_skips is not None:
            ways = [n for own, chunk in enumerate(work.chunks) if chunk.stage == stage for n in (own - 1, own)]
            carried = max(work.carried(chunk) for chunk in ways if 0 <= chunk < len(work.chunks) - 1)
        directions = 2 if layout.is_bidirectional else 1
        total += directions * 2 * carried * stream / (layout.tp if layout.sequence_parallel else 1)
    return total


def logits_bytes(work: LayoutWork) -> float:
    """Return logits in the working precision, and in float32 twice, or as often as PyTorch's loss has them; of one piece."""
    layout = work.layout
    tokens = layout.micro_batch * work.sequence_length // layout.cp
    of_torch = PLAIN_LOSS_NUMBERS if layout.tp == 1 else SPREAD_PLAIN_LOSS_NUMBERS
    is_of_torch = TRAITS[layout.framework].is_plain_pytorch or layout.framework == "deepspeed"
    held = of_torch if is_of_torch else layout.number_bytes + 8
    return held * tokens * work.shape.vocabulary / layout.tp / layout.loss_chunks
