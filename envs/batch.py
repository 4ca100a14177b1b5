"""Many episodes stepped side by side by compiled functions; every environment in this project is a view on it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compiled import njit
from ..errors import PolicyError
from ..jobs.arrivals import Arrivals
from ..simulation import dynamics
from ..simulation.records import EpisodeRecord, record
from ..simulation.scenario import Scenario
from .observation import ObservationArrays, Observer, observe
from .reward import RewardSettings, reward


class EpisodeBatch:
    """``e`` episodes of one scenario with their observations, each with its own random generator.

    Attributes:
        scenario: cluster, workload and rules.
        num_episodes: ``e``.
        observations: the current observation of each episode, arrays with a leading ``e``; they change in place.
    """

    def __init__(self, scenario: Scenario, num_episodes: int, rewards: RewardSettings | None = None) -> None:
        self.scenario = scenario
        self.num_episodes = num_episodes
        self.observer = Observer(scenario)
        self.observations: ObservationArrays = self.observer.arrays(num_episodes)
        self._weights = (rewards or RewardSettings()).weights
        self._scale_s = scenario.cluster.num_devices * scenario.workload.mean_interarrival_s
        self._episodes = scenario.new_episodes(num_episodes)
        self._episodes.job[:] = scenario.settings.num_jobs  # over, until they begin
        self._layout = self.observer.layout
        self._all = np.ones(num_episodes, np.bool_)

    @property
    def episodes(self) -> dynamics.Episodes:
        """The state arrays."""
        return self._episodes

    def begin(self, e: int, rng: np.random.Generator) -> None:
        """Draw the jobs of episode ``e``, and what interrupts them, from ``rng`` and show the first one."""
        arrivals = self.scenario.workload.sample(rng, self.scenario.settings.num_jobs + 1)
        self.begin_with(e, arrivals, int(rng.integers(2**63)) if self.scenario.problem.interruptions.is_on else 0)

    def begin_with(self, e: int, arrivals: Arrivals, seed: int = 0) -> None:
        """Start episode ``e`` with given jobs, one more than it decides, and the seed of what interrupts them."""
        self.scenario.begin(self._episodes, e, arrivals, seed)
        observe(self.scenario.problem, self._episodes, e, self._layout, self.observations)

    def step(
        self, actions: NDArray[np.int64], only: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Take one candidate in every episode.

        Args:
            actions: candidate per episode, ``(e,)``. A candidate that cannot be placed rejects the job.
            only: which episodes to step, ``(e,)``; the others stay as they are and are paid nothing. All by default.

        Returns:
            Rewards ``(e,)`` and which episodes are over ``(e,)``.

        Raises:
            PolicyError: an action is no candidate, or an episode is over or has not begun.
        """
        given = np.asarray(actions)
        num = self.scenario.problem.num_candidates
        is_whole = given.dtype.kind in "iu" and given.shape == (self.num_episodes,)
        if not is_whole or given.min() < 0 or given.max() >= num:
            raise PolicyError(
                f"an action is a candidate 0..{num - 1} for each of {self.num_episodes} episodes", value=given.tolist()
            )
        actions = given.astype(np.int64)
        if self.is_over.any() if only is None else self.is_over[only].any():
            raise PolicyError("the episode is over or has not begun; reset it first")
        rewards = np.zeros(self.num_episodes, np.float32)
        is_over = np.empty(self.num_episodes, np.bool_)
        _step(
            self.scenario.problem,
            self._episodes,
            actions,
            self._all if only is None else only,
            self._layout,
            self._weights,
            self._scale_s,
            self.observations,
            rewards,
            is_over,
        )
        return rewards, is_over

    @property
    def is_over(self) -> NDArray[np.bool_]:
        """Which episodes are over, or have not begun, ``(e,)``."""
        over: NDArray[np.bool_] = self._episodes.job >= self.scenario.settings.num_jobs
        return over

    def record(self, e: int) -> EpisodeRecord:
        """What happened in episode ``e`` so far."""
        return record(self.scenario, self._episodes, e)

    def state(self) -> dict[str, Any]:
        """Copies of all arrays; with the generators they make a checkpoint."""
        return {key: value.copy() for key, value in self._episodes._asdict().items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state of the same scenario and number of episodes."""
        for key, value in self._episodes._asdict().items():
            value[...] = state[key]
        for e in range(self.num_episodes):
            observe(self.scenario.problem, self._episodes, e, self._layout, self.observations)


@njit
def _step(problem, episodes, actions, is_stepped, layout, weights, scale_s, observations, rewards, is_over):  # type: ignore[no-untyped-def]
    for e in range(len(actions)):
        is_over[e] = episodes.job[e] >= episodes.arrival_s.shape[1] - 1
        if not is_stepped[e]:
            continue
        paid = reward(problem, episodes, e, actions[e], weights, scale_s)
        dynamics.decide(problem, episodes, e, actions[e])
        rewards[e] = paid + weights[1] * episodes.num_expired[e]
        is_over[e] = episodes.job[e] >= episodes.arrival_s.shape[1] - 1
        observe(problem, episodes, e, layout, observations)
