"""Rewards: what an agent is paid for each decision, as a weighted sum of named terms."""

from __future__ import annotations

from pydantic import Field

from .. import settings
from ..compiled import njit
from ..simulation.dynamics import Episodes, Problem
from ..simulation.waiting import can_wait


class RewardSettings(settings.Settings):
    """Weights of the reward's terms.

    Attributes:
        accepted: paid for a job that is placed.
        blocked: paid for a job that is turned away, by choice or not (usually negative). A job that is put into the
            queue pays nothing then; if its deadline expires there, it pays at the decision before that.
        slack: times the share of the allowed completion time that a placed job does not use.
        device_seconds: times the device-seconds of a placed job, counted in cluster-wide mean inter-arrival times
            (usually negative). Slack and device-seconds are those predicted, without interruptions.
    """

    accepted: float = 1.0
    blocked: float = -1.0
    slack: float = 0.0
    device_seconds: float = Field(default=0.0)

    @property
    def weights(self) -> tuple[float, float, float, float]:
        """The weights in the order that `reward` reads."""
        return self.accepted, self.blocked, self.slack, self.device_seconds


@njit
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
        return 0.0 if can_wait(problem, episodes, e) else weights[1]
    k = episodes.job[e]
    waited_s = episodes.now_s[e] - episodes.arrival_s[e, k]
    time_s = episodes.candidate_s[e, candidate]
    degree = problem.degrees[(candidate - 1) // len(problem.rules)]
    value: float = weights[0] + weights[3] * degree * time_s / scale_s
    if episodes.allowed_s[e, k] < 1e300:
        value += weights[2] * (1.0 - (waited_s + time_s) / episodes.allowed_s[e, k])
    return value
