"""Playing many episodes of a fleet, in one process or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ...budget_clock import clock_s
from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.benchmark import FleetBenchmark
from ...envs.fleet.fleet import Fleet
from ...envs.fleet.record import FleetRecord
from ...simulation.fleet.timeline import FleetTimeline, watch
from ..workers import CarriedPolicies, Workers
from .policies import FleetPlayer, carried_file, fleet_player

SEEDS_AT_A_TIME = 5
"""Episodes that a policy plays side by side; the same in one process as in many, so that results are the same too."""

Task = tuple[str, tuple[int, ...]]
Played = tuple[list[FleetRecord], int, float]


@dataclass(frozen=True)
class FleetEpisodes:
    """Plays episodes of one benchmark.

    Attributes:
        benchmark: what is played.
        fleet: built from it.
        workers: who plays them; the records are the same whoever does.
        decisions: number of decisions and the seconds that they took, by policy; they grow as episodes are played.
    """

    benchmark: FleetBenchmark
    fleet: Fleet
    workers: Workers = field(default_factory=Workers)
    decisions: dict[str, tuple[int, float]] = field(default_factory=dict, compare=False)

    def play_all(
        self, specs: Sequence[str], seeds: Sequence[int], progress: Callable[[int, int], None] | None = None
    ) -> dict[str, list[FleetRecord]]:
        """The records of each policy in the order of the seeds.

        Args:
            specs: policies by their spelling (see `evaluation.fleet.policies`).
            seeds: of the episodes, the same for every policy.
            progress: called with the number of episodes played and that of all.

        Raises:
            MeshwrightError: a policy is unknown or does not fit.
        """
        chosen = list(dict.fromkeys(specs))
        tasks = [(spec, tuple(seeds[i : i + SEEDS_AT_A_TIME])) for spec in chosen for i in range(0, len(seeds), SEEDS_AT_A_TIME)]
        records: dict[str, list[FleetRecord]] = {spec: [] for spec in chosen}

        def keep(task: Task, played: Played) -> None:
            spec = task[0]
            records[spec] += played[0]
            count, spent_s = self.decisions.get(spec, (0, 0.0))
            self.decisions[spec] = count + played[1], spent_s + played[2]
            if progress is not None:
                progress(sum(map(len, records.values())), len(chosen) * len(seeds))

        policies = CarriedPolicies(partial(fleet_player, fleet=self.fleet), carried_file, chosen)
        self.workers.do(partial(_play, self.fleet, policies), tasks, keep)
        return records


def _play(fleet: Fleet, policies: CarriedPolicies[FleetPlayer], task: Task) -> Played:
    return play_episodes(policies[task[0]], fleet, task[1])


def play_episodes(player: FleetPlayer, fleet: Fleet, seeds: Sequence[int]) -> Played:
    """The records of some episodes, the number of decisions and the seconds that they took, the world's own part included."""
    batch = FleetBatch(player.plays_on(fleet), len(seeds), observes=player.observes)
    for e, seed in enumerate(seeds):
        batch.reset(e, np.random.default_rng(seed))
    began = clock_s()
    count = player.play(batch, seeds)
    return [FleetRecord.of(batch.state, e) for e in range(len(seeds))], count, clock_s() - began


@dataclass(frozen=True, eq=False)
class WatchedEpisode:
    """One episode of one policy, looked at between all events.

    Attributes:
        policy: its name in tables.
        record: what became of each job.
        timeline: queue, devices and links over time, and who slowed whom.
    """

    policy: str
    record: FleetRecord
    timeline: FleetTimeline


def watch_episode(policy: str, player: FleetPlayer, fleet: Fleet, seed: int) -> WatchedEpisode:
    """Play the episode of a seed and look at it; a rule does in it what it did in `play_episodes`."""
    fleet = player.plays_on(fleet)
    batch = FleetBatch(fleet, 1, observes=player.observes)
    batch.reset(0, np.random.default_rng(seed))
    timeline = watch(fleet.problem, batch.state, player.chooser(batch, seed))
    return WatchedEpisode(policy, FleetRecord.of(batch.state, 0), timeline)
