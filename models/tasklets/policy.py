"""The policy that fills stages: which device joins next, from embeddings and from what each would make of the stage.

Legend of shapes: ``b`` networks, ``E`` episodes (several of a network), ``t`` decisions, ``n`` devices, ``h`` width,
``f`` features.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from ...simulation.tasklets.filling import NUM_CANDIDATE_FEATURES, NUM_PROGRESS_FEATURES
from .graphs import NUM_NETWORK_FEATURES, TaskletGraphs
from .network import DeviceEncoder, TaskletNetworkSettings


@dataclass(frozen=True, eq=False)
class FilledSteps:
    """Decisions of episodes that were played or replayed.

    Attributes:
        of: network of each episode, ``(E,)``.
        joined: device of each decision, ``(E, t)``.
        candidates: features of devices, ``(E, t, n, f)``.
        progress: features of the episode, ``(E, t, 5)``.
        can_join: ``(E, t, n)``; False throughout for decisions beyond a network's devices.
    """

    of: Tensor
    joined: Tensor
    candidates: Tensor
    progress: Tensor
    can_join: Tensor

    def to(self, device: torch.device) -> FilledSteps:
        """A copy on a PyTorch device."""
        return FilledSteps(*(getattr(self, each.name).to(device) for each in fields(self)))

    @property
    def is_live(self) -> Tensor:
        """Whether there is a decision, ``(E, t)``."""
        return self.can_join.any(dim=2)


class TaskletPolicy(nn.Module):
    """Reads a network once and scores the devices of each decision with shared weights, however many there are."""

    def __init__(self, given: TaskletNetworkSettings) -> None:
        super().__init__()
        h = given.hidden
        self.settings = given
        self.encoder = DeviceEncoder(given)
        self.device = nn.Linear(h, h)
        self.key = nn.Linear(h, h, bias=False)
        self.context = nn.Linear(4 * h + NUM_NETWORK_FEATURES + NUM_PROGRESS_FEATURES, h)
        self.shift = nn.Linear(h, h, bias=False)
        self.query = nn.Linear(h, h, bias=False)
        self.candidate = nn.Linear(NUM_CANDIDATE_FEATURES, h, bias=False)
        self.out = nn.Linear(h, 1, bias=False)
        self.direct = nn.Linear(NUM_CANDIDATE_FEATURES, 1, bias=False)

    def forward(self, graphs: TaskletGraphs, steps: FilledSteps) -> Tensor:
        """Logits of all decisions, ``(E, t, n)``: minus infinity where a device may not join, finite where none is made."""
        devices = self.encoder(graphs)
        context = self._context(devices, graphs, steps)
        device, key = self.device(devices)[steps.of], self.key(devices)[steps.of]
        hidden = torch.relu(device[:, None] + self.shift(context)[:, :, None] + self.candidate(steps.candidates))
        pointed = self.query(context) @ key.transpose(1, 2) / key.shape[2] ** 0.5
        logits: Tensor = (self.out(hidden) + self.direct(steps.candidates))[..., 0] + pointed
        return logits.masked_fill(~steps.can_join & steps.is_live[..., None], -torch.inf)

    def _context(self, devices: Tensor, graphs: TaskletGraphs, steps: FilledSteps) -> Tensor:
        """Of each decision: means of the stage, of the one before, of the devices left and of all, and how far the episode is."""
        own, t = devices[steps.of], steps.joined.shape[1]
        chosen = own.gather(1, steps.joined[..., None].expand(-1, -1, own.shape[2])) * steps.is_live[..., None]
        before = torch.cat([torch.zeros_like(chosen[:, :1]), chosen.cumsum(dim=1)], dim=1)
        step = torch.arange(t, device=own.device)[None]
        p = graphs.num_replicas[steps.of][:, None]
        first = step // p * p
        previous = (first - p).clamp(min=0)

        def summed(until: Tensor) -> Tensor:
            return before.gather(1, until.expand(len(own), -1)[..., None].expand(-1, -1, own.shape[2]))

        now, at_first = summed(step), summed(first)
        count = graphs.is_device[steps.of].sum(dim=1)[:, None]
        total = own.sum(dim=1)[:, None]
        parts = [
            (now - at_first) / (step - first).clamp(min=1)[..., None],
            (at_first - summed(previous)) / p[..., None],
            (total - now) / (count - step).clamp(min=1)[..., None],
            (total / count[..., None]).expand(-1, t, -1),
            graphs.network[steps.of][:, None].expand(-1, t, -1),
            steps.progress,
        ]
        return torch.relu(self.context(torch.cat(parts, dim=2)))
