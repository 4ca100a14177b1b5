"""Time the parts that have to be fast, each beside its plain counterpart in the same run.

Every figure is the median of five; compilation is paid before and reported apart. Writes ``benchmarks/out/bench.json``
and the same as a table, ``benchmarks/out/bench.md``. ``growth`` also draws how cost grows, into
``benchmarks/out/growth.svg``.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from .speed.measure import REPEATS, BenchmarkFigure, median_s

OUT = Path(__file__).resolve().parent / "out" / "bench.json"


def kernel() -> list[BenchmarkFigure]:
    """Scheduling of one step of a 10,000-task graph on 64 devices: compiled kernel against the plain reference."""
    from meshwright.clusters import load_cluster
    from meshwright.costs.network import RankNetwork
    from meshwright.costs.settings import CostSettings
    from meshwright.jobs import load_graph
    from meshwright.plans import uniform_splits
    from meshwright.simulation.step import kernel as compiled
    from meshwright.simulation.step.lowering import lower
    from tests.oracles import list_scheduling

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


def environment() -> list[BenchmarkFigure]:
    """Decisions per second of the environment, one episode and 256 side by side, random offered candidates."""
    from meshwright.envs.batch import EpisodeBatch
    from meshwright.envs.benchmark import load_benchmark
    from meshwright.envs.job_partitioning import JobPartitioningEnv

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

    from .speed.growth import memory, plain_environment

    batch = EpisodeBatch(scenario, 256)
    one_s, many_s = median_s(one_episode), median_s(many_episodes)
    return [
        BenchmarkFigure("environment, one episode", scenario.settings.num_jobs / one_s, "decisions/s", "quickstart"),
        BenchmarkFigure("environment, 256 episodes side by side", 256 * 100 / many_s, "decisions/s", "quickstart"),
        *plain_environment(),
        *memory(),
    ]


def vector() -> list[BenchmarkFigure]:
    """Environments by ``gymnasium.make_vec`` beside Gymnasium's own vectorisation."""
    from .speed.environments.vector import vector_figures

    return list(vector_figures())


def policy() -> list[BenchmarkFigure]:
    """Latency of one decision of the shipped network; PPO's speed end to end, and where its time goes."""
    from .speed.policy import policy_figures

    return policy_figures()


def learning() -> list[BenchmarkFigure]:
    """PPO end to end on three benchmarks, and where its time goes."""
    from .speed.policy import learning_figures

    return list(learning_figures())


def start_up() -> list[BenchmarkFigure]:
    """Seconds until the package is imported and until the command line has printed its help."""
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


def fair_sharing() -> list[BenchmarkFigure]:
    """An event of max-min fair sharing by the number of flows under way."""
    from .speed.fair_sharing import fair_sharing_events

    return fair_sharing_events()


def fleet() -> list[BenchmarkFigure]:
    """Jobs that wait in a queue and share links, compiled and plain."""
    from .speed.fleet import fleet_figures

    return fleet_figures()


def live() -> list[BenchmarkFigure]:
    """The state of a live cluster, kept in a ledger."""
    from .speed.live import live_figures

    return live_figures()


def service() -> list[BenchmarkFigure]:
    """Decisions over HTTP, one at a time, at 200 a second and in a burst."""
    from .speed.service import service_figures

    return service_figures()


def replay() -> list[BenchmarkFigure]:
    """A span of the past of a live cluster under other policies."""
    from .speed.replay import replay_figures

    return replay_figures()


def search() -> list[BenchmarkFigure]:
    """All layouts of a 175B model on 1,024 devices, and pruning beside pricing them all."""
    from .speed.search import search_figures

    return search_figures()


def pricing() -> list[BenchmarkFigure]:
    """The price of a layout and of a group, and the signatures of blocks."""
    from .speed.pricing import pricing_figures

    return pricing_figures()


def growth() -> list[BenchmarkFigure]:
    """How cost grows with tasks, devices, flows and episodes; drawn, and its exponents as figures."""
    from meshwright import files
    from meshwright.evaluation.plots.static import svg

    from .speed.growth import exponents, points
    from .speed.plots import growth_figure

    measured = list(points())
    files.write_text(OUT.with_name("growth.svg"), svg(growth_figure(measured)))
    files.write_json(OUT.with_name("growth.json"), [asdict(point) for point in measured])
    return exponents(measured)


SECTIONS = {
    "kernel": kernel,
    "fair-sharing": fair_sharing,
    "environment": environment,
    "vector": vector,
    "policy": policy,
    "learning": learning,
    "fleet": fleet,
    "live": live,
    "service": service,
    "replay": replay,
    "search": search,
    "pricing": pricing,
    "growth": growth,
    "start-up": start_up,
}


def main() -> None:
    """Run the sections that are named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="which sections to run; all by default")
    wanted = parser.parse_args().sections or list(SECTIONS)
    from meshwright import files

    console = Console(stderr=True)
    load_before = os.getloadavg()[0]
    figures = [figure for name in track(wanted, "measuring", console=console, transient=True) for figure in SECTIONS[name]()]
    machine = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
    }
    files.write_json(OUT, {"machine": machine, "repeats": REPEATS, "figures": [asdict(figure) for figure in figures]})
    table = _markdown(machine, figures)
    files.write_text(OUT.with_suffix(".md"), table)
    print(table, end="")
    console.print(f"written to {OUT} and {OUT.with_suffix('.md').name}")


def _markdown(machine: dict[str, Any], figures: Sequence[BenchmarkFigure]) -> str:
    told = f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}, {machine['system']}"
    load = f"load of one minute {machine['load_before']:.2f} before, {machine['load_after']:.2f} after"
    rows = [f"{told}; {load}; median of {REPEATS}", "", "| figure | value | unit | measured on |", "|---|---|---|---|"]
    rows += [f"| {figure.name} | {_shown(figure.value)} | {figure.unit} | {figure.on} |" for figure in figures]
    return "\n".join(rows) + "\n"


def _shown(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
