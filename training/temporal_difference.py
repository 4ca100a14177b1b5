"""TD(lambda) on afterstates: what the state after each decision is worth, learned before PPO begins.

Legend: ``t`` decisions of a rollout, ``e`` environments, ``a`` candidates, ``v`` offered candidates of all environments.
The policy that plays takes the candidate with the most reward at once plus worth afterwards, but for some decisions
that are taken by chance. Rewards are centred: what a decision pays on average is taken off, so that the worth of a state
tells how much better or worse than usual things will go. The weights that play, and that are kept, are a running
average of those that learn: the policy then changes slowly, though it hangs on small differences in worth.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..models.network import CandidateNetwork, Worth
from .pretraining_settings import ValuePretraining
from .vec_env import JobPartitioningVecEnv, Observations

# Decisions of each environment from which nothing is learned but what decisions pay.
PREPARING_STEPS = 256
# Weight of the newest rollout in the running mean of what is paid, which stands still in the second half.
CENTRE_RATE = 0.05
CENTRE_UNTIL = 0.5
MAX_GRAD_NORM = 1.0
AFTER_KEYS = ("candidate_shapes", "candidate_any")

Look = Callable[[int], None]


def pretrain_values(
    network: CandidateNetwork, env: JobPartitioningVecEnv, chosen: ValuePretraining, discount: float, seed: int, look: Look
) -> None:
    """Learn the worth of afterstates; ``env.reward_centre`` is left at what a decision pays on average.

    Args:
        network: with the layers ``after``.
        env: the episodes; they begin anew.
        chosen: constants.
        discount: of later rewards, per decision.
        seed: of exploration and shuffling.
        look: called with the number of decisions so far, after each update.
    """
    device = next(network.parameters()).device
    rng = np.random.default_rng([seed, 1])
    num_envs = env.num_envs
    seen = _prepare(network, env, env.reset(), rng)
    learner = copy.deepcopy(network)
    weights = _weights(learner)
    optimizer = torch.optim.Adam(weights, lr=chosen.learning_rate)
    steps = 0
    while steps < chosen.steps:
        left = 1.0 - steps / chosen.steps
        rate = chosen.final_learning_rate + (chosen.learning_rate - chosen.final_learning_rate) * left
        for group in optimizer.param_groups:
            group["lr"] = rate
        rollout = _Rollout(chosen.rollout_steps, num_envs)
        for t in range(chosen.rollout_steps + 1):
            worth, pays = _worth(network, seen, device), env.pays()
            actions, chosen_row = _act(worth, pays, chosen.explore * left, rng)
            rollout.note(t, worth, pays[np.arange(num_envs), actions], chosen_row)
            if t < chosen.rollout_steps:
                rollout.keep(seen, actions)
                env.step_async(actions)
                seen, _, is_over, _ = env.step_wait()
                rollout.is_over[t] = is_over
        targets = rollout.targets(discount, chosen.trace)
        _learn(learner, optimizer, weights, rollout, targets, chosen, rng, device)
        with torch.no_grad():
            torch._foreach_lerp_(_weights(network), weights, chosen.averaging)
        steps += chosen.rollout_steps * num_envs
        if steps < CENTRE_UNTIL * chosen.steps:
            _move_centre(env, CENTRE_RATE * float(rollout.pays[:-1].mean()), discount, network, learner)
        look(steps)


def _prepare(network: CandidateNetwork, env: JobPartitioningVecEnv, seen: Observations, rng: np.random.Generator) -> Observations:
    """Learn what candidates pay, by least squares, and what they pay on average when the best-paid ones are taken.

    Among candidates that pay alike, one is taken by chance.
    """
    rows, paid, taken = [], [], []
    for _ in range(PREPARING_STEPS):
        pays, offered = env.pays(), seen["action_mask"] > 0
        rows.append(np.concatenate([seen["candidates"][offered], seen["candidate_ends"][offered]], axis=1))
        paid.append(pays[offered])
        best = offered & (pays == np.where(offered, pays, -np.inf).max(axis=1, keepdims=True))
        actions = (rng.random(pays.shape) * best).argmax(axis=1)
        taken.append(pays[np.arange(len(actions)), actions])
        env.step_async(actions)
        seen = env.step_wait()[0]
    env.reward_centre = float(np.mean(taken))
    features = np.concatenate(rows).astype(np.float64)
    features = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    found = np.linalg.lstsq(features, np.concatenate(paid) - env.reward_centre, rcond=None)[0]
    with torch.no_grad():
        network.pays.weight.copy_(torch.as_tensor(found[None, :-1]))
        network.pays.bias.copy_(torch.as_tensor(found[-1:]))
    return seen


class _Rollout:
    """What happened in ``t`` decisions of each environment, and what it looked like."""

    def __init__(self, num_steps: int, num_envs: int) -> None:
        self.pays = np.zeros((num_steps + 1, num_envs), np.float32)
        self.after = np.zeros((num_steps + 1, num_envs), np.float32)
        self.is_over = np.zeros((num_steps, num_envs), np.bool_)
        self.kept: dict[str, list[NDArray[np.float32]]] = {key: [] for key in (*AFTER_KEYS, "episode")}

    def note(self, t: int, worth: Worth, pays: NDArray[np.float32], row: NDArray[np.int64]) -> None:
        """What the chosen candidates pay and are worth afterwards; ``row`` is their place among the offered ones."""
        self.pays[t] = pays
        self.after[t] = worth.after.cpu().numpy()[row]

    def keep(self, seen: Observations, actions: NDArray[np.int64]) -> None:
        """The afterstates that were chosen."""
        rows = np.arange(len(actions))
        for key in AFTER_KEYS:
            self.kept[key].append(seen[key][rows, actions])
        self.kept["episode"].append(seen["episode"])

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """The afterstates, a row each."""
        return {key: torch.as_tensor(np.concatenate(parts), device=device) for key, parts in self.kept.items()}

    def targets(self, discount: float, trace: float) -> NDArray[np.float32]:
        """Discounted lambda-returns that follow each decision, ``(t, e)``; nothing follows the last one of an episode."""
        num_steps = len(self.is_over)
        out = np.zeros_like(self.pays[:-1])
        later = self.after[-1]
        for t in reversed(range(num_steps)):
            mixed = self.after[t + 1] if t == num_steps - 1 else (1 - trace) * self.after[t + 1] + trace * later
            later = np.where(self.is_over[t], 0.0, discount * (self.pays[t + 1] + mixed)).astype(np.float32)
            out[t] = later
        return out


def _worth(network: CandidateNetwork, seen: Observations, device: torch.device) -> Worth:
    with torch.no_grad():
        return network.worth({key: torch.as_tensor(value, device=device) for key, value in seen.items()})


def _move_centre(env: JobPartitioningVecEnv, by: float, discount: float, *networks: CandidateNetwork) -> None:
    """Take more off every reward, and off all worth what that comes to when the end of the episode is far.

    Worth then begins too low and is raised where it is learned: what has not been seen stays below what has, which keeps
    the policy from states that it only imagines to be good.
    """
    env.reward_centre += by
    with torch.no_grad():
        for network in networks:
            network.after.value.bias.sub_(by * discount / (1.0 - discount))
            network.pays.bias.sub_(by)


def _act(
    worth: Worth, pays: NDArray[np.float32], explore: float, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Candidates ``(e,)`` and their places among the offered ones of all environments."""
    sample, candidate = worth.sample.cpu().numpy(), worth.candidate.cpu().numpy()
    total = np.full(pays.shape, -np.inf, np.float32)
    total[sample, candidate] = pays[sample, candidate] + worth.after.cpu().numpy()
    actions = total.argmax(axis=1)
    by_chance = rng.random(len(actions)) < explore
    if by_chance.any():
        drawn = np.where(np.isfinite(total), rng.random(total.shape), -1.0).argmax(axis=1)
        actions = np.where(by_chance, drawn, actions)
    row = np.zeros(pays.shape, np.int64)
    row[sample, candidate] = np.arange(len(sample))
    return actions, row[np.arange(len(actions)), actions]


def _learn(
    learner: CandidateNetwork,
    optimizer: torch.optim.Optimizer,
    weights: list[Tensor],
    rollout: _Rollout,
    targets: NDArray[np.float32],
    chosen: ValuePretraining,
    rng: np.random.Generator,
    device: torch.device,
) -> None:
    kept = rollout.tensors(device)
    wanted = torch.as_tensor(targets.reshape(-1), device=device)
    for _ in range(chosen.epochs):
        order = torch.as_tensor(rng.permutation(len(wanted)), device=device)
        for rows in torch.split(order, chosen.minibatch):
            batch = {key: value[rows] for key, value in kept.items()}
            loss = _loss(learner, batch, wanted[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(weights, MAX_GRAD_NORM)
            optimizer.step()


def _weights(network: CandidateNetwork) -> list[Tensor]:
    return list(network.after.parameters())


def _loss(learner: CandidateNetwork, batch: dict[str, Tensor], wanted: Tensor) -> Tensor:
    return ((learner.after_worth(batch) - wanted) ** 2).mean()
