"""One slow worker among others, and steps between averages: parameter servers, local SGD and DiLoCo."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....costs.settings import CostSettings
from ....costs.training.synchronisation import server_rate
from ....planning.estimate import estimate
from ..published_figures import PublishedFigure
from .matrix_cluster import matrix_cluster

NUM_ROUNDS = 400

STALENESS = (0, 1, 4, 16, 64)


def figures() -> Iterator[PublishedFigure]:
    """Yield rates of eight workers, one at half speed, over those of eight fast ones, and bytes of periodic averages."""
    workers_s = np.ones((NUM_ROUNDS, 8))
    workers_s[:, 0] = 2.0
    item = "eight workers, one half as fast"
    free, bound = server_rate(workers_s, 0.0, None) / 8, [server_rate(workers_s, 0.0, s) / 8 for s in STALENESS]
    yield PublishedFigure(item, "asp, share of eight fast ones", free, "0.93", 0.0, is_floor=True)
    yield PublishedFigure(item, "synchronous, share of eight fast ones", bound[0], "0.50", 1e-9)
    is_between = all(a <= b + 1e-12 for a, b in zip([*bound], [*bound[1:], free], strict=True))
    yield PublishedFigure(item, "ssp rises with its staleness", str(is_between), "True", 0.0)
    cluster = matrix_cluster(np.full((8, 8), 0.125), 1)
    found = estimate(
        "zoo:gpt2-small",
        cluster,
        "dp=8,micro_batch=1,global_batch=8",
        costs=CostSettings(collectives="ring"),
        training="synchronous|kind=local-sgd,every=4|16|kind=diloco,every=500",
    )
    whole, *periodic = (price.sent_bytes for price in found.trained)
    for name, times, sent in zip(
        ("local-sgd, H=4", "local-sgd, H=16", "diloco, H=500"), ("4", "16", "500"), periodic, strict=True
    ):
        yield PublishedFigure("1 Gb/s", f"{name}: times fewer bytes", whole / sent, times, 1e-9)
    share = found.trained[3].step_s / found.trained[0].step_s
    yield PublishedFigure("1 Gb/s", "diloco, H=500: step over synchronous", share, "0.5", 0.0, is_limit=True)
