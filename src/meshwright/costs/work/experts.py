"""The feed-forward layer of a mixture of experts: kernels and messages, forward and backward."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..collectives.prices import Operation
from .elementwise import activation
from .operations import Item, Message, Product, Sweep

if TYPE_CHECKING:
    from .layer_parts import LayerParts


ROUTING_KERNELS, ROUTING_GRADIENT_KERNELS = 24, 12
"""Launches that choose the experts of each token, balance them and count tokens for the exchange, and those of their
gradients. They are softmax, top-k and its scatter (8), auxiliary loss (8), counts, their sums and copies to the host (8).
Counted in NVIDIA/Megatron-LM, megatron/core/transformer/moe: router.py, moe_utils.py (``topk_routing_with_score_function``)
and token_dispatcher.py (``preprocess``). Those of other frameworks are taken to be as many.
"""

ROUTING_BYTES = 83.0
"""Bytes that these move for each token and expert, logits in float32, by the same functions, operator by operator.

Choosing takes 41. Top-k reads 4, probabilities are set to zero (4) and scattered into a copy (8). The map of experts is too
(4, 8), then cast (8) and made boolean (5). Balancing takes 42: softmax (8), top-k (4), the map again (25), and two sums (5).
Their gradients are taken to move as much. The fused router of ``--moe-router-fusion``, which moves less, is not taken.
"""


def experts(parts: LayerParts) -> tuple[list[Item], list[Item]]:
    """Return router, dispatch to the ranks of the experts, their products, and the way back, forward and backward.

    Where a framework is named, kernels that choose experts count. So do kernels that sort the tokens that several ranks sent
    by the experts of a rank. Without a framework they do not, so that the menus of fleets, by which policies were trained,
    stay as they are. Tokens spread evenly. Experts that every token visits are on every rank of ``ep``, cut by ``tp`` like a
    dense layer.

    Where the others are cut less than ``tp`` (``etp``), each rank of ``tp`` sends its share of the tokens. Behind the layer
    all ranks have all tokens again: as with sequence parallelism, else gathered.

    Source:
        Singh et al., "A hybrid tensor-expert-data parallelism approach to optimize mixture-of-experts training", 2023, section
        5 (duplicate tokens dropped before the exchange, gathered behind it).
    """
    shape, layout, e = parts.shape, parts.layout, parts.element_bytes
    inner, cut, is_cut_less = shape.feed_forward / layout.expert_tp, layout.expert_tp, layout.etp is not None
    own = parts.tokens / (layout.tp if is_cut_less else parts.split)
    local = max(1, shape.num_experts // layout.ep)
    routed = parts.tokens * shape.experts_per_token * cut / layout.tp
    rows = max(1, round(routed / local))
    wide = round(parts.halves * inner)
    order = Sweep("token order", 2.0 * e * own * shape.experts_per_token * shape.hidden, 2)
    sent = float(e * own * shape.experts_per_token * shape.hidden)
    is_named, is_sorted_again = layout.framework is not None, layout.ep > 1 and local > 1
    routing = [Sweep("routing", ROUTING_BYTES * own * shape.num_experts, ROUTING_KERNELS)] * is_named
    counts = [Message("token counts", "all_gather", "ep", 8.0 * shape.num_experts * layout.ep)] * (is_named and layout.ep > 1)
    by_expert = [Sweep("token order by expert", 2.0 * e * routed * shape.hidden, 1)] * (is_named and is_sorted_again)
    act, act_gradient = activation(parts, routed * inner)
    names = ("dispatch", "combine")
    sends: list[list[Item]] = [[Message(n, "all_to_all", "ep", sent)] if layout.ep > 1 else [] for n in names]
    weights = local * (parts.halves + 1) * shape.hidden * inner
    payload = float(e * routed * shape.hidden)

    def among_slices(name: str, operation: Operation) -> list[Item]:
        return [Message(name, operation, "etp" if is_cut_less else "tp", payload)] if cut > 1 else []

    has_shares = layout.sequence_parallel or is_cut_less
    gathers = among_slices("expert input", "all_gather") if has_shares else []
    sums = among_slices("expert output", "reduce_scatter" if has_shares else "all_reduce")
    whole: list[Item] = [Message("tokens", "all_gather", "tp", float(e * parts.tokens * shape.hidden))]
    whole *= is_cut_less and not layout.sequence_parallel
    forward: list[Item] = [
        Product("router", round(own), shape.num_experts, shape.hidden),
        *routing,
        order,
        *counts,
        *sends[0],
        *gathers,
        *by_expert,
        *parts.cast("expert input", routed * shape.hidden),
        parts.linear("experts up", rows, wide, shape.hidden, local),
        act,
        *parts.cast("expert activation", routed * inner),
        parts.linear("experts down", rows, shape.hidden, round(inner), local),
        *by_expert,
        *sums,
        *sends[1],
        replace(order, name="token order back"),
        *whole,
    ]
    backward: list[Item] = [
        replace(order, name="token order gradient"),
        *sends[1],
        *gathers,
        *by_expert,
        *parts.cast("expert output gradient", routed * shape.hidden),
        parts.linear("experts down input gradient", rows, round(inner), shape.hidden, local),
        parts.weight_gradient("experts down", shape.hidden, round(inner), rows, local),
        act_gradient,
        *parts.cast("expert activation gradient", routed * wide),
        parts.linear("experts up input gradient", rows, shape.hidden, wide, local),
        parts.weight_gradient("experts up", wide, shape.hidden, rows, local),
        Sweep("expert gradient sum", parts.sum_bytes(weights), 2, is_weight=True),
        *by_expert,
        *sums,
        *sends[0],
        replace(order, name="token order back gradient"),
        *(replace(one, name="routing gradient", num_kernels=ROUTING_GRADIENT_KERNELS) for one in routing),
        Product("router input gradient", round(own), shape.hidden, shape.num_experts),
        parts.weight_gradient("router", shape.num_experts, shape.hidden, round(own)),
        *whole,
    ]
    if shape.shared_feed_forward is None:
        return forward, backward
    shared_forward, shared_backward = parts.dense("shared expert", shape.shared_feed_forward)
    return [*forward, *shared_forward], [*shared_backward, *backward]
