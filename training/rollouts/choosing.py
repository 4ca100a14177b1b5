"""How a rollout's actions are drawn: by PyTorch as sb3-contrib does, or in fewer steps.

Legend: ``g`` environments.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from ...compiled import njit
from ...models.learned.network import NetworkPass
from ...models.masked_policy import log_shares
from ...models.network import CandidateNetwork
from ..libraries.sb3 import Observations

Choices = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]
"""Actions, values and log-probabilities, ``(g,)`` each."""

Chooser = Callable[[Observations], Choices]


def chooser(network: CandidateNetwork, seed: int) -> Chooser:
    """Draw by a generator of PyTorch.

    Args:
        network: which scores; it stays as it is.
        seed: of all that is drawn.
    """
    generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def choose(seen: Observations) -> Choices:
        scores, values = network(tensors(seen))
        log_share = log_shares(scores)
        actions = torch.multinomial(log_share.exp(), 1, generator=generator)
        return actions.squeeze(1).numpy(), values.numpy(), log_share.gather(1, actions).squeeze(1).numpy()

    return choose


def quick_chooser(network: CandidateNetwork, seed: int) -> Chooser:
    """A chooser that draws otherwise from the distribution of `chooser`: a pass that keeps graphs, and one last step."""
    rng, there = np.random.default_rng(seed), NetworkPass(network).there

    @torch.no_grad()
    def choose(seen: Observations) -> Choices:
        offered = network.laid_out(tensors(seen))
        scores, values = there(offered, network.graph_embeddings())
        actions, log_probs = np.empty(len(values), np.int64), np.empty(len(values), np.float32)
        drawn = rng.random(len(values))
        _draw(offered.count.numpy(), offered.candidate.numpy(), scores.numpy(), drawn, actions, log_probs)
        return actions, values.numpy(), log_probs

    return choose


def tensors(seen: Observations) -> dict[str, torch.Tensor]:
    """Observations as PyTorch reads them."""
    return {key: torch.from_numpy(np.ascontiguousarray(value)) for key, value in seen.items()}


@njit
def _draw(count, candidate, scores, drawn, actions, log_probs):  # type: ignore[no-untyped-def]
    """Choose the first candidate up to which the probabilities, which scores are logarithms of, reach what is drawn."""
    end = 0
    for i in range(len(count)):
        begin = end
        end = begin + count[i]
        most, total = np.max(scores[begin:end]), 0.0
        for v in range(begin, end):
            total += np.exp(np.float64(scores[v] - most))
        picked, left = begin, drawn[i] * total
        for v in range(begin, end):
            share = np.exp(np.float64(scores[v] - most))
            if share > 0:
                picked = v
            left -= share
            if left < 0:
                break
        actions[i] = candidate[picked]
        log_probs[i] = scores[picked] - most - np.log(total)
