"""The loss of PPO on a minibatch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...compiled import njit
from ...models.learned.network import NetworkPass
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


class AdvantageScale(NamedTuple):
    """What the advantages of a minibatch are normalised by, and over how many decisions its loss is the mean.

    Attributes:
        num: decisions of the minibatch.
        mean: of their advantages.
        deviation: of their advantages, and a little more, so that it is never zero.
    """

    num: int
    mean: float
    deviation: float

    @classmethod
    def of(cls, advantages: Tensor) -> AdvantageScale:
        """The scale of the advantages of a whole minibatch, ``(m,)``, on a CPU."""
        return cls(len(advantages), *_mean_and_deviation(advantages.numpy()))


class PPOGradient:
    """Gradients of minibatches.

    Args:
        network: whose gradients are added to, as it is then. Elsewhere than on a CPU, in another precision than the single one
            or where some weights do not learn, PyTorch differentiates.
    """

    def __init__(self, network: CandidateNetwork) -> None:
        self._network = network
        weights = [*network.parameters()]
        is_plain = all(
            weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.requires_grad for weight in weights
        )
        self._pass = NetworkPass(network) if is_plain else None

    def add(self, rollout: CollectedDecisions, rows: Tensor, weights: Weights, whole: AdvantageScale | None = None) -> Tensor:
        """Add the gradient of a minibatch, or of a part of one, to the network's.

        Args:
            rollout: what it learns from.
            rows: the minibatch or the part, ``(m,)``.
            weights: constants.
            whole: of the minibatch, where the rows are a part of it; on a CPU alone.

        Returns:
            `FIGURES`, ``(5,)``; those of all parts of a minibatch add up to those of the whole.

        Source:
            Schulman et al., "Proximal policy optimization algorithms", 2017; the terms are those of sb3-contrib's MaskablePPO.
        """
        seen = rollout.seen.take(rows)
        decisions = [one[rows] for one in (rollout.actions, rollout.log_prob, rollout.advantages, rollout.returns)]
        if self._pass is None:
            assert whole is None, "PyTorch differentiates whole minibatches alone"
            loss, figures = _loss(*self._network.of_offered(seen), *decisions, weights=weights)
            loss.backward()  # type: ignore[no-untyped-call]
            return figures
        scores, values = self._pass.there(seen)
        of_scores, of_values = torch.empty_like(scores), torch.empty_like(values)
        figures = torch.empty(len(FIGURES), dtype=torch.float64)
        read = (one.numpy() for one in (seen.count, seen.candidate, scores, values, *decisions))
        scale = whole or AdvantageScale.of(decisions[2])
        _differentiate(*read, tuple(scale), tuple(weights), of_scores.numpy(), of_values.numpy(), figures.numpy())
        self._pass.back(of_scores, of_values)
        return figures


def _loss(
    scores: Tensor, values: Tensor, actions: Tensor, log_probs: Tensor, advantages: Tensor, returns: Tensor, *, weights: Weights
) -> tuple[Tensor, Tensor]:
    """The loss, and `FIGURES`."""
    log_share = log_shares(scores)
    if len(advantages) > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + EPSILON)
    log_ratio = log_share.gather(1, actions.unsqueeze(1)).squeeze(1) - log_probs
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - weights.clip, 1 + weights.clip)
    policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
    entropy_loss = (log_share.exp() * log_share).sum(dim=1).mean()
    value_loss = (returns - values).square().mean()
    with torch.no_grad():
        divergence = (ratio - 1 - log_ratio).mean()
        num_clipped = ((ratio - 1).abs() > weights.clip).float().mean()
        figures = torch.stack([policy_loss, value_loss, entropy_loss, divergence, num_clipped])
    return policy_loss + weights.entropy * entropy_loss + weights.value * value_loss, figures


@njit
def _mean_and_deviation(advantages):  # type: ignore[no-untyped-def]
    """Of some advantages; of a single one zero and one, which leave it as it is."""
    num = len(advantages)
    if num < 2:
        return 0.0, 1.0
    mean = np.mean(advantages.astype(np.float64))
    return mean, np.sqrt(np.sum((advantages - mean) ** 2) / (num - 1)) + EPSILON


@njit
def _differentiate(  # type: ignore[no-untyped-def]
    count, candidate, scores, values, actions, log_probs, advantages, returns, scale, weights, of_scores, of_values, figures
):
    """The gradient of `_loss` by scores ``(v,)`` and values ``(m,)``, in double precision within a sample."""
    clip, entropy, value = weights
    num, mean, deviation = scale
    end = 0
    figures[:] = 0.0
    for i in range(len(count)):
        begin = end
        end = begin + count[i]
        most = np.max(scores[begin:end])
        log_total, picked = 0.0, begin
        for v in range(begin, end):
            log_total += np.exp(np.float64(scores[v] - most))
            if candidate[v] == actions[i]:
                picked = v
        log_total = np.log(log_total)
        negated_entropy = 0.0
        for v in range(begin, end):
            log_share = scores[v] - most - log_total
            negated_entropy += np.exp(log_share) * log_share
        advantage = (advantages[i] - mean) / deviation
        log_ratio = scores[picked] - most - log_total - log_probs[i]
        ratio = np.exp(log_ratio)
        clipped = min(max(ratio, 1 - clip), 1 + clip)
        is_open = advantage * ratio <= advantage * clipped
        of_log_prob = -advantage * ratio if is_open else 0.0
        for v in range(begin, end):
            log_share = scores[v] - most - log_total
            share = np.exp(log_share)
            through_choice = of_log_prob * ((1.0 if v == picked else 0.0) - share)
            of_scores[v] = (through_choice + entropy * share * (log_share - negated_entropy)) / num
        error = values[i] - returns[i]
        of_values[i] = 2 * value * error / num
        figures[0] -= min(advantage * ratio, advantage * clipped)
        figures[1] += error * error
        figures[2] += negated_entropy
        figures[3] += ratio - 1 - log_ratio
        figures[4] += abs(ratio - 1) > clip
    figures /= num
