"""Low-rank adapters: the matrices of a layer are frozen, and two thin ones next to each are trained.

A product ``x W`` becomes ``x W + (x A) B`` with ``r`` columns of ``A`` and as many rows of ``B``. The gradient of ``x`` has
the same three products; of weights there are those of ``A`` and ``B`` alone. Frozen matrices of 8 or 4 bits are turned into 16
bits before each of their products. Experts, norms, the embedding and the head are frozen and have no adapters. The ``r``
numbers a token that an adapter keeps for its gradients are left out: less than a hundredth of a layer's.

Source:
    Hu et al., "LoRA: low-rank adaptation of large language models", 2021, section 4.1. Dettmers et al., "QLoRA: efficient
    finetuning of quantized LLMs", 2023, section 3, equation 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...plans.partition import Layout
from .operations import Item, Pass, Product, Sweep, joined, thin

_WITHOUT = ("experts", "router")
"""How names of products without adapters begin."""


def adapter_parameters(matrices: Sequence[tuple[float, float]], rank: int) -> float:
    """Return the parameters of the adapters of some matrices, each ``(rows, columns)`` on this rank."""
    return sum(rank * (rows + columns) for rows, columns in matrices)


def of_layer(items: Pass, layout: Layout) -> Pass:
    """Return a pass of a layer whose matrices are frozen, with its adapters; messages overlap as their companions'."""
    made: list[tuple[Item, ...]] = []
    share = 0.0
    for item in items:
        if isinstance(item, Product) and item.is_weight and not item.name.startswith(_WITHOUT):
            share = (layout.lora_rank or 0) * (item.m + item.n) / (item.m * item.n)
        made.append(_in_place_of(item, layout, share))
    return joined(made)


def without_weight_gradients(items: Pass) -> Pass:
    """Return a pass of the embedding or the head, all of whose parameters are frozen."""
    return joined([() if isinstance(item, Product | Sweep) and item.is_weight else (item,) for item in items])


def _in_place_of(item: Item, layout: Layout, share: float) -> tuple[Item, ...]:
    """Return the items in place of one; sweeps over gradients keep the share that adapters have of the matrix before them."""
    rank = layout.lora_rank or 0
    has_adapters = not item.name.startswith(_WITHOUT)
    if isinstance(item, Sweep) and item.is_weight:
        is_sum = has_adapters and item.name.endswith("gradient sum")
        return (replace(item, moved_bytes=share * item.moved_bytes),) if is_sum else ()
    if not isinstance(item, Product) or item.is_attention:
        return (item,)
    adapter = thin(item, rank, "adapter in", "adapter out") if has_adapters else ()
    if item.is_weight:
        return adapter
    widened: tuple[Item, ...] = (item,)
    if layout.frozen_bits < 16 and not item.name.startswith("router"):
        weights = item.batch * item.n * item.k
        widened = Sweep(f"{item.name} widened", (layout.frozen_parameter_bytes + layout.number_bytes) * weights, 1), item
    if not has_adapters:
        return widened
    added = Sweep(f"{item.name}, adapter sum", 3.0 * layout.number_bytes * item.m * item.n, 1)
    return (*widened, *adapter, added)
