"""How latent attention makes queries, keys and values: narrow vectors of each token first, which all heads share.

The products that make the narrow vectors are not cut by ``tp``: every rank holds their weights. Under sequence parallelism a
rank makes the vectors of its own tokens and they are gathered, otherwise it makes those of all. Products of heads are cut.

Source:
    NVIDIA/Megatron-LM, megatron/core/transformer/multi_latent_attention.py; DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...jobs.transformer import TransformerShape
from .operations import Item, Message, Sweep

if TYPE_CHECKING:
    from .layer_parts import LayerParts


def narrow_parameters(shape: TransformerShape) -> int:
    """Return the parameters of a layer that make the narrow vectors and normalise them, which every rank of ``tp`` holds."""
    latent = shape.latent
    assert latent is not None
    ranks = (latent.query_rank or 0) + latent.key_value_rank
    return shape.narrow_width * (shape.hidden + shape.qkv_bias) + shape.norm_vectors * ranks


def up_parameters(shape: TransformerShape) -> int:
    """Return parameters of a layer that make queries, keys and values of them; each rank of ``tp`` holds a part."""
    return shape.query_key_value_weights - shape.hidden * shape.narrow_width


def latent_products(parts: LayerParts) -> tuple[list[Item], list[Item]]:
    """Return the products from the input to queries, keys and values, forward and backward.

    Where queries have no narrow vector they come from the input, which is then gathered like that of any layer.
    """
    shape, layout, tokens = parts.shape, parts.layout, parts.tokens
    latent = shape.latent
    assert latent is not None
    narrow, own = shape.narrow_width, round(tokens / parts.split)
    queries = round(parts.query_width)
    keys_and_values = round(parts.key_width - shape.num_heads * latent.rope_head_dim / layout.tp + parts.value_width)
    vectors = float(parts.element_bytes * own * narrow)
    copied = 2.0 * parts.element_bytes * tokens * parts.key_width  # the heads' own part of a key in addition to the common one
    forward = [*parts.cast_linear("qkv down", own, narrow, shape.hidden), Sweep("latent norm", 2 * vectors, 2)]
    is_spread = layout.tp > 1 and layout.sequence_parallel
    payload = float(parts.element_bytes * tokens * narrow)
    if is_spread:
        forward.append(Message("latent vectors", "all_gather", "tp", payload))
    backward: list[Item] = []
    rows = [("keys and values up", keys_and_values, latent.key_value_rank)]
    if latent.query_rank is not None:
        rows.insert(0, ("queries up", queries + parts.side_columns(latent.query_rank), latent.query_rank))
    else:
        queries += parts.side_columns(shape.hidden)
        forward += parts.gathered("queries", [parts.linear("queries", tokens, queries, shape.hidden)])
        backward += parts.product_backward("queries", tokens, queries, shape.hidden, is_column=True)
    if is_spread:
        backward.append(Message("latent vectors again", "all_gather", "tp", payload))
    for name, columns, rank in rows:
        forward += parts.cast_linear(name, tokens, columns, rank)
        backward += [*parts.cast(f"{name} gradient", tokens * columns), *parts.gradients(name, tokens, columns, rank)]
    forward.append(Sweep("key copy", copied, 1))
    backward.insert(0, Sweep("key gradient copy", copied, 1))
    if layout.tp > 1:
        backward.append(Message("latent gradients", "reduce_scatter" if is_spread else "all_reduce", "tp", payload))
    backward += [Sweep("latent norm gradient", 5 * vectors, 4), *parts.cast("qkv down gradient", own * narrow)]
    return forward, [*backward, *parts.gradients("qkv down", own, narrow, shape.hidden, bias=shape.qkv_bias)]
