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
from meshwright.simulation.tasklets.instance import TaskletInstance

NUM_DEVICES, NUM_STAGES = 64, 8
GRADIENT_BYTES, ACTIVATION_BYTES = 0.4e9, 0.05e9
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
        arrange(network(0, is_spot=True), ArrangementRequest(0.2, solver=solver))
    rows = []
    for is_spot, kind in ((False, "uneven networks"), (True, "mixed spot fleets")):
        seeds = range(chosen.first_seed, chosen.first_seed + chosen.networks)
        drawn = track([network(seed, is_spot=is_spot) for seed in seeds], kind, console=console)
        found = np.array([_values_s(instance, chosen.budget_s) for instance in drawn])
        above = (found[:, : len(SOLVERS)] / found.min(axis=1, keepdims=True) - 1.0).T.tolist()
        rows.append([kind, *(_percent(interval(one)) for one in above), _percent(paired(above[0], above[-1]))])
    head = ["64 devices, 8 stages", *(f"{solver}, % above the best" for solver in SOLVERS), f"{CHAIN} against genetic, points"]
    output.table(console, f"{chosen.networks} networks each, {chosen.budget_s:g} s for each solver", head, rows)


def network(seed: int, *, is_spot: bool) -> TaskletInstance:
    """Three to eight regions of unequal size with links of any speed; of a spot fleet each device has a port of its own speed."""
    rng = np.random.default_rng(seed)
    num_regions = int(rng.integers(3, 9))
    region = np.sort(rng.choice(num_regions, size=NUM_DEVICES, p=rng.dirichlet(np.full(num_regions, 1.5))))
    place = rng.uniform(0.0, 1.0, (num_regions, 2))
    latency_s = 0.005 + 0.15 * np.linalg.norm(place[:, None] - place[None], axis=2)
    gbps = np.exp(rng.normal(np.log(0.6), 0.6, (num_regions, num_regions)))
    gbps_inside = np.exp(rng.normal(np.log(3.0), 0.7, num_regions))
    is_near = region[:, None] == region[None]
    between_s = np.where(is_near, 0.002, latency_s[region][:, region])
    between_gbps = np.where(is_near, gbps_inside[region][:, None], ((gbps + gbps.T) / 2)[region][:, region])
    if is_spot:
        port = np.exp(rng.normal(np.log(2.0), 0.8, NUM_DEVICES))
        between_gbps = np.minimum(between_gbps, np.minimum(port[:, None], port[None]))
    names = tuple(f"region-{one}" for one in region)
    return TaskletInstance(
        f"network-{seed}", names, between_s, between_gbps * 1e9 / 8, NUM_STAGES, GRADIENT_BYTES, ACTIVATION_BYTES
    )


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
