"""Gymnasium's own vectorisation of single environments, ours, and one environment by itself, in one run on one core."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.fleet.benchmark import load_fleet_benchmark

from .measure import REPEATS, BenchmarkFigure

NUM_ENVS = 256
SECONDS = 2.0


def vector_figures() -> Iterator[BenchmarkFigure]:
    """Yield steps per second of every id that is made of the benchmark; random possible actions, episodes that begin anew."""
    benchmark = load_benchmark("quickstart")
    scenario = benchmark.build()
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("JobPartitioning-v0", "quickstart", {"benchmark": benchmark, "scenario": scenario}),
        ("JobPartitioning-v1", "llm-256", {"fleet": load_fleet_benchmark("preset:llm-256").build()}),
        ("OperatorPlacement-v0", "latency-tight, 1,000 instances", {"num_instances": 1000}),
        ("OperatorPlacement-v0", "latency-tight, always new instances", {}),
        ("World-v0", "tasklets-64, 64 instances", {"num_instances": 64}),
    ]
    for name, on, options in cases:
        identity = f"meshwright/{name}"
        theirs = gymnasium.make_vec(identity, num_envs=NUM_ENVS, vectorization_mode="sync", **options)
        ours = gymnasium.make_vec(identity, num_envs=NUM_ENVS, **options)
        rates = [
            _steps_per_s(_single(gymnasium.make(identity, **options).unwrapped)),
            *map(_steps_per_s, map(_many, (theirs, ours))),
        ]
        titles = ("one environment", f"Gymnasium's vectorisation of {NUM_ENVS}", f"gymnasium.make_vec, {NUM_ENVS} environments")
        for title, rate in zip(titles, rates, strict=True):
            yield BenchmarkFigure(f"{name}: {title}", rate, "steps/s", on)
        yield BenchmarkFigure(f"{name}: make_vec against Gymnasium's vectorisation", rates[2] / rates[1], "x", on)


def _many(envs: Any) -> Iterator[int]:
    """Step vectorised environments; yields how many steps each call made."""
    rng = np.random.default_rng(0)
    seen, _ = envs.reset(seed=0)
    while True:
        actions = (rng.random(seen["action_mask"].shape) * seen["action_mask"]).argmax(axis=1)
        seen = envs.step(actions)[0]
        yield envs.num_envs


def _single(env: Any) -> Iterator[int]:
    """Step one environment, whose episodes begin anew."""
    rng = np.random.default_rng(0)
    seen, _ = env.reset(seed=0)
    while True:
        seen, _, ended, cut, _ = env.step(int((rng.random(seen["action_mask"].shape) * seen["action_mask"]).argmax()))
        if ended or cut:
            seen, _ = env.reset()
        yield 1


def _steps_per_s(steps: Iterator[int]) -> float:
    """Return the median over `REPEATS` spans, each as long as episodes take to spread over their steps; the first is left out."""
    rates = []
    for _ in range(REPEATS + 1):
        began, num_steps = time.perf_counter(), 0
        while time.perf_counter() - began < SECONDS:
            num_steps += next(steps)
        rates.append(num_steps / (time.perf_counter() - began))
    return float(np.median(rates[1:]))
