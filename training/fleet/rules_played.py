"""Whole validation episodes of a fleet, played by rules or by a network that learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.fleet import Fleet
from ...envs.fleet.objective import objective_value
from ...errors import NothingToLearnError
from ...jobs.seeds import FIRST_VALIDATION_SEED
from ...planners.fleet.rules import fleet_rule
from .imitation import choose_all
from .settings import FleetTrainSettings

Picks = Callable[[FleetBatch], Any]


def play_all(fleet: Fleet, pick: Picks, seeds: Sequence[int]) -> FleetBatch:
    """Play an episode for each seed to its end."""
    batch = FleetBatch.begun(fleet, seeds)
    while not batch.state.is_over.all():
        batch.step(pick(batch))
    return batch


def validation_seeds_of(chosen: FleetTrainSettings) -> range:
    """Return the seeds of the validation episodes."""
    return range(FIRST_VALIDATION_SEED, FIRST_VALIDATION_SEED + chosen.num_validation_seeds)


def mean_objective(fleet: Fleet, batch: FleetBatch) -> float:
    """Return the mean objective of a batch whose episodes are over."""
    return float(np.mean([objective_value(fleet.settings, batch.state, e) for e in range(batch.num_episodes)]))


def _rule(fleet: Fleet, name: str) -> Picks:
    rule = fleet_rule(name, fleet.problem, fleet.work_device_s)

    def pick(batch: FleetBatch) -> Any:
        out = np.zeros(batch.num_episodes, np.int64)
        choose_all(fleet.problem, batch.state, rule, out, 0, 1)
        return out

    return pick


def check_something_to_learn(chosen: FleetTrainSettings, fleet: Fleet) -> None:
    """Refuse a benchmark on which whatever is done comes to the same.

    Raises:
        NothingToLearnError: rules that differ most do equally well in every validation episode.
    """
    seeds = validation_seeds_of(chosen)
    found = set()
    for other in ("fifo", "sjf+backfill", "fastest-feasible", "least-device-seconds"):
        played = play_all(fleet, _rule(fleet, other), seeds)
        found.add(tuple(objective_value(fleet.settings, played.state, e) for e in range(len(seeds))))
    if len(found) == 1:
        problem = f"all rules reach the same {fleet.settings.objective} in every validation episode: there is nothing to learn"
        raise NothingToLearnError(problem, field="fleet.objective", value=fleet.settings.objective)
