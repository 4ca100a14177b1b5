"""FLOPs of a pass."""

from __future__ import annotations

from meshwright.costs.work.operations import FusedAttention, Pass, Product


def product_flops(items: Pass) -> float:
    """Operations of the matrix products and attention kernels of a pass."""
    return sum(item.flops for item in items if isinstance(item, Product | FusedAttention))
