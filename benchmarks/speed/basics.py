"""Scheduling of one step, decisions of the first environment, and the start of the package and of the command line."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np

from meshwright.clusters import load_cluster
from meshwright.costs.network import RankNetwork
from meshwright.costs.settings import CostSettings
from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.job_partitioning import JobPartitioningEnv
from meshwright.jobs import load_graph
from meshwright.plans import uniform_splits
from meshwright.simulation.step import kernel as compiled
from meshwright.simulation.step.lowering import lower
from tests.oracles import list_scheduling

from .measure import BenchmarkFigure, median_s, printed_number

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


def kernel_figures() -> list[BenchmarkFigure]:
    """Compare the scheduling of one step of a 10,000-task graph on 64 devices: compiled kernel against the plain reference."""
    cluster, graph = load_cluster("preset:ramp-4x4x4"), load_graph("zoo:gpt2-small")
    network, costs = RankNetwork(cluster, np.arange(64)), CostSettings(contention="independent")
    splits = uniform_splits(graph, 64)
    execution = lower(graph, splits, network, costs)
    began = time.perf_counter()
    compiled.schedule(execution)
    first_s = time.perf_counter() - began
    fast_s = median_s(lambda: compiled.schedule(execution))
    slow_s = median_s(lambda: list_scheduling.schedule(execution))
    lower_s = median_s(lambda: lower(graph, splits, network, costs))
    on = f"gpt2-small on 64 devices, {execution.num_tasks:,} tasks, independent"
    return [
        BenchmarkFigure("schedule one step, compiled", fast_s * 1e3, "ms", on),
        BenchmarkFigure("schedule one step, compiled, a task", fast_s / execution.num_tasks * 1e9, "ns", on),
        BenchmarkFigure("schedule one step, plain reference", slow_s * 1e3, "ms", on),
        BenchmarkFigure("compiled against reference", slow_s / fast_s, "x", on),
        BenchmarkFigure("lower one step (Python)", lower_s * 1e3, "ms", on),
        BenchmarkFigure("first call: load from cache or compile", first_s * 1e3, "ms", on),
    ]


def environment_figures() -> list[BenchmarkFigure]:
    """Return the decisions per second of the environment, one episode and 256 side by side, random offered candidates."""
    benchmark = load_benchmark("quickstart")
    scenario = benchmark.build()
    rng = np.random.default_rng(0)
    env = JobPartitioningEnv(benchmark, scenario=scenario)

    def one_episode() -> None:
        env.reset(seed=0)
        for _ in range(scenario.settings.num_jobs):
            env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))

    def many_episodes() -> None:
        for e in range(256):
            batch.reset(e, np.random.default_rng(e))
        for _ in range(100):
            scores = rng.random(batch.observations.action_mask.shape) * batch.observations.action_mask
            batch.step(scores.argmax(axis=1))

    batch = EpisodeBatch(scenario, 256)
    one_s, many_s = median_s(one_episode), median_s(many_episodes)
    return [
        BenchmarkFigure("environment, one episode", scenario.settings.num_jobs / one_s, "decisions/s", "quickstart"),
        BenchmarkFigure("environment, 256 episodes side by side", 256 * 100 / many_s, "decisions/s", "quickstart"),
        *plain_environment(),
        *memory(),
    ]


def memory() -> list[BenchmarkFigure]:
    """Measure the peak memory of a process that steps 256 episodes of 256 devices, with Python and its libraries."""
    printed_number(MANY_DEVICES)  # leaves the step times on disk, whose simulation takes memory of its own
    peak_bytes = printed_number(MANY_DEVICES)
    on = "ramp-8x8x4, quickstart's jobs, step times from disk"
    return [BenchmarkFigure("256 episodes of 256 devices, the whole process", peak_bytes / 1e6, "MB", on)]


def plain_environment() -> list[BenchmarkFigure]:
    """Measure decisions per second of the same environment with compilation switched off."""
    rate = printed_number(PLAIN_EPISODE.format(decisions=30), NUMBA_DISABLE_JIT="1")
    return [BenchmarkFigure("environment, one episode, plain Python", rate, "decisions/s", "quickstart")]


def start_up_figures() -> list[BenchmarkFigure]:
    """Return the seconds until the package is imported and until the command line has printed its help."""
    python = sys.executable
    imported = median_s(lambda: subprocess.run([python, "-c", "import meshwright"], check=True))
    nothing = median_s(lambda: subprocess.run([python, "-c", "pass"], check=True))
    numpy_s = median_s(lambda: subprocess.run([python, "-c", "import numpy"], check=True))
    call = "from meshwright.cli import run_command_line; run_command_line(['--help'])"
    help_s = median_s(lambda: subprocess.run([python, "-c", call], check=True, stdout=subprocess.DEVNULL))
    return [
        BenchmarkFigure("import meshwright, beyond Python's own start", (imported - nothing) * 1e3, "ms", "new process"),
        BenchmarkFigure("import meshwright against import numpy", imported / numpy_s, "x", "new process"),
        BenchmarkFigure("meshwright --help", help_s * 1e3, "ms", "new process"),
        BenchmarkFigure("meshwright --help against import numpy", help_s / numpy_s, "x", "new process"),
    ]
