"""`JobPartitioningVecEnv`: many episodes stepped by one compiled call, in the form of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..envs.batch import EpisodeBatch
from ..envs.episodes import Observations
from ..envs.reward import RewardSettings
from ..errors import ConfigError
from ..jobs.seeds import FIRST_TRAINING_SEED
from ..simulation.cluster.scenario import Scenario
from .libraries.sb3 import EpisodesVecEnv, VecStep


class JobPartitioningVecEnv(EpisodesVecEnv):
    """``e`` episodes that restart by themselves, each with a seed of its own.

    The ``i``-th episode of environment ``j`` draws its jobs from the seed sequence ``(1000 + seed, j, i)``. So an episode does
    not depend on how long the others take. `training.vec_env_wrappers` adds what a network needs.

    Several scenarios may share the environments, equally many each: those of the first come first.

    Args:
        scenario: cluster, workload and rules, or several of them that offer the same observations.
        num_envs: ``e``, a multiple of the number of scenarios.
        rewards: weights of the reward's terms, or those of each scenario.
        seed: of the run.
        staggered: whether the first episodes begin at different places, after ``j / e`` of their jobs decided at random. So not
            all environments are at the beginning or end of an episode at a time.

    Attributes:
        scenarios: as given, ``s`` of them.
        rewards: weights of the reward's terms of each scenario.
        batches: the episodes of each scenario.
        continues_past_end: whether something of value follows an episode's end, which then is no end to learn from.

    Raises:
        ConfigError: the scenarios offer different observations, or the environments cannot be shared out.
    """

    batches: Sequence[EpisodeBatch]

    def __init__(
        self,
        scenario: Scenario | Sequence[Scenario],
        num_envs: int,
        rewards: RewardSettings | Sequence[RewardSettings],
        seed: int,
        *,
        staggered: bool = False,
    ) -> None:
        self.scenarios = (scenario,) if isinstance(scenario, Scenario) else tuple(scenario)
        self.rewards = (rewards,) * len(self.scenarios) if isinstance(rewards, RewardSettings) else tuple(rewards)
        share, rest = divmod(num_envs, len(self.scenarios))
        if rest:
            raise ConfigError(f"must be a multiple of the {len(self.scenarios)} benchmarks", field="num_envs", value=num_envs)
        super().__init__([EpisodeBatch(one, share, paid) for one, paid in zip(self.scenarios, self.rewards, strict=True)])
        for batch in self.batches:
            if batch.space != self.observation_space or batch.num_actions != self.num_candidates:
                problem = "benchmarks that are mixed must have the same cluster, degrees, rules, slots and number of graphs"
                raise ConfigError(problem, field="benchmark", value=batch.scenario.settings.workload)
        self._seed = seed
        self._staggered = staggered
        # Where jobs that run beyond the end are paid as blocked, nothing of value follows it.
        self.continues_past_end = all(paid.unfinished is None for paid in self.rewards)
        self._round = np.zeros(num_envs, np.int64)
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)

    def reset(self) -> Observations:
        """Start the first episode of every environment."""
        self.restart()
        return self.observations()

    def restart(self) -> None:
        """`reset` without copying the observations."""
        self._round[:] = 0
        for e in range(self.num_envs):
            self._begin(e)
        if self._staggered:
            self._stagger()

    def step_wait(self) -> VecStep:
        """Carry out the actions; an environment whose episode ends starts the next one.

        The episode counts as truncated, unless jobs that run beyond its end are paid as blocked: then it is over.
        """
        rewards, is_over, infos = self.decide()
        for e in np.flatnonzero(is_over).tolist():
            infos[e]["terminal_observation"] = self.last_observation(e)
        self.begin_next(is_over)
        return self.observations(), rewards, is_over, infos

    def advance(self, actions: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Carry out actions ``(e,)`` without copying any observation; `current` returns the new ones.

        Returns:
            Rewards and which episodes ended, ``(e,)`` each; those have begun anew.
        """
        self.step_async(actions)
        rewards, is_over, _ = self.decide()
        self.begin_next(is_over)
        return rewards, is_over

    def decide(self) -> tuple[NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """See `EpisodesVecEnv`."""
        parts = np.split(self._actions, len(self.batches))
        stepped = [batch.step(one) for batch, one in zip(self.batches, parts, strict=True)]
        rewards, is_over = (np.concatenate(both) for both in zip(*stepped, strict=True))
        self._return += rewards
        self._length += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for e in np.flatnonzero(is_over).tolist():
            batch, i = self.place(e)
            infos[e] = {
                "TimeLimit.truncated": self.continues_past_end,
                "episode": {"r": float(self._return[e]), "l": int(self._length[e]), "t": 0.0},
                "blocking_rate": batch.record(i).blocking_rate(batch.scenario.settings.counted),
            }
        return rewards, is_over, infos

    def immediate_rewards(self) -> NDArray[np.float32]:
        """Return the immediate reward of each candidate, ``(e, a)`` (see `EpisodeBatch.immediate_rewards`)."""
        return np.concatenate([batch.immediate_rewards() for batch in self.batches])

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays from which `restore` continues exactly."""
        own = {"round": self._round.copy(), "return": self._return.copy(), "length": self._length.copy()}
        batches = {_key(i, name): array for i, batch in enumerate(self.batches) for name, array in batch.state().items()}
        return {**batches, **own}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from a state of equal environments."""
        self._round[:] = state["round"]
        self._return[:] = state["return"]
        self._length[:] = state["length"]
        for i, batch in enumerate(self.batches):
            batch.restore({name: state[_key(i, name)] for name in batch.state()})

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Do nothing: the run's seed is given once, at construction."""
        return [self._seed] * self.num_envs

    @property
    def scenario(self) -> Scenario:
        """The first of the scenarios."""
        return self.scenarios[0]

    @property
    def num_candidates(self) -> int:
        """Number of candidates, ``a``."""
        return self.batches[0].num_actions

    def current(self, key: str) -> NDArray[Any]:
        """One key of the current observations, ``(e, ...)``; of a single scenario not a copy."""
        parts = [getattr(batch.observations, key) for batch in self.batches]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def current_of(self, key: str, actions: NDArray[np.int64]) -> NDArray[Any]:
        """One key of the candidates ``(e,)``, ``(e, ...)``; a copy."""
        parts = zip(self.batches, np.split(actions, len(self.batches)), strict=True)
        return np.concatenate([getattr(batch.observations, key)[np.arange(len(part)), part] for batch, part in parts])

    def _begin(self, e: int) -> None:
        sequence = np.random.SeedSequence([FIRST_TRAINING_SEED + self._seed, e, int(self._round[e])])
        self._round[e] += 1
        self._return[e], self._length[e] = 0.0, 0
        batch, i = self.place(e)
        batch.reset(i, np.random.default_rng(sequence))

    def _stagger(self) -> None:
        rng = np.random.default_rng([FIRST_TRAINING_SEED + self._seed, self.num_envs])
        for batch, places in zip(self.batches, np.split(np.arange(self.num_envs), len(self.batches)), strict=True):
            left = places * batch.scenario.settings.num_jobs // self.num_envs
            while left.any():
                offered = batch.observations.action_mask > 0
                batch.step((rng.random(offered.shape) * offered).argmax(axis=1), left > 0)
                left = np.maximum(left - 1, 0)


def _key(i: int, name: str) -> str:
    return name if i == 0 else f"{i}.{name}"
