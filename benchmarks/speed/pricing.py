"""The most frequent calls of a planner (layouts, groups and signatures), with and without caches."""

from __future__ import annotations

import numpy as np

from meshwright.clusters import load_cluster
from meshwright.clusters.blocks import blocks
from meshwright.clusters.symmetry import signatures
from meshwright.costs import collectives
from meshwright.costs.collectives import Fabric, Group
from meshwright.costs.process_groups.group_network import HostNetwork
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.work import describe
from meshwright.devices import device_type
from meshwright.jobs.readers.huggingface import shape_of
from meshwright.plans.partition import Layout

from .measure import BenchmarkFigure, median_s
from .search import GPT3

GROUPS = 200
BLOCKS = 5_000
ALONE = 50
"""So many signatures are found one by one."""


def pricing_figures() -> list[BenchmarkFigure]:
    """The price of a layout, of a group, and the signatures of blocks."""
    return [*_layout(), *_groups(), *_signatures()]


def _layout() -> list[BenchmarkFigure]:
    shape, cut = shape_of(GPT3, name="gpt3-175b"), Layout(tp=8, pp=8, dp=16, micro_batch=1, global_batch=1536)
    pricer = Pricer(device_type("a100"), HostNetwork(8, 300e9, 200e9))
    step_s = median_s(lambda: pricer.step_s(describe(shape, cut)))
    whole_s = median_s(lambda: pricer.price(shape, cut))
    on = "gpt3-175b, tp=8 pp=8 dp=16"
    return [
        BenchmarkFigure("price of one layout, the step alone", step_s * 1e3, "ms", on),
        BenchmarkFigure("with breakdown and memory, against it", whole_s / step_s, "x", on),
    ]


def _groups() -> list[BenchmarkFigure]:
    cluster, found = load_cluster("preset:dgx-a100-8x8"), []
    for name in ("auto", "nccl", "measured"):
        algorithm = collectives.chosen(name)
        fabric = Fabric(cluster, algorithm)

        def known(fabric: Fabric = fabric) -> None:
            for number in range(GROUPS):
                fabric.seconds("all_reduce", Group(64, 8))(1e6 + number)

        known_s = median_s(known) / GROUPS
        new_s = median_s(lambda algorithm=algorithm: Fabric(cluster, algorithm).seconds("all_reduce", Group(64, 8))(1e6))
        on = f"all-reduce of 64 ranks on eight hosts, {name}"
        found += [
            BenchmarkFigure("price of a group of a known shape", known_s * 1e6, "us", on),
            BenchmarkFigure("of a new shape, against it", new_s / known_s, "x", on),
        ]
    return found


def _signatures() -> list[BenchmarkFigure]:
    cluster = load_cluster("preset:ramp-8x8x4")
    devices = np.tile(blocks(cluster, 64).devices, (200, 1))[:BLOCKS]
    together_s = median_s(lambda: signatures(cluster, devices))
    alone_s = median_s(lambda: [signatures(cluster, row[None]) for row in devices[:ALONE]])
    on = f"{BLOCKS:,} blocks of 64 devices, ramp-8x8x4"
    return [
        BenchmarkFigure("signatures of blocks", together_s, "s", on),
        BenchmarkFigure("one by one, against it", alone_s / ALONE * BLOCKS / together_s, "x", on),
    ]
