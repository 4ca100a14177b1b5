"""Two stages of unequal meshes with long skips between them: the gain by broadcasts on a slow network and on a fast one.

A U-shaped decoder of 24 layers of width 2048 on two hosts of four V100, the first stage on one mesh, the second on another,
under eager 1F1B: the step with sends and receives over the step with broadcasts. The limits are goals of our own. Zhuang et al.,
"On optimizing the communication of model parallelism", 2022, print 1.5 for a U-shaped transformer against all-gathers.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....clusters.cluster import Cluster
from ....costs.settings import CostSettings
from ....costs.training_step.step_time import Pricer
from ....costs.work.work import describe
from ....jobs.readers.huggingface import shape_of
from ....plans.partition import Layout
from ..published_figures import PublishedFigure

MESHES = ("2x2/4x1", "4x1/2x2", "1x4/4x1", "4x1/1x4")
TOKENS = 1024


def step_s(meshes: str, gbit_per_s: float, resharding: str) -> float:
    """Seconds of a step.

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
    return Pricer.of(two_hosts(gbit_per_s), costs).step_s(describe(shape, layout, TOKENS))


def two_hosts(gbit_per_s: float) -> Cluster:
    """Two hosts of four V100, each behind one card."""
    inside = {"devices_per_host": 4, "intra_host_bandwidth_gbytes_per_s": 150.0, "intra_host_latency_us": 0.6}
    cards = {"nics_per_host": 1, "nic_bandwidth_gbytes_per_s": gbit_per_s / 8, "nic_latency_us": 5.0}
    spines = {"hosts_per_leaf": 2, "wiring": "host", "num_spines": 1, "oversubscription": 1.0, "spine_latency_us": 0.5}
    topology = {"kind": "clos", "num_hosts": 2} | inside | cards | spines
    return Cluster.from_data({"name": "two-hosts", "device": "v100", "topology": topology})


def figures() -> Iterator[PublishedFigure]:
    """The gain of each pair of meshes on both networks."""
    for meshes in MESHES:
        for gbit_per_s, limit, is_floor in ((10.0, "1.3", True), (400.0, "1.05", False)):
            gain = step_s(meshes, gbit_per_s, "send-recv") / step_s(meshes, gbit_per_s, "broadcast")
            item = f"stages {meshes}, {gbit_per_s:g} Gb/s"
            figure = "send-recv over broadcast"
            yield PublishedFigure(item, figure, gain, limit, 0.0, is_limit=not is_floor, is_floor=is_floor)
