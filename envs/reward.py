"""Rewards: what an agent is paid for each decision, as a weighted sum of named terms."""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from .. import settings
from ..compiled import njit
from ..simulation.cluster.problem import Problem
from ..simulation.cluster.queue import can_wait
from ..simulation.cluster.state import Episodes

Weights = tuple[float, float, float, float, float]


class RewardSettings(settings.Settings):
    """Weights of the reward's terms.

    Attributes:
        accepted: paid for a job that is placed.
        blocked: paid for a job that is turned away, by choice or not (usually negative). A job that is put into the
            queue pays nothing then; if its deadline expires there, it pays at the decision before that.
        unfinished: paid in place of ``accepted`` and ``slack`` for a job that is predicted to run beyond the end of the
            episode. That is the arrival after the last one that is decided. None: the job pays as any other.
        slack: times the share of the allowed completion time that a placed job does not use.
        device_seconds: times the device-seconds of a placed job, counted in cluster-wide mean inter-arrival times
            (usually negative). Slack and device-seconds are those predicted, without interruptions.
    """

    accepted: float = 1.0
    blocked: float = -1.0
    unfinished: float | None = None
    slack: float = 0.0
    device_seconds: float = Field(default=0.0)

    @property
    def weights(self) -> Weights:
        """The weights in the order that `reward` reads."""
        unfinished = math.nan if self.unfinished is None else self.unfinished
        return self.accepted, self.blocked, self.slack, self.device_seconds, unfinished


@njit
def reward(problem: Problem, episodes: Episodes, e: int, candidate: int, weights: Weights, scale_s: float) -> float:
    """Return the reward of taking ``candidate`` in episode ``e``, to be asked before the decision is carried out.

    Args:
        problem: the scenario's arrays.
        episodes: the state.
        e: episode.
        candidate: the choice.
        weights: accepted, blocked, slack, device-seconds, unfinished (NaN: as accepted).
        scale_s: device-seconds that count as one: devices times mean inter-arrival time.
    """
    if candidate == 0 or not episodes.can_place[e, candidate]:
        return 0.0 if can_wait(problem, episodes, e) else weights[1]
    k = episodes.job[e]
    waited_s = episodes.now_s[e] - episodes.arrival_s[e, k]
    time_s = episodes.candidate_s[e, candidate]
    block = episodes.candidate_block[e, candidate]
    held = problem.start[block + 1] - problem.start[block]
    value: float = weights[0] + weights[3] * held * time_s / scale_s
    if not np.isnan(weights[4]) and episodes.now_s[e] + time_s > episodes.arrival_s[e, -1]:
        return value - weights[0] + weights[4]
    if episodes.allowed_s[e, k] < 1e300:
        value += weights[2] * (1.0 - (waited_s + time_s) / episodes.allowed_s[e, k])
    return value


@njit
def is_lost(problem: Problem, episodes: Episodes, e: int) -> bool:
    """Return whether the last reward of an episode that has just ended is lost, as published: nothing ended after the decision.

    Asked once the episode is over. Jobs that end at the very end of the episode are no event before it.
    """
    if not problem.last_reward_is_lost or episodes.job[e] < episodes.arrival_s.shape[1] - 1:
        return False
    last = episodes.arrival_s.shape[1] - 2
    for k in range(last + 1):
        if episodes.arrival_s[e, last] < episodes.finish_s[e, k] < episodes.arrival_s[e, last + 1]:
            return False
    return True
