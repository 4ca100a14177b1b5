"""Operations of a step of a transformer, over all ranks."""

from __future__ import annotations

from collections import Counter

from ...jobs.transformer import TransformerShape
from .model_chunks import block_name
from .selective_ops import again_products
from .work import LayoutWork


def step_flops(work: LayoutWork) -> tuple[float, float]:
    """Model and hardware FLOPs of a step over all ranks.

    Attention counts every pair of query and key that is within the window, as the published utilisations do, also where a
    causal kernel skips half of them.

    Source:
        Narayanan et al., 2021, appendix; Korthikanti et al., 2022, appendix A.
    """
    shape, layout = work.shape, work.layout
    length = work.sequence_length
    tokens = float(layout.global_batch * length)
    layers, again = 0, 0.0
    counts: Counter[str] = Counter()
    for chunk in work.chunks:
        counts.update(dict(chunk.parts))
    for index, (kind, number) in enumerate(zip(shape.kinds, shape.kind_counts, strict=True)):
        linear, attention = _layer_flops(kind, length)
        layers += number * (linear + attention)
        inside = attention if layout.attention == "unfused" else 0.0
        ops = 2.0 * sum(one.inner * one.width for one in again_products(kind)) if layout.recompute == "selective-ops" else 0.0
        shares = {"none": 0.0, "selective": inside, "selective-ops": ops, "full": linear + attention}
        again += tokens * counts[block_name(index)] * shares[layout.recompute]
    forward = tokens * (layers + 2 * shape.hidden * shape.vocabulary)
    return 3 * forward, 3 * forward + again


def _layer_flops(shape: TransformerShape, length: int) -> tuple[int, int]:
    """Operations of a token in the linear layers and inside the attention of a layer, forward."""
    context = shape.num_heads * shape.value_head_dim
    experts = shape.experts_per_token if shape.num_experts > 1 else 1
    inner = (3 if shape.is_gated else 2) * (experts * shape.feed_forward + (shape.shared_feed_forward or 0))
    linear = 2 * (shape.query_key_value_weights + shape.hidden * (context + inner))
    return linear, 2 * (shape.num_heads * shape.head_dim + context) * min(length, shape.window or length)
