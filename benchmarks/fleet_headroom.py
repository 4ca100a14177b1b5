"""Whether single decisions of a policy of searched weights can be bettered: what is left for PPO to find on a fleet.

At decisions of training episodes up to 24 actions are tried in the same sampled futures, in which the weights decide all that
follows. The action that is best in half of the futures is valued in the other half, against the policy's own. The gradient of a
policy is the expected advantage of its actions (Sutton et al., "Policy gradient methods for reinforcement learning with function
approximation", 1999): where none has any, PPO has nothing to climb.

    python -m benchmarks.fleet_headroom shipped:llm-anywhere --benchmark preset:rail-256-busy
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from numpy.typing import NDArray

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.envs.fleet.fleet import Fleet, Jobs
from meshwright.evaluation.statistics import interval
from meshwright.jobs.seeds import FIRST_TRAINING_SEED
from meshwright.models.fleet.saved import SavedFleetNetwork
from meshwright.models.policy_files import policy_path
from meshwright.planners.fleet.rollout import MOST_TRIALS, actions_to_try
from meshwright.planners.fleet.rules import fleet_rule
from meshwright.simulation.fleet import dynamics
from meshwright.simulation.fleet.state import Total
from meshwright.training.fleet.weight_search import WeightsToSearch, prices_of, scores_of

LENGTH = 30
"""Arrivals of a future, which is played until all of them have left."""
MOST_DECISIONS = 20 * LENGTH
TRIED_LIKE = {"mean_completion_s": "sjf:priced-2", "blocking_rate": "edf:marginal-gain+backfill"}
"""Rule by which each waiting job would start; its other degrees are tried too."""


class Headroom:
    """Tries other actions than a policy's in sampled futures.

    Args:
        fleet: that is played.
        searched: how its weights play.
        weights: of the policy.
        num_futures: of each decision, even.
    """

    def __init__(self, fleet: Fleet, searched: WeightsToSearch, weights: NDArray[np.float64], num_futures: int) -> None:
        self._fleet, self._searched, self._weights, self._num_futures = fleet, searched, weights, num_futures
        self._rule = fleet_rule(TRIED_LIKE[fleet.settings.objective], fleet.problem, fleet.work_device_s)
        self._trial, self._actions = FleetBatch(fleet, 1, observes=False), np.empty(MOST_TRIALS, np.int64)
        self._column = [Total.IN_SYSTEM_S] if fleet.settings.objective == "mean_completion_s" else [Total.BLOCKED, Total.LATE]

    def gain(self, batch: FleetBatch, rng: np.random.Generator) -> float:
        """Return what the best other action of half of the futures saves in the other half, the mean of both halves.

        In seconds of jobs in the system, or in jobs that miss their deadline; below 0: it costs more than the policy's own.
        """
        count = actions_to_try(self._fleet.problem, batch.state, 0, self._rule, self._actions)
        costs = np.zeros((1 + count, self._num_futures))
        for future in range(self._num_futures):
            jobs = self._fleet.sample(rng)
            first_s = float(batch.state.now_s[0] + rng.exponential(self._fleet.mean_interarrival_s))
            for number, action in enumerate((None, *self._actions[:count].tolist())):
                costs[number, future] = self._cost(batch, jobs, first_s, action)
        half, found = self._num_futures // 2, 0.0
        for chosen, valued in ((costs[:, :half], costs[:, half:]), (costs[:, half:], costs[:, :half])):
            found += 0.5 * float((valued[0] - valued[chosen.mean(axis=1).argmin()]).mean())
        return found

    def _cost(self, batch: FleetBatch, jobs: Jobs, first_s: float, action: int | None) -> float:
        state, now = self._trial.state, int(batch.state.num_arrived[0])
        for own, values in zip(state, batch.state, strict=True):
            own[...] = values
        for name in ("arrival_s", "job_type", "requested", "num_steps", "deadline_s"):
            shift_s = first_s if name in ("arrival_s", "deadline_s") else 0
            getattr(state, name)[0, now : now + LENGTH] = getattr(jobs, name)[:LENGTH] + shift_s
        state.arrival_s[0, now + LENGTH :] = np.inf
        if action is not None:
            dynamics.act(self._fleet.problem, state, 0, action)
        self._searched.play(self._trial, self._weights, MOST_DECISIONS)
        return float(state.totals[0, self._column].sum() - batch.state.totals[0, self._column].sum())


def main() -> None:
    """Print the gain of a decision and its interval as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", help="shipped:NAME or a run folder")
    parser.add_argument("--benchmark", required=True)
    parser.add_argument("--set", action="append", default=[], dest="changes")
    parser.add_argument("--decisions", type=int, default=1000)
    parser.add_argument("--futures", type=int, default=16)
    given = parser.parse_args()
    fleet = load_fleet_benchmark(given.benchmark, changes=given.changes).build()
    saved = SavedFleetNetwork.load(policy_path(given.policy, ".fleet.pt", "fleets"))
    weights = saved.searched_weights(given.policy)
    searched = prices_of(fleet, relative=saved.settings.relative) if weights.ndim == 2 else scores_of(fleet, "fifo")
    headroom, rng = Headroom(fleet, searched, weights, given.futures), np.random.default_rng(FIRST_TRAINING_SEED)
    batch, gains = FleetBatch(fleet, 1, observes=False), list[float]()
    while len(gains) < given.decisions:
        batch.reset(0, rng)
        while not batch.state.is_over[0] and len(gains) < given.decisions:
            is_inside = LENGTH <= batch.state.num_arrived[0] <= fleet.settings.num_jobs - LENGTH
            if is_inside and rng.random() < 0.1:
                gains.append(headroom.gain(batch, rng))
            searched.play(batch, weights, 1)
    print(json.dumps({"gain": interval(gains), "decisions": len(gains)}))


if __name__ == "__main__":
    main()
