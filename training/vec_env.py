"""`JobPartitioningVecEnv`: many episodes stepped by one compiled call, as Stable-Baselines3 wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from .. import files
from ..envs.batch import EpisodeBatch
from ..envs.reward import RewardSettings
from ..errors import ConfigError
from ..models.afterstate_kernel import READ, current_with_values
from ..models.afterstate_value import AfterWeights
from ..models.linear_prior import KEY as PRIOR
from ..models.linear_prior import LinearPrior
from ..models.network import CandidateNetwork
from ..planners.linear import LinearWeights
from ..simulation.cluster.scenario import Scenario

Observations = dict[str, NDArray[Any]]
FIRST_TRAINING_SEED = 1000


class JobPartitioningVecEnv(VecEnv):
    """``e`` episodes that restart by themselves; episode after episode has a seed of its own.

    The ``i``-th episode of environment ``j`` draws its jobs from the seed sequence
    ``(1000 + seed, j, i)``, so that what is seen does not depend on when it is seen.

    Several scenarios may share the environments, equally many each: those of the first come first.

    Args:
        scenario: cluster, workload and rules, or several of them that offer the same observations.
        num_envs: ``e``, a multiple of the number of scenarios.
        rewards: weights of the reward's terms, or those of each scenario.
        seed: of the run.
        staggered: whether the first episodes begin at different places, ``j / e`` of their jobs decided by chance, so
            that not all environments are at the beginning or at the end of an episode at a time.
        value_size: figures that tell what the state after a candidate is worth; above 0, observations hold them in place of
            what they are read from (see `models.afterstate_kernel.current_with_values`), which is most of an observation.
        has_prior: whether observations hold the scores of a linear scorer (see `models.linear_prior`).

    Attributes:
        reward_centre: taken off every reward, of each scenario, ``(s,)``: what decisions pay on average differs between loads and
            deadlines, and what follows a decision is to be told from that.
        reward_scale: times which rewards are then paid; `immediate_rewards` tells them unscaled.
        prior: the linear scorer whose scores observations hold.

    Raises:
        ConfigError: the scenarios offer different observations, or the environments cannot be shared out.
    """

    def __init__(
        self,
        scenario: Scenario | Sequence[Scenario],
        num_envs: int,
        rewards: RewardSettings | Sequence[RewardSettings],
        seed: int,
        *,
        staggered: bool = False,
        value_size: int = 0,
        has_prior: bool = False,
    ) -> None:
        self.scenarios = (scenario,) if isinstance(scenario, Scenario) else tuple(scenario)
        weights = [rewards] * len(self.scenarios) if isinstance(rewards, RewardSettings) else rewards
        share, rest = divmod(num_envs, len(self.scenarios))
        if rest:
            raise ConfigError(f"must be a multiple of the {len(self.scenarios)} benchmarks", field="num_envs", value=num_envs)
        self.batches = [EpisodeBatch(one, share, paid) for one, paid in zip(self.scenarios, weights, strict=True)]
        self.scenario = self.scenarios[0]
        paid = zip(self.scenarios, weights, strict=True)
        self._paid_keys = [files.digest(one.digest, rewards.model_dump(mode="json")) for one, rewards in paid]
        space = self.batches[0].observer.space
        for one, batch in zip(self.scenarios, self.batches, strict=True):
            if batch.observer.space != space or one.problem.num_candidates != self.scenario.problem.num_candidates:
                problem = "benchmarks that are mixed must have the same cluster, degrees, rules, slots and number of graphs"
                raise ConfigError(problem, field="benchmark", value=one.settings.workload)
        if value_size:
            kept = {key: box for key, box in space.spaces.items() if key not in READ}
            shape = self.scenario.problem.num_candidates, value_size
            space = spaces.Dict({**kept, "candidate_after": spaces.Box(-np.inf, np.inf, shape, np.float32)})
        if has_prior:
            box = spaces.Box(-np.inf, np.inf, (self.scenario.problem.num_candidates,), np.float32)
            space = spaces.Dict({**space.spaces, PRIOR: box})
        self.prior: LinearWeights | None = None
        self._priors: list[LinearPrior] = []
        self._has_prior = has_prior
        self._after: AfterWeights | None = None
        self._holds_values = value_size > 0
        self._seed = seed
        self._staggered = staggered
        # Where jobs that run beyond the end are paid as blocked, nothing of worth follows it.
        self._goes_on = all(paid.unfinished is None for paid in weights)
        self.reward_centre = np.zeros(len(self.scenarios))
        self.reward_scale = 1.0
        self._round = np.zeros(num_envs, np.int64)
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)
        self._actions = np.zeros(num_envs, np.int64)
        self.render_mode = None
        super().__init__(num_envs, space, spaces.Discrete(self.scenario.problem.num_candidates))

    def reset(self) -> Observations:
        """Start the first episode of every environment."""
        self.restart()
        return self.observations()

    def restart(self) -> None:
        """`reset` without copying the observations."""
        self._round[:] = 0
        self._return[:] = 0
        self._length[:] = 0
        for e in range(self.num_envs):
            self._begin(e)
        if self._staggered:
            self._stagger()

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Take note of the actions."""
        self._actions = np.asarray(actions).reshape(-1)

    def step_wait(self) -> tuple[Observations, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Carry out the actions; an environment whose episode ends starts the next one.

        The episode counts as truncated, unless jobs that run beyond its end are paid as blocked: then it is over.
        """
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        rewards, is_over = self.advance(self._actions, infos)
        return self.observations(), np.float32(self.reward_scale) * rewards, is_over, infos

    def advance(
        self, actions: NDArray[np.int64], infos: list[dict[str, Any]] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Carry out actions without copying any observation; `current` tells the new ones.

        Args:
            actions: candidates, ``(e,)``.
            infos: what Stable-Baselines3 is told about episodes that end is written here.

        Returns:
            Centred rewards, unscaled, and which episodes ended, ``(e,)`` each; those have begun anew.
        """
        parts = np.split(actions, len(self.batches))
        stepped = [batch.step(one) for batch, one in zip(self.batches, parts, strict=True)]
        rewards, is_over = (np.concatenate(both) for both in zip(*stepped, strict=True))
        self._return += rewards
        self._length += 1
        for e in np.flatnonzero(is_over).tolist():
            if infos is not None:
                batch, i = self._at(e)
                infos[e] = {
                    "TimeLimit.truncated": self._goes_on,
                    "terminal_observation": {key: value[i].copy() for key, value in self._shown(batch).items()},
                    "episode": {"r": float(self._return[e]), "l": int(self._length[e]), "t": 0.0},
                    "blocking_rate": batch.record(i).blocking_rate(batch.scenario.settings.counted),
                }
            self._return[e] = 0.0
            self._length[e] = 0
            self._begin(e)
        return rewards - self.centre_of_each, is_over

    def set_value_network(self, network: CandidateNetwork) -> None:
        """Let observations hold what states are worth by a network as it is now; needed first where they hold worth."""
        self._after = network.after_weights() if network.settings.after else None

    def set_linear_prior(self, prior: LinearWeights | None) -> None:
        """Let observations hold the scores of a linear scorer; needed first where they hold any."""
        self.prior = prior
        self._priors = [] if prior is None else [LinearPrior(prior, batch.scenario) for batch in self.batches]

    @property
    def centre_of_each(self) -> NDArray[np.float32]:
        """What is taken off the rewards of each environment, ``(e,)``."""
        return np.repeat(self.reward_centre, self.num_envs // len(self.batches)).astype(np.float32)

    @property
    def centres(self) -> dict[str, float]:
        """What is taken off rewards, by a hash of scenario and rewards."""
        return dict(zip(self._paid_keys, self.reward_centre.tolist(), strict=True))

    def set_reward_scaling(self, centres: Mapping[str, float], scale: float) -> None:
        """Centre and scale rewards as other environments did; those of a scenario that they lacked by the mean of theirs."""
        mean = float(np.mean([*centres.values()])) if centres else 0.0
        self.reward_centre = np.array([centres.get(key, mean) for key in self._paid_keys])
        self.reward_scale = scale

    def immediate_rewards(self) -> NDArray[np.float32]:
        """What each candidate pays at once, centred, ``(e, a)`` (see `EpisodeBatch.immediate_rewards`)."""
        return np.concatenate([batch.immediate_rewards() for batch in self.batches]) - self.centre_of_each[:, None]

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays from which `restore` continues exactly."""
        own = {"round": self._round.copy(), "return": self._return.copy(), "length": self._length.copy()}
        batches = {_key(i, name): array for i, batch in enumerate(self.batches) for name, array in batch.state().items()}
        return {**batches, **own, "reward_terms": np.append(self.reward_centre, self.reward_scale)}

    def restore(self, state: dict[str, NDArray[Any]]) -> Observations:
        """Continue from a state of an equal environment; returns the observations that were current then."""
        self._round[:] = state["round"]
        self._return[:] = state["return"]
        self._length[:] = state["length"]
        self.reward_centre, self.reward_scale = state["reward_terms"][:-1].copy(), float(state["reward_terms"][-1])
        for i, batch in enumerate(self.batches):
            batch.restore({name: state[_key(i, name)] for name in batch.state()})
        return self.observations()

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Only ``action_masks`` is offered."""
        if method_name != "action_masks":
            raise AttributeError(method_name)
        masks = np.concatenate([batch.observations.action_mask for batch in self.batches])
        return list(masks[list(self._get_indices(indices))].astype(np.bool_))

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute, equal for all environments."""
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def has_attr(self, attr_name: str) -> bool:
        """Whether environments have an attribute or method."""
        return attr_name == "action_masks" or hasattr(self, attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Environments here have no attributes of their own."""
        raise AttributeError(attr_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """No environment is wrapped."""
        return [False for _ in self._get_indices(indices)]

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """The run's seed is given once, at construction."""
        return [self._seed] * self.num_envs

    def close(self) -> None:
        """Nothing to close."""

    @property
    def num_candidates(self) -> int:
        """``a``."""
        return self.scenario.problem.num_candidates

    def current(self, key: str) -> NDArray[Any]:
        """One key of the current observations, worth apart, ``(e, ...)``; of a single scenario not a copy."""
        parts = [getattr(batch.observations, key) for batch in self.batches]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def current_of(self, key: str, actions: NDArray[np.int64]) -> NDArray[Any]:
        """One key of the candidates ``(e,)``, ``(e, ...)``; a copy."""
        parts = zip(self.batches, np.split(actions, len(self.batches)), strict=True)
        return np.concatenate([getattr(batch.observations, key)[np.arange(len(part)), part] for batch, part in parts])

    def observations(self) -> Observations:
        """Copies of the current observations, ``(e, ...)`` each."""
        shown = [self._shown(batch) for batch in self.batches]
        return {key: np.concatenate([one[key] for one in shown]) for key in shown[0]}

    def _shown(self, batch: EpisodeBatch) -> Observations:
        if not self._holds_values:
            shown = batch.observations.current()
        elif self._after is None:
            raise RuntimeError("observations with worth are asked for before show_worth_by")
        else:
            shown = current_with_values(batch.observations, self._after)
        return {**shown, PRIOR: self._prior_of(batch)} if self._has_prior else shown

    def _prior_of(self, batch: EpisodeBatch) -> NDArray[np.float32]:
        if not self._priors:
            raise RuntimeError("scores of a linear scorer are asked for before show_prior")
        return self._priors[self.batches.index(batch)].of_episodes(batch.episodes)

    def _at(self, e: int) -> tuple[EpisodeBatch, int]:
        """Where an environment's episode is played."""
        i, place = divmod(e, self.num_envs // len(self.batches))
        return self.batches[i], place

    def _begin(self, e: int) -> None:
        sequence = np.random.SeedSequence([FIRST_TRAINING_SEED + self._seed, e, int(self._round[e])])
        self._round[e] += 1
        batch, i = self._at(e)
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
