"""Stages and replicas on distant devices, on networks that nobody tuned on: the default search against the published genetic one.

``python -m benchmarks.tasklets`` draws uneven networks and mixed fleets of spot devices, and groups their devices into stages
by each solver in the same budget. It tells how far each is from the best grouping known: of all of them, and of the default
solver with another seed and ten times the budget.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from rich.progress import track

from meshwright.cli import output
from meshwright.evaluation.statistics import Interval, interval, paired
from meshwright.planners.arrangement.arrange import CHAIN, ArrangementRequest, arrange
from meshwright.simulation.tasklets.generators import NetworkKind, draw_network
from meshwright.simulation.tasklets.instance import TaskletInstance

KINDS: dict[NetworkKind, str] = {"uneven": "uneven networks", "spot": "mixed spot fleets"}
SOLVERS = (CHAIN, "annealing", "genetic")
LONGER = 10


def main() -> None:
    """Draw, group, tell."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tasklets", description=__doc__)
    parser.add_argument("--networks", type=int, default=10, help="networks of each kind")
    parser.add_argument("--first-seed", type=int, default=100, help="of the networks")
    parser.add_argument("--budget-s", type=float, default=1.0, help="of each solver")
    chosen = parser.parse_args()
    console = Console()
    for solver in SOLVERS:  # their compiled code is loaded before any clock runs
        arrange(draw_network(0, "spot"), ArrangementRequest(0.2, solver=solver))
    rows = []
    for kind, told in KINDS.items():
        seeds = range(chosen.first_seed, chosen.first_seed + chosen.networks)
        drawn = track([draw_network(seed, kind) for seed in seeds], told, console=console)
        found = np.array([_values_s(instance, chosen.budget_s) for instance in drawn])
        above = (found[:, : len(SOLVERS)] / found.min(axis=1, keepdims=True) - 1.0).T.tolist()
        rows.append([told, *(_percent(interval(one)) for one in above), _percent(paired(above[0], above[-1]))])
    head = ["64 devices, 8 stages", *(f"{solver}, % above the best" for solver in SOLVERS), f"{CHAIN} against genetic, points"]
    output.table(console, f"{chosen.networks} networks each, {chosen.budget_s:g} s for each solver", head, rows)


def _values_s(instance: TaskletInstance, budget_s: float) -> list[float]:
    """Of each solver, and of the long search."""
    asked = [ArrangementRequest(budget_s, solver=solver) for solver in SOLVERS]
    return [arrange(instance, one).value_s for one in (*asked, ArrangementRequest(LONGER * budget_s, seed=1))]


def _percent(found: Interval | None) -> str:
    assert found is not None
    mean, low, high = (found[key] for key in ("mean", "low", "high"))
    ends = "" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{100 * mean:.1f}{ends}"


if __name__ == "__main__":
    main()
