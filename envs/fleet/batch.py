"""Many episodes of a fleet, stepped side by side by compiled functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ...compiled import njit
from ...errors import PolicyError
from ...simulation.fleet import dynamics
from ...simulation.fleet.state import FleetState
from ..episodes import Advanced, BatchedEpisodes, Columns, Observations
from .features import observed_links, with_links
from .fleet import Fleet, Jobs
from .menu_lines import fleet_text
from .observation import FleetObservations, new_observations, observe, observer
from .record import FleetRecord
from .reward import note_new, predicted_end_s, predicted_in_time, reward_weights, usual_s, usual_step_s


class FleetBatch(BatchedEpisodes):
    """``e`` episodes of one fleet, each with its own random generator.

    Attributes:
        fleet: what is played.
        num_episodes: ``e``.
        observations: of each episode, arrays with a leading ``e`` that change in place.
        state: what compiled code reads and writes.

    Without ``observes`` observations stay as they were made. Rewards are multiplied by ``reward_scale``.
    """

    def __init__(
        self,
        fleet: Fleet,
        num_episodes: int,
        *,
        observes: bool = True,
        reward_scale: float = 1.0,
    ) -> None:
        self.fleet = fleet
        self.num_episodes = num_episodes
        self.state: FleetState = fleet.new_state(num_episodes)
        self._observer = observer(fleet)
        self.observations: FleetObservations = new_observations(fleet, num_episodes)
        self._weights = reward_weights(fleet) * reward_scale
        self._usual_step_s = usual_step_s(fleet)
        self._observes = observes

    @classmethod
    def begun(cls, fleet: Fleet, seeds: Sequence[int], *, observes: bool = True) -> FleetBatch:
        """Return a batch with an episode of each seed at its first decision."""
        batch = cls(fleet, len(seeds), observes=observes)
        for e, seed in enumerate(seeds):
            batch.reset(e, np.random.default_rng(seed))
        return batch

    @property
    def other_spaces(self) -> dict[str, spaces.Space[Any]]:
        """See `BatchedEpisodes`: numbers of job types."""
        last = max(1, self.fleet.num_types - 1)
        types = {name: values for name, values in self.observations._asdict().items() if name.endswith("_type")}
        return {name: spaces.Box(0, last, values.shape[1:], np.int64) for name, values in types.items()}

    @property
    def num_actions(self) -> int:
        """See `BatchedEpisodes`."""
        return self.fleet.problem.num_actions

    @cached_property
    def _links(self) -> NDArray[np.float32] | None:
        return observed_links(self.fleet)

    def reset(self, e: int, rng: np.random.Generator, seed: int | None = None) -> None:
        """Draw the jobs of episode ``e``, and what fails, and go to its first decision."""
        jobs = self.fleet.sample(rng)
        self.begin_with(e, jobs, int(rng.integers(2**63)) if self.fleet.settings.has_failures else 0)

    def begin_with(self, e: int, jobs: Jobs, seed: int = 0) -> None:
        """Start episode ``e`` with given jobs and the seed of its failures."""
        self.state.seed[e] = seed
        for name in ("arrival_s", "job_type", "requested", "num_steps", "deadline_s"):
            getattr(self.state, name)[e] = getattr(jobs, name)
        _begin(self.fleet.problem, self.state, e, self._observer, self.observations, self._observes)

    def step(self, actions: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Carry out an action in every episode that is not over.

        Returns:
            Rewards ``(e,)`` and which episodes are over ``(e,)``.

        Raises:
            PolicyError: an action is not possible.
        """
        taken = np.asarray(actions)
        if taken.dtype.kind not in "iu" or taken.shape != (self.num_episodes,):
            raise PolicyError(f"one action for each of {self.num_episodes} episodes is wanted", value=str(actions))
        rewards = np.zeros(self.num_episodes, np.float32)
        wrong = _step(
            self.fleet.problem,
            self.state,
            taken.astype(np.int64),
            self._observer,
            self.observations,
            self._observes,
            self._weights,
            self._usual_step_s,
            rewards,
        )
        if wrong >= 0:
            raise PolicyError("this action is not possible now", value=int(taken[wrong]))
        return rewards, self.state.is_over.copy()

    def taken(self, actions: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """See `BatchedEpisodes`.

        Raises:
            PolicyError: also a number that no action has.
        """
        taken, was_possible = super().taken(actions)
        if ((actions < 0) | (actions >= self.num_actions)).any():
            raise PolicyError(f"actions are 0 to {self.num_actions - 1}", value=str(actions))
        return taken, was_possible

    def advance(self, actions: NDArray[np.int64]) -> Advanced:
        """See `BatchedEpisodes`."""
        rewards, is_over = self.step(actions)
        return rewards, is_over, np.zeros(self.num_episodes, np.bool_)

    def shown(self) -> Observations:
        """See `BatchedEpisodes`; with the links where the settings ask for them."""
        return with_links(self._links, self.observations._asdict())

    def masks(self) -> NDArray[np.bool_]:
        """See `BatchedEpisodes`."""
        return self.state.can_act

    def infos(self, which: Sequence[int]) -> Columns:
        """See `BatchedEpisodes`: the time, and jobs that wait and run."""
        return {name: getattr(self.state, name) for name in ("now_s", "num_waiting", "num_running")}

    def last_info(self, e: int) -> dict[str, Any]:
        """See `BatchedEpisodes`: counted jobs by what became of them."""
        return {"episode_counts": FleetRecord.from_state(self.state, e).counts(self.fleet.settings.counted)}

    def frame(self, e: int, mode: str) -> str:
        """See `BatchedEpisodes`: the cluster and its queue."""
        return fleet_text(self.fleet, self.state, e)

    def arrays(self) -> dict[str, Any]:
        """Return copies of all arrays; with the generators they make a checkpoint."""
        return {key: value.copy() for key, value in self.state._asdict().items()}

    def restore(self, arrays: dict[str, Any]) -> None:
        """Restore arrays of the same fleet and number of episodes."""
        for key, value in self.state._asdict().items():
            value[...] = arrays.get(key, 0) if key == "last_hosts" else arrays[key]  # which checkpoints once did not have
        if self._observes:
            self.observe()

    def observe(self, only: int | None = None) -> None:
        """Write the observations of all episodes, or of one."""
        for e in range(self.num_episodes) if only is None else (only,):
            observe(self.fleet.problem, self.state, e, self._observer, self.observations)


@njit
def _begin(problem, state, e, observer, observations, observes):  # type: ignore[no-untyped-def]
    dynamics.start(problem, state, e)
    if observes:
        observe(problem, state, e, observer, observations)


@njit
def _step(problem, state, actions, observer, observations, observes, weights, usual_step_s, rewards):  # type: ignore[no-untyped-def]
    """Step every episode; the first whose action is not possible, before anything has changed, or -1."""
    for e in range(len(actions)):
        if not state.is_over[e] and (actions[e] < 0 or actions[e] >= state.can_act.shape[1] or not state.can_act[e, actions[e]]):
            return e
    before = np.empty(state.totals.shape[1])
    new = np.empty(state.offered.shape[1], np.int64)
    for e in range(len(actions)):
        if state.is_over[e]:
            continue
        before[:] = state.totals[e]
        now_s = state.now_s[e]
        predicted_s, in_time = predicted_end_s(state, e), predicted_in_time(state, e)
        num_new = note_new(state, e, new)
        dynamics.act(problem, state, e, actions[e])
        paid = weights[-3] * (state.now_s[e] - now_s) + weights[-1] * (predicted_in_time(state, e) - in_time)
        paid += weights[-2] * (predicted_end_s(state, e) - predicted_s - usual_s(state, e, new[:num_new], usual_step_s))
        for i in range(len(before)):
            paid += weights[i] * (state.totals[e, i] - before[i])
        rewards[e] = paid
        if observes:
            observe(problem, state, e, observer, observations)
    return -1
