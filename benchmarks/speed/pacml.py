"""The published PAC-ML benchmark: one look-ahead with nothing cached but the compiled code, whole episodes, decisions.

Needs the PipeDream profiles of the reference data (``MESHWRIGHT_REFERENCE`` or ``../shared/reference``).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.clusters import load_cluster
from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.benchmark import BenchmarkSettings, load_benchmark
from meshwright.envs.job_partitioning import JobPartitioningEnv
from meshwright.jobs import load_graph
from meshwright.simulation.pacml.heuristics import agent
from meshwright.simulation.pacml.lookahead import lookahead, problem
from meshwright.simulation.pacml.simulator import PlacedSplitJob, Simulator
from meshwright.simulation.pacml.switches import preset
from tests.oracles.pacml_environment import Environment
from tests.oracles.plain_lookahead import plain_lookahead

from .measure import BenchmarkFigure, median_s, told

GRAPHS = ("alexnet", "vgg16", "resnet18", "squeezenet1_0", "gnmt")
NUM_DECISIONS = 1000
NUM_EPISODES = 64
RULES = ("published, first-fit, best-fit", "published, first-fit, best-fit, all-blocks")
HEURISTICS = {"fixed": "fixed degree 8", "acceptable_jct": "acceptable_jct", "random": "random"}


def reference_folder() -> Path | None:
    """The folder of reference data, None where it is absent."""
    named = os.environ.get("MESHWRIGHT_REFERENCE")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "reference"
    return folder if (folder / "pipedream").is_dir() else None


def figures() -> list[BenchmarkFigure]:
    """Look-ahead of ResNet-18 at degree 16, episodes of 1,001 arrivals, decisions a second; each beside plain Python."""
    if reference_folder() is None:
        return []
    return [*_lookahead(), *_episodes(), *_batched(), *_steps()]


def episode_s(*, is_warm: bool) -> float:
    """Seconds of one episode of the published simulator, random policy; its table empty before, or filled."""
    warm = new_simulator()
    return median_s(lambda: _play(warm if is_warm else new_simulator()))


def env_steps_per_s(rules: str, num_steps: int) -> float:
    """``gymnasium.Env.step`` with full observations, random offered candidates, table warm."""
    env = JobPartitioningEnv(published(rules), graphs_dir=profiles())

    def steps() -> None:
        env.reset(seed=0)
        for draw in np.random.default_rng(0).random(num_steps):
            offered = np.flatnonzero(env.action_masks())
            env.step(int(offered[int(draw * len(offered))]))

    return num_steps / median_s(steps)


def profiles() -> Path:
    """The folder of PipeDream's profiles."""
    folder = reference_folder()
    assert folder is not None
    return folder / "pipedream"


def published(rules: str) -> BenchmarkSettings:
    """The published benchmark A with some placement rules."""
    return load_benchmark("preset:pacml-compat-A", changes=[f"scenario.placement_rules=[{rules}]"])


def new_simulator() -> Simulator:
    """The published simulator, nothing computed yet."""
    graphs = [load_graph(name, graphs_dir=profiles(), keep_input_ops=True) for name in GRAPHS]
    return Simulator(load_cluster("preset:ramp-4x4x2"), graphs, preset("pacml-compat"))


def _play(simulator: Simulator) -> None:
    environment, rng, random = Environment(simulator, "A"), np.random.default_rng(0), agent("random")
    environment.reset(seed=0)
    running = environment.episode
    assert running is not None
    while not running.is_over:
        running.decide(random(running, rng))


def _lookahead() -> list[BenchmarkFigure]:
    cluster, defects = load_cluster("preset:ramp-4x4x2"), preset("pacml-compat")
    graphs = [load_graph("resnet18", graphs_dir=profiles(), keep_input_ops=True)]

    def ahead() -> tuple[Simulator, PlacedSplitJob]:
        simulator = Simulator(cluster, graphs, defects)
        placed = simulator.place("resnet18", 16, np.ones(cluster.num_devices, np.bool_))
        assert placed is not None
        simulator.step(placed)
        return simulator, placed

    simulator, placed = ahead()
    given = problem(placed.split, placed.server, simulator.times(placed), defects)
    on = f"ResNet-18 at degree 16, {len(given.target):,} deps"
    return [
        BenchmarkFigure("PAC-ML: split, place, price and look ahead", median_s(ahead) * 1e3, "ms", on),
        BenchmarkFigure("PAC-ML: the look-ahead alone, compiled", median_s(lambda: lookahead(given)) * 1e3, "ms", on),
        BenchmarkFigure(
            "PAC-ML: the look-ahead alone, plain reference", median_s(lambda: plain_lookahead(given)) * 1e3, "ms", on
        ),
    ]


