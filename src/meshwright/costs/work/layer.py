"""The passes of one transformer layer, of the embedding and of the head, for one micro-batch on one rank.

Kernels are those that Megatron-LM launches. They are products, attention (fused, or as two batched products with softmax and
dropout between them), norm, bias with dropout and residual, activation. Sweeps count the bytes that such a kernel reads and
writes, ``e`` for each number of the working precision.

Legend: ``s`` tokens of a sequence, ``b`` sequences of a micro-batch, ``t`` tensor-parallel degree, ``h`` hidden width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from ...jobs.transformer import TransformerShape
from ...plans.frameworks.defaults import TRAITS
from ...plans.partition import Layout
from ..collectives.prices import Operation
from . import adapters
from .activations.selective_ops import recomputed
from .elementwise import (
    LOSS_BACKWARD_BYTES,
    LOSS_FORWARD_BYTES,
    PLAIN_LOSS_BACKWARD_BYTES,
    PLAIN_LOSS_FORWARD_BYTES,
    norm,
)
from .layer_parts import LayerParts
from .model_chunks import block_name, has_table_copy
from .operations import ALIGNED_BYTES, Axis, Item, Message, Pass, Product, Sweep, axes_of, input_part, row_bytes, weight_part
from .stage_work import BlockWeights, once

PREFETCHED_PARAMETERS = 5e7
"""Largest weight that ZeRO-3 fetches ahead of its use, unless the layout says that it overlaps. A weight that does not fit
DeepSpeed's buffer for that is fetched when it is needed, and nothing hides it. DeepSpeed's default of
``stage3_prefetch_bucket_size``, deepspeed/runtime/zero/config.py.
"""

LOOK_UP_KERNELS, SORTED_KERNELS = 10, 12
"""Launches in which PyTorch looks tokens up, with the masks of those that another rank holds. Then those in which it adds
their gradients to a table (it sorts them first, in several passes). Counts that reproduce the host's time best in the
calibration set; 3 and 3, 8 and 8 were tried too.
"""

MOST_BLOCKS = 65_536
"""Blocks that are kept."""


@dataclass(frozen=True, kw_only=True)
class BlockWork(BlockWeights):
    """The passes of one block for one micro-batch.

    Attributes:
        forward: the forward pass.
        recompute: what of it is done again before the backward pass.
        backward: the backward pass, gradients of inputs and weights in the order in which they are computed.
    """

    forward: Pass
    recompute: Pass = ()
    backward: Pass

    @cached_property
    def parts(self) -> tuple[Pass, Pass]:
        """The backward pass as the one of inputs and the one of weights."""
        return input_part(self.backward), weight_part(self.backward)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of all messages of its passes."""
        return axes_of((*self.forward, *self.recompute, *self.backward))


def micro_batch_key(layout: Layout, sequence_length: int) -> tuple[object, ...]:
    """Return the parts of a layout on which the work of one micro-batch depends; layouts that agree in them share it."""
    return (
        layout.tp,
        layout.cp,
        layout.ep,
        layout.expert_tp,
        layout.micro_batch,
        sequence_length,
        layout.sequence_parallel,
        (layout.recompute, layout.keeps_some_layers),
        layout.context_parallel,
        layout.number_bytes,
        layout.gradient_bytes,
        layout.attention,
        layout.async_gradients,
        layout.fused_accumulation,
        layout.overlap_tp,
        layout.zero >= 3,
        layout.reduces_in_passes,
        layout.overlap_dp and layout.zero >= 2,
        layout.framework,
        layout.compile,
        layout.precision if layout.precision in ("fp8", "autocast") else "",
        (layout.trainable, layout.frozen_bits),
    )


AUTOCAST_KERNELS = 4
"""Matrices of a dense layer that autocast turns into 16 bits, once in each forward pass. They are joint attention input,
output, and both of the feed-forward layer (pytorch/pytorch, aten/src/ATen/autocast_mode.cpp: ``cached_cast``).
"""

_BLOCKS: dict[object, Any] = {}
_FLAT = {"micro_batch": 1, "cp": 1, "ep": 1, "etp": None}


