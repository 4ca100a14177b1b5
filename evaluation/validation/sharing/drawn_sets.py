"""Random sets of jobs on three clusters: what each one trains, how it is cut, and on which devices it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from ....clusters.cluster import Cluster, load_cluster
from ....costs.network import RankNetwork
from ....costs.settings import CostSettings
from ....costs.training_step.graph_step_time import GraphPricer
from ....costs.training_step.step_pricer import StepPricer
from ....costs.work.graph_work import describe_graph
from ....costs.work.model_chunks import is_legal
from ....costs.work.work import describe
from ....jobs import load_graph
from ....jobs.load import load_shape
from ....jobs.transformer import TransformerShape
from ....plans.partition import Layout
from ....simulation.layouts.running import layout_step, num_tasks
from ....simulation.layouts.step_model import GraphStep, TransformerStep

Drawn = TypeVar("Drawn")

COSTS = CostSettings(contention="fair").of_layouts

NUM_JOBS = (2, 8)
"""Fewest and most jobs of a set."""

LONGEST_RATIO = 8.0
"""Between the steps of two jobs of a set, as estimated: the shorter one is simulated until the longer has had several."""

MOST_TASKS = 14_000
"""Of all jobs in the time of the longest step, about."""

TRIES = 12
"""Jobs that are drawn for each one of a set."""

MOST_RANKS = 32

CONVNETS = ("vgg16", "resnet50")

TRANSFORMERS = {"gpt2-small": (6, 1024), "bert-large": (6, 512), "gpt2-xl": (4, 1024), "llama-7b": (4, 2048)}
"""Layers that are left, so that a step has few tasks, and tokens of a sequence."""

HOSTS_OF_EIGHT = {
    "kind": "clos",
    "devices_per_host": 8,
    "intra_host_bandwidth_gbytes_per_s": 300.0,
    "intra_host_latency_us": 0.6,
    "nics_per_host": 4,
    "nic_bandwidth_gbytes_per_s": 12.5,
    "nic_latency_us": 1.35,
    "num_spines": 4,
    "spine_latency_us": 0.5,
}
"""As in the preset ``clos-256-4to1``."""

CLUSTERS: dict[str, dict[str, Any] | None] = {
    "clos-256-4to1": None,
    "rail-128-2to1": HOSTS_OF_EIGHT
    | {"num_hosts": 16, "hosts_per_leaf": 4, "wiring": "rail", "oversubscription": 2.0, "nic_bandwidth_gbytes_per_s": 25.0},
    "small-leaves-128-2to1": HOSTS_OF_EIGHT
    | {
        "num_hosts": 32,
        "devices_per_host": 4,
        "hosts_per_leaf": 2,
        "num_spines": 2,
        "oversubscription": 2.0,
        "nics_per_host": 1,
    },
}
"""A preset, one that is optimised for rails, and one with two hosts to a leaf, by their topologies."""

STYLES = ("packed", "window", "window", "window", "anywhere", "anywhere", "anywhere", "anywhere")
"""Hosts of a job: the first ones that are free, some of a few neighbours, or some of all."""


@dataclass(frozen=True)
class DrawnJob:
    """A job of a set.

    Attributes:
        name: of a model of the zoo.
        layout: how it is cut.
        devices: of its ranks.
    """

    name: str
    layout: Layout
    devices: tuple[int, ...] = ()


@dataclass(frozen=True)
class DrawnSet:
    """Jobs side by side.

    Attributes:
        seed, number: which of all sets.
        cluster: a key of `CLUSTERS`.
        jobs: two at least.
    """

    seed: int
    number: int
    cluster: str
    jobs: tuple[DrawnJob, ...]


@cache
def cluster_of(name: str) -> Cluster:
    """Return a cluster of `CLUSTERS`."""
    topology = CLUSTERS[name]
    if topology is None:
        return load_cluster(f"preset:{name}")
    return Cluster.from_data({"name": name, "device": "a100", "topology": topology})


@cache
def slower_cluster(name: str) -> Cluster:
    """Return the cluster of a name with half the bandwidth between hosts."""
    data = cluster_of(name).to_data()
    data["topology"]["nic_bandwidth_gbytes_per_s"] /= 2
    return Cluster.from_data(data)


@cache
def step_of(cluster: str, name: str, layout: Layout) -> TransformerStep | GraphStep:
    """Return the work of the stages of a job."""
    where = cluster_of(cluster)
    if name not in CONVNETS:
        shape, length = _shape(name)
        step = layout_step(describe(shape, layout, length), where, COSTS)
        assert isinstance(step, TransformerStep)
        return step
    device = where.device_types[0]
    graph = load_graph(f"zoo:{name}", device=device, batch_size=layout.global_batch)
    return GraphStep(describe_graph(graph, layout, device, COSTS), GraphPricer.from_cluster(where, COSTS))


def draw(seed: int, number: int) -> DrawnSet:
    """Return one of the sets of a seed."""
    rng = np.random.default_rng([seed, number])
    cluster = _pick(rng, sorted(CLUSTERS))
    num_jobs = int(rng.integers(*NUM_JOBS, endpoint=True))
    while True:
        jobs = _draw_jobs(rng, cluster, num_jobs)
        places = _draw_devices(rng, cluster_of(cluster), [job.layout.world for job in jobs])
        if len(jobs) == num_jobs and places is not None:
            return DrawnSet(
                seed, number, cluster, tuple(replace(job, devices=place) for job, place in zip(jobs, places, strict=True))
            )


def _draw_jobs(rng: np.random.Generator, cluster: str, num_jobs: int) -> list[DrawnJob]:
    """Return jobs whose steps are of like length with no more tasks than can be simulated; fewer where chance finds none."""
    jobs: list[DrawnJob] = []
    figures: list[tuple[float, int]] = []
    for _ in range(TRIES * num_jobs):
        name, layout = _draw_job(rng, cluster)
        results = [*figures, _figures(cluster, name, layout)]
        longest_s = max(step_s for step_s, _ in results)
        expected_tasks = sum(tasks * longest_s / step_s for step_s, tasks in results)
        if longest_s <= LONGEST_RATIO * min(results)[0] and expected_tasks <= MOST_TASKS * len(results) / num_jobs:
            jobs.append(DrawnJob(name, layout))
            figures = results
        if len(jobs) == num_jobs:
            break
    return jobs


def _pick(rng: np.random.Generator, options: Sequence[Drawn]) -> Drawn:
    return options[int(rng.integers(len(options)))]


@cache
def _shape(name: str) -> tuple[TransformerShape, int]:
    layers, length = TRANSFORMERS[name]
    return load_shape(f"zoo:{name}")[0].model_copy(update={"num_layers": layers}), length


def _figures(cluster: str, name: str, layout: Layout) -> tuple[float, int]:
    """Return the seconds and tasks of a step, about."""
    step = step_of(cluster, name, layout)
    pricer: StepPricer = step.pricer
    step_s = pricer.step_s(step.work)
    # Where gradients go op by op while the backward pass runs on, each op is a task of its own.
    ops = step.work.graph.num_ops if isinstance(step, GraphStep) and layout.overlap_dp else 1
    return step_s, ops * num_tasks(step, RankNetwork(cluster_of(cluster), np.arange(layout.world)), 1)


def _draw_job(rng: np.random.Generator, cluster: str) -> tuple[str, Layout]:
    """Return a model and a legal layout of 8 to 32 ranks; a third are convolutional networks under data parallelism."""
    per_host = cluster_of(cluster).num_devices // cluster_of(cluster).num_hosts
    while True:
        world = _pick(rng, [8, 8, 16, 16, MOST_RANKS])
        if float(rng.random()) < 1 / 3:
            samples = _pick(rng, [16, 32, 64])
            keys = {"dp": world, "micro_batch": samples, "global_batch": samples * world, "overlap_dp": float(rng.random()) < 0.7}
            return _pick(rng, CONVNETS), Layout.model_validate(keys)
        name, tp, pp = _pick(rng, sorted(TRANSFORMERS)), _pick(rng, [1, 2, 4]), _pick(rng, [1, 1, 2, 4])
        if world % (tp * pp) or tp > per_host:
            continue
        dp, micro_batch = world // (tp * pp), _pick(rng, [1, 2, 4])
        num_micro_batches = _pick(rng, [1, 2]) if pp == 1 else pp * _pick(rng, [1, 2])
        keys = {
            "tp": tp,
            "pp": pp,
            "dp": dp,
            "micro_batch": micro_batch,
            "global_batch": micro_batch * dp * num_micro_batches,
            "zero": 0 if dp == 1 else _pick(rng, [0, 0, 1, 2, 3]) if pp == 1 else _pick(rng, [0, 1]),
            "sequence_parallel": tp > 1,
            "overlap_dp": float(rng.random()) < 0.6,
            "overlap_pp": float(rng.random()) < 0.3,
        }
        layout = Layout.model_validate(keys)
        if is_legal(_shape(name)[0], layout, _shape(name)[1]):
            return name, layout


def _draw_devices(rng: np.random.Generator, cluster: Cluster, worlds: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Return the devices of each job, equally many on each of its hosts; None where they do not fit."""
    per_host = cluster.num_devices // cluster.num_hosts
    style = _pick(rng, STYLES)
    hosts = list(range(cluster.num_hosts))
    if style == "window":
        size = min(cluster.num_hosts, -(-sum(worlds) // per_host) + int(rng.integers(3)))
        first = int(rng.integers(cluster.num_hosts - size + 1))
        hosts = hosts[first : first + size]
    free = {host: list(range(host * per_host, (host + 1) * per_host)) for host in hosts}
    result = []
    for world in worlds:
        part = min(per_host, world)
        if style != "packed":
            part = max(1, part >> int(rng.choice(3, p=[0.65, 0.25, 0.1])))
        able = [host for host in hosts if len(free[host]) >= part]
        if len(able) < world // part:
            return None
        choice = able[: world // part] if style == "packed" else sorted(rng.choice(able, world // part, replace=False).tolist())
        result.append(tuple(device for host in choice for device in free[host][:part]))
        for host in choice:
            free[host] = free[host][part:]
    return result
