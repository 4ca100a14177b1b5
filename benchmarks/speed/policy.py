"""The shipped network's latency, PPO's speed end to end on one thread, and where its time goes.

Figures have processor seconds as well as wall time, because other programs slow the latter down.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO

from meshwright import settings
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.job_partitioning import JobPartitioningEnv
from meshwright.models.masked_policy import ScorePolicy
from meshwright.packaged import config_path
from meshwright.planning.policies import policy as load_policy
from meshwright.simulation.cluster.scenario import Scenario
from meshwright.training.methods import train
from meshwright.training.settings import TrainSettings, load_train_settings
from meshwright.training.vec_env import JobPartitioningVecEnv

from .measure import BenchmarkFigure, median_s

NUM_STEPS = 40_960
LEARNED_STEPS = 8_192

BENCHMARKS = ("quickstart", "pacml-compat-D", "ramp-256")

# Calls whose time is told apart; what they contain counts in both.
ROLLOUT, UPDATE, STEP, FORWARD = "rollout", "update", "step", "forward"
TIMED = {
    ROLLOUT: (MaskablePPO, "collect_rollouts"),
    UPDATE: (MaskablePPO, "train"),
    STEP: (JobPartitioningVecEnv, "step_wait"),
    FORWARD: (ScorePolicy, "forward"),
}


def policy_figures() -> list[BenchmarkFigure]:
    """Return the latency of one decision of the shipped network, and PPO end to end."""
    torch.set_num_threads(1)
    scenario = load_benchmark("quickstart").build()
    return [*_latency(scenario), *_training(scenario)]


def _latency(scenario: Scenario) -> Iterator[BenchmarkFigure]:
    chooser = load_policy("shipped:quickstart", scenario)
    env = JobPartitioningEnv(load_benchmark("quickstart"), scenario=scenario)
    observation, _ = env.reset(seed=0)
    times = []
    for _ in range(scenario.settings.num_jobs):
        waiting = env.decision()
        began = time.perf_counter()
        choice = chooser.choose(waiting, observation)
        times.append(time.perf_counter() - began)
        observation = env.step(choice)[0]
    on = "quickstart, 32 devices"
    yield BenchmarkFigure("decision of the network, median", statistics.median(times) * 1e3, "ms", on)
    yield BenchmarkFigure("decision of the network, 99th percentile", float(np.percentile(times, 99)) * 1e3, "ms", on)


def _training(scenario: Scenario) -> Iterator[BenchmarkFigure]:
    """Measure training with validation, checkpoints and the run folder; a further run measures the share of each part."""
    config = settings.load(
        TrainSettings,
        config_path("preset:quickstart"),
        changes=["search=null", f"total_steps={NUM_STEPS}", "num_validation_seeds=1"],
    )

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            train(config, Path(folder) / "run", scenario=scenario)

    on = f"quickstart, {NUM_STEPS:,} decisions, one thread"
    yield BenchmarkFigure("PPO end to end", NUM_STEPS / median_s(run), "decisions/s", on)
    yield from _shares(run, on)


def _shares(run: Callable[[], object], on: str) -> Iterator[BenchmarkFigure]:
    """Yield where the time of a training run goes."""
    with _timed() as spent_s:
        began = time.perf_counter()
        run()
        whole_s = time.perf_counter() - began
    parts = {
        "updates": spent_s[UPDATE],
        "rollouts, stepping the environments": spent_s[STEP],
        "rollouts, forward passes": spent_s[FORWARD],
        "rollouts, the rest": spent_s[ROLLOUT] - spent_s[STEP] - spent_s[FORWARD],
        "validation, checkpoints, set-up": whole_s - spent_s[ROLLOUT] - spent_s[UPDATE],
    }
    for part, seconds in parts.items():
        yield BenchmarkFigure(f"PPO, share of the time: {part}", 100 * seconds / whole_s, "%", on)


@contextmanager
def _timed() -> Iterator[dict[str, float]]:
    """Add up the seconds spent within each of the `TIMED` calls."""
    spent_s = dict.fromkeys(TIMED, 0.0)
    originals = {name: getattr(owner, call) for name, (owner, call) in TIMED.items()}

    def timing(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                spent_s[name] += time.perf_counter() - began

        return measured

    for name, (owner, call) in TIMED.items():
        setattr(owner, call, timing(name, originals[name]))
    try:
        yield spent_s
    finally:
        for name, (owner, call) in TIMED.items():
            setattr(owner, call, originals[name])


def learning_figures() -> Iterator[BenchmarkFigure]:
    """Yield decisions a second of processor and of wall time, and shares of the time."""
    torch.set_num_threads(1)
    for name in BENCHMARKS:
        changes = [f"benchmark=preset:{name}", "search=null", f"total_steps={LEARNED_STEPS}", "num_validation_seeds=1"]
        config = load_train_settings(config_path("preset:quickstart"), changes)
        reference = os.environ.get("MESHWRIGHT_REFERENCE")
        if name.startswith("pacml") and reference is None:
            continue
        graphs = Path(str(reference)) / "pipedream" if name.startswith("pacml") else None
        scenario = load_benchmark(config.benchmark).build(graphs_dir=graphs)

        def run(choice=config, scenario=scenario, graphs=graphs) -> tuple[float, float]:  # type: ignore[no-untyped-def]
            with tempfile.TemporaryDirectory() as folder:
                began, began_cpu = time.perf_counter(), time.process_time()
                train(choice, Path(folder) / "run", scenario=scenario, graphs_dir=graphs)
                return time.perf_counter() - began, time.process_time() - began_cpu

        run()
        spent = [run() for _ in range(2)]
        on = f"{name}, {LEARNED_STEPS:,} decisions, one thread, best of 2"
        yield BenchmarkFigure("PPO, a second of processor", LEARNED_STEPS / min(cpu_s for _, cpu_s in spent), "decisions/s", on)
        yield BenchmarkFigure("PPO, wall time", LEARNED_STEPS / min(wall_s for wall_s, _ in spent), "decisions/s", on)
        yield from _shares(run, on)
