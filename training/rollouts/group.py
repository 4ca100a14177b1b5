"""What a group of environments plays between two updates: a task that depends on nothing but what it is given.

So any worker may do it, and another one may do it again where the first is lost, to the same numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...envs.static_features import static_features
from ...models.network import CandidateNetwork
from ...planners.linear import LinearWeights
from ..curriculum import TrainingPhase
from ..libraries.sb3 import Observations
from ..settings import TrainSettings
from ..vec_env_wrappers import AfterstateFeatures, CentredReward
from .choosing import chooser, quick_chooser, tensors

WITHIN_POLICY = "network."
"""What the names of a network's weights begin with where they are those of a policy."""


class GroupTask(NamedTuple):
    """A group of ``g`` environments, before their next decisions.

    Attributes:
        scenario: number of the scenario that they play, of those of the phase.
        first: number of the first of them among all environments of the run.
        state: of `JobPartitioningVecEnv.state`, of these environments alone.
        starts: which of them begin an episode, ``(g,)``.
        weights: of the policy.
        centre: what is subtracted from rewards.
        scale: factor on rewards after that.
        seed: of all that is drawn.
    """

    scenario: int
    first: int
    state: dict[str, NDArray[Any]]
    starts: NDArray[np.bool_]
    weights: dict[str, NDArray[Any]]
    centre: float
    scale: float
    seed: tuple[int, ...]


class GroupRollout(NamedTuple):
    """The ``n`` decisions of each of ``g`` environments.

    Attributes:
        observations: before each decision, ``(n, g, ...)`` each.
        actions, rewards, values, log_probs: ``(n, g)`` each; rewards hold the value of what follows an episode that was cut off.
        starts: which decisions begin an episode, ``(n, g)``.
        last_values: of the observations after the last decision, ``(g,)``.
        last_starts: which of these begin an episode, ``(g,)``.
        infos: of each decision and environment, what Stable-Baselines3 reads of episodes that ended.
        state: of the environments afterwards.
    """

    observations: Observations
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    values: NDArray[np.float32]
    log_probs: NDArray[np.float32]
    starts: NDArray[np.bool_]
    last_values: NDArray[np.float32]
    last_starts: NDArray[np.bool_]
    infos: list[list[dict[str, Any]]]
    state: dict[str, NDArray[Any]]


class GroupPlayer:
    """Plays tasks; what is pickled are scenarios and settings, and each process builds its environments once.

    Args:
        chosen: the config of the run, which is grouped.
        phase: what is played.
        first: the phase by whose scenario the network is made.
        prior: a linear scorer within the network, or None.
    """

    def __init__(self, chosen: TrainSettings, phase: TrainingPhase, first: TrainingPhase, prior: LinearWeights | None) -> None:
        self._chosen, self._phase, self._first, self._prior = chosen, phase, first, prior
        self._network: CandidateNetwork | None = None
        self._envs: dict[int, CentredReward] = {}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_network": None, "_envs": {}}

    @torch.no_grad()
    def __call__(self, task: GroupTask) -> GroupRollout:
        """Play a task."""
        if not self._envs:
            torch.set_num_threads(self._chosen.num_threads)  # in a process of its own; the sums of some threads differ
        env = self._env(task)
        if self._network is None:
            self._network = self.new_network()
        network = self._network.eval()
        network.load_state_dict(tensors({name.removeprefix(WITHIN_POLICY): value for name, value in task.weights.items()}))
        features = env.venv
        assert isinstance(features, AfterstateFeatures)
        features.set_value_network(network)
        env.reward_centre, env.reward_scale = np.array([task.centre]), task.scale
        env.episodes.restore(task.state)
        seed = int(np.random.SeedSequence(task.seed).generate_state(1, np.uint64)[0] >> 1)
        choose = (quick_chooser if self._chosen.num_workers > 1 else chooser)(network, seed)
        seen, starts, steps = features.observations(), task.starts, []
        for _ in range(self._chosen.ppo.rollout_steps):
            actions, values, log_probs = choose(seen)
            env.step_async(actions)
            following, rewards, is_over, infos = env.step_wait()
            for e in np.flatnonzero(is_over).tolist():
                end = infos[e].pop("terminal_observation")
                if infos[e]["TimeLimit.truncated"]:
                    cut = {key: value[None] for key, value in end.items()}
                    rewards[e] += self._chosen.ppo.discount * network.values(tensors(cut)).item()
            steps.append((seen, actions, rewards, values, log_probs, starts, infos))
            seen, starts = following, is_over
        each, actions_, rewards_, values_, log_probs_, starts_, infos_ = zip(*steps, strict=True)
        return GroupRollout(
            observations={key: np.stack([one[key] for one in each]) for key in each[0]},
            actions=np.stack(actions_),
            rewards=np.stack(rewards_),
            values=np.stack(values_),
            log_probs=np.stack(log_probs_),
            starts=np.stack(starts_),
            last_values=network.values(tensors(seen)).numpy(),
            last_starts=starts,
            infos=list(infos_),
            state=env.episodes.state(),
        )

    def new_network(self) -> CandidateNetwork:
        """A network like that of the policy, with any weights, on which PPO's generator does not depend."""
        with torch.random.fork_rng(devices=[]):
            return CandidateNetwork(self._chosen.network, static_features(self._first.scenarios[0]))

    def _env(self, task: GroupTask) -> CentredReward:
        if task.scenario not in self._envs:
            env = self._phase.group_env(self._chosen, task.scenario)
            features = env.venv
            assert isinstance(features, AfterstateFeatures)
            features.set_linear_prior(self._prior)
            self._envs[task.scenario] = env
        self._envs[task.scenario].episodes.first = task.first
        return self._envs[task.scenario]
