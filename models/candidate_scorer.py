"""`CandidateScorer`: a small network for every environment here, whose observations describe each action; and its measure.

Legend: ``b`` decisions, ``a`` actions, ``f`` features of an action, ``g`` features of everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from ..envs.job_partitioning import JobPartitioningVectorEnv
from ..errors import ConfigError

# Keys of the observations of the environments, by what they describe.
OF_ACTIONS = ("candidates", "candidate")
OF_THE_REST = ("job", "cluster", "context")
NOT_OFFERED = -1e9
"""Score of an action that is not possible; its probability is exactly zero."""


class CandidateScorer(nn.Module):
    """Scores each action from its own features and those of the job and the cluster, with the same weights for all actions.

    Args:
        space: observation space of one environment.
        width: of both hidden layers.

    Attributes:
        keys: what it reads of an observation, ``action_mask`` among it.

    Raises:
        ConfigError: the observation describes no actions.
    """

    def __init__(self, space: spaces.Dict, width: int = 64) -> None:
        super().__init__()
        described = [key for key in OF_ACTIONS if key in space.spaces and all(space[key].shape or (0,))]
        if not described or "action_mask" not in space.spaces:
            raise ConfigError("describes no actions", field="observation_space", value=", ".join(space.spaces))
        self._of_actions, self._of_the_rest = described[0], [key for key in OF_THE_REST if key in space.spaces]
        self.keys = [self._of_actions, *self._of_the_rest, "action_mask"]
        f = _shape(space, self._of_actions)[-1]
        g = sum(_shape(space, key)[-1] for key in self._of_the_rest)
        self.actor = nn.Sequential(nn.Linear(f + g, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.critic = nn.Sequential(nn.Linear(f + g, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, observation: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the scores ``(b, a)``, `NOT_OFFERED` where the mask is 0, and values ``(b,)``."""
        actions = observation[self._of_actions].float()
        offered = observation["action_mask"] > 0
        rest = torch.cat([observation[key].float() for key in self._of_the_rest] or [actions[..., 0, :0]], dim=-1)
        spread = rest.unsqueeze(-2).expand(*actions.shape[:-1], rest.shape[-1])
        scores = self.actor(torch.cat([actions, spread], dim=-1)).squeeze(-1)
        weight = offered.float().unsqueeze(-1)
        mean = (actions * weight).sum(-2) / weight.sum(-2).clamp(min=1.0)
        values = self.critic(torch.cat([mean, rest], dim=-1)).squeeze(-1)
        return scores.masked_fill(~offered, NOT_OFFERED), values


def blocking_rates(network: CandidateScorer | None, benchmark: str, seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the share of counted jobs that are turned away in the episode of each seed, ``(len(seeds),)``.

    Args:
        network: whose highest score is taken; None: an offered candidate at random.
        benchmark: of ``JobPartitioning-v0``.
        seeds: of the episodes.
    """
    envs = JobPartitioningVectorEnv(len(seeds), benchmark, autoreset_mode="Disabled")
    rng = np.random.default_rng(0)
    seen, infos = envs.reset(seed=list(seeds))
    while "episode_counts" not in infos:
        scores = rng.random(seen["action_mask"].shape) * seen["action_mask"]
        if network is not None:
            with torch.no_grad():
                scores = network({key: torch.as_tensor(seen[key]) for key in network.keys})[0].numpy()
        seen, *_, infos = envs.step(scores.argmax(axis=1))
    counts = infos["episode_counts"]
    total = sum(numbers for name, numbers in counts.items() if not name.startswith("_"))
    return np.asarray(1.0 - counts["accepted"] / total)


def _shape(space: spaces.Dict, key: str) -> tuple[int, ...]:
    shape = space[key].shape
    assert shape is not None
    return shape
