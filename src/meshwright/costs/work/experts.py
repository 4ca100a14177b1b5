"""The feed-forward layer of a mixture of experts: kernels and messages, forward and backward."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..collectives.prices import Operation
from .elementwise import activation
from .operations import Item, Message, Product, Sweep

if TYPE_CHECKING:
    from .layer_parts import LayerParts


def experts(parts: LayerParts) -> tuple[list[Item], list[Item]]:
    """Router, dispatch to the ranks of the experts, their products, and the way back, forward and backward.

    Tokens spread evenly. Experts that every token visits stand on every rank of ``ep``, cut by ``tp`` like a dense layer.
    """
    shape, layout, e = parts.shape, parts.layout, parts.element_bytes
    inner = shape.feed_forward / layout.tp
    own = parts.tokens / parts.split
    local = max(1, shape.num_experts // layout.ep)
    routed = parts.tokens * shape.experts_per_token
    rows = max(1, round(routed / local))
    wide = round(parts.halves * inner)
    order = Sweep("token order", 2.0 * e * own * shape.experts_per_token * shape.hidden, 2)
    sent = float(e * own * shape.experts_per_token * shape.hidden)
    act, act_gradient = activation(parts, routed * inner)
    names = ("dispatch", "combine")
    sends: list[list[Item]] = [[Message(n, "all_to_all", "ep", sent)] if layout.ep > 1 else [] for n in names]
    weights = local * (parts.halves + 1) * shape.hidden * inner
    payload = float(e * routed * shape.hidden)

    def over_tp(name: str, operation: Operation) -> list[Item]:
        return [Message(name, operation, "tp", payload)] if layout.tp > 1 else []

    gathers = over_tp("expert input", "all_gather") if layout.sequence_parallel else []
    sums = over_tp("expert output", "reduce_scatter" if layout.sequence_parallel else "all_reduce")
    forward: list[Item] = [
        Product("router", round(own), shape.num_experts, shape.hidden),
        order,
        *sends[0],
        *gathers,
        *parts.cast("expert input", routed * shape.hidden),
        parts.linear("experts up", rows, wide, shape.hidden, local),
        act,
        *parts.cast("expert activation", routed * inner),
        parts.linear("experts down", rows, shape.hidden, round(inner), local),
        *sums,
        *sends[1],
        replace(order, name="token order back"),
    ]
    backward: list[Item] = [
        replace(order, name="token order gradient"),
        *sends[1],
        *gathers,
        *parts.cast("expert output gradient", routed * shape.hidden),
        parts.linear("experts down input gradient", rows, round(inner), shape.hidden, local),
        parts.weight_gradient("experts down", shape.hidden, round(inner), rows, local),
        act_gradient,
        *parts.cast("expert activation gradient", routed * wide),
        parts.linear("experts up input gradient", rows, shape.hidden, wide, local),
        parts.weight_gradient("experts up", wide, shape.hidden, rows, local),
        Sweep("expert gradient sum", parts.sum_bytes(weights), 2, is_weight=True),
        *sums,
        *sends[0],
        replace(order, name="token order back gradient"),
        Product("router input gradient", round(own), shape.hidden, shape.num_experts),
        parts.weight_gradient("router", shape.num_experts, shape.hidden, round(own)),
    ]
    if shape.shared_feed_forward is None:
        return forward, backward
    shared_forward, shared_backward = parts.dense("shared expert", shape.shared_feed_forward)
    return [*forward, *shared_forward], [*shared_backward, *backward]
