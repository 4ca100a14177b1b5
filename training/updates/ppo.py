"""`CandidatePPO`: MaskablePPO with updates that know the network, to the same numbers up to the order of sums.

sb3-contrib picks the rows of each minibatch out of padded arrays, steps and clips each weight by itself and reads five figures
after each minibatch. Here a rollout is laid out once (`models.offered`), all weights are one vector, and figures are read once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer
from stable_baselines3.common.utils import explained_variance

from ...models.network import CandidateNetwork
from .flat import FlatAdam
from .gradient import FIGURES, CollectedDecisions, PPOGradient, Weights


class CandidatePPO(MaskablePPO):
    """PPO of a `CandidateNetwork`."""

    _flat: FlatAdam | None = None

    def collect_rollouts(self, *arguments: Any, **options: Any) -> bool:
        """Collect rollouts as sb3-contrib does, with the weights in place: elsewhere in memory, products may round otherwise."""
        self._flat_adam()
        return super().collect_rollouts(*arguments, **options)

    def train(self) -> None:
        """Update the weights by the decisions since the last update."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        network = self.policy.get_submodule("network")
        assert isinstance(network, CandidateNetwork)
        assert callable(self.clip_range)
        assert self.batch_size is not None
        weights = Weights(self.clip_range(self._current_progress_remaining), self.ent_coef, self.vf_coef)
        flat = self._flat_adam()
        num_decisions, add_gradient = self._gradients(network, weights)
        figures: list[torch.Tensor] = []
        epoch_begins = 0
        goes_on = True
        for _ in range(self.n_epochs):
            epoch_begins = len(figures)
            order = torch.from_numpy(np.random.permutation(num_decisions)).to(self.device)  # noqa: NPY002 - as in sb3-contrib
            for rows in torch.split(order, self.batch_size):
                flat.gradient.zero_()
                figures.append(add_gradient(rows))
                goes_on = self.target_kl is None or float(figures[-1][FIGURES.index("approx_kl")]) <= 1.5 * self.target_kl
                if not goes_on:
                    break
                flat.step(self.max_grad_norm)
            self._n_updates += 1
            if not goes_on:
                break
        flat.end()
        self._log(torch.stack(figures).double().cpu(), epoch_begins, weights)

    def _gradients(self, network: CandidateNetwork, weights: Weights) -> tuple[int, Callable[[torch.Tensor], torch.Tensor]]:
        """The number of decisions, and what adds a minibatch's gradient to that of the weights and returns `FIGURES`."""
        rollout = self._rollout(network)
        return len(rollout.actions), partial(PPOGradient(network).add, rollout, weights=weights)

    def _flat_adam(self) -> FlatAdam:
        if self._flat is None:
            assert isinstance(self.policy.optimizer, torch.optim.Adam)
            self._flat = FlatAdam(self.policy.optimizer)
        self._flat.bind()
        return self._flat

    def _rollout(self, network: CandidateNetwork) -> CollectedDecisions:
        buffer: Any = self.rollout_buffer
        assert isinstance(buffer, MaskableDictRolloutBuffer)

        def flat(array: Any) -> torch.Tensor:  # environment after environment
            return torch.from_numpy(array).to(self.device).transpose(0, 1).flatten(0, 1)

        seen = network.laid_out({key: flat(array) for key, array in buffer.observations.items()})
        return CollectedDecisions(
            seen, *(flat(one) for one in (buffer.actions[..., 0], buffer.log_probs, buffer.advantages, buffer.returns))
        )

    def _log(self, figures: torch.Tensor, epoch_begins: int, weights: Weights) -> None:
        """Log what sb3-contrib logs; the divergence is that of the last pass."""
        means = dict(zip(FIGURES, figures.mean(dim=0).tolist(), strict=True))
        kl = FIGURES.index("approx_kl")
        last = dict(zip(FIGURES, figures[-1].tolist(), strict=True))
        loss = last["policy_gradient_loss"] + weights.entropy * last["entropy_loss"] + weights.value * last["value_loss"]
        told = means | {"approx_kl": float(figures[epoch_begins:, kl].mean()), "loss": loss, "clip_range": weights.clip}
        values, returns = self.rollout_buffer.values.flatten(), self.rollout_buffer.returns.flatten()
        for key, value in {**told, "explained_variance": explained_variance(values, returns)}.items():
            self.logger.record(f"train/{key}", value)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
