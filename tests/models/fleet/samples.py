"""Observations of a fleet's episodes under way, and a network whose heads distinguish states."""

import numpy as np
import torch

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.models.fleet.network import FleetActor
from meshwright.models.settings import FleetNetworkSettings


def observed(fleet, num_episodes, num_steps):
    """Observations in the middle of some episodes, by random possible actions."""
    batch, rng = FleetBatch(fleet, num_episodes), np.random.default_rng(0)
    for e in range(num_episodes):
        batch.reset(e, np.random.default_rng(e))
    for _ in range(num_steps):
        batch.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in batch.observations.action_mask]))
    return {name: torch.as_tensor(values.copy()) for name, values in batch.observations._asdict().items()}


def network(fleet, **changes):
    """A network of width 8; its heads, which begin at almost nothing, are drawn too."""
    torch.manual_seed(0)
    made = FleetActor(FleetNetworkSettings(width=8, **changes), fleet)
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return made
