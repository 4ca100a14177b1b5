"""Stages and replicas on distant devices, on networks that nobody tuned on: the default search against the published genetic one.

``python -m benchmarks.tasklets`` draws uneven networks and mixed fleets of spot devices, groups their devices into stages, and tells
how far each planner is from the best grouping known. Times are seconds of a core.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from rich.console import Console
from rich.progress import track

from meshwright.cli import output
from meshwright.evaluation.statistics import interval, paired
from meshwright.planners.tasklets.annealing import anneal_tasklets
from meshwright.planners.tasklets.genetic import genetic
from meshwright.planners.tasklets.request import TaskletRequest
from meshwright.simulation.tasklets.instance import TaskletInstance

NUM_DEVICES, NUM_STAGES = 64, 8
GRADIENT_BYTES, ACTIVATION_BYTES = 0.4e9, 0.05e9
SHORT, LONG = 40_000, 400_000
"""Moves of the annealing that is judged, and of that from which the best known comes."""
GENETIC = 5_000
"""Groupings that the genetic search values."""


def main() -> None:
    """Draw, group, tell."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tasklets", description=__doc__)
    parser.add_argument("--networks", type=int, default=10, help="networks of each kind")
    parser.add_argument("--first-seed", type=int, default=100)
    chosen = parser.parse_args()
    console = Console()
    warm = network(0, is_spot=True)
    anneal_tasklets(warm, TaskletRequest(), num_steps=10), genetic(warm, TaskletRequest(num_evaluations=10))
    rows = []
    for is_spot in (False, True):
        seeds = range(chosen.first_seed, chosen.first_seed + chosen.networks)
        kind = "mixed spot fleets" if is_spot else "uneven networks"
        found = np.array([_values(network(seed, is_spot=is_spot)) for seed in track(seeds, kind, console=console)])
        best_s = found[:, :3].min(axis=1)
        annealed, bred = found[:, 0] / best_s, found[:, 1] / best_s
        shares = [_share(interval((values - 1).tolist())) for values in (annealed, bred)]
        times = [f"{seconds:.1f}" for seconds in found[:, 3:].mean(axis=0)]
        rows.append([kind, shares[0], times[0], shares[1], times[1], _share(paired(annealed.tolist(), bred.tolist()))])
    head = ["networks", "annealing, % above the best", "CPU s", "genetic, % above", "CPU s", "difference, points"]
    output.table(console, f"{NUM_DEVICES} devices, {NUM_STAGES} stages, {chosen.networks} networks each", head, rows)


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
    return TaskletInstance(f"network-{seed}", names, between_s, between_gbps * 1e9 / 8, NUM_STAGES, GRADIENT_BYTES, ACTIVATION_BYTES)


def _values(instance: TaskletInstance) -> list[float]:
    """Seconds by the judged annealing, the genetic search and the long annealing, then the CPU seconds of the first two."""
    began = time.process_time()
    short_s = anneal_tasklets(instance, TaskletRequest(seed=0), num_steps=SHORT).value_s
    annealed = time.process_time()
    bred_s = genetic(instance, TaskletRequest(seed=0, num_evaluations=GENETIC)).value_s
    bred = time.process_time()
    long_s = anneal_tasklets(instance, TaskletRequest(seed=1), num_steps=LONG).value_s
    return [short_s, bred_s, long_s, annealed - began, bred - annealed]


def _share(found: object) -> str:
    told = dict(found)  # type: ignore[call-overload]
    return f"{100 * told['mean']:.1f} [{100 * told['low']:.1f}, {100 * told['high']:.1f}]"


if __name__ == "__main__":
    main()
