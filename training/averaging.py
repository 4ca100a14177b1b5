"""A running average of the network's weights over the updates of PPO."""

from __future__ import annotations

import copy
from typing import Any

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

from ..models.network import CandidateNetwork


def network_of(model: BaseAlgorithm) -> CandidateNetwork:
    """The network that a model trains."""
    network = model.policy.get_submodule("network")
    assert isinstance(network, CandidateNetwork)
    return network


@torch.no_grad()
def average_in(average: torch.nn.Module, newest: torch.nn.Module, share: float) -> None:
    """Move an average of weights towards the newest ones, which may be on another device.

    Args:
        average: is changed.
        newest: of the same shapes.
        share: weight of the newest in the average.
    """
    for kept, new in zip(average.parameters(), newest.parameters(), strict=True):
        kept.lerp_(new.to(kept.device), share)


class WeightAverage(BaseCallback):
    """A running average of the network's weights, which is validated and kept in place of the newest ones.

    Args:
        share: weight of the newest weights in the average, per update; 1: the newest alone.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share
        self._average: CandidateNetwork | None = None
        self._updated_at = 0
        self._restored: dict[str, torch.Tensor] | None = None

    @property
    def network(self) -> CandidateNetwork:
        """The average; before PPO, and without averaging, the network itself."""
        return self._average or network_of(self.model)

    def update(self) -> None:
        """Add the newest weights to the average, once per update."""
        if self._average is None or self.model.num_timesteps <= self._updated_at:
            return
        self._updated_at = self.model.num_timesteps
        average_in(self._average, network_of(self.model), self._share)

    def state(self) -> dict[str, Any]:
        """What `restore` continues from."""
        return {
            "averaged_at": self._updated_at,
            "averaged": self._restored if self._average is None else self._average.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self._updated_at, self._restored = state["averaged_at"], state["averaged"]

    def _on_training_start(self) -> None:
        if self._average is None and self._share < 1.0:
            self._average = copy.deepcopy(network_of(self.model))
            if self._restored is not None:
                self._average.load_state_dict(self._restored)

    def _on_rollout_start(self) -> None:
        self.update()

    def _on_step(self) -> bool:
        return True
