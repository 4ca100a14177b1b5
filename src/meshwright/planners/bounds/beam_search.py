"""A clairvoyant reference: the best decisions that a beam search finds when all arrivals of an episode are known.

Unlike the linear programme it places jobs: each accepted job holds one block of the decision space. Its decisions can be
played in the environment, so a policy that sees the future could reach its figure. It is no bound: a wider beam may find
better decisions.

A partial episode is judged by the jobs accepted so far, minus the earnings that the held devices forgo. These are the mean
price of a device in the linear programme (`planners.bounds.linear_program`). They are charged for blocks, because a device
whose neighbours are held serves small jobs only. Small blocks weigh most: ``exp(-8 ranks / devices)``. This form and its
constants were chosen by eye on a few episodes of the published benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...simulation.cluster.queue import class_durations_s, limit_s
from ...simulation.cluster.records import EpisodeRecord, record
from ...simulation.cluster.state import Episodes
from .beam_kernel import search
from .known_episode import KnownEpisode
from .linear_program import bound

WIDTH = 1024
# Ranks of a block whose weight has fallen to 1/e, as a share of the cluster's devices.
REACH = 1 / 8


@dataclass(frozen=True, eq=False)
class Decisions:
    """The result of the search.

    Attributes:
        block: of each job, -1 where it is turned away, ``(k,)``.
        num_accepted: counted jobs accepted.
        blocking_rate: that the scenario counts for them.
    """

    block: NDArray[np.int64]
    num_accepted: int
    blocking_rate: float


def decide(episode: KnownEpisode, width: int = WIDTH) -> Decisions:
    """Search an episode.

    Args:
        episode: jobs that are known beforehand.
        width: partial episodes that are kept at a time; time and memory grow with it.
    """
    scenario = episode.scenario
    problem, space = scenario.problem, scenario.space
    price = float(bound(episode).price[episode.is_counted].mean())
    value_until = price * np.minimum(np.arange(len(episode.arrival_s) + 1), len(episode.graph_id))
    degrees = np.array(space.degrees, np.float64)
    share = np.exp(-degrees / (REACH * scenario.cluster.num_devices))
    weight = scenario.cluster.num_devices * share / share.sum() / np.bincount(space.degree, minlength=len(degrees))
    num = space.num_blocks
    block, num_accepted = search(
        width,
        (episode.arrival_s, episode.graph_id, episode.limit_s, episode.is_counted, episode.end_s, episode.class_s),
        (
            problem.degree[:num],
            problem.placement_class[:num],
            problem.neighbour_start[: num + 1],
            problem.neighbours[: problem.neighbour_start[num]],
        ),
        value_until,
        weight,
        problem.is_keyed_by_degree,
    )
    return Decisions(block, int(num_accepted), episode.blocking_rate(int(num_accepted)))


def replay(episode: KnownEpisode, block: NDArray[np.int64]) -> EpisodeRecord:
    """Play given blocks in the environment's own dynamics, which check each of them, and record what happens.

    Args:
        episode: the jobs.
        block: of each job, -1 to turn it away, ``(k,)``.

    Raises:
        ValueError: a block is not free, or the job cannot run on it in time.
    """
    scenario = episode.scenario
    episodes = scenario.new_episodes(1)
    scenario.reset(episodes, 0, episode.arrivals)
    for k, block_index in enumerate(block.tolist()):
        candidate = 0
        if block_index >= 0:
            offered = np.flatnonzero((episodes.candidate_block[0] == block_index) & episodes.can_place[0])
            candidate = int(offered[0]) if len(offered) else _offer(episode, episodes, block_index)
        if scenario.decide(episodes, 0, candidate) != (block_index >= 0):
            raise ValueError(f"job {k} cannot be placed on block {block_index}")
    return record(scenario, episodes, 0)


def _offer(episode: KnownEpisode, episodes: Episodes, block: int) -> int:
    """Make a block the last candidate of the current decision, where it is free and in time; that candidate's number."""
    problem, k = episode.scenario.problem, int(episodes.job[0])
    last = problem.num_candidates - 1
    time_s = class_durations_s(problem, episodes, 0, k)[problem.placement_class[block]]
    is_free = episodes.block_free_at_s[0, block] <= episodes.now_s[0]
    episodes.candidate_block[0, last] = block
    episodes.candidate_s[0, last] = time_s
    episodes.can_place[0, last] = is_free and time_s < np.inf and time_s <= limit_s(problem, episodes, 0, k)
    return last
