"""Parts of the passes of a layout: products, fused attention, sweeps over memory, messages.

A pass is a tuple of items in the order in which one rank does them. Each waits for the one before, with one exception. A
`Message` with ``k`` companions starts at its place and runs at the same time as the ``k`` items that follow it. Later items
wait for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..collectives.prices import Operation

Axis = Literal[
    "tp", "cp", "ep", "etp", "pp", "dp_cp", "expert_dp", "shard", "replica", "ends", "mirror", "sp", "sp_d", "sp_h", "sp_w"
]
"""Along which ranks a message runs. An axis of the layout; ``etp`` those that share the matrices of an expert. The ranks that
hold the same weights: ``dp_cp`` the dense ones, ``expert_dp`` those of experts. Those of ``dp_cp`` that share one copy under
ZeRO (``shard``) and those that hold the same shard of different copies (``replica``). The first and the last pipeline stage
(``ends``). Two stages that hold the same layers, as far from one end as from the other (``mirror``). The parts of a sample's
volume, all of them (``sp``) or those along one of its dimensions.
"""

BETWEEN_STAGES = ("ends", "mirror")
"""Axes along which gradients are summed between stages."""


ALIGNED_BYTES = 16
"""Rows of a matrix should begin at multiples of so many bytes for the best use of matrix units. NVIDIA, "Matrix multiplication
background user's guide", 2023, section 3.
"""


def row_bytes(*lengths: int) -> int:
    """Return the largest power of two of bytes, `ALIGNED_BYTES` at most, that divides the length of a row of 16-bit numbers."""
    return math.gcd(ALIGNED_BYTES, *(2 * length for length in lengths))


@dataclass(frozen=True, slots=True)
class Product:
    """``batch`` matrix products of ``m x k`` by ``k x n``.

    Attributes:
        name: for traces and tables.
        m, n, k: rows and columns of the result, and the length of the sums.
        batch: equal products in one kernel.
        is_weight: part of the weight gradient, which a zero-bubble schedule may put off.
        is_attention: one of the narrow products of unfused attention, a head's width long or wide.
        sum_bytes: of a number of the sum that it adds its result to; 0 where it writes the result by itself.
        is_fp8: multiplies numbers of one byte, not of the working precision.
        fp8_casts: operands that are turned into such for it alone; 0 where they are there.
        row_bytes: multiple of bytes at which all rows of its three matrices begin, by `row_bytes`.
        num_launches: of the op; the products of a batch, and the casts of their operands, may each have one of their own.
    """

    name: str
    m: int
    n: int
    k: int
    batch: int = 1
    is_weight: bool = False
    is_attention: bool = False
    sum_bytes: int = 0
    is_fp8: bool = False
    fp8_casts: int = 0
    row_bytes: int = ALIGNED_BYTES
    num_launches: int = 1

    @property
    def flops(self) -> float:
        """Number of floating-point operations."""
        return 2.0 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class FusedAttention:
    """Attention in one kernel that keeps no scores.

    Attributes:
        name: for traces and tables.
        flops: floating-point operations that are really done.
        moved_bytes: what goes to and from the device's memory.
        is_backward: the backward kernel reaches less of the peak.
        length: tokens of the sequence that it works on at once; 0 where that is not known.
        head_dim: numbers of a head; 0 where that is not known.
    """

    name: str
    flops: float
    moved_bytes: float
    is_backward: bool = False
    is_weight: bool = False
    length: int = 0
    head_dim: int = 0


@dataclass(frozen=True, slots=True)
class Sweep:
    """Element-wise or reducing kernels, bound by the device's memory.

    Attributes:
        name: for traces and tables.
        moved_bytes: read and written.
        num_kernels: launches.
        is_weight: part of the weight gradient.
        kind: ``stream`` for kernels at the memory's pace. The loss over the vocabulary, with its many reductions over long
            rows, has two kinds: on one rank, and spread over tp.
    """

    name: str
    moved_bytes: float
    num_kernels: int = 1
    is_weight: bool = False
    kind: Literal["stream", "loss", "spread loss"] = "stream"


@dataclass(frozen=True, slots=True)
class Message:
    """One collective, or one transfer to the next rank, along an axis.

    Attributes:
        name: for traces and tables.
        operation: which.
        axis: over which ranks.
        payload_bytes: size as `costs.collectives.prices` counts it (the gathered size of all-gather and reduce-scatter).
        num_concurrent: how many of the items that follow it run at the same time.
        chunks: pieces in which it goes with those items; the first piece of a chunked message hides behind nothing.
        is_weight: gathers what only the weight gradient needs.
        is_hooked: FSDP2 sends it out of its hooks around a block, which take the host's time also where one rank shards.
        is_compiled: whether the block between the hooks is compiled, whose every call the host checks first.
    """

    name: str
    operation: Operation
    axis: Axis
    payload_bytes: float
    num_concurrent: int = 0
    chunks: int = 1
    is_weight: bool = False
    is_hooked: bool = False
    is_compiled: bool = False


Item = Product | FusedAttention | Sweep | Message
Pass = tuple[Item, ...]


def input_part(items: Pass) -> Pass:
    """Return the items of a backward pass for the gradient of its input; the rest is `weight_part`."""
    return _part(items, is_weight=False)


def weight_part(items: Pass) -> Pass:
    """Return the items of a backward pass for the gradients of its weights."""
    return _part(items, is_weight=True)


def thin(product: Product, rank: int, first: str, last: str) -> tuple[Product, Product]:
    """Return two products by way of ``rank`` numbers in place of one; of a weight gradient those of both thin matrices.

    Args:
        product: that is replaced.
        rank: columns of the one thin matrix and rows of the other.
        first, last: words that the names of the two get.
    """
    inner, outer = (replace(product, name=f"{product.name}, {word}") for word in (first, last))
    return replace(inner, n=rank), replace(outer, m=rank) if product.is_weight else replace(outer, k=rank)


def joined(parts: Sequence[tuple[Item, ...]]) -> Pass:
    """Return a pass with several items or none in place of each; the last of them may be a message, overlapped as before."""
    items: list[Item] = []
    for place, part in enumerate(parts):
        if not part:
            continue
        *before, last = part
        if isinstance(last, Message) and last.num_concurrent:
            last = replace(last, num_concurrent=sum(map(len, parts[place + 1 : place + 1 + last.num_concurrent])))
        items += [*before, last]
    return tuple(items)


def side_by_side(forward: Pass, backward: Pass) -> Pass:
    """Merge a forward pass and a backward pass of another micro-batch, so that messages of one hide behind the other.

    They take turns, the backward pass first. One runs until it has to wait for messages of experts, then the other until its
    own next ones. Of experts the dispatch so hides behind the experts' backward pass, and so on, as published.

    Args:
        forward: one pass.
        backward: the other one.

    Source:
        DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.2.1, figure 4.
    """
    passes, taken = (backward, forward), [0, 0]
    place_of: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def is_waited_for(turn: int, number: int) -> bool:
        item = passes[turn][number] if number < len(passes[turn]) else None
        return isinstance(item, Message) and item.axis == "ep" and not item.num_concurrent

    order: list[tuple[int, int]] = []
    turn = 0
    while taken[0] < len(passes[0]) or taken[1] < len(passes[1]):
        if taken[turn] == len(passes[turn]):
            turn = 1 - turn
        place_of[turn][taken[turn]] = len(order)
        order.append((turn, taken[turn]))
        taken[turn] += 1
        if is_waited_for(turn, taken[turn] - 1) and not is_waited_for(turn, taken[turn]):
            turn = 1 - turn
    made: list[Item] = []
    for place, (turn, number) in enumerate(order):
        item = passes[turn][number]
        if isinstance(item, Message) and (item.num_concurrent or item.axis == "ep"):
            waits = number + 1 + item.num_concurrent
            while not item.num_concurrent and is_waited_for(turn, waits):
                waits += 1
            item = replace(item, num_concurrent=place_of[turn].get(waits, len(order)) - place - 1)
        made.append(item)
    return tuple(made)


def axes_of(items: Pass) -> tuple[Axis, ...]:
    """Return the axes of the messages of a pass, each once."""
    return tuple(dict.fromkeys(item.axis for item in items if isinstance(item, Message)))


def _part(items: Pass, *, is_weight: bool) -> Pass:
    """Return the items of one part; a message overlaps with those of its companions that are of the same part."""
    part: list[Item] = []
    for place, item in enumerate(items):
        if item.is_weight != is_weight:
            continue
        if isinstance(item, Message) and item.num_concurrent:
            companions = items[place + 1 : place + 1 + item.num_concurrent]
            item = replace(item, num_concurrent=sum(other.is_weight == is_weight for other in companions))
        part.append(item)
    return tuple(part)
