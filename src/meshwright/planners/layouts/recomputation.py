"""The layers that are computed again where a layout that leaves this open does not fit.

Without recomputation: the first layers of each model chunk (``recompute_method=block``). With full recomputation: groups of
layers that keep the input of the first alone (``recompute_num_layers``), as many layers in each as divide every chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...costs.work.work import LayoutWork
from ...plans.partition import Layout


def again_of(layout: Layout, number: int) -> Layout:
    """The layout that recomputes a number of the first layers of each model chunk."""
    return layout.model_copy(update={"recompute": "full", "recompute_method": "block", "recompute_num_layers": number})


def grouped(layout: Layout, size: int) -> Layout:
    """The layout that recomputes all layers in groups of a number of layers."""
    return layout.model_copy(update={"recompute_num_layers": size})


def group_sizes(work: LayoutWork) -> Iterator[int]:
    """Sizes above 1 of groups that divide every chunk, rising."""
    shared = math.gcd(*(chunk.num_layers for chunk in work.chunks))
    return (size for size in range(2, shared + 1) if shared % size == 0)
