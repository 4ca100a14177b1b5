"""The network that reads a complete graph of devices: attention between all devices, biased by what lies between them.

Legend of shapes: ``b`` networks, ``n`` devices, ``h`` width, ``a`` heads.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ... import settings
from .graphs import NUM_DEVICE_FEATURES, NUM_LINK_FEATURES, NUM_NETWORK_FEATURES, TaskletGraphs

_LINK_WIDTH = 16
LeftOut = Literal["messages"]


class TaskletNetworkSettings(settings.Settings):
    """Widths, and what is left out in an ablation.

    Attributes:
        hidden: width ``h``; a multiple of ``heads``.
        heads: of attention.
        rounds: of messages between devices.
        without: ``messages``: each device knows its own links' quantiles and the network's totals alone.
    """

    hidden: int = Field(default=48, ge=8, le=512, multiple_of=8)
    heads: Literal[1, 2, 4, 8] = 8
    rounds: int = Field(default=3, ge=1, le=16)
    without: tuple[LeftOut, ...] = ()


class DeviceEncoder(nn.Module):
    """Embeddings of devices, however many there are."""

    def __init__(self, given: TaskletNetworkSettings) -> None:
        super().__init__()
        h = given.hidden
        self.own = nn.Linear(NUM_DEVICE_FEATURES, h)
        self.network = nn.Linear(NUM_NETWORK_FEATURES, h, bias=False)
        sends = "messages" not in given.without
        self.rounds = nn.ModuleList(_Round(h, given.heads, sends=sends) for _ in range(given.rounds))

    def forward(self, graphs: TaskletGraphs) -> Tensor:
        """Embeddings ``(b, n, h)``; those of places without a device are 0."""
        devices: Tensor = self.own(graphs.devices) + self.network(graphs.network)[:, None]
        for each in self.rounds:
            devices = each(devices, graphs)
        return devices * graphs.is_device[..., None]


class _Round(nn.Module):
    """Attention between all devices, with a bias for each pair, then two layers for each device."""

    def __init__(self, h: int, heads: int, *, sends: bool) -> None:
        super().__init__()
        self.heads, self.sends = heads, sends
        self.norm, self.inner_norm = nn.LayerNorm(h), nn.LayerNorm(h)
        self.inner, self.out = nn.Linear(h, 2 * h), nn.Linear(2 * h, h)
        if sends:
            self.query_key_value = nn.Linear(h, 3 * h)
            self.link = nn.Linear(NUM_LINK_FEATURES, _LINK_WIDTH)
            self.bias = nn.Linear(_LINK_WIDTH, heads)
            self.gather = nn.Linear(h + heads * NUM_LINK_FEATURES, h)

    def forward(self, devices: Tensor, graphs: TaskletGraphs) -> Tensor:
        if self.sends:
            devices = devices + self._gathered(self.norm(devices), graphs)
        made: Tensor = devices + self.out(torch.relu(self.inner(self.inner_norm(devices))))
        return made

    def _gathered(self, devices: Tensor, graphs: TaskletGraphs) -> Tensor:
        b, n, h = devices.shape
        query, key, value = self.query_key_value(devices).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        bias = self.bias(torch.relu(self.link(graphs.links))).permute(0, 3, 1, 2)
        logits = query @ key.transpose(2, 3) / (h // self.heads) ** 0.5 + bias
        share = torch.softmax(logits.masked_fill(~graphs.is_device[:, None, None], -1e9), dim=3)
        told = torch.einsum("banm,bnmf->bnaf", share, graphs.links).reshape(b, n, -1)
        gathered = (share @ value).transpose(1, 2).reshape(b, n, h)
        made: Tensor = self.gather(torch.cat([gathered, told], dim=2))
        return made
