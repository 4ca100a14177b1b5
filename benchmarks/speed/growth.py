"""How cost grows: with tasks of a graph, devices that it runs on, flows under way, and episodes side by side.

Each figure is the median of five; the plain counterpart is measured in the same run, up to the size at which it still
takes about a second. `plots` draws the points.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from meshwright.clusters import load_cluster
from meshwright.clusters.cluster import Cluster
from meshwright.costs.network import RankNetwork
from meshwright.costs.settings import CostSettings
from meshwright.jobs import load_graph
from meshwright.plans import uniform_splits
from meshwright.simulation.contention import concurrent_jobs
from meshwright.simulation.contention.placed_job import PlacedJob
from meshwright.simulation.step import kernel
from meshwright.simulation.step.execution import ExecutionGraph
from meshwright.simulation.step.lowering import lower
from tests.oracles import concurrent_reference, list_scheduling

from . import fair_sharing
from .measure import REPEATS, BenchmarkFigure, median_s, told

TASKS = ("alexnet", "resnet18", "resnet50", "gpt2-small", "gpt2-xl")
DEVICES = (2, 4, 8, 16, 32, 64, 128, 256)
EPISODES = (1, 4, 16, 64, 256, 1024)
FEW_TASKS = {"independent": 40_000, "fair": 800}
"""The plain references are measured on graphs of at most so many tasks."""

# Runs in a process of its own, in which nothing is compiled: the same dynamics and observations in plain Python.
PLAIN_EPISODE = """
import time
import numpy as np
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.job_partitioning import JobPartitioningEnv
benchmark = load_benchmark("quickstart")
env, rng = JobPartitioningEnv(benchmark, scenario=benchmark.build()), np.random.default_rng(0)
env.reset(seed=0)
began = time.perf_counter()
for _ in range({decisions}):
    env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))
print({decisions} / (time.perf_counter() - began))
"""

MANY_DEVICES = """
import resource
import numpy as np
from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.benchmark import load_benchmark
batch = EpisodeBatch(load_benchmark("quickstart", changes=["scenario.cluster=preset:ramp-8x8x4"]).build(), 256)
for e in range(256):
    batch.reset(e, np.random.default_rng(e))
for _ in range(20):
    batch.step(batch.observations.action_mask.argmax(axis=1))
print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@dataclass(frozen=True)
class Point:
    """One point of a curve: of which plot and series, where, and how much."""

    plot: str
    series: str
    x: float
    value: float


def points() -> Iterator[Point]:
    """All curves: kernels by tasks and by devices, fair sharing by flows, episodes side by side by their number."""
    yield from by_tasks()
    yield from by_devices()
    yield from by_flows()
    yield from by_episodes()


def exponents(points: Sequence[Point]) -> list[BenchmarkFigure]:
    """The slope of each compiled curve on logarithmic axes: 1 is linear growth."""
    figures = []
    for plot, series in dict.fromkeys((point.plot, point.series) for point in points if "plain" not in point.series):
        mine = [point for point in points if (point.plot, point.series) == (plot, series)]
        slope = np.polyfit(np.log([p.x for p in mine]), np.log([p.value for p in mine]), 1)[0]
        span = f"{mine[0].x:,.0f} to {mine[-1].x:,.0f} {plot}"
        figures.append(BenchmarkFigure(f"growth exponent by {plot}: {series}", float(slope), "", span))
    return figures


def by_tasks() -> Iterator[Point]:
    """Seconds of one step of growing graphs on 16 devices, each kernel and its plain reference."""
    cluster = load_cluster("preset:clos-64-4to1")
    for name in TASKS:
        yield from _both_kernels("tasks", cluster, name, 16, lambda execution: execution.num_tasks)


def by_devices() -> Iterator[Point]:
    """Seconds of one step of one graph on more and more devices."""
    cluster = load_cluster("preset:clos-256-4to1")
    for devices in DEVICES:
        yield from _both_kernels("devices", cluster, "resnet18", devices, lambda execution: execution.num_ranks)


