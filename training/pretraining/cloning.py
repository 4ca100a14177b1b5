"""Imitation of a baseline: the network learns to choose as a rule of thumb does, on the states that the rule visits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from ...models.ablation import ablated
from ...models.network import CandidateNetwork
from ...planners.policy import Policy
from ...planners.rules import rule_of_thumb
from ...simulation.cluster.decision import decision
from ...simulation.cluster.scenario import Scenario
from ..vec_env_wrappers import CentredReward
from .settings import RulePretraining

MAX_GRAD_NORM = 1.0


def clone(
    network: CandidateNetwork, env: CentredReward, chosen: RulePretraining, seed: int, after: Callable[[int], None]
) -> None:
    """Learn a baseline's choices by their cross-entropy.

    Args:
        network: freshly initialised.
        env: the episodes; they are restarted.
        chosen: constants and the baseline.
        seed: of shuffling, and of a baseline that draws random numbers.
        after: called with the number of decisions so far, after each update.

    Raises:
        PolicyError: the baseline is unknown or not among the scenario's.
    """
    device = next(network.parameters()).device
    optimizer = torch.optim.Adam(network.parameters(), lr=chosen.learning_rate)
    rng = np.random.default_rng([seed, 2])
    rules = [teacher(chosen.rule, batch.scenario) for batch in env.episodes.batches for _ in range(batch.num_episodes)]
    for i, rule in enumerate(rules):
        rule.reset(seed + i)
    seen = env.reset()
    places = [(batch, e) for batch in env.episodes.batches for e in range(batch.num_episodes)]
    for steps in range(0, chosen.steps, chosen.rollout_steps * env.num_envs):
        kept, taken = [], []
        for _ in range(chosen.rollout_steps):
            asked = zip(rules, places, strict=True)
            actions = np.array([rule.choose(decision(batch.scenario, batch.episodes, e), {}) for rule, (batch, e) in asked])
            # A candidate that cannot be placed rejects the job.
            actions = np.where(seen["action_mask"][np.arange(env.num_envs), actions] > 0, actions, 0)
            kept.append(seen)
            taken.append(actions)
            env.step_async(actions)
            seen = env.step_wait()[0]
        observations = {key: torch.as_tensor(np.concatenate([one[key] for one in kept]), device=device) for key in seen}
        wanted = torch.as_tensor(np.concatenate(taken), device=device)
        # Nothing is learned from choices of the baseline that the network may not make.
        offered = ablated({"action_mask": observations["action_mask"]}, network.settings.without)["action_mask"]
        learnable = (offered.gather(1, wanted[:, None]).squeeze(1) > 0).nonzero().squeeze(1)
        for _ in range(chosen.epochs):
            order = learnable[torch.as_tensor(rng.permutation(len(learnable)), device=device)]
            for rows in torch.split(order, chosen.minibatch) if len(order) else ():
                scores = network({key: value[rows] for key, value in observations.items()})[0]
                loss = nn.functional.cross_entropy(scores, wanted[rows])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(network.parameters(), MAX_GRAD_NORM)
                optimizer.step()
        after(min(chosen.steps, steps + chosen.rollout_steps * env.num_envs))


def teacher(name: str, scenario: Scenario) -> Policy:
    """The baseline that is imitated.

    Raises:
        PolicyError: it is unknown or not among the scenario's.
    """
    return rule_of_thumb(name, degrees=scenario.space.degrees, placements=scenario.settings.placement_rules)
