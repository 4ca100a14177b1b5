"""Wrappers between the episodes and a network: rewards around their mean, and figures that the network computes itself.

PPO is given ``CentredReward(AfterstateFeatures(JobPartitioningVecEnv(...)))``.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnvWrapper, unwrap_vec_wrapper

from ..envs.batch import EpisodeBatch
from ..envs.episodes import Observations
from ..models.linear_prior import KEY as PRIOR
from ..models.linear_prior import LinearPrior
from ..models.network import READ, CandidateNetwork
from ..planners.linear import LinearWeights
from .libraries.sb3 import VecStep
from .vec_env import JobPartitioningVecEnv

Wrapper = TypeVar("Wrapper", bound=VecEnvWrapper)

REWARD_TERMS = "reward_terms"
"""Array of a state: the centre of each scenario's rewards, and the scale."""


def wrapper_of(model: BaseAlgorithm, kind: type[Wrapper]) -> Wrapper:
    """The wrapper of a kind around the environments that a model learns from; they must have one."""
    env = model.get_env()
    result = None if env is None else unwrap_vec_wrapper(env, kind)
    assert result is not None
    return result


class CentredReward(VecEnvWrapper):
    """Rewards less their mean, times a factor.

    What decisions pay on average differs between loads and deadlines. Less that, a reward says how much better or worse
    than average a decision was.

    Args:
        venv: a `JobPartitioningVecEnv`, or one with features.

    Attributes:
        episodes: the environments without wrappers.
        reward_centre: subtracted from every reward, of each scenario, ``(s,)``.
        reward_scale: factor on rewards after that; `immediate_rewards` and `advance` return them without it.
    """

    venv: JobPartitioningVecEnv | AfterstateFeatures

    def __init__(self, venv: JobPartitioningVecEnv | AfterstateFeatures) -> None:
        super().__init__(venv)
        self.episodes = venv if isinstance(venv, JobPartitioningVecEnv) else venv.episodes
        self.reward_centre = np.zeros(len(self.episodes.scenarios))
        self.reward_scale = 1.0

    def reset(self) -> Observations:
        """Start the first episode of every environment."""
        return self.venv.reset()

    def step_wait(self) -> VecStep:
        """Carry out the actions; rewards are centred and scaled."""
        seen, rewards, is_over, infos = self.venv.step_wait()
        return seen, np.float32(self.reward_scale) * (rewards - self.centre_of_each), is_over, infos

    def advance(self, actions: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """`JobPartitioningVecEnv.advance` with centred rewards."""
        rewards, is_over = self.episodes.advance(actions)
        return rewards - self.centre_of_each, is_over

    def immediate_rewards(self) -> NDArray[np.float32]:
        """Return the immediate reward of each candidate, centred, ``(e, a)``."""
        return self.episodes.immediate_rewards() - self.centre_of_each[:, None]

    @property
    def centre_of_each(self) -> NDArray[np.float32]:
        """Return the mean that is subtracted from the rewards of each environment, ``(e,)``."""
        return np.repeat(self.reward_centre, self.num_envs // len(self.reward_centre)).astype(np.float32)

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays from which `restore` continues exactly."""
        return {**self.episodes.state(), REWARD_TERMS: np.append(self.reward_centre, self.reward_scale)}

    def restore(self, state: dict[str, NDArray[Any]]) -> Observations:
        """Continue from a state of equal environments; returns the observations that were current then."""
        terms = state[REWARD_TERMS]
        self.reward_centre, self.reward_scale = terms[:-1].copy(), float(terms[-1])
        self.episodes.restore(state)
        return self.venv.observations()


class AfterstateFeatures(VecEnvWrapper):
    """Observations with what a network and a linear scorer compute of the state after each candidate.

    PPO changes neither, so that these figures are computed once, while episodes are played, and not again for every
    gradient step.

    Args:
        venv: without wrappers.
        value_size: figures of each candidate in ``candidate_after``, the value of the state after it first. Above 0 they
            replace the keys that they are computed from, most of an observation
            (see `CandidateNetwork.observed`).
        has_prior: whether the scores of a linear scorer are added (see `models.linear_prior`).

    Attributes:
        episodes: the environments without wrappers.
        prior: the linear scorer.
    """

    def __init__(self, venv: JobPartitioningVecEnv, value_size: int = 0, *, has_prior: bool = False) -> None:
        keys = dict(venv.batches[0].space.spaces)
        if value_size:
            shape = venv.num_candidates, value_size
            keys = {key: box for key, box in keys.items() if key not in READ}
            keys["candidate_after"] = spaces.Box(-np.inf, np.inf, shape, np.float32)
        if has_prior:
            keys[PRIOR] = spaces.Box(-np.inf, np.inf, (venv.num_candidates,), np.float32)
        super().__init__(venv, spaces.Dict(keys))
        self.episodes = venv
        self.prior: LinearWeights | None = None
        self._priors: list[LinearPrior] = []
        self._has_prior = has_prior
        self._network: CandidateNetwork | None = None
        self._has_values = value_size > 0

    def set_value_network(self, network: CandidateNetwork) -> None:
        """Compute values by a network; must be called first where observations have values."""
        self._network = network

    def set_linear_prior(self, prior: LinearWeights | None) -> None:
        """Compute scores by a linear scorer; must be called first where observations have any."""
        self.prior = prior
        self._priors = [] if prior is None else [LinearPrior(prior, scenario) for scenario in self.episodes.scenarios]

    def reset(self) -> Observations:
        """Start the first episode of every environment."""
        self.episodes.restart()
        return self.observations()

    def step_wait(self) -> VecStep:
        """Carry out the actions; an environment whose episode ends starts the next one."""
        rewards, is_over, infos = self.episodes.decide()
        for e in np.flatnonzero(is_over).tolist():
            batch, i = self.episodes.place(e)
            infos[e]["terminal_observation"] = {key: value[i].copy() for key, value in self._observations_of(batch).items()}
        self.episodes.begin_next(is_over)
        return self.observations(), rewards, is_over, infos

    def observations(self) -> Observations:
        """Copies of the current observations, ``(e, ...)`` each."""
        current = [self._observations_of(batch) for batch in self.episodes.batches]
        return {key: np.concatenate([one[key] for one in current]) for key in current[0]}

    def _observations_of(self, batch: EpisodeBatch) -> Observations:
        if not self._has_values:
            result = batch.observations.current()
        elif self._network is None:
            raise RuntimeError("observations with values need set_value_network first")
        else:
            result = self._network.observed(batch.observations)
        return {**result, PRIOR: self._scores_of(batch)} if self._has_prior else result

    def _scores_of(self, batch: EpisodeBatch) -> NDArray[np.float32]:
        if not self._priors:
            raise RuntimeError("scores of a linear scorer need set_linear_prior first")
        return self._priors[self.episodes.batches.index(batch)].of_episodes(batch.episodes)
