"""Coded gradients: where the largest numbers stop to pay against a ring, and what they bring inside a host."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....costs.compression import coded
from ....costs.settings import CostSettings
from ....costs.work.operations import Message
from ....devices import device_type
from ....planning.estimate import estimate
from ....plans.compression import TopK
from ..published_figures import PublishedFigure
from .matrix_cluster import matrix_cluster

RANKS = (4, 8, 16, 32)

SIZE_BYTES = 1e9

LINK_GBYTES_PER_S = 25.0
"""Of each device of one host to each other."""


def figures() -> Iterator[PublishedFigure]:
    """The crossing points, and the largest hundredth of the numbers inside a host with links of 25 GB/s."""
    device = device_type("a100")
    message = Message("gradients", "all_reduce", "dp_cp", SIZE_BYTES)
    for n in RANKS:
        low, high = 1e-6, 1.0
        while high / low > 1 + 1e-6:
            fraction = (low * high) ** 0.5
            sent = coded(TopK(fraction=fraction, codec_passes=0.0), message, n, device).messages[0].payload_bytes
            if (n - 1) / n * sent < 2 * (n - 1) / n * SIZE_BYTES:
                low = fraction
            else:
                high = fraction
        yield PublishedFigure(f"top-k, {n} ranks", "largest share that pays against a ring", low, f"{1 / n:.6f}", 0.05)
    found = estimate(
        "zoo:resnet50",
        matrix_cluster(np.full((8, 8), LINK_GBYTES_PER_S), 8),
        "dp=8,micro_batch=64,global_batch=512",
        costs=CostSettings(collectives="ring"),
        training="synchronous",
        compression="kind=top-k,fraction=0.01",
    )
    plain, code = found.trained
    item = "resnet50 on 8 A100, links of 25 GB/s, sums hidden"
    yield PublishedFigure(item, "top-k 1 %: step over the uncoded one", code.step_s / plain.step_s, "1", 0.0, is_floor=True)
