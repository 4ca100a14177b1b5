"""Rewards: what an agent is paid for each decision, as a weighted sum of named terms."""

from __future__ import annotations

from numba import njit
from pydantic import Field

from .. import settings
from ..simulation.dynamics import Episodes, Problem


class RewardSettings(settings.Settings):
    """Weights of the reward's terms.

    Attributes:
        accepted: paid for a job that is placed.
        blocked: paid for a job that is turned away, by choice or not (usually negative).
        slack: times the share of the allowed completion time that a placed job does not use.
        device_seconds: times the device-seconds of a placed job, counted in cluster-wide mean inter-arrival times
            (usually negative).
    """

    accepted: float = 1.0
    blocked: float = -1.0
    slack: float = 0.0
    device_seconds: float = Field(default=0.0)

    @property
    def weights(self) -> tuple[float, float, float, float]:
        """The weights in the order that `reward` reads."""
        return self.accepted, self.blocked, self.slack, self.device_seconds


@njit(cache=True)
def reward(
    problem: Problem, episodes: Episodes, e: int, candidate: int, weights: tuple[float, float, float, float], scale_s: float
) -> float:
    """The reward of taking ``candidate`` in episode ``e``, to be asked before the decision is carried out.

    Args:
        problem: the scenario's arrays.
        episodes: the state.
        e: episode.
        candidate: the choice.
        weights: accepted, blocked, slack, device-seconds.
        scale_s: device-seconds that count as one: devices times mean inter-arrival time.
    """
    if candidate == 0 or not episodes.can_place[e, candidate]:
        return weights[1]
    k = episodes.job[e]
    time_s = episodes.candidate_s[e, candidate]
    degree = problem.degrees[(candidate - 1) // len(problem.rules)]
    value: float = weights[0] + weights[3] * degree * time_s / scale_s
    if episodes.allowed_s[e, k] < 1e300:
        value += weights[2] * (1.0 - time_s / episodes.allowed_s[e, k])
    return value
