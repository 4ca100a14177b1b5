"""Speed of planners: the search of all layouts of a 175B model on 1,024 devices, and frequent calls with and without caches."""

from __future__ import annotations

import statistics
import time

import numpy as np

from meshwright.clusters import load_cluster
from meshwright.clusters.blocks import blocks
from meshwright.clusters.cluster import Cluster
from meshwright.clusters.symmetry import signatures
from meshwright.costs import collectives
from meshwright.costs.collectives import Fabric, Group
from meshwright.costs.process_groups.group_network import HostNetwork, group_network
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.work import describe
from meshwright.devices import device_type
from meshwright.jobs.load import load_shape
from meshwright.jobs.readers.huggingface import shape_of
from meshwright.jobs.transformer import TransformerShape
from meshwright.planners.layouts.request import SearchRequest
from meshwright.planners.layouts.results import Counts, RankedLayout, Searched
from meshwright.planners.layouts.search import LayoutSearch
from meshwright.planners.layouts.space import LayoutSpace
from meshwright.plans.partition import Layout

from .measure import REPEATS, BenchmarkFigure, median_s

GPT3 = {"model_type": "gpt2", "n_embd": 12288, "n_layer": 96, "n_head": 96, "n_positions": 2048, "vocab_size": 51200}
"""Brown et al., "Language models are few-shot learners", 2020, table 2.1; the vocabulary padded as Megatron-LM does."""


GROUPS = 200
BLOCKS = 5_000
ALONE = 50
"""So many signatures are found one by one."""


def search_figures() -> list[BenchmarkFigure]:
    """Measure the whole search, its first answer, and a smaller search against one that prices every layout that fits."""
    shape = shape_of(GPT3, name="gpt3-175b")
    whole, first_s, searched = _median(shape, 1536, _hosts(128), 10)
    counts = searched.counts
    on = f"{counts.legal:,} legal layouts of 175B on 1,024 A100, {counts.examined:,} priced in {counts.prices:,} rank orders"
    small, batch = load_shape("zoo:gpt2-xl")[0], 64
    fast_s, _, pruned = _median(small, batch, _hosts(4), 10)
    slow_s, _, every = _median(small, batch, _hosts(4), None)
    assert [one[:4] for one in pruned.ranking] == [one[:4] for one in every.ranking[:10]]
    assert pruned.front == every.front
    both = f"gpt2-xl on 32 A100, {every.counts.legal:,} legal layouts; the same ten best, the same front"
    return [
        BenchmarkFigure("search of all layouts, 1,024 devices", whole, "s", on),
        BenchmarkFigure("first answer", first_s * 1e3, "ms", on),
        BenchmarkFigure("legal layouts decided", counts.legal / whole, "layouts/s", on),
        BenchmarkFigure("search of all layouts, 32 devices", fast_s * 1e3, "ms", both),
        BenchmarkFigure("every layout that fits priced, 32 devices", slow_s * 1e3, "ms", both),
        BenchmarkFigure("pruning against pricing all", slow_s / fast_s, "x", both),
    ]


def _median(shape: TransformerShape, batch: int, cluster: Cluster, top: int | None) -> tuple[float, float, Searched]:
    """Return the seconds of a search and until its first answer, after one that is not counted, and what it found."""
    runs = [_run(shape, batch, cluster, top) for _ in range(REPEATS + 1)][1:]
    return statistics.median(run[0] for run in runs), statistics.median(run[1] for run in runs), runs[0][2]


def _run(shape: TransformerShape, batch: int, cluster: Cluster, top: int | None) -> tuple[float, float, Searched]:
    told_s: list[float] = []

    def tell(ranked: RankedLayout, counts: Counts) -> None:
        told_s.append(time.perf_counter() - began)

    request = SearchRequest(top=top, on_best=tell)
    space = LayoutSpace(shape, shape.default_sequence_length, batch, cluster.num_devices // cluster.num_hosts, request)
    device = cluster.device_types[0]
    began = time.perf_counter()
    search = LayoutSearch(space, device, device.memory_bytes, group_network(cluster))
    searched = search.run([cluster.num_devices])
    return time.perf_counter() - began, told_s[0], searched


def _hosts(number: int) -> Cluster:
    """Return so many of the hosts of the preset ``dgx-a100-8x8``."""
    data = load_cluster("preset:dgx-a100-8x8").to_data()
    data["name"] = f"dgx-a100-{number}x8"
    data["topology"] |= {"num_hosts": number, "hosts_per_leaf": min(number, 16)}
    return Cluster.from_data(data)


def pricing_figures() -> list[BenchmarkFigure]:
    """Return the price of a layout, of a group, and the signatures of blocks."""
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
    cluster, result = load_cluster("preset:dgx-a100-8x8"), []
    for name in ("auto", "nccl", "measured"):
        algorithm = collectives.algorithm_named(name)
        fabric = Fabric(cluster, algorithm)

        def known(fabric: Fabric = fabric) -> None:
            for number in range(GROUPS):
                fabric.seconds("all_reduce", Group(64, 8))(1e6 + number)

        known_s = median_s(known) / GROUPS
        new_s = median_s(lambda algorithm=algorithm: Fabric(cluster, algorithm).seconds("all_reduce", Group(64, 8))(1e6))
        on = f"all-reduce of 64 ranks on eight hosts, {name}"
        result += [
            BenchmarkFigure("price of a group of a known shape", known_s * 1e6, "us", on),
            BenchmarkFigure("of a new shape, against it", new_s / known_s, "x", on),
        ]
    return result


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
