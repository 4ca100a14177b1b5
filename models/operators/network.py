"""The encoder of an instance: messages along and against the edges of the job, between devices, and from ops to devices and back.

Legend of shapes: ``b`` instances, ``n`` ops, ``m`` devices, ``e`` edges, ``h`` width.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ... import settings
from .graphs import NUM_DEVICE_FEATURES, NUM_EDGE_FEATURES, NUM_LINK_FEATURES, NUM_OP_FEATURES, OperatorGraphs

Left = Literal["edges", "transfers", "devices", "against"]


class OperatorNetworkSettings(settings.Settings):
    """Widths, and what is left out in an ablation.

    Attributes:
        hidden: width ``h``.
        rounds: of messages.
        walks: kinds of walk by which the policy finds how near an op is to the ops on each device (see
            `affinity.Affinity`); 0: none.
        walk_steps: of the longest walk.
        without: ``edges``: no messages between ops and no walks, each op knows itself and the graph's totals. ``transfers``: no
            feature of a device that comes from neighbours placed already, walks among them. ``devices``: nothing of links between
            devices is read. ``against``: messages from producers to readers only, so that no op learns of what comes after it,
            and walks to producers only.
    """

    hidden: int = Field(default=48, ge=8, le=512)
    rounds: int = Field(default=4, ge=1, le=32)
    walks: int = Field(default=2, ge=0, le=16)
    walk_steps: int = Field(default=4, ge=1, le=16)
    without: tuple[Left, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _without_kind(cls, given: Any) -> Any:
        """Leave out what configs and files of earlier versions say of the kind of policy; refuse the kind that is gone."""
        if not isinstance(given, dict):
            return given
        if given.get("kind") == "one-shot":
            raise ValueError("kind: policies that place all ops at once are gone; train one that places op by op")
        return {key: each for key, each in given.items() if key != "turns" and (key, each) != ("kind", "steps")}


class OperatorEncoder(nn.Module):
    """Embeddings of ops and devices."""

    def __init__(self, given: OperatorNetworkSettings) -> None:
        super().__init__()
        h = given.hidden
        self.settings = given
        self.op_in = nn.Linear(NUM_OP_FEATURES, h)
        self.device_in = nn.Linear(NUM_DEVICE_FEATURES, h)
        self.op_rounds = nn.ModuleList(_OpRound(h) for _ in range(given.rounds))
        self.device_rounds = nn.ModuleList(_DeviceRound(h) for _ in range(2))

    def forward(self, graphs: OperatorGraphs) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings of ops ``(b, n, h)``, of devices ``(b, m, h)`` and of whole instances ``(b, h)``."""
        told = graphs.devices
        if "devices" in self.settings.without:
            told = torch.cat([told[..., :2], torch.zeros_like(told[..., 2:5]), told[..., 5:]], dim=2)
        devices = torch.relu(self.device_in(told))
        for layer in self.device_rounds:
            devices = layer(devices, graphs, reads_links="devices" not in self.settings.without)
        ops = torch.relu(self.op_in(graphs.ops))
        reads, against = "edges" not in self.settings.without, "against" not in self.settings.without
        for layer in self.op_rounds:
            ops = layer(ops, devices, graphs, reads=reads, against=against)
        ops = ops * graphs.is_op[..., None]
        return ops, devices, _mean(ops, graphs.is_op) + _mean(devices, graphs.is_device)


class _OpRound(nn.Module):
    """One round of messages between ops, with the totals of the graph and the mean of the devices."""

    def __init__(self, h: int) -> None:
        super().__init__()
        self.along = _Messages(h)
        self.against = _Messages(h)
        self.own = nn.Linear(h, h)
        self.total = nn.Linear(2 * h, h, bias=False)
        self.norm = nn.LayerNorm(h)
        self.out = nn.Linear(h, h)

    def forward(self, ops: Tensor, devices: Tensor, graphs: OperatorGraphs, *, reads: bool, against: bool) -> Tensor:
        total = self.total(torch.cat([_mean(ops, graphs.is_op), _mean(devices, graphs.is_device)], dim=1))
        new = self.own(ops) + total[:, None]
        if reads:
            new = new + self.along(ops, graphs.producer, graphs.reader, graphs.edges)
            if against:
                new = new + self.against(ops, graphs.reader, graphs.producer, graphs.edges)
        made: Tensor = ops + self.out(torch.relu(self.norm(new)))
        return made


class _Messages(nn.Module):
    """Messages over edges, summed in two ways: evenly, and by gates that the edge and both ends open."""

    def __init__(self, h: int) -> None:
        super().__init__()
        self.source = nn.Linear(h, 2 * h)
        self.target = nn.Linear(h, h, bias=False)
        self.edge = nn.Linear(NUM_EDGE_FEATURES, 2 * h, bias=False)
        self.out = nn.Linear(2 * h, h, bias=False)

    def forward(self, ops: Tensor, source: Tensor, target: Tensor, edges: Tensor) -> Tensor:
        b, n, h = ops.shape
        flat = ops.reshape(b * n, h)
        sent = self.source(flat)[source] + self.edge(edges)
        message, gate = torch.relu(sent[:, :h]), sent[:, h:] + self.target(flat)[target]
        both = torch.cat([message, message * torch.sigmoid(gate)], dim=1)
        summed = torch.zeros(b * n, 2 * h, dtype=ops.dtype, device=ops.device).index_add_(0, target, both)
        count = torch.ones(b * n, dtype=ops.dtype, device=ops.device).index_add_(0, target, torch.ones_like(edges[:, 0]))
        summed = torch.cat([summed[:, :h] / count[:, None], 0.5 * summed[:, h:]], dim=1)
        made: Tensor = self.out(summed)
        return made.reshape(b, n, h)


class _DeviceRound(nn.Module):
    """Messages between all devices of an instance, with what their link is like."""

    def __init__(self, h: int) -> None:
        super().__init__()
        self.source = nn.Linear(h, h)
        self.target = nn.Linear(h, h, bias=False)
        self.link = nn.Linear(NUM_LINK_FEATURES, h, bias=False)
        self.out = nn.Linear(h, h)
        self.norm = nn.LayerNorm(h)

    def forward(self, devices: Tensor, graphs: OperatorGraphs, *, reads_links: bool) -> Tensor:
        sent = self.source(devices)[:, None] + self.target(devices)[:, :, None]
        if reads_links:
            sent = sent + self.link(graphs.links)
        m = devices.shape[1]
        others = graphs.is_device[:, None, :] & ~torch.eye(m, dtype=torch.bool, device=devices.device)
        weight = others[..., None] / others.sum(dim=2).clamp(min=1)[..., None, None]
        gathered = (torch.relu(sent) * weight).sum(dim=2)
        made: Tensor = self.norm(devices + self.out(gathered)) * graphs.is_device[..., None]
        return made


def _mean(values: Tensor, is_there: Tensor) -> Tensor:
    weight = is_there.to(values.dtype)[..., None]
    return (values * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)
