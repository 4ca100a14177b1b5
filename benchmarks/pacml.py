"""The published PAC-ML benchmark: one look-ahead with nothing cached but the compiled code, and whole episodes.

Needs the PipeDream profiles of the reference data (``MESHWRIGHT_REFERENCE`` or ``../shared/reference``).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from . import measure

GRAPHS = ("alexnet", "vgg16", "resnet18", "squeezenet1_0", "gnmt")


def reference_folder() -> Path | None:
    """The folder of reference data, None where it is absent."""
    named = os.environ.get("MESHWRIGHT_REFERENCE")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "reference"
    return folder if (folder / "pipedream").is_dir() else None


def figures() -> list[measure.Figure]:
    """Look-ahead of ResNet-18 at degree 16, and episodes of 1,001 arrivals by a random policy, cold and warm."""
    folder = reference_folder()
    if folder is None:
        return []
    from meshwright.clusters import load_cluster
    from meshwright.jobs import load_graph
    from meshwright.simulation.pacml.heuristics import agent
    from meshwright.simulation.pacml.lookahead import lookahead, problem
    from meshwright.simulation.pacml.plain_lookahead import plain_lookahead
    from meshwright.simulation.pacml.simulator import Simulator
    from meshwright.simulation.pacml.switches import preset

    cluster, defects = load_cluster("preset:ramp-4x4x2"), preset("pacml-compat")
    graphs = [load_graph(name, graphs_dir=folder / "pipedream") for name in GRAPHS]
    everything = np.ones(cluster.num_devices, np.bool_)

    def fresh() -> Any:
        return Simulator(cluster, graphs, defects)

    def cold_lookahead() -> None:
        simulator = fresh()
        simulator.step(simulator.place("resnet18", 16, everything))

    simulator = fresh()
    placed = simulator.place("resnet18", 16, everything)
    given = problem(placed.split, placed.server, simulator.times(placed), defects)
    kernel_s = measure.median_s(lambda: lookahead(given))
    plain_s = measure.median_s(lambda: plain_lookahead(given), repeats=1)
    random = agent("random")

    def episode(simulator: Any) -> None:
        from meshwright.simulation.pacml.environment import Environment

        environment, rng = Environment(simulator, "A"), np.random.default_rng(0)
        environment.reset(seed=0)
        running = environment.episode
        assert running is not None
        while not running.is_over:
            running.decide(random(running, rng))

    cold_s, warm_s = measure.median_s(lambda: episode(fresh())), measure.median_s(lambda: episode(simulator))
    on = f"ResNet-18 at degree 16, {len(given.target):,} deps"
    return [
        measure.Figure("PAC-ML: split, place, price and look ahead", measure.median_s(cold_lookahead) * 1e3, "ms", on),
        measure.Figure("PAC-ML: the look-ahead alone, compiled", kernel_s * 1e3, "ms", on),
        measure.Figure("PAC-ML: the look-ahead alone, plain reference", plain_s * 1e3, "ms", on),
        measure.Figure("PAC-ML: episode, empty table", cold_s, "s", "1,001 arrivals, random policy"),
        measure.Figure("PAC-ML: episode, warm table", warm_s, "s", "1,001 arrivals, random policy"),
        *_batched(folder, 1000 / warm_s),
    ]


def _batched(folder: Path, plain_per_s: float) -> list[measure.Figure]:
    """The same episodes through the batched dynamics and the environment, beside the plain simulator's decisions a second."""
    from meshwright.envs.batch import EpisodeBatch
    from meshwright.envs.benchmark import load_benchmark
    from meshwright.envs.job_partitioning import JobPartitioningEnv

    published = load_benchmark("preset:pacml-compat-A", changes=["scenario.placement_rules=[published]"])
    rng = np.random.default_rng(0)

    def play(batch: EpisodeBatch, num_decisions: int, *, fixed: bool) -> None:
        for e in range(batch.num_episodes):
            batch.begin(e, np.random.default_rng(e))
        degree = np.array(batch.scenario.candidate_degree)
        actions = np.full(batch.num_episodes, int(np.flatnonzero(degree == 8)[0]))
        for _ in range(num_decisions):
            if not fixed:
                num_free = (batch.episodes.free_at_s <= batch.episodes.now_s[:, None]).sum(axis=1)
                shown = (degree > 0) & (degree <= num_free[:, None])
                actions = (rng.random(shown.shape) * shown).argmax(axis=1)
            batch.step(actions)

    def cold_episode() -> None:
        with tempfile.TemporaryDirectory() as cache:
            scenario = published.build(graphs_dir=folder / "pipedream", cache=Path(cache))
            play(EpisodeBatch(scenario, 1), 1000, fixed=False)

    batch = EpisodeBatch(published.build(graphs_dir=folder / "pipedream"), 64, observes=False)
    cold_s = measure.median_s(cold_episode)
    fixed_s, random_s = (measure.median_s(lambda fixed=fixed: play(batch, 1000, fixed=fixed)) for fixed in (True, False))
    figures = [
        measure.Figure(
            "PAC-ML: batched dynamics, episode, empty table", cold_s, "s", "1,001 arrivals, random policy, step times too"
        ),
        measure.Figure("PAC-ML: batched dynamics, fixed degree 8", 64_000 / fixed_s, "decisions/s", "64 episodes, warm table"),
        measure.Figure("PAC-ML: batched dynamics, random", 64_000 / random_s, "decisions/s", "64 episodes, warm table"),
        measure.Figure("PAC-ML: plain simulator, random", plain_per_s, "decisions/s", "one episode, warm table"),
    ]
    for rules in ("[published, first-fit, best-fit]", "[published, first-fit, best-fit, all-blocks]"):
        chosen = load_benchmark("preset:pacml-compat-A", changes=[f"scenario.placement_rules={rules}"])
        env = JobPartitioningEnv(chosen, graphs_dir=folder / "pipedream")

        def steps(env: JobPartitioningEnv = env) -> None:
            env.reset(seed=0)
            for draw in np.random.default_rng(0).random(1000):
                offered = np.flatnonzero(env.action_masks())
                env.step(int(offered[int(draw * len(offered))]))

        figures.append(measure.Figure("PAC-ML: Env.step", 1000 / measure.median_s(steps), "steps/s", f"compat A, rules {rules}"))
    return figures