def blocks_of(shape: TransformerShape, layout: Layout, length: int, key: object) -> Mapping[str, BlockWork]:
    """Return layers, embedding and head, made once for each key; what recomputation leaves as it is, once for all kinds.

    Args:
        shape: the model.
        layout: how it is cut.
        length: tokens of a sequence.
        key: that of the layout, see `micro_batch_key`.
    """
    has_own_table = has_table_copy(layout) or not shape.is_head_tied
    known = shape, key, has_own_table
    if known not in _BLOCKS:
        if len(_BLOCKS) >= MOST_BLOCKS:
            _BLOCKS.clear()
        plain = layout.model_copy(update={"recompute": "none", "recompute_method": "uniform"})
        # Of embedding and head a rank's tokens decide, however they are cut from sequences.
        flat, tokens = plain.model_copy(update=_FLAT), layout.micro_batch * length // layout.cp
        of_ends = shape, micro_batch_key(flat, tokens)
        ends = {"embedding": once(_BLOCKS, (*of_ends, "embedding"), lambda: embedding(shape, flat, tokens))}
        ends["head"] = once(_BLOCKS, (*of_ends, "head", has_own_table), lambda: head(shape, flat, tokens, has_own_table))
        kinds = {block_name(number): kind for number, kind in enumerate(shape.kinds)}
        cached = once(
            _BLOCKS,
            (shape, micro_batch_key(plain, length)),
            lambda: {name: layer(kind, plain, length) for name, kind in kinds.items()},
        )
        again = {name: _again(cached[name], kind, layout, length) for name, kind in kinds.items()}
        if layout.keeps_some_layers:
            again |= {block_name(n, is_kept=True): cached[block_name(n)] for n in range(len(shape.kinds))}
        _BLOCKS[known] = again | ends
    block_works: Mapping[str, BlockWork] = _BLOCKS[known]
    return block_works


def _again(plain: BlockWork, shape: TransformerShape, layout: Layout, length: int) -> BlockWork:
    """Return a layer that is computed again; its passes, where they are those of one that is not, are the same objects."""
    if layout.recompute == "none":
        return plain
    if layout.zero >= 3:
        made = layer(shape, layout, length)
        same = {name: getattr(plain, name) for name in ("forward", "backward") if getattr(plain, name) == getattr(made, name)}
        return replace(made, **same)
    recompute = plain.forward if layout.recompute == "full" else _part_again(LayerParts(shape, layout, length))
    return replace(plain, recompute=recompute)


def _part_again(made: LayerParts) -> Pass:
    """Return the part of a layer that is computed again before its backward pass, of those that keep the rest."""
    if made.layout.recompute == "selective-ops":
        return recomputed(made)
    return made.attention_core() if made.layout.attention == "unfused" else ()


def weights_of(shape: TransformerShape, layout: Layout) -> dict[str, BlockWeights]:
    """Return the parameters of the blocks that `blocks_of` gives."""
    made = {block_name(n): LayerParts(kind, layout, 1).weights for n, kind in enumerate(shape.kinds)}
    if layout.keeps_some_layers:
        made |= {block_name(n, is_kept=True): made[block_name(n)] for n in range(len(shape.kinds))}
    return made | {"embedding": embedding_weights(shape, layout), "head": head_weights(shape, layout)}


def layer(shape: TransformerShape, layout: Layout, sequence_length: int) -> BlockWork:
    """Return one transformer layer."""
    made = LayerParts(shape, layout, sequence_length)
    bare = {"recompute": "none", "recompute_method": "uniform", "zero": layout.zero if layout.is_fsdp2 else 0}
    key = shape, micro_batch_key(layout.model_copy(update=bare), sequence_length), "passes"
    halves: tuple[Pass, Pass] = once(_BLOCKS, key, lambda: _passes(made))  # without ZeRO's messages
    forward, backward = halves
    if layout.lora_rank is not None:
        forward, backward = (adapters.of_layer(items, layout) for items in halves)
    if layout.zero >= 3:  # what is gathered for each micro-batch is cast for each; else weights are cast once a step
        weights = made.weights
        forward = (*made.cast("weights", weights.dense_parameters + weights.expert_parameters, 4), *forward)
    forward = (*_autocast(made, made.weights.trained, AUTOCAST_KERNELS), *forward)
    whole: dict[str, Pass] = {"none": (), "full": forward}
    recompute = whole[layout.recompute] if layout.recompute in whole else _part_again(made)
    return _with_zero(BlockWork(forward=forward, recompute=recompute, backward=backward, **vars(made.weights)), layout)


