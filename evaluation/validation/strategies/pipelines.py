"""Pipelines of several stages under eager 1F1B, and between unequal meshes.

Eager 1F1B is compared with 1F1B that waits for transfers or does not: four stages, forward 1 s, backward 2 s.

Stages of unequal meshes have long skips between them. A U-shaped decoder of 24 layers of width 2048 runs on two hosts of four
V100, under eager 1F1B. Each stage has a mesh of its own. The figure is the step with sends and receives over the step with
broadcasts. The limits are goals of our own; the source prints 1.5 for a U-shaped transformer against all-gathers.

Source:
    Zhuang et al., "On optimizing the communication of model parallelism", 2022, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....clusters.cluster import Cluster
from ....costs.pipelines.schedules import in_flight, play_schedule
from ....costs.settings import CostSettings
from ....costs.training_step.step_time import Pricer
from ....costs.work.work import describe
from ....jobs.readers.huggingface import shape_of
from ....plans.partition import Layout
from ..published_figures import PublishedFigure

TOLERANCE = 1e-9

PIPELINES = (
    (2, 8, 0.25, ("27", "29.25", "29", "27.5"), ("2", "3")),
    (2, 8, 1.0, ("27", "36", "35", "29"), ("2", "3")),
    (4, 8, 0.25, ("33", "37.75", "37", "34.5"), ("4", "7")),
    (4, 8, 1.0, ("33", "52", "49", "39"), ("4", "7")),
    (4, 16, 0.25, ("57", "65.75", "64", "58.5"), ("4", "7")),
)
"""Stages, micro-batches, seconds of a transfer, what a step takes without transfers and with `WAYS`, and what is kept."""

WAYS = (
    ("1f1b, no transfers", "1f1b", False),
    ("1f1b, blocking", "1f1b", False),
    ("1f1b, overlapped", "1f1b", True),
    ("eager-1f1b", "eager-1f1b", True),
)


MESHES = ("2x2/4x1", "4x1/2x2", "1x4/4x1", "4x1/1x4")
TOKENS = 1024


def eager_pipelines_figures() -> Iterator[PublishedFigure]:
    """Yield the seconds of a step in each way, and the micro-batches that the first stage keeps."""
    for p, m, send_s, target, kept in PIPELINES:
        item = f"{p} stages, {m} micro-batches, transfer {send_s:g}"
        seconds = np.tile([1.0, 2.0, 0.0], (p, 1, 1))
        for number, (name, schedule, overlaps) in enumerate(WAYS):
            played = play_schedule(schedule, 1, m, seconds, send_s if number else 0.0, overlaps_sends=overlaps)
            yield PublishedFigure(item, f"{name}, s", played.period_s, target[number], TOLERANCE)
        for schedule, most in zip(("1f1b", "eager-1f1b"), kept, strict=True):
            yield PublishedFigure(item, f"{schedule}, kept", in_flight(schedule, p, 1, m, 0), most, TOLERANCE)


def step_s(meshes: str, gbit_per_s: float, resharding: str) -> float:
    """Return the seconds of a step.

    Args:
        meshes: ``tp`` x ``dp`` of both stages, as `Layout.stage_meshes` is spelled.
        gbit_per_s: of the card of each host.
        resharding: as `CostSettings.resharding`.
    """
    config = {"model_type": "gpt2", "n_embd": 2048, "n_layer": 24, "n_head": 16, "n_positions": TOKENS, "vocab_size": 50257}
    shape = shape_of(config | {"tie_word_embeddings": False, "long_skips": 12}, name="u-shaped")
    tp, dp = (int(number) for number in meshes.partition("/")[0].split("x"))
    text = f"tp={tp},dp={dp},pp=2,stage_meshes={meshes},micro_batch={8 // dp},global_batch=256,recompute=full,precision=fp16"
    layout = Layout.parse(f"{text},schedule=eager-1f1b", hides_unasked=True)
    costs = CostSettings.model_validate({"resharding": resharding}).of_layouts
    return Pricer.from_cluster(two_hosts(gbit_per_s), costs).step_s(describe(shape, layout, TOKENS))


def two_hosts(gbit_per_s: float) -> Cluster:
    """Return two hosts of four V100, each behind one card."""
    inside = {"devices_per_host": 4, "intra_host_bandwidth_gbytes_per_s": 150.0, "intra_host_latency_us": 0.6}
    cards = {"nics_per_host": 1, "nic_bandwidth_gbytes_per_s": gbit_per_s / 8, "nic_latency_us": 5.0}
    spines = {"hosts_per_leaf": 2, "wiring": "host", "num_spines": 1, "oversubscription": 1.0, "spine_latency_us": 0.5}
    topology = {"kind": "clos", "num_hosts": 2} | inside | cards | spines
    return Cluster.from_data({"name": "two-hosts", "device": "v100", "topology": topology})


def meshed_stages_figures() -> Iterator[PublishedFigure]:
    """Yield the gain of each pair of meshes on both networks."""
    for meshes in MESHES:
        for gbit_per_s, limit, is_floor in ((10.0, "1.3", True), (400.0, "1.05", False)):
            gain = step_s(meshes, gbit_per_s, "send-recv") / step_s(meshes, gbit_per_s, "broadcast")
            item = f"stages {meshes}, {gbit_per_s:g} Gb/s"
            figure = "send-recv over broadcast"
            yield PublishedFigure(item, figure, gain, limit, 0.0, is_limit=not is_floor, is_floor=is_floor)
