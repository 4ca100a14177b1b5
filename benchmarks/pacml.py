"""The published PAC-ML benchmark: one look-ahead with nothing cached but the compiled code, and whole episodes.

Needs the PipeDream profiles of the reference data (``MESHWRIGHT_REFERENCE`` or ``../shared/reference``).
"""

from __future__ import annotations

import os
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
    ]
