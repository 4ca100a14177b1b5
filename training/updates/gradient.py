"""The loss of PPO on a minibatch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...models.masked_policy import log_shares
from ...models.network import CandidateNetwork
from ...models.offered import Offered

FIGURES = ("policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction")
"""Of a minibatch, as sb3-contrib logs them."""

# Of the deviation of advantages, as in Stable-Baselines3.
EPSILON = 1e-8


class CollectedDecisions(NamedTuple):
    """The decisions ``n`` between two updates.

    Attributes:
        seen: their observations.
        actions: ``(n,)``, of whole numbers.
        log_prob: of the actions by the policy that took them, ``(n,)``.
        advantages, returns: ``(n,)``.
    """

    seen: Offered
    actions: Tensor
    log_prob: Tensor
    advantages: Tensor
    returns: Tensor


class Weights(NamedTuple):
    """Constants of the loss: half the width of the ratios that are rewarded; weights of entropy and of values."""

    clip: float
    entropy: float
    value: float


def add_gradient(network: CandidateNetwork, rollout: CollectedDecisions, rows: Tensor, weights: Weights) -> Tensor:
    """Add the gradient of a minibatch to the network's.

    Args:
        network: as it is now.
        rollout: what it learns from.
        rows: the minibatch, ``(m,)``.
        weights: constants.

    Returns:
        `FIGURES`, ``(5,)``.

    Source:
        Schulman et al., "Proximal policy optimization algorithms", 2017; the terms are those of sb3-contrib's MaskablePPO.
    """
    scores, values = network.of_offered(rollout.seen.take(rows))
    log_share = log_shares(scores)
    log_prob = log_share.gather(1, rollout.actions[rows].unsqueeze(1)).squeeze(1)
    advantages = rollout.advantages[rows]
    advantages = (advantages - advantages.mean()) / (advantages.std() + EPSILON)
    log_ratio = log_prob - rollout.log_prob[rows]
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - weights.clip, 1 + weights.clip)
    policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
    entropy_loss = (log_share.exp() * log_share).sum(dim=1).mean()
    value_loss = (rollout.returns[rows] - values).square().mean()
    (policy_loss + weights.entropy * entropy_loss + weights.value * value_loss).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        divergence = (ratio - 1 - log_ratio).mean()
        num_clipped = ((ratio - 1).abs() > weights.clip).float().mean()
        return torch.stack([policy_loss, value_loss, entropy_loss, divergence, num_clipped])
