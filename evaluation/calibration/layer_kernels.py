"""The kernels that PyTorch launches for a pass of `layer_runs.GptLayer`, as the cost model's items.

They differ from those of `costs.work.layer`, which are Megatron-LM's. The products add biases. Dropout and residual are kernels
of their own. The gradients of queries, keys and values are stacked and copied. Weight gradients are written and not added to a
sum. In unfused attention the queries are scaled, and three operands are copied for batched products. A kernel over all scores
adds the mask, as others compute softmax and dropout. Tests compare the list with the calls of PyTorch.

Legend: ``t`` tokens, ``h`` hidden width, ``w`` the heads' width on this rank, ``f`` inner width on this rank, ``e`` two bytes.
"""

from __future__ import annotations

from ...costs.work.operations import FusedAttention, Product, Sweep
from .kernel_table import LayerItem

Kernel = Product | FusedAttention | Sweep

E = 2.0
MASK_BYTES = 1.0
"""Bytes of a number, and of one of a dropout's mask."""


def layer_kernels(item: LayerItem) -> tuple[Kernel, ...]:
    """Return the kernels of a measured pass, in their order, without the communication that it had none of."""
    return tuple(_backward(item) if item.is_backward else _forward(item))


def _forward(item: LayerItem) -> list[Kernel]:
    t, h, w, f = _sizes(item)
    return [
        _sweep("attention norm", 2 * t * h),
        Product("qkv", t, 3 * w, h),
        *_attention(item),
        Product("attention output", t, h, w),
        *_dropout(item, "attention dropout", t * h),
        _sweep("attention residual", 3 * t * h),
        _sweep("mlp norm", 2 * t * h),
        Product("mlp up", t, f, h),
        _sweep("gelu", 2 * t * f),
        Product("mlp down", t, h, f),
        *_dropout(item, "mlp dropout", t * h),
        _sweep("mlp residual", 3 * t * h),
    ]


def _backward(item: LayerItem) -> list[Kernel]:
    t, h, w, f = _sizes(item)
    return [
        *_dropout(item, "mlp dropout gradient", t * h),
        *_linear_backward("mlp down", t, h, f),
        _sweep("gelu gradient", 3 * t * f),
        *_linear_backward("mlp up", t, f, h),
        *_norm_backward("mlp", t * h),
        *_dropout(item, "attention dropout gradient", t * h),
        *_linear_backward("attention output", t, h, w),
        *_attention_backward(item),
        _sweep("stacked gradient", 2 * t * 3 * w),
        _sweep("stacked gradient copy", 2 * t * 3 * w),
        *_linear_backward("qkv", t, 3 * w, h),
        *_norm_backward("attention", t * h),
    ]


def _attention(item: LayerItem) -> list[Kernel]:
    s, width, batch = item.sequence_length, item.hidden // item.num_heads, _batch(item)
    if item.attention == "fused":
        return [_fused(batch, s, width, is_backward=False)]
    scores, rows = batch * s * s, batch * s * width
    return [
        _sweep("query scaling", 2 * rows),
        *(_sweep(f"{name} copy", 2 * rows) for name in ("query", "key")),
        Product("scores", s, s, width, batch, is_attention=True),
        _sweep("mask", 2 * scores),
        _sweep("softmax", 2 * scores),
        *_dropout(item, "score dropout", scores),
        _sweep("value copy", 2 * rows),
        Product("context", s, width, s, batch, is_attention=True),
        _sweep("context copy", 2 * rows),
    ]


def _attention_backward(item: LayerItem) -> list[Kernel]:
    s, width, batch = item.sequence_length, item.hidden // item.num_heads, _batch(item)
    if item.attention == "fused":
        return [_fused(batch, s, width, is_backward=True)]
    scores, rows = batch * s * s, batch * s * width
    return [
        _sweep("context gradient copy", 2 * rows),
        Product("value gradient", s, width, s, batch, is_attention=True),
        Product("probability gradient", s, s, width, batch, is_attention=True),
        *_dropout(item, "score dropout gradient", scores),
        _sweep("softmax gradient", 3 * scores),
        Product("query gradient", s, width, s, batch, is_attention=True),
        Product("key gradient", width, s, s, batch, is_attention=True),
        _sweep("query scaling gradient", 2 * rows),
    ]


def _fused(batch: int, s: int, width: int, *, is_backward: bool) -> FusedAttention:
    """Return two products forward and five backward, half of each under the mask; four matrices read or written, and eight."""
    flops, moved = 4.0 * batch * width * s * s / 2, 2.0 * 4 * batch * s * width
    name = "attention gradient" if is_backward else "attention"
    times = (2.5, 2) if is_backward else (1.0, 1)
    return FusedAttention(name, times[0] * flops, times[1] * moved, is_backward, length=s, head_dim=width)


def _linear_backward(name: str, t: int, n: int, k: int) -> list[Kernel]:
    """Return, of a layer from ``k`` to ``n``: the gradients of its input, its weight and its bias."""
    return [
        Product(f"{name} input gradient", t, k, n),
        Product(f"{name} weight gradient", n, k, t, is_weight=True),
        _sweep(f"{name} bias gradient", t * n),
    ]


def _norm_backward(name: str, numbers: int) -> list[Kernel]:
    """Return two kernels, and the sum with the gradient that came by the residual."""
    return [
        Sweep(f"{name} norm gradient", 5 * E * numbers, 2),
        _sweep(f"{name} residual gradient", 3 * numbers),
    ]


def _dropout(item: LayerItem, name: str, numbers: int) -> list[Kernel]:
    return [Sweep(name, (2 * E + MASK_BYTES) * numbers)] if item.has_dropout else []


def _sweep(name: str, numbers: int) -> Sweep:
    return Sweep(name, E * numbers)


def _sizes(item: LayerItem) -> tuple[int, int, int, int]:
    heads = item.num_heads // item.tp
    width = heads * (item.hidden // item.num_heads)
    return item.micro_batch * item.sequence_length, item.hidden, width, 4 * item.hidden // item.tp


def _batch(item: LayerItem) -> int:
    return item.micro_batch * item.num_heads // item.tp
