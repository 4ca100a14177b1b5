"""Playing an episode: one policy, one seed, one record."""

from __future__ import annotations

import numpy as np

from ..budget_clock import clock_s
from ..planners.policy import Policy, checked
from ..simulation.cluster.decision import decision
from ..simulation.cluster.records import EpisodeRecord
from ..simulation.cluster.scenario import Scenario
from .batch import EpisodeBatch


def play_episode(chooser: Policy, scenario: Scenario, seed: int, latency_s: list[float] | None = None) -> EpisodeRecord:
    """Play one episode; all randomness, also the policy's, follows from the seed.

    Args:
        chooser: the policy.
        scenario: what is played.
        seed: of the episode.
        latency_s: seconds that each decision took the policy are added to it.
    """
    observes = getattr(chooser, "observes", True)
    batch = EpisodeBatch(scenario, 1, observes=observes)
    batch.reset(0, np.random.default_rng(seed))
    chooser.reset(seed)
    while not batch.is_over[0]:
        observation = {key: value[0] for key, value in batch.observations.current().items()} if observes else {}
        current = decision(scenario, batch.episodes, 0)
        began = clock_s()
        choice = chooser.choose(current, observation)
        if latency_s is not None:
            latency_s.append(clock_s() - began)
        choice = checked(choice, chooser.name, scenario.problem.num_candidates)
        batch.step(np.array([choice], np.int64))
    return batch.record(0)
