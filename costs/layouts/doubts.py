"""How sure the time of a step is: what calibration leaves, and what a layout does that no measured run has shown.

Each doubt is a relative standard deviation of the step; together they are its uncertainty (root of the sum of squares). The
runs that predictions were held against (docs, "How good are the predictions") compute attention unfused, send gradients when
the backward pass is over, and reach at most `SEEN_UTILISATION` of their devices' peak. The further a layout goes beyond them
the wider its uncertainty; no prediction is changed by this, and none of these figures is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from .items import FusedAttention, Item, Pass, Product
from .kernels import KernelModel
from .work import LayoutWork

NETWORK_UNCERTAINTY = 0.25
"""Relative standard deviation of what crosses hosts, whose figures are nominal."""

FUSED_ATTENTION_UNCERTAINTY = 0.25
"""The same of fused attention's kernels: their published speeds are 50 to 73 % of an A100's peak by length and width of the
heads, less where sequences are short (Dao, "FlashAttention-2", 2023, abstract and figures 4 to 6)."""

HIDDEN_UNCERTAINTY = 0.5
"""The same of communication that is taken to hide behind computation, were it not hidden: half of it may show. An assumption."""

SEEN_UTILISATION = 0.61
"""Largest share of a device's peak, counted in operations really done, of a run that a prediction was held against."""

UTILISATION = "utilisation beyond any measured run"


def doubts(
    *,
    kernels: float,
    step_s: float,
    crossing_s: float,
    fused_attention_s: float,
    hidden_s: float,
    utilisation: float,
) -> dict[str, float]:
    """The doubts of a step, by name; what does not apply is left out.

    Args:
        kernels: what calibration leaves of kernels.
        step_s: the step.
        crossing_s: of it, waiting for messages between hosts.
        fused_attention_s: of it, in fused attention.
        hidden_s: communication beside it that is taken to hide behind computation.
        utilisation: share of the peak that the busiest devices reach. Where it is beyond `SEEN_UTILISATION`, the time that
            the step would take at that share is one standard deviation away.
    """
    if step_s <= 0:
        return {"kernels": kernels}
    found = {
        "kernels": kernels,
        "links between hosts": NETWORK_UNCERTAINTY * crossing_s / step_s,
        "fused attention": FUSED_ATTENTION_UNCERTAINTY * fused_attention_s / step_s,
        "hidden communication": HIDDEN_UNCERTAINTY * hidden_s / step_s,
        UTILISATION: max(0.0, utilisation / SEEN_UTILISATION - 1.0),
    }
    return {name: value for name, value in found.items() if value > 0}


def uncertainty(found: Mapping[str, float]) -> float:
    """All doubts together."""
    return math.hypot(*found.values())


def per_step(work: LayoutWork, stage: int, of_pass: Callable[[Pass], float]) -> float:
    """What all passes of a stage add up to in a step."""
    total = 0.0
    for chunk in work.chunks:
        if chunk.stage == stage:
            parts = ((work.layer, chunk.num_layers), (work.embedding, chunk.has_embedding), (work.head, chunk.has_head))
            for block, times in parts:
                if times:
                    total += times * sum(of_pass(items) for items in (block.forward, block.recompute, block.backward))
    return work.layout.num_micro_batches * total


def fused_attention_s(items: Sequence[Item], model: KernelModel) -> float:
    """Seconds of a pass in fused attention."""
    return sum(model.kernel_s(item) for item in items if isinstance(item, FusedAttention))


def operations(items: Sequence[Item]) -> float:
    """Floating-point operations that a rank really does in a pass's products and fused attention."""
    products = sum(2.0 * item.batch * item.m * item.n * item.k for item in items if isinstance(item, Product))
    return products + sum(item.flops for item in items if isinstance(item, FusedAttention))
