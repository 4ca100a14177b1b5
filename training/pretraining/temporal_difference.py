"""TD(lambda) on afterstates: the value of the state after each decision, learned before PPO begins.

Legend: ``t`` decisions of a rollout, ``e`` environments, ``a`` candidates. The behaviour policy takes the candidate with the
largest sum of immediate reward and value of its afterstate. A share of its decisions is random. Rewards are centred: the mean
reward of a decision is subtracted. So a state's value shows how much better or worse than average the following decisions will
be. There are three sets of weights. The first learns from the latest rollouts. The second is a running average of it, which acts
and bootstraps the returns: a policy that depends on small differences of values must change slowly. The third is a slower
average of the second, and the result.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...models.network import CandidateNetwork
from ..vec_env_wrappers import CentredReward
from .settings import ValuePretraining

# Decisions of each environment before the first update, from which only rewards are learned.
PREPARING_STEPS = 256
# Share of the newest rollout in the running mean of rewards, which is constant in the second half.
CENTRE_RATE = 0.05
CENTRE_UNTIL = 0.5
MAX_GRAD_NORM = 1.0
AFTER_KEYS = ("candidate_shapes", "candidate_any")


class ValueLearning:
    """TD(lambda) in progress, between two updates; it moves ``env.reward_centre`` to the mean reward of a decision.

    Args:
        network: with the layers ``after``.
        env: the episodes; they are restarted by the first update.
        pretraining: constants.
        discount: of later rewards, per decision.
        seed: of exploration and shuffling.

    Attributes:
        steps: decisions so far.
        loss: mean squared error of values in the latest update, in squared rewards; None before the first.
    """

    def __init__(
        self, network: CandidateNetwork, env: CentredReward, pretraining: ValuePretraining, discount: float, seed: int
    ) -> None:
        self.steps = 0
        self.loss: float | None = None
        self._network, self._env, self._settings, self._discount = network, env, pretraining, discount
        self._rng = np.random.default_rng([seed, 1])
        self._memory = _Memory(pretraining.memory)
        self._have_copies()

    def run(self, after: Callable[[int], None]) -> None:
        """Learn until the end; ``after`` is called with the number of decisions so far, after each update."""
        if self.steps == 0:
            self._env.restart()
            _prepare(self._network, self._env, self._rng, self._settings.centred)
            self._have_copies()
        while self.steps < self._settings.steps:
            self._update()
            after(self.steps)

    def _have_copies(self) -> None:
        self._learner, self._player = copy.deepcopy(self._network), copy.deepcopy(self._network)
        self._optimizer = torch.optim.Adam(_weights(self._learner), lr=self._settings.learning_rate)

    def _update(self) -> None:
        """Play a rollout, and learn from it and from those in memory."""
        settings, env, network, learner, player = self._settings, self._env, self._network, self._learner, self._player
        left = 1.0 - self.steps / settings.steps
        for group in self._optimizer.param_groups:
            group["lr"] = settings.final_learning_rate + (settings.learning_rate - settings.final_learning_rate) * left
        rollout = _Rollout(env, settings.rollout_steps)
        rollout.play(player, settings.explore * left, self._rng)
        self._memory.add(rollout.samples(self._discount, settings.trace, next(network.parameters()).device))
        self.loss = _learn(learner, self._optimizer, self._memory, settings, self._rng)
        with torch.no_grad():
            for slow, played, learned in zip(*map(_weights, (network, player, learner)), strict=True):
                played.lerp_(learned, settings.averaging)
                slow.lerp_(played, settings.slow_averaging)
        self.steps += settings.rollout_steps * env.num_envs
        if self.steps < CENTRE_UNTIL * settings.steps:
            by = CENTRE_RATE * _usual(rollout.rewards[:-1], len(env.episodes.scenarios), settings.centred)
            _move_centre(env, by, self._discount, (network, player, learner), self._memory)

    def state(self) -> dict[str, Any]:
        """Tensors and plain data that `restore` continues from, without the network's weights and the environment's state."""
        return {
            "steps": self.steps,
            "rng": json.dumps(self._rng.bit_generator.state),
            "learner": self._learner.state_dict(),
            "player": self._player.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "memory": self._memory.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the state of another `ValueLearning` of the same arguments; network and environment are restored already.

        Raises:
            KeyError, TypeError, ValueError, RuntimeError: it is no such state.
        """
        self._have_copies()
        self.steps = int(state["steps"])
        self._rng.bit_generator.state = json.loads(state["rng"])
        self._learner.load_state_dict(state["learner"])
        self._player.load_state_dict(state["player"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._memory.restore(state["memory"], next(self._network.parameters()).device)


def _prepare(network: CandidateNetwork, env: CentredReward, rng: np.random.Generator, centred: str = "together") -> None:
    """Fit immediate rewards by least squares, centre them, and standardise the features of the latest arrivals.

    The centre is the mean reward of a policy that takes the largest immediate reward, with ties broken at random.
    """
    rows, paid, taken, places, recent = [], [], [], [], []
    for _ in range(PREPARING_STEPS):
        rewards, offered = env.immediate_rewards(), _offered(env)
        features_of_each = np.concatenate([env.episodes.current("candidates"), env.episodes.current("candidate_ends")], axis=2)
        rows.append(features_of_each[offered])
        paid.append(rewards[offered])
        places.append(np.nonzero(offered)[0])
        recent.append(env.episodes.current("episode")[:, 1:].copy())
        best = offered & (rewards == np.where(offered, rewards, -np.inf).max(axis=1, keepdims=True))
        actions = (rng.random(rewards.shape) * best).argmax(axis=1)
        taken.append(rewards[np.arange(len(actions)), actions])
        env.advance(actions)
    env.reward_centre = _usual(np.stack(taken), len(env.episodes.scenarios), centred)
    features = np.concatenate(rows).astype(np.float64)
    features = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    target = np.concatenate(paid) - env.centre_of_each[np.concatenate(places)]
    result = np.linalg.lstsq(features, target, rcond=None)[0]
    network.after.standardise(np.concatenate(recent))
    with torch.no_grad():
        network.pays.weight.copy_(torch.as_tensor(result[None, :-1]))
        network.pays.bias.copy_(torch.as_tensor(result[-1:]))


def _usual(paid: NDArray[np.float32], num_scenarios: int, centred: str) -> NDArray[np.float64]:
    """Mean of the rewards ``(t, e)`` in the environments of each scenario, or in all of them together, ``(s,)``."""
    if centred == "together":
        return np.full(num_scenarios, float(paid.mean()))
    return np.array([float(part.mean()) for part in np.split(paid, num_scenarios, axis=1)])


class _Rollout:
    """The record of ``t`` decisions of each environment, and the afterstates of the chosen candidates.

    Attributes:
        rewards: immediate rewards of the chosen candidates, ``(t + 1, e)``; the last is that of the decision after the rollout,
            which is made but not carried out.
        after: values of their afterstates, ``(t + 1, e)``.
        is_over: whether the episode was over then, ``(t, e)``.
        rows: the afterstates, ``(t, e, ...)`` each.
    """

    def __init__(self, env: CentredReward, num_steps: int) -> None:
        self._env = env
        self.rewards = np.zeros((num_steps + 1, env.num_envs), np.float32)
        self.after = np.zeros((num_steps + 1, env.num_envs), np.float32)
        self.is_over = np.zeros((num_steps, env.num_envs), np.bool_)
        sizes = {key: getattr(env.episodes.batches[0].observations, key).shape[2:] for key in AFTER_KEYS}
        self.rows = {key: np.empty((num_steps, env.num_envs, *size), np.float32) for key, size in sizes.items()}
        self.rows["episode"] = np.empty((num_steps, *env.episodes.current("episode").shape), np.float32)

    def play(self, player: CandidateNetwork, explore: float, rng: np.random.Generator) -> None:
        """Take the best candidate, or a random one in a share ``explore`` of the decisions."""
        env, each, num_steps = self._env, np.arange(self._env.num_envs), len(self.is_over)
        for t in range(num_steps + 1):
            results = [player.candidates_after(batch.observations) for batch in env.episodes.batches]
            after, rewards = np.concatenate(results)[:, :, 0], env.immediate_rewards()
            actions = _act(rewards + after, _offered(env, "reject" in player.settings.without), explore, rng)
            self.rewards[t], self.after[t] = rewards[each, actions], after[each, actions]
            if t < num_steps:
                for key in AFTER_KEYS:
                    self.rows[key][t] = env.episodes.current_of(key, actions)
                self.rows["episode"][t] = env.episodes.current("episode")
                self.is_over[t] = env.advance(actions)[1]

    def samples(self, discount: float, trace: float, device: torch.device) -> dict[str, Tensor]:
        """The afterstates, a row each, and ``wanted``, the discounted lambda-returns that follow them."""
        result = {**self.rows, "wanted": lambda_returns(self.rewards, self.after, self.is_over, discount, trace)}
        return {key: torch.as_tensor(value, device=device).flatten(0, 1) for key, value in result.items()}


def lambda_returns(
    rewards: NDArray[np.float32], after: NDArray[np.float32], is_over: NDArray[np.bool_], discount: float, trace: float
) -> NDArray[np.float32]:
    """Discounted lambda-returns that follow each decision, ``(t, e)``; nothing follows the last one of an episode.

    Args:
        rewards, after, is_over: as in a `_Rollout`.
        discount: per decision.
        trace: lambda.
    """
    num_steps = len(is_over)
    out = np.zeros_like(rewards[:-1])
    later = after[-1]
    for t in reversed(range(num_steps)):
        mixed = after[t + 1] if t == num_steps - 1 else (1 - trace) * after[t + 1] + trace * later
        later = np.where(is_over[t], 0.0, discount * (rewards[t + 1] + mixed)).astype(np.float32)
        out[t] = later
    return out


def _offered(env: CentredReward, only_rejects_in_need: bool = False) -> NDArray[np.bool_]:
    """Which candidates may be taken, ``(e, a)``; with ``only_rejects_in_need`` rejection only where no other is offered."""
    offered = env.episodes.current("action_mask") > 0
    if only_rejects_in_need:
        offered[:, 0] &= ~offered[:, 1:].any(axis=1)
    return offered


def _act(total: NDArray[np.float32], offered: NDArray[np.bool_], explore: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """The best offered candidates, some replaced by random ones, ``(e,)``."""
    actions: NDArray[np.int64] = np.where(offered, total, -np.inf).argmax(axis=1)
    by_chance = rng.random(len(actions)) < explore
    if by_chance.any():
        drawn = np.where(offered, rng.random(total.shape), -1.0).argmax(axis=1)
        actions = np.where(by_chance, drawn, actions)
    return actions


def _move_centre(
    env: CentredReward,
    by: NDArray[np.float64],
    discount: float,
    networks: tuple[CandidateNetwork, ...],
    memory: _Memory,
) -> None:
    """Subtract more from every reward, ``(s,)``, and from all values its discounted sum over an endless episode.

    With several scenarios, returns in memory change by the sum of their own scenario, and networks, which do not know the
    scenario, by the mean.

    Values are then too low at first and rise where they are learned. States that were not visited keep lower values than those
    that were. So the policy avoids states that are only estimated to be good.
    """
    env.reward_centre = env.reward_centre + by
    less = by * discount / (1.0 - discount)
    target = memory.rows["wanted"]
    less_of_each = target.new_tensor(np.repeat(less, env.num_envs // len(by)))
    with torch.no_grad():
        for network in networks:
            network.after.value.bias.sub_(float(less.mean()))
            network.pays.bias.sub_(float(by.mean()))
        target.view(-1, env.num_envs).sub_(less_of_each)


class _Memory:
    """The latest rollouts, a row for each decision.

    Attributes:
        rows: afterstates, and ``wanted``, the returns that follow them; rows not written yet are zero.
        size: rows of a rollout.
        num_rollouts: rollouts written so far.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.rows: dict[str, Tensor] = {}
        self.size = 0
        self.num_rollouts = 0

    def add(self, samples: dict[str, Tensor]) -> None:
        """Replace the oldest rollout by a new one."""
        if not self.rows:
            self.size = len(samples["wanted"])
            self.rows = {key: row.new_zeros((self._capacity * self.size, *row.shape[1:])) for key, row in samples.items()}
        first = self.num_rollouts % self._capacity * self.size
        for key, row in samples.items():
            self.rows[key][first : first + self.size] = row
        self.num_rollouts += 1

    def __len__(self) -> int:
        """Rows that have been written."""
        return min(self.num_rollouts, self._capacity) * self.size

    def state(self) -> dict[str, Any]:
        """Tensors and plain data that `restore` continues from."""
        written = {key: rows[: len(self)].clone() for key, rows in self.rows.items()}
        return {"rows": written, "size": self.size, "num_rollouts": self.num_rollouts}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """Continue from the state of a memory of the same capacity, on a device."""
        self.size, self.num_rollouts = state["size"], state["num_rollouts"]
        self.rows = {}
        for key, written in state["rows"].items():
            self.rows[key] = written.new_zeros((self._capacity * self.size, *written.shape[1:]), device=device)
            self.rows[key][: len(self)] = written


def _learn(
    learner: CandidateNetwork,
    optimizer: torch.optim.Optimizer,
    memory: _Memory,
    pretraining: ValuePretraining,
    rng: np.random.Generator,
) -> float:
    """Do the passes of one update, each over as many decisions as a rollout has, sampled from the memory.

    Returns:
        The mean loss.
    """
    weights = _weights(learner)
    losses = []
    for _ in range(pretraining.epochs):
        order = torch.as_tensor(rng.permutation(len(memory))[: memory.size], device=memory.rows["wanted"].device)
        for drawn in torch.split(order, pretraining.minibatch):
            loss = _loss(learner, {key: value[drawn] for key, value in memory.rows.items()})
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(weights, MAX_GRAD_NORM)
            optimizer.step()
            losses.append(loss.detach())
    return float(torch.stack(losses).mean())


def _weights(network: CandidateNetwork) -> list[Tensor]:
    return list(network.after.parameters())


def _loss(learner: CandidateNetwork, rows: dict[str, Tensor]) -> Tensor:
    return ((learner.afterstate_value(rows) - rows["wanted"]) ** 2).mean()
