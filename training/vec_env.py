"""`JobPartitioningVecEnv`: many episodes stepped by one compiled call, in the form of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ..envs.batch import EpisodeBatch
from ..envs.episodes import Observations
from ..envs.reward import RewardSettings
from ..jobs.seeds import FIRST_TRAINING_SEED
from ..models.linear_prior import KEY as PRIOR
from ..models.linear_prior import LinearPrior
from ..planners.linear import LinearWeights
from ..simulation.cluster.scenario import Scenario
from .libraries.sb3 import EpisodesVecEnv


class JobPartitioningVecEnv(EpisodesVecEnv):
    """``e`` episodes that restart by themselves, each with a seed of its own.

    The ``i``-th episode of environment ``j`` draws its jobs from the seed sequence ``(1000 + seed, j, i)``. So an episode does
    not depend on how long the others take.

    Args:
        scenario: cluster, workload and rules.
        num_envs: ``e``.
        rewards: weights of the reward's terms.
        seed: of the run.
        has_prior: whether observations hold the scores of a linear scorer (see `models.linear_prior`).

    Attributes:
        batch: the episodes.
        prior: the linear scorer; None until `set_prior`, and its scores are 0 then.
    """

    def __init__(
        self,
        scenario: Scenario,
        num_envs: int,
        rewards: RewardSettings,
        seed: int,
        *,
        has_prior: bool = False,
    ) -> None:
        self.batch = EpisodeBatch(scenario, num_envs, rewards)
        scores = {PRIOR: spaces.Box(-np.inf, np.inf, (self.batch.num_actions,), np.float32)} if has_prior else {}
        super().__init__(self.batch, spaces.Dict({**self.batch.space.spaces, **scores}))
        self._seed, self._has_prior = seed, has_prior
        # Where jobs that run beyond the end are paid as blocked, nothing of value follows it.
        self._continues_past_end = rewards.unfinished is None
        self.prior: LinearWeights | None = None
        self._scorer: LinearPrior | None = None
        self._round = np.zeros(num_envs, np.int64)
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)

    def set_prior(self, prior: LinearWeights | None) -> None:
        """Show the scores of a linear scorer from now on."""
        self.prior = prior
        self._scorer = None if prior is None else LinearPrior(prior, self.batch.scenario)

    def reset(self) -> Observations:
        """Start the first episode of every environment."""
        self._round[:] = 0
        for e in range(self.num_envs):
            self._begin(e)
        return self.observations()

    def observations(self) -> Observations:
        """Return copies of the current observations, ``(e, ...)`` each."""
        seen = super().observations()
        if self._has_prior:
            shape = self.num_envs, self.batch.num_actions
            scorer = self._scorer
            seen[PRIOR] = np.zeros(shape, np.float32) if scorer is None else scorer.of_episodes(self.batch.episodes)
        return seen

    def decide(self) -> tuple[NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """See `EpisodesVecEnv`.

        An episode counts as truncated, unless jobs that run beyond its end are paid as blocked: then it is over.
        """
        batch = self.batch
        rewards, is_over = batch.step(self._actions)
        self._return += rewards
        self._length += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        last = self.observations() if is_over.any() else {}
        for e in np.flatnonzero(is_over).tolist():
            infos[e] = {
                "TimeLimit.truncated": self._continues_past_end,
                "terminal_observation": {key: values[e] for key, values in last.items()},
                "episode": {"r": float(self._return[e]), "l": int(self._length[e]), "t": 0.0},
                "blocking_rate": batch.record(e).blocking_rate(batch.scenario.settings.counted),
            }
        return rewards, is_over, infos

    def state(self) -> dict[str, NDArray[Any]]:
        """Return arrays from which `restore` continues exactly."""
        own = {"round": self._round.copy(), "return": self._return.copy(), "length": self._length.copy()}
        return {**self.batch.state(), **own}

    def restore(self, state: dict[str, NDArray[Any]]) -> Observations:
        """Continue from a state of equal environments; returns the observations that were current then."""
        self._round[:] = state["round"]
        self._return[:] = state["return"]
        self._length[:] = state["length"]
        self.batch.restore(state)
        return self.observations()

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Do nothing: the run's seed is given once, at construction."""
        return [self._seed] * self.num_envs

    def _begin(self, e: int) -> None:
        sequence = np.random.SeedSequence([FIRST_TRAINING_SEED + self._seed, e, int(self._round[e])])
        self._round[e] += 1
        self._return[e], self._length[e] = 0.0, 0
        self.batch.reset(e, np.random.default_rng(sequence))
