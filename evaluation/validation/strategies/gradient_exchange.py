"""Ways to exchange gradients and weights: servers and periodic averages, coded gradients, gossip, local updates.

- One slow worker among others, and steps between averages: parameter servers, local SGD and DiLoCo.
- Coded gradients: where the largest numbers stop to pay against a ring, and their gain inside a host.
- Gossip on three published clusters: steps of all-reduce, stochastic push and two forms of gossip.
- Independent subnetworks and local updates: bytes of a round, and their steps on slow links.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....costs.compression import coded
from ....costs.settings import CostSettings
from ....costs.training.gossip_fabrics import fabric_steps
from ....costs.training.local_update import cut_bytes, epochs_s, one_batch_s, streaming_s
from ....costs.training.subnets import round_bytes, round_s, subnet_parameters
from ....costs.training.synchronisation import server_rate
from ....costs.work.operations import Message
from ....devices import device_type
from ....planning.estimate import estimate
from ....plans.compression import TopK
from ....plans.strategies.local_update import LocalUpdate
from ..published_figures import PublishedFigure
from .uneven_networks import matrix_cluster

NUM_ROUNDS = 400

STALENESS = (0, 1, 4, 16, 64)


CODED_RANKS = (4, 8, 16, 32)
CODED_BYTES = 1e9
LINK_GBYTES_PER_S = 25.0
"""Of each device of one host to each other."""

GOSSIP_TOLERANCE = 0.12
GOSSIP_MS = {
    ("t4", 16): ("372.5", "425.5", "314.8", "312.3"),
    ("t4", 32): ("225.5", "292.4", "178.8", "178.8"),
    ("a100", 8): ("73.0", "69.4", "63.4", "61.7"),
    ("a100", 16): ("54.8", "53.0", "46.8", "45.8"),
    ("a40", 8): ("166.1", "150.5", "122.8", "122.0"),
    ("a40", 16): ("195.5", "99.9", "97.4", "78.9"),
}
"""Milliseconds of a step as published; the rows on which each fabric's constants are fitted."""

GOSSIP_WAYS = ("all-reduce", "stochastic push, exp", "gossip, exp", "gossip, AER")
WIDTHS = (4096, 4096, 35)
"""Input, hidden layer and output. With one more hidden layer the central server carries less than data parallelism. Its rounds
then have a hidden-hidden part, divided by the number of workers."""

WORKERS = (2, 4, 8)
CARD_BYTES_PER_S = 0.125e9
EVERY = 10
STEP_S = 3 * 2 * 128 * subnet_parameters(WIDTHS, 1) / 14e12
"""Three passes of 128 samples at 14 Tflop/s."""


def synchronisation_figures() -> Iterator[PublishedFigure]:
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
    result = estimate(
        "zoo:gpt2-small",
        cluster,
        "dp=8,micro_batch=1,global_batch=8",
        costs=CostSettings(collectives="ring"),
        training="synchronous|kind=local-sgd,every=4|16|kind=diloco,every=500",
    )
    whole, *periodic = (price.sent_bytes for price in result.trained)
    for name, times, sent in zip(
        ("local-sgd, H=4", "local-sgd, H=16", "diloco, H=500"), ("4", "16", "500"), periodic, strict=True
    ):
        yield PublishedFigure("1 Gb/s", f"{name}: times fewer bytes", whole / sent, times, 1e-9)
    share = result.trained[3].step_s / result.trained[0].step_s
    yield PublishedFigure("1 Gb/s", "diloco, H=500: step over synchronous", share, "0.5", 0.0, is_limit=True)


def compression_figures() -> Iterator[PublishedFigure]:
    """Yield the crossing points, and the largest hundredth of the numbers inside a host with links of 25 GB/s."""
    device = device_type("a100")
    message = Message("gradients", "all_reduce", "dp_cp", CODED_BYTES)
    for n in CODED_RANKS:
        low, high = 1e-6, 1.0
        while high / low > 1 + 1e-6:
            fraction = (low * high) ** 0.5
            sent = coded(TopK(fraction=fraction, codec_passes=0.0), message, n, device).messages[0].payload_bytes
            if (n - 1) / n * sent < 2 * (n - 1) / n * CODED_BYTES:
                low = fraction
            else:
                high = fraction
        yield PublishedFigure(f"top-k, {n} ranks", "largest share that pays against a ring", low, f"{1 / n:.6f}", 0.05)
    result = estimate(
        "zoo:resnet50",
        matrix_cluster(np.full((8, 8), LINK_GBYTES_PER_S), 8),
        "dp=8,micro_batch=64,global_batch=512",
        costs=CostSettings(collectives="ring"),
        training="synchronous",
        compression="kind=top-k,fraction=0.01",
    )
    plain, code = result.trained
    item = "resnet50 on 8 A100, links of 25 GB/s, sums hidden"
    yield PublishedFigure(item, "top-k 1 %: step over the uncoded one", code.step_s / plain.step_s, "1", 0.0, is_floor=True)


def gossip_figures() -> Iterator[PublishedFigure]:
    """Yield every figure of the table."""
    for (fabric, ranks), published in GOSSIP_MS.items():
        for column, value, seconds in zip(GOSSIP_WAYS, published, fabric_steps(fabric, ranks), strict=True):
            yield PublishedFigure(f"{ranks} ranks of {fabric}", f"{column}, ms", 1e3 * seconds, value, GOSSIP_TOLERANCE)


def local_updates_figures() -> Iterator[PublishedFigure]:
    """Yield the bytes of a round against counted ones, throughput at 1 Gb/s, bytes over a cut and the rate of stages."""
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
    """Yield synthetic labels of 10 classes at a cut of 1024 numbers, 60,000 samples, 20 epochs in front of it and 30 behind."""
    n, classes, h, left, right = 60_000, 10, 4096, 20, 30
    sizes = {"left_epochs": left, "right_epochs": right, "num_samples": n, "num_classes": classes}
    f, b = (2e-6, 3e-6), (4e-6, 5e-6)
    epochs = [n * (one + other) for one, other in zip(f, b, strict=True)]
    for schedule, sent, published_s in (
        ("sequential", classes * h + n * h, left * n * 6e-6 + right * n * 8e-6 + n * 2e-6),
        ("parallel", classes * h, max(left * n * 6e-6, right * n * 8e-6)),
    ):
        training = LocalUpdate.model_validate({"preset": "sil", "schedule": schedule, **sizes})
        name = f"synthetic labels, {schedule}"
        yield PublishedFigure(name, "bytes over the cut", cut_bytes(training, h), str(sent), 1e-9)
        yield PublishedFigure(name, "seconds", epochs_s(training, epochs, [n * f[0]]), f"{published_s:.12g}", 1e-9)
    recovered = LocalUpdate.model_validate({"preset": "sil", "schedule": "parallel", "recovery_epochs": 50, **sizes})
    crossed = cut_bytes(recovered, h) - classes * h
    yield PublishedFigure("50 epochs of a pipeline", "bytes over the cut", crossed, str(2 * n * h * 50), 1e-9)
