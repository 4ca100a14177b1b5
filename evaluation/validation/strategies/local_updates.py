"""Independent subnetworks and local updates: bytes of a round, and what slow links make of it."""

from __future__ import annotations

from collections.abc import Iterator

from ....costs.training.local_update import cut_bytes, one_batch_s, streaming_s
from ....costs.training.subnets import round_bytes, round_s, subnet_parameters
from ..published_figures import PublishedFigure

WIDTHS = (4096, 4096, 35)
"""Input, hidden layer and output. With one more hidden layer the central server carries less than data parallelism does: its
rounds have a hidden-hidden part that falls by the number of workers."""

WORKERS = (2, 4, 8)

NUM_FIGURES = len(WORKERS) + 4

CARD_BYTES_PER_S = 0.125e9
EVERY = 10
STEP_S = 3 * 2 * 128 * subnet_parameters(WIDTHS, 1) / 14e12
"""Three passes of 128 samples at 14 Tflop/s."""


def figures() -> Iterator[PublishedFigure]:
    """Bytes of a round against counted ones, throughput at 1 Gb/s, bytes over a cut and the rate of stages."""
    for n in WORKERS:
        h, d, o = 4096, 4096, 35
        counted = n * 2 * 4 * (d * (h // n) + (h // n) * o)
        yield PublishedFigure("", f"subnets, {n} workers", "bytes of a round", round_bytes(WIDTHS, n), str(counted), 1e-9)
    n = 8
    size = 4 * subnet_parameters(WIDTHS, n)
    whole = 4 * subnet_parameters(WIDTHS, 1)
    parallel_s = STEP_S + 2 * (n - 1) / n * whole / CARD_BYTES_PER_S
    sub_s = STEP_S * subnet_parameters(WIDTHS, n) / subnet_parameters(WIDTHS, 1)
    for server, told, is_floor in (("sharded", EVERY * n / 4, True), ("central", EVERY, False)):
        seconds = round_s(sub_s, EVERY, size, n, CARD_BYTES_PER_S, server, 0.0)
        times = EVERY * parallel_s / seconds
        name = f"{server} server: steps over data parallelism's"
        yield PublishedFigure(
            "", "subnets, 8 workers, 1 Gb/s", name, times, f"{told:g}", 0.0, is_floor=is_floor, is_limit=not is_floor
        )
    sent = cut_bytes(60_000, 10 * 1024 * 4, 1024 * 4)
    yield PublishedFigure("", "synthetic labels", "bytes over the cut", sent, str(10 * 4096 + 60_000 * 4096), 1e-9)
    p = 4
    alone_s = p * one_batch_s([1.0], [0.0], [1.0], 1)
    together = alone_s / streaming_s([1.0] * p, [0.0] * p, [1.0] * p)
    yield PublishedFigure("", "direct feedback, 4 equal stages", "throughput over one device", together, "4", 1e-9)
