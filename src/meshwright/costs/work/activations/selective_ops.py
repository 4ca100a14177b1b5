"""Selective recomputation op by op: attention and every second matrix product of a layer are kept, all else is computed again.

The products of a layer are counted in the order in which PyTorch runs them. That is queries, keys, values, attention's output,
gate and up (or up alone), down; the 1st, 3rd, ... keep their result. No backward pass needs the result of the last one, so it
is not computed again. Compiled code does not keep it either, plain autograd does.

Source:
    pytorch/torchtitan, torchtitan/parallelisms/parallelize_llama.py (``_save_list`` and ``_get_custom_policy``); PyTorch's
    ``torch.utils.checkpoint.create_selective_checkpoint_contexts``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....jobs.transformer import TransformerShape
from ....plans.partition import Layout
from ..elementwise import activation, norm, rotary
from ..operations import Item, Pass

if TYPE_CHECKING:
    from ..layer_parts import LayerParts


class LayerProduct(NamedTuple):
    """A product of a layer, on all ranks of tp together.

    Attributes:
        name: of its weight.
        inner: length of its sums.
        width: numbers of a token that it makes.
    """

    name: str
    inner: int
    width: int


def layer_products(shape: TransformerShape) -> tuple[LayerProduct, ...]:
    """Return the products of a dense layer in the order in which they run."""
    hidden, context = shape.hidden, shape.num_heads * shape.value_head_dim
    keys, values = (shape.num_key_value_heads * width for width in (shape.head_dim, shape.value_head_dim))
    ups = ("gate", "up") if shape.is_gated else ("up",)
    return (
        LayerProduct("queries", hidden, shape.num_heads * shape.head_dim),
        LayerProduct("keys", hidden, keys),
        LayerProduct("values", hidden, values),
        LayerProduct("attention output", context, hidden),
        *(LayerProduct(name, hidden, shape.feed_forward) for name in ups),
        LayerProduct("down", shape.feed_forward, hidden),
    )


def kept_products(shape: TransformerShape) -> tuple[LayerProduct, ...]:
    """Return the products of a layer whose results are kept."""
    return layer_products(shape)[::2]


def again_products(shape: TransformerShape) -> tuple[LayerProduct, ...]:
    """Return the products of a layer that are computed again; its last one never is."""
    return layer_products(shape)[1:-1:2]


def recomputed(parts: LayerParts) -> Pass:
    """Return the part of a layer that is computed again before its backward pass."""
    shape, tp = parts.shape, parts.layout.tp
    again = {one.name: one for one in again_products(shape)}

    def products(*names: str, gathers: bool = True) -> list[Item]:
        made: list[Item] = []
        for one in (again[name] for name in names if name in again):
            is_row = one.name == "attention output"
            width, inner = (one.width, one.inner // tp) if is_row else (max(1, one.width // tp), one.inner)
            made.append(parts.linear(one.name, parts.tokens, width, inner))
        return parts.gathered(names[0], made) if gathers else made

    act = activation(parts, parts.tokens * shape.feed_forward / tp)[0]
    residual = parts.residual("attention residual")[0]
    return (
        norm(parts, "attention norm")[0],
        *products("queries", "keys", "values"),
        *rotary(parts),
        *products("attention output", gathers=False),
        residual,
        norm(parts, "mlp norm")[0],
        *products("gate", "up"),
        act,
    )


def kept_bytes(shape: TransformerShape, layout: Layout, tokens: int) -> float:
    """Return the bytes that a layer keeps of a micro-batch: its input, results of kept products, attention's and its statistics.

    Under sequence parallelism also what was scattered of the two products that are cut by rows.
    """
    width, split = layout.number_bytes, layout.tp if layout.sequence_parallel else 1
    made = 0.0
    for one in kept_products(shape):
        if one.name == "down":
            made += 0.0 if layout.compile else one.width  # whole on each rank: a part of the sum
        else:
            made += one.width if one.name == "attention output" else one.width / layout.tp
    context = shape.num_heads * shape.value_head_dim / layout.tp
    scattered = (1 if layout.compile else 2) * shape.hidden / split if split > 1 else 0.0
    numbers = shape.hidden / split + made + context + scattered
    return tokens * (width * numbers + 4 * shape.num_heads / layout.tp)
