"""What one worker does between two updates and for each minibatch: a function of what it is given alone.

So it does not matter which process a share is done in, and another one may do it again where the first is lost.

Legend: the rows of a share are its decisions, environment after environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...models.network import CandidateNetwork
from ...models.offered import Offered
from ..rollouts.group import WITHIN_POLICY, GroupPlayer, GroupRollout, GroupTask
from ..updates.gradient import FIGURES, AdvantageScale, CollectedDecisions, PPOGradient, Weights


class ShareUpdate(NamedTuple):
    """What all minibatches of an update have in common.

    Attributes:
        advantages, returns: of the share's decisions, ``(n,)``.
        weights: constants of the loss.
    """

    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]
    weights: Weights


class ShareRows(NamedTuple):
    """The part of a minibatch that is a share's.

    Attributes:
        rows: of the share, ``(m,)``.
        whole: of the minibatch.
    """

    rows: NDArray[np.int64]
    whole: AdvantageScale


class WorkerShare:
    """The environments of one worker, and the gradient of its decisions.

    Args:
        player: plays groups of environments.
        network: whose gradients are computed, as it is then; on a CPU.
        gradient: of which those of its weights are parts.
    """

    def __init__(self, player: GroupPlayer, network: CandidateNetwork, gradient: Tensor) -> None:
        self._player, self._network, self._gradient = player, network, gradient
        self._seen: Offered | None = None
        self._taken: tuple[Tensor, Tensor] = torch.empty(0), torch.empty(0)
        self._update: tuple[PPOGradient, CollectedDecisions, Weights] | None = None

    def play(self, tasks: Sequence[GroupTask]) -> list[GroupRollout]:
        """Play groups; their observations stay here."""
        for name, buffer in self._network.named_buffers():  # what PPO does not learn
            if WITHIN_POLICY + name in tasks[0].weights:
                buffer.copy_(torch.from_numpy(tasks[0].weights[WITHIN_POLICY + name]))
        played = [self._player(task) for task in tasks]
        observations = {key: _rows([rollout.observations[key] for rollout in played]) for key in played[0].observations}
        self._seen = self._network.laid_out(observations)
        self._taken = _rows([rollout.actions for rollout in played]), _rows([rollout.log_probs for rollout in played])
        return [rollout._replace(observations={}) for rollout in played]

    def begin(self, update: ShareUpdate) -> None:
        """Begin an update by the decisions that were played last."""
        assert self._seen is not None, "an update follows a rollout"
        advantages, returns = torch.from_numpy(update.advantages), torch.from_numpy(update.returns)
        decisions = CollectedDecisions(self._seen, *self._taken, advantages, returns)
        self._update = PPOGradient(self._network), decisions, update.weights

    def differentiate(self, part: ShareRows) -> NDArray[np.float64]:
        """Compute the gradient of a part of a minibatch, and return its `FIGURES`."""
        assert self._update is not None, "gradients belong to an update"
        gradient, decisions, weights = self._update
        self._gradient.zero_()
        if not len(part.rows):
            return np.zeros(len(FIGURES))
        return gradient.add(decisions, torch.from_numpy(part.rows), weights, part.whole).numpy()

    def warm_up(self, tasks: Sequence[GroupTask]) -> None:
        """Do everything once, so that compiled code is loaded; the gradient is not one of anything."""
        self.play(tasks)
        num = len(self._taken[0])
        self.begin(ShareUpdate(np.zeros(num, np.float32), np.zeros(num, np.float32), Weights(0.2, 0.0, 0.5)))
        self.differentiate(ShareRows(np.arange(num), AdvantageScale(num, 0.0, 1.0)))


def _rows(arrays: Sequence[NDArray[Any]]) -> Tensor:
    """Arrays ``(n, g, ...)`` of groups as rows."""
    return torch.from_numpy(np.concatenate([array.swapaxes(0, 1).reshape(-1, *array.shape[2:]) for array in arrays]))
