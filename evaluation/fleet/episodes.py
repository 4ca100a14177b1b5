"""Episodes of a fleet, as `evaluation.playing` plays them, and one that is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ...budget_clock import clock_s
from ...envs.fleet.batch import FleetBatch
from ...envs.fleet.fleet import Fleet
from ...envs.fleet.record import FleetRecord
from ...simulation.fleet.timeline import FleetTimeline, watch
from ..playing import PlayedEpisodes
from ..workers import CarriedPolicies
from .policies import FleetPlayer, carried_file, fleet_player

SEEDS_AT_A_TIME = 5
"""Episodes that a policy plays side by side."""


def carried(specs: Sequence[str], fleet: Fleet) -> CarriedPolicies[FleetPlayer]:
    """Return the policies by their spelling (see `evaluation.fleet.policies`)."""
    return CarriedPolicies(partial(fleet_player, fleet=fleet), carried_file, specs)


def play_episodes(fleet: Fleet, player: FleetPlayer, seeds: Sequence[int]) -> PlayedEpisodes:
    """Return the records of some episodes, and the seconds that all decisions took, the world's own part included."""
    batch = FleetBatch.begun(player.plays_on(fleet), seeds, observes=player.observes)
    began = clock_s()
    count = player.play(batch, seeds)
    return PlayedEpisodes([FleetRecord.from_state(batch.state, e) for e in range(len(seeds))], [clock_s() - began], count)


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
    batch = FleetBatch.begun(fleet, [seed], observes=player.observes)
    timeline = watch(fleet.problem, batch.state, player.chooser(batch, seed))
    return WatchedEpisode(policy, FleetRecord.from_state(batch.state, 0), timeline)
