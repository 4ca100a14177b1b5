"""Many episodes stepped side by side by compiled functions; every environment in this project is a view on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ..compiled import for_types_of, njit
from ..errors import PolicyError
from ..jobs.arrivals import Arrivals
from ..simulation.cluster import dynamics
from ..simulation.cluster.problem import Problem
from ..simulation.cluster.records import EpisodeRecord, record
from ..simulation.cluster.scenario import Scenario
from ..simulation.cluster.state import OUTCOME_WORDS, Episodes, Outcome
from . import viewer
from .episodes import Advanced, BatchedEpisodes, Columns, Observations
from .observation import ObservationArrays, feature_parameters, new_observations, observe
from .reward import RewardSettings, is_lost, reward

# What becomes of a call of `_step`.
DONE, WANTING, NO_ACTION, OVER = 0, 1, 2, 3

_WORDS = np.array([OUTCOME_WORDS[outcome] for outcome in sorted(Outcome)], object)
_ACCEPTED = int(Outcome.ACCEPTED)


class EpisodeBatch(BatchedEpisodes):
    """``e`` episodes of one scenario with their observations, each with its own random generator.

    Attributes:
        scenario: cluster, workload and rules.
        num_episodes: ``e``.
        observations: the current observation of each episode, arrays with a leading ``e``; they change in place.
            Without ``observes``, for deciders that read no observation, they stay as they were made.
    """

    def __init__(
        self, scenario: Scenario, num_episodes: int, rewards: RewardSettings | None = None, *, observes: bool = True
    ) -> None:
        self.scenario = scenario
        self.num_episodes = num_episodes
        self.observations: ObservationArrays = new_observations(scenario, num_episodes)
        self._weights = (rewards or RewardSettings()).weights
        self._scale_s = scenario.cluster.num_devices * scenario.workload.mean_interarrival_s
        self._episodes = scenario.new_episodes(num_episodes)
        self._episodes.job[:] = scenario.settings.num_jobs  # over, until they begin
        self._shown, self._layout = self.observations.current(), feature_parameters(scenario)
        self._all, self._each = np.ones(num_episodes, np.bool_), np.arange(num_episodes)
        self._none = ~self._all
        self._decided = np.zeros(num_episodes, np.int64)
        self._observes = observes
        self._stepper: tuple[Problem, Callable[..., int]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return all but what is compiled for this process."""
        return {**self.__dict__, "_stepper": None}

    @property
    def episodes(self) -> Episodes:
        """The state arrays."""
        return self._episodes

    @property
    def other_spaces(self) -> dict[str, spaces.Space[Any]]:
        """See `BatchedEpisodes`: the number of a graph."""
        return {"graph_id": spaces.Discrete(len(self.scenario.workload.graphs))}

    @property
    def num_actions(self) -> int:
        """See `BatchedEpisodes`: candidates."""
        return self.scenario.problem.num_candidates

    @property
    def ignores_later_seeds(self) -> bool:  # type: ignore[override]
        """See `BatchedEpisodes`: as published, unless the benchmark turns this defect off."""
        return self.scenario.settings.defects.reset_ignores_seed

    def reset(self, e: int, rng: np.random.Generator, seed: int | None = None) -> None:
        """Draw the jobs of episode ``e``, and what interrupts them, from ``rng`` and show the first one."""
        arrivals = self.scenario.sample(rng, self.scenario.settings.num_jobs + 1)
        self.begin_with(e, arrivals, int(rng.integers(2**63)) if self.scenario.problem.interruptions.is_on else 0)

    def begin_with(self, e: int, arrivals: Arrivals, seed: int = 0, *, free_at_s: NDArray[np.float64] | None = None) -> None:
        """Start episode ``e`` with given jobs.

        Args:
            e: the episode.
            arrivals: one more than it decides.
            seed: of what interrupts them.
            free_at_s: until when others hold each device, in seconds from the begin, ``(n,)``; None: all are free.
        """
        self.scenario.reset(self._episodes, e, arrivals, seed)
        if free_at_s is not None:
            self.scenario.hold(self._episodes, e, free_at_s)
        if self._observes:
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
        values = np.asarray(actions)
        if values.dtype.kind not in "iu" or values.shape != (self.num_episodes,):
            raise self._no_action(values)
        rewards = np.zeros(self.num_episodes, np.float32)
        is_over = np.empty(self.num_episodes, np.bool_)
        stepped = self._all if only is None else np.ascontiguousarray(only, np.bool_)
        problem, taken = self.scenario.problem, values.astype(np.int64)
        result = self._layout, self._weights, self.observations, self._observes, rewards, is_over
        arguments = problem, self._episodes, taken, stepped, self._scale_s, *result
        if self._stepper is None or self._stepper[0] is not problem:
            self._stepper = problem, for_types_of(_step, *arguments)
        came = self._stepper[1](*arguments)
        if came == NO_ACTION:
            raise self._no_action(values)
        if came == OVER:
            raise PolicyError("the episode is over or has not begun; reset it first")
        if came == WANTING:
            wanting = self._episodes.needs_placement & stepped
            for e in np.flatnonzero(wanting).tolist():
                self.scenario.resolve_placements(self._episodes, e)
            _finish(self.scenario.problem, self._episodes, wanting, *result)
        return rewards, is_over

    def taken(self, actions: NDArray[Any]) -> tuple[NDArray[np.int64], None]:
        """See `BatchedEpisodes`; a candidate that is not offered rejects the job."""
        return actions, None

    def advance(self, actions: NDArray[np.int64]) -> Advanced:
        """See `BatchedEpisodes`: the cluster would continue, so that episodes are truncated."""
        self._decided = self._episodes.job.copy()
        rewards, is_over = self.step(actions, self._decided < self.scenario.settings.num_jobs)
        return rewards, self._none, is_over

    def shown(self) -> Observations:
        """See `BatchedEpisodes`."""
        return self._shown

    def masks(self) -> NDArray[np.bool_]:
        """See `BatchedEpisodes`: candidates that are offered."""
        return self.observations.action_mask > 0

    def step_infos(self) -> Columns:
        """See `BatchedEpisodes`: what became of the job, and how many expired in the queue."""
        settings, episodes = self.scenario.settings, self._episodes
        outcome = episodes.outcome[self._each, np.minimum(self._decided, settings.num_jobs - 1)]
        result = {"outcome": _WORDS[outcome], "accepted": outcome == _ACCEPTED}
        return result | {"num_expired": episodes.num_expired} if settings.queue_capacity > 0 else result

    def step_info(self, e: int) -> dict[str, Any]:
        """See `BatchedEpisodes`; without the time that arrays take."""
        outcome = int(self._episodes.outcome[e, self._decided[e]])
        result = {"outcome": _WORDS[outcome], "accepted": outcome == _ACCEPTED}
        return result | ({"num_expired": int(self._episodes.num_expired[e])} if self.scenario.settings.queue_capacity > 0 else {})

    def last_info(self, e: int) -> dict[str, Any]:
        """See `BatchedEpisodes`: counted jobs by outcome."""
        return {"episode_counts": self.record(e).counts(self.scenario.settings.counted)}

    def frame(self, e: int, mode: str) -> Any:
        """See `BatchedEpisodes`: the occupancy of the cluster, an image ``(height, width, 3)`` of uint8, or text."""
        return (viewer.rgb_array if mode == "rgb_array" else viewer.ansi)(self.scenario, self._episodes, e)

    def _no_action(self, values: NDArray[Any]) -> PolicyError:
        last = self.scenario.problem.num_candidates - 1
        expected = f"an action is a candidate 0..{last} for each of {self.num_episodes} episodes"
        return PolicyError(expected, value=values.tolist())

    @property
    def is_over(self) -> NDArray[np.bool_]:
        """Whether each episode is over or has not begun, ``(e,)``."""
        over: NDArray[np.bool_] = self._episodes.job >= self.scenario.settings.num_jobs
        return over

    def record(self, e: int) -> EpisodeRecord:
        """Return the record of episode ``e`` so far."""
        return record(self.scenario, self._episodes, e)

    def state(self) -> dict[str, Any]:
        """Return copies of all arrays; with the generators they make a checkpoint."""
        state = {key: value.copy() for key, value in self._episodes._asdict().items()}
        if self.scenario.placements is not None:
            state["placements"] = self.scenario.placements.keys()
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state of the same scenario and number of episodes."""
        for key, value in self._episodes._asdict().items():
            value[:] = state[key]
        if self.scenario.placements is not None:
            self._renumber(self.scenario.placements.adopt(state["placements"]))
        for e in range(self.num_episodes) if self._observes else ():
            observe(self.scenario.problem, self._episodes, e, self._layout, self.observations)

    def _renumber(self, numbers: NDArray[np.int64]) -> None:
        """Give placements of the published rule their numbers here; other blocks keep theirs."""
        num_blocks = self.scenario.problem.num_blocks
        for blocks in (self._episodes.block, self._episodes.candidate_block, self._episodes.fixed_block):
            is_placement = blocks >= num_blocks
            blocks[is_placement] = numbers[blocks[is_placement] - num_blocks]


@njit
def _step(problem, episodes, actions, is_stepped, scale_s, layout, weights, observations, observes, rewards, is_over):  # type: ignore[no-untyped-def]
    """Step the episodes; `WANTING` where any waits for a placement to be found, and is not finished yet.

    Where an action is no candidate or an episode is over, `NO_ACTION` or `OVER`, and nothing has changed.
    """
    for e in range(len(actions)):
        if actions[e] < 0 or actions[e] >= len(problem.candidate_rule):
            return NO_ACTION
    for e in range(len(actions)):
        if is_stepped[e] and episodes.job[e] >= episodes.arrival_s.shape[1] - 1:
            return OVER
    came = DONE
    for e in range(len(actions)):
        is_over[e] = episodes.job[e] >= episodes.arrival_s.shape[1] - 1
        if not is_stepped[e]:
            continue
        rewards[e] = reward(problem, episodes, e, actions[e], weights, scale_s)
        dynamics.decide(problem, episodes, e, actions[e])
        if episodes.needs_placement[e]:
            came = WANTING
        else:
            _finish_one(problem, episodes, e, layout, weights, observations, observes, rewards, is_over)
    return came


@njit
def _finish(problem, episodes, is_left, layout, weights, observations, observes, rewards, is_over):  # type: ignore[no-untyped-def]
    for e in np.flatnonzero(is_left):
        _finish_one(problem, episodes, e, layout, weights, observations, observes, rewards, is_over)


@njit
def _finish_one(problem, episodes, e, layout, weights, observations, observes, rewards, is_over):  # type: ignore[no-untyped-def]
    """Add the reward of jobs that expired, mark an episode that is over, and write the next observation."""
    rewards[e] += weights[1] * episodes.num_expired[e]
    if is_lost(problem, episodes, e):
        rewards[e] = weights[1]
    is_over[e] = episodes.job[e] >= episodes.arrival_s.shape[1] - 1
    if observes:
        observe(problem, episodes, e, layout, observations)
