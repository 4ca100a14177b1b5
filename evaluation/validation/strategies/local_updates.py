"""Independent subnetworks and local updates: bytes of a round, and what slow links make of it."""

from __future__ import annotations

from collections.abc import Iterator

from ....costs.training.local_update import cut_bytes, epochs_s, one_batch_s, streaming_s
from ....costs.training.subnets import round_bytes, round_s, subnet_parameters
from ....plans.strategies.local_update import LocalUpdate
from ..published_figures import PublishedFigure

WIDTHS = (4096, 4096, 35)
"""Input, hidden layer and output. With one more hidden layer the central server carries less than data parallelism. Its rounds
then have a hidden-hidden part, divided by the number of workers."""

WORKERS = (2, 4, 8)

CARD_BYTES_PER_S = 0.125e9
EVERY = 10
STEP_S = 3 * 2 * 128 * subnet_parameters(WIDTHS, 1) / 14e12
"""Three passes of 128 samples at 14 Tflop/s."""


def figures() -> Iterator[PublishedFigure]:
    """Bytes of a round against counted ones, throughput at 1 Gb/s, bytes over a cut and the rate of stages."""
    for n in WORKERS:
        h, d, o = 4096, 4096, 35
        counted = n * 2 * 4 * (d * (h // n) + (h // n) * o)
        yield PublishedFigure(f"subnets, {n} workers", "bytes of a round", round_bytes(WIDTHS, n), str(counted), 1e-9)
    n = 8
    size = 4 * subnet_parameters(WIDTHS, n)
    whole = 4 * subnet_parameters(WIDTHS, 1)
    parallel_s = STEP_S + 2 * (n - 1) / n * whole / CARD_BYTES_PER_S
    sub_s = STEP_S * subnet_parameters(WIDTHS, n) / subnet_parameters(WIDTHS, 1)
    for server, value, is_floor in (("sharded", EVERY * n / 4, True), ("central", EVERY, False)):
        seconds = round_s(sub_s, EVERY, size, n, CARD_BYTES_PER_S, server, 0.0)
        times = EVERY * parallel_s / seconds
        name = f"{server} server: steps over data parallelism's"
        yield PublishedFigure(
            "subnets, 8 workers, 1 Gb/s", name, times, f"{value:g}", 0.0, is_floor=is_floor, is_limit=not is_floor
        )
    yield from _labels()
    p = 4
    alone_s = p * one_batch_s([1.0], [0.0], [1.0], 1)
    together = alone_s / streaming_s([1.0] * p, [0.0] * p, [1.0] * p)
    yield PublishedFigure("direct feedback, 4 equal stages", "throughput over one device", together, "4", 1e-9)


def _labels() -> Iterator[PublishedFigure]:
    """Synthetic labels of 10 classes at a cut of 1024 numbers, 60,000 samples, 20 epochs in front of it and 30 behind."""
    n, classes, h, left, right = 60_000, 10, 4096, 20, 30
    sizes = {"left_epochs": left, "right_epochs": right, "num_samples": n, "num_classes": classes}
    f, b = (2e-6, 3e-6), (4e-6, 5e-6)
    epochs = [n * (one + other) for one, other in zip(f, b, strict=True)]
    for schedule, sent, told_s in (
        ("sequential", classes * h + n * h, left * n * 6e-6 + right * n * 8e-6 + n * 2e-6),
        ("parallel", classes * h, max(left * n * 6e-6, right * n * 8e-6)),
    ):
        training = LocalUpdate.model_validate({"preset": "sil", "schedule": schedule, **sizes})
        name = f"synthetic labels, {schedule}"
        yield PublishedFigure(name, "bytes over the cut", cut_bytes(training, h), str(sent), 1e-9)
        yield PublishedFigure(name, "seconds", epochs_s(training, epochs, [n * f[0]]), f"{told_s:.12g}", 1e-9)
    recovered = LocalUpdate.model_validate({"preset": "sil", "schedule": "parallel", "recovery_epochs": 50, **sizes})
    crossed = cut_bytes(recovered, h) - classes * h
    yield PublishedFigure("50 epochs of a pipeline", "bytes over the cut", crossed, str(2 * n * h * 50), 1e-9)
