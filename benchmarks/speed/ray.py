"""Episodes on a local Ray and in as many processes; nothing where Ray is not installed."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from meshwright.envs.benchmark import load_benchmark
from meshwright.evaluation.cluster.episodes import Player
from meshwright.evaluation.workers import Workers, chosen_workers

from .measure import BenchmarkFigure

NUM_WORKERS, NUM_EPISODES, NUM_JOBS, NUM_ROUNDS = 2, 10, 1_200, 3
POLICY = "rollout(fixed-8)"


def ray_figures() -> list[BenchmarkFigure]:
    """Wall-clock seconds from the first episode's end to the last one's, and CPU seconds of all processes in that time."""
    if importlib.util.find_spec("ray") is None:
        print("Ray is not installed: its figures are left out; the extra meshwright[ray] brings it", file=sys.stderr)
        return []
    benchmark = load_benchmark("quickstart", changes=[f"scenario.num_jobs={NUM_JOBS}"])
    scenario = benchmark.build()
    tasks = [(POLICY, seed) for seed in range(NUM_EPISODES)]
    began = time.perf_counter()
    with chosen_workers(1, f"local:{NUM_WORKERS}") as on_nodes:
        start_s = time.perf_counter() - began
        rounds = [
            [
                _measured(partial(Player(benchmark, scenario, workers).play_all, tasks))
                for workers in (Workers(NUM_WORKERS), on_nodes)
            ]
            for _ in range(NUM_ROUNDS)
        ]
    in_processes, on_ray = np.median(rounds, axis=0)
    wall, cpu = np.median([[ray[i] / processes[i] for processes, ray in rounds] for i in (0, 1)], axis=1)
    on = f"quickstart, {NUM_JOBS:,} jobs, {POLICY}, {NUM_WORKERS} at a time; {NUM_ROUNDS} rounds of {NUM_EPISODES}, in turn"
    return [
        BenchmarkFigure("Ray: started on this machine", start_s, "s", f"{NUM_WORKERS} CPUs"),
        BenchmarkFigure("an episode, processes", in_processes[0], "s", on),
        BenchmarkFigure("an episode, Ray nodes", on_ray[0], "s", on),
        BenchmarkFigure("Ray nodes against processes", wall, "x", on),
        BenchmarkFigure("CPU of an episode, processes", in_processes[1], "s", on),
        BenchmarkFigure("CPU of an episode, Ray nodes with all that Ray runs", on_ray[1], "s", on),
        BenchmarkFigure("CPU, Ray nodes against processes", cpu, "x", on),
    ]


def _measured(play_all: Callable[..., object]) -> tuple[float, float]:
    """Wall-clock and CPU seconds of an episode, once every worker has played one."""
    found: list[tuple[float, float]] = []

    def look(done: int, of: int) -> None:
        if done in (NUM_WORKERS, of):
            found.append((time.perf_counter() * NUM_WORKERS, _cpu_s()))

    play_all(look)
    (wall_s, cpu_s), (end_wall_s, end_cpu_s) = found
    num = NUM_EPISODES - NUM_WORKERS
    return (end_wall_s - wall_s) / num, (end_cpu_s - cpu_s) / num


def _cpu_s() -> float:
    """CPU seconds of this process and all below it, those that have ended included."""
    ticks, below = {}, defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        pid = int(path.parent.name)
        below[int(words[1])].append(pid)
        ticks[pid] = sum(map(int, words[11:15]))
    total, todo = 0, [os.getpid()]
    while todo:
        pid = todo.pop()
        total += ticks.get(pid, 0)
        todo += below[pid]
    return total / os.sysconf("SC_CLK_TCK")
