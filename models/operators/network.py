"""The encoder of an instance: messages along and against the edges of the job, between devices, and from ops to devices and back.

Legend of shapes: ``b`` instances, ``n`` ops, ``m`` devices, ``e`` edges, ``h`` width.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ... import settings
from .graphs import (
    NUM_DEVICE_FEATURES,
    NUM_EDGE_FEATURES,
    NUM_LINK_FEATURES,
    NUM_OP_FEATURES,
    NUM_PAIR_FEATURES,
    OperatorGraphs,
)

_BALANCING_ROUNDS = 8
_FILLED = 0.9
"""Share of a device's memory that may be expected before it is made less likely."""

_NUM_TENTATIVE = 7

Left = Literal["edges", "transfers", "devices", "against"]


class OperatorNetworkSettings(settings.Settings):
    """Widths, and what is left out in an ablation.

    Attributes:
        kind: ``steps`` places group after group; ``one-shot`` places all at once.
        hidden: width ``h``.
        rounds: of messages.
        turns: in which a one-shot policy settles its probabilities.
        walks: kinds of walk by which a step-by-step policy finds how near an op is to what stands on each device (see
            `affinity.Affinity`); 0: none.
        walk_steps: of the longest walk.
        without: ``edges``: no messages between ops and no walks, each op knows itself and the graph's totals. ``transfers``: no
            feature of a device that comes from neighbours placed already, walks among them. ``devices``: nothing of links between
            devices is read. ``against``: messages from producers to readers only, so that no op learns of what comes after it,
            and walks to producers only.
    """

    kind: Literal["steps", "one-shot"] = "steps"
    hidden: int = Field(default=48, ge=8, le=512)
    rounds: int = Field(default=4, ge=1, le=32)
    turns: int = Field(default=4, ge=1, le=16)
    walks: int = Field(default=2, ge=0, le=16)
    walk_steps: int = Field(default=4, ge=1, le=16)
    without: tuple[Left, ...] = ()


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


class PairScore(nn.Module):
    """A probability for each op and device, all at once, in turns: each turn sees what the last one placed.

    The turns are a mean-field iteration with learned steps: no turn draws anything, and none sees a schedule.
    """

    def __init__(self, h: int, turns: int, *, reads: tuple[bool, bool]) -> None:
        super().__init__()
        self.turns, self.reads = turns, reads  # from producers, and from readers
        self.op = nn.Linear(h, 2 * h)
        self.device = nn.Linear(h, 2 * h, bias=False)
        self.pair = nn.Linear(NUM_PAIR_FEATURES, 2 * h, bias=False)
        self.tentative = nn.ModuleList(nn.Linear(_NUM_TENTATIVE, 2 * h, bias=False) for _ in range(turns - 1))
        self.middle = nn.ModuleList(nn.Linear(2 * h, h) for _ in range(turns))
        self.out = nn.ModuleList(nn.Linear(h, 1) for _ in range(turns))
        self.query = nn.Linear(h, h, bias=False)
        self.key = nn.Linear(h, h, bias=False)

    def forward(self, ops: Tensor, devices: Tensor, graphs: OperatorGraphs) -> Tensor:
        """Logarithms of probabilities, ``(b, n, m)``; minus infinity where an op cannot run."""
        allowed = (graphs.can_run & graphs.is_device[:, None]) | ~graphs.is_op[..., None]
        known = self.pair(graphs.pairs).add_(self.op(ops)[:, :, None]).add_(self.device(devices)[:, None])
        logits = self.query(ops) @ self.key(devices).transpose(1, 2) / ops.shape[-1] ** 0.5
        log_p: Tensor = logits
        for turn in range(self.turns):
            if turn == 0:
                hidden = torch.relu(known)
            else:  # in place: these are the largest arrays here
                hidden = self.tentative[turn - 1](self._told(log_p.exp(), graphs)).add_(known).relu_()
            logits = logits + self.out[turn](self.middle[turn](hidden).relu_())[..., 0]
            log_p = balanced(logits.masked_fill(~allowed, -torch.inf), graphs)
        return log_p

    def _told(self, p: Tensor, graphs: OperatorGraphs) -> Tensor:
        """Of each op and device: its probability, those of producers and readers weighted by transfers, work and memory there."""
        b, n, m = p.shape
        there = p * graphs.is_op[..., None]
        work = (there * graphs.pairs[..., 0]).sum(dim=1, keepdim=True)
        num_devices = graphs.is_device.sum(dim=1)[:, None, None]
        work = work * num_devices / work.sum(dim=2, keepdim=True).clamp(min=1e-6)
        filled = (there * graphs.pairs[..., 2]).sum(dim=1, keepdim=True)
        told = [p, work.expand(b, n, m), filled.expand(b, n, m)]
        flat = there.reshape(b * n, m)
        ways = ((graphs.producer, graphs.reader), (graphs.reader, graphs.producer))
        for (source, target), is_read in zip(ways, self.reads, strict=True):
            gathered, weight = torch.zeros_like(flat), torch.full_like(flat[:, :1], 1e-6)
            if is_read:
                share = graphs.edges[:, :1]
                gathered = gathered.index_add(0, target, flat[source] * share)
                weight = weight.index_add(0, target, share)
            told += [(gathered / weight).reshape(b, n, m), gathered.reshape(b, n, m)]
        return torch.stack(told, dim=3)


def balanced(logits: Tensor, graphs: OperatorGraphs) -> Tensor:
    """Logarithms of probabilities under which no device is expected to hold more than its memory, ``(b, n, m)``.

    Devices that expect more are made less likely for all ops alike, in turns with the rows' normalisation (Sinkhorn and Knopp
    1967); what is drawn may still have to be repaired.
    """
    log_p = torch.log_softmax(logits, dim=2)
    needs = graphs.pairs[..., 2] * graphs.is_op[..., None]
    for _ in range(_BALANCING_ROUNDS):
        expected = (log_p.exp() * needs).sum(dim=1, keepdim=True)
        log_p = torch.log_softmax(log_p - torch.log(expected.clamp(min=_FILLED) / _FILLED), dim=2)
    return log_p