def _passes(made: LayerParts) -> tuple[Pass, Pass]:
    attention, feed_forward = made.attention(), made.feed_forward()
    return made.joined(attention, feed_forward) if made.shape.is_parallel else made.in_turn(attention, feed_forward)


def _autocast(made: LayerParts, parameters: float, num_kernels: int) -> list[Item]:
    """Turn float32 weights into 16 bits for the products of a forward pass, where autocast does."""
    is_cast = made.layout.precision == "autocast"
    return [Sweep("weights cast", (4.0 + made.element_bytes) * parameters, num_kernels)] * is_cast


def embedding_weights(shape: TransformerShape, layout: Layout) -> BlockWeights:
    """Return the parameters of the table of tokens and of positions."""
    table = shape.vocabulary / layout.tp * shape.hidden
    positions = (shape.max_positions if shape.learned_positions else 0) * shape.hidden
    return _of_end(layout, table + positions + (shape.more_parameters or 0), table)


def head_weights(shape: TransformerShape, layout: Layout) -> BlockWeights:
    """Return the parameters of the final norm and of the table of the head."""
    table = shape.vocabulary / layout.tp * shape.hidden
    return _of_end(layout, table + shape.norm_vectors * shape.hidden, table)


def _of_end(layout: Layout, parameters: float, table: float) -> BlockWeights:
    """Return the parameters of the embedding or the head, all trained or all frozen."""
    if layout.lora_rank is None:
        return BlockWeights(dense_parameters=parameters, largest_weight=table)
    return BlockWeights(dense_parameters=0.0, frozen_bytes=layout.number_bytes * parameters, largest_weight=table)


def embedding(shape: TransformerShape, layout: Layout, sequence_length: int) -> BlockWork:
    """Return the look-up of tokens and positions; its backward pass adds to the rows of the table."""
    made = LayerParts(shape, layout, sequence_length)
    width = made.element_bytes * shape.hidden * made.tokens
    drop = 1.0 if shape.has_dropout else 0.0
    forward: list[Item] = [Sweep("embedding", 2 * width, LOOK_UP_KERNELS)]
    backward: list[Item] = []
    if layout.tp > 1:
        operation: Operation = "reduce_scatter" if layout.sequence_parallel else "all_reduce"
        forward.append(Message("embedding", operation, "tp", width))
        if layout.sequence_parallel:
            backward.append(Message("embedding gradient", "all_gather", "tp", width))
    if shape.learned_positions or shape.token_types:
        forward.append(Sweep("positions", 3 * width / made.split, 3))
        backward.append(Sweep("position gradient", width, SORTED_KERNELS, is_weight=True))
    if drop:
        forward.append(Sweep("embedding dropout", 2.5 * width / made.split, 1))
        backward.append(Sweep("embedding dropout gradient", 2.5 * width / made.split, 1))
    weights = embedding_weights(shape, layout)
    table_bytes = made.sum_bytes(weights.largest_weight) + made.element_bytes * weights.largest_weight
    backward.append(Sweep("embedding gradient", 3 * width + table_bytes, SORTED_KERNELS + 3, is_weight=True))
    return _with_zero(BlockWork(forward=tuple(forward), backward=_of_end_backward(backward, layout), **vars(weights)), layout)


def _of_end_backward(items: list[Item], layout: Layout) -> Pass:
    return tuple(items) if layout.lora_rank is None else adapters.without_weight_gradients(tuple(items))