def by_flows() -> Iterator[Point]:
    """Seconds of an event of max-min fair sharing, by the number of flows under way."""
    cluster, rng = fair_sharing.clos(), np.random.default_rng(0)
    fair_sharing.events_s(cluster, rng, 2, 2)
    for flows in fair_sharing.NUM_FLOWS:
        events = fair_sharing.NUM_EVENTS[flows]
        seconds = statistics.median(fair_sharing.events_s(cluster, rng, flows, events) for _ in range(REPEATS))
        yield Point("flows", "fair, compiled", flows, seconds)
    for flows in fair_sharing.REFERENCE_FLOWS:
        seconds = statistics.median(fair_sharing.reference_s(cluster, rng, flows) for _ in range(REPEATS))
        yield Point("flows", "fair, plain reference", flows, seconds)


def by_episodes() -> Iterator[Point]:
    """Decisions per second with full observations, by the number of episodes side by side; 32 and 256 devices."""
    from meshwright.envs.batch import EpisodeBatch

    for cluster in ("ramp-4x4x2", "ramp-8x8x4"):
        scenario = _scenario(f"preset:{cluster}")
        for count in EPISODES:
            batch = EpisodeBatch(scenario, count)
            steps = max(2, min(200, 2_000 // count))
            seconds = statistics.median(_steps_s(batch, steps) for _ in range(REPEATS))
            yield Point("episodes", f"{scenario.cluster.num_devices} devices", count, count * steps / seconds)


def memory() -> list[BenchmarkFigure]:
    """Peak memory of a process that steps 256 episodes of 256 devices: Python, libraries, tables, state, observations."""
    told(MANY_DEVICES)  # leaves the step times on disk, whose simulation takes memory of its own
    peak_bytes = told(MANY_DEVICES)
    on = "ramp-8x8x4, quickstart's jobs, step times from disk"
    return [BenchmarkFigure("256 episodes of 256 devices, the whole process", peak_bytes / 1e6, "MB", on)]


def plain_environment() -> list[BenchmarkFigure]:
    """Decisions per second of the same environment with compilation switched off."""
    rate = told(PLAIN_EPISODE.format(decisions=30), NUMBA_DISABLE_JIT="1")
    return [BenchmarkFigure("environment, one episode, plain Python", rate, "decisions/s", "quickstart")]


def _both_kernels(plot: str, cluster: Cluster, job: str, devices: int, x: Callable[[ExecutionGraph], float]) -> Iterator[Point]:
    graph, network = load_graph(f"zoo:{job}"), RankNetwork(cluster, np.arange(devices))
    for mode, fast, slow in (
        ("independent", kernel.schedule, list_scheduling.schedule),
        ("fair", lambda e: _together(e, network), lambda e: _together_plainly(e, network)),
    ):
        contention: Any = mode
        execution = lower(graph, uniform_splits(graph, devices), network, CostSettings(contention=contention))
        yield Point(plot, f"{mode}, compiled", x(execution), median_s(partial(fast, execution)))
        if execution.num_tasks <= FEW_TASKS[mode]:
            yield Point(plot, f"{mode}, plain reference", x(execution), median_s(partial(slow, execution)))


def _together(execution: ExecutionGraph, network: RankNetwork) -> object:
    return concurrent_jobs.schedule([PlacedJob(execution, network.devices)], network.cluster)


def _together_plainly(execution: ExecutionGraph, network: RankNetwork) -> object:
    return concurrent_reference.schedule([PlacedJob(execution, network.devices)], network.cluster, float)


def _scenario(cluster: str) -> Any:
    from meshwright.envs.benchmark import load_benchmark

    benchmark = load_benchmark("quickstart", changes=[f"scenario.cluster={cluster}"])
    return benchmark.build()


def _steps_s(batch: Any, steps: int) -> float:
    """Seconds of some steps of episodes that have just begun, random offered candidates."""
    rng = np.random.default_rng(0)
    for e in range(batch.num_episodes):
        batch.reset(e, np.random.default_rng(e))
    began = time.perf_counter()
    for _ in range(steps):
        scores = rng.random(batch.observations.action_mask.shape) * batch.observations.action_mask
        batch.step(scores.argmax(axis=1))
    return time.perf_counter() - began