def _episodes() -> list[BenchmarkFigure]:
    on = "1,001 arrivals, random policy"
    plain_s = told("from benchmarks.speed.pacml import episode_s; print(episode_s(is_warm=False))", NUMBA_DISABLE_JIT="1")
    warm_s = episode_s(is_warm=True)
    return [
        BenchmarkFigure("PAC-ML: episode, empty table", episode_s(is_warm=False), "s", on),
        BenchmarkFigure("PAC-ML: episode, empty table, plain Python", plain_s, "s", on),
        BenchmarkFigure("PAC-ML: episode, warm table", warm_s, "s", on),
        BenchmarkFigure(
            "PAC-ML: simulator of one episode, random", NUM_DECISIONS / warm_s, "decisions/s", "one episode, warm table"
        ),
    ]


def _batched() -> list[BenchmarkFigure]:
    """Episodes side by side, without observations, by rules that look at the published mask and the deadline."""
    scenario = published("published").build(graphs_dir=profiles())
    batch = EpisodeBatch(scenario, NUM_EPISODES, observes=False)
    degree = np.array(scenario.candidate_degree)
    num_played = NUM_EPISODES * NUM_DECISIONS
    on = f"{NUM_EPISODES} episodes, warm table"

    def cold() -> None:
        with tempfile.TemporaryDirectory() as cache:
            fresh = published("published").build(graphs_dir=profiles(), cache=Path(cache))
            _side_by_side(EpisodeBatch(fresh, 1), degree, "random")

    found = [
        BenchmarkFigure("PAC-ML: batched dynamics, episode, empty table", median_s(cold), "s", "1,001 arrivals, step times too")
    ]
    for name, title in HEURISTICS.items():
        seconds = median_s(lambda name=name: _side_by_side(batch, degree, name))  # type: ignore[misc]
        found.append(BenchmarkFigure(f"PAC-ML: batched dynamics, {title}", num_played / seconds, "decisions/s", on))
    code = "from benchmarks.speed.pacml import plain_batched_per_s; print(plain_batched_per_s())"
    plain_per_s = told(code, NUMBA_DISABLE_JIT="1")
    return [*found, BenchmarkFigure("PAC-ML: batched dynamics, fixed degree 8, plain Python", plain_per_s, "decisions/s", on)]


def plain_batched_per_s(num_decisions: int = 10) -> float:
    """Decisions a second of the batched dynamics at fixed degree 8 where nothing is compiled."""
    scenario = published("published").build(graphs_dir=profiles())
    batch = EpisodeBatch(scenario, NUM_EPISODES, observes=False)
    degree = np.array(scenario.candidate_degree)
    seconds = median_s(lambda: _side_by_side(batch, degree, "fixed", num_decisions))
    return NUM_EPISODES * num_decisions / seconds


def _side_by_side(batch: EpisodeBatch, degree: NDArray[np.int64], rule: str, num_decisions: int = NUM_DECISIONS) -> None:
    for e in range(batch.num_episodes):
        batch.reset(e, np.random.default_rng(e))
    rng, episodes = np.random.default_rng(0), batch.episodes
    actions = np.full(batch.num_episodes, int(np.flatnonzero(degree == 8)[0]))
    sequential_s = episodes.num_steps * batch.scenario.problem.sequential_step_s[episodes.graph_id]
    wanted = np.ceil(sequential_s / episodes.allowed_s).T.copy() if rule == "acceptable_jct" else None
    for k in range(num_decisions):
        if rule != "fixed":
            num_free = (episodes.free_at_s <= episodes.now_s[:, None]).sum(axis=1)
            shown = (degree > 0) & (degree <= num_free[:, None])
            if wanted is None:
                actions = (rng.random(shown.shape) * shown).argmax(axis=1)
            else:  # the smallest degree that may do, the largest one shown where none does
                enough = shown & (degree >= wanted[k][:, None])
                actions = np.where(enough.any(axis=1), enough.argmax(axis=1), (shown * degree).argmax(axis=1))
        batch.step(actions)


def _steps() -> list[BenchmarkFigure]:
    """Steps through the environment, and the same where nothing is compiled."""
    found = []
    for rules in RULES:
        on = f"compat A, rules {rules}"
        found.append(BenchmarkFigure("PAC-ML: Env.step", env_steps_per_s(rules, NUM_DECISIONS), "steps/s", on))
    code = f"from benchmarks.speed.pacml import env_steps_per_s; print(env_steps_per_s({RULES[0]!r}, 100))"
    plain_per_s = told(code, NUMBA_DISABLE_JIT="1")
    return [*found, BenchmarkFigure("PAC-ML: Env.step, plain Python", plain_per_s, "steps/s", f"compat A, rules {RULES[0]}")]