def head(shape: TransformerShape, layout: Layout, sequence_length: int, has_own_table: bool) -> BlockWork:
    """Return final norm, product with the vocabulary and loss. A head on its own stage also holds a tied table.

    Args:
        shape: the model.
        layout: how the model is cut.
        sequence_length: tokens of a sequence.
        has_own_table: whether gradients of the head's table are summed by themselves; those of a tied table on the embedding's
            stage join the embedding's first.
    """
    made = LayerParts(shape, layout, sequence_length, is_head=True)
    columns = -(-shape.vocabulary // layout.tp)
    logits = made.tokens * columns
    norm_forward, norm_backward = norm(made, "final norm")
    forward: list[Item] = [*_autocast(made, shape.vocabulary / layout.tp * shape.hidden, 1), norm_forward]
    backward: list[Item] = []
    if layout.tp > 1 and layout.sequence_parallel:
        forward.append(made.message("logits input", "all_gather"))
    is_plain = TRAITS[layout.framework].is_plain_pytorch
    at = row_bytes(columns, shape.hidden) if is_plain else ALIGNED_BYTES
    forward.append(Product("logits", made.tokens, columns, shape.hidden, row_bytes=at))
    if is_plain:
        forward.append(Sweep("loss", PLAIN_LOSS_FORWARD_BYTES * logits, 4))
        backward.append(Sweep("loss gradient", PLAIN_LOSS_BACKWARD_BYTES * logits, 4))
    else:
        kind: Literal["loss", "spread loss"] = "loss" if layout.tp == 1 else "spread loss"
        forward.append(Sweep("loss", LOSS_FORWARD_BYTES * logits, 12, kind=kind))
        backward.append(Sweep("loss gradient", LOSS_BACKWARD_BYTES * logits, 4, kind=kind))
    if layout.tp > 1:
        for part in ("maximum", "target", "sum"):
            forward.append(Message(f"loss {part}", "all_reduce", "tp", 4.0 * made.tokens))
    gradients = made.product_backward("logits", made.tokens, columns, shape.hidden, is_column=True)
    backward += [replace(item, row_bytes=at) if isinstance(item, Product) else item for item in gradients]
    backward.append(norm_backward)
    weights = head_weights(shape, layout)
    scattered = weights.dense_parameters if has_own_table or layout.lora_rank else shape.norm_vectors * shape.hidden
    made_work = BlockWork(forward=tuple(forward), backward=_of_end_backward(backward, layout), **vars(weights))
    return _with_zero(made_work, layout, scattered=scattered)


def _with_zero(work: BlockWork, layout: Layout, scattered: float | None = None) -> BlockWork:
    """Add the messages of ZeRO-3 (and of ZeRO-2 without a pipeline) around a block.

    Parameters are gathered for the forward pass, for the recomputed one and for the backward pass. Those that are fetched
    ahead (see `PREFETCHED_PARAMETERS`) overlap with the block before. Gradients are scattered during the block that follows,
    in a pipeline for every micro-batch. A zero-bubble schedule that puts weight gradients off scatters them with those, which
    need no weights. DeepSpeed fetches a table for the embedding's backward pass as well.

    FSDP2 reduces in the precision of the sums, gathers once for both passes of a layer that recomputes, and copies gathered
    parameters into the weights. Source: pytorch/pytorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py.

    Args:
        work: the block.
        layout: how the model is cut.
        scattered: dense parameters whose gradients are scattered here; by default all.

    Source:
        Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020, section 7.2.
    """
    forward, recompute, backward = work.forward, work.recompute, work.backward
    is_ahead = layout.overlap_dp or work.largest_weight <= PREFETCHED_PARAMETERS
    kinds: tuple[tuple[Axis, float, float], ...] = (
        ("shard", work.dense_parameters, work.frozen_bytes),
        ("expert_dp", work.expert_parameters, work.frozen_expert_bytes),
    )
    hooks = {"is_hooked": layout.is_fsdp2, "is_compiled": layout.is_fsdp2 and bool(layout.compile)}
    for axis, parameters, frozen_bytes in kinds:
        if not parameters and not frozen_bytes:
            continue
        payload = layout.number_bytes * parameters + frozen_bytes
        summed_bytes = layout.gradient_bytes if layout.is_fsdp2 else layout.number_bytes
        summed = summed_bytes * (scattered if axis == "shard" and scattered is not None else parameters)
        if layout.reduces_in_passes and parameters:
            num_concurrent = len(backward)
            scatter = Message("gradients", "reduce_scatter", axis, summed, num_concurrent, is_weight=True, **hooks)
            backward = (scatter, *backward)
        if layout.zero >= 3:
            gather = Message("parameters", "all_gather", axis, payload, **hooks)
            if layout.is_fsdp2:
                copy = Sweep("copy of parameters", 2 * payload, 1)
                first, last = (recompute, backward) if recompute else (backward, ())
                forward, first = ((replace(gather, num_concurrent=len(items) + 1), copy, *items) for items in (forward, first))
                recompute, backward = (first, last) if recompute else ((), first)
                continue
            forward, recompute, backward = (
                (replace(gather, num_concurrent=len(items) if is_ahead else 0), *items) if items else items
                for items in (forward, recompute if layout.recompute == "full" else (), backward)
            )
            recompute = recompute or work.recompute
    return replace(work, forward=forward, recompute=recompute, backward=backward)
