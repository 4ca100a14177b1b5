"""What the policy makes of each device of a decision, from embeddings and from what is placed already.

Legend of shapes: ``b`` instances, ``E`` episodes (several of an instance), ``t`` decisions, ``n`` ops, ``m`` devices, ``h``
width, ``f`` features of a candidate, ``a`` affinities.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...simulation.operators.decisions.candidates import CANDIDATE_FEATURES

_RULE_SHARPNESS = -30.0
"""Weight of ``end_beyond_best`` in an untrained network's logits."""


@dataclass(frozen=True, eq=False)
class EncodedInstances:
    """What does not change from decision to decision.

    Attributes:
        op: what each op adds to the first layer, ``(b, n, h)``.
        query: of each op, ``(b, n, h)``.
        device: what each device adds to the first layer, ``(b, m, h)``.
        op_h: embeddings of ops, ``(b, n, h)``.
        near: `affinity.Affinity.between`, ``(b, n, a, n)``; None without walks.
        link: how long the links between devices are, from rows to columns, ``(b, m, m)``.
    """

    op: Tensor
    query: Tensor
    device: Tensor
    op_h: Tensor
    near: Tensor | None
    link: Tensor


@dataclass(frozen=True, eq=False)
class PlacementDecisions:
    """Decisions of episodes, and what was placed before each of them.

    Attributes:
        of: instance of each episode, ``(E,)``.
        ops: the op of each, ``(E, t)``.
        placed: sum of the embeddings of the ops on each device, ``(E, t, m, h)``.
        count: their number, ``(E, t, m)``.
        candidates: features of each device, ``(E, t, m, f)``.
        can_place: ``(E, t, m)``.
        affinity: of the op to those on each device, ``(E, t, m, a)``; None without walks.
    """

    of: Tensor
    ops: Tensor
    placed: Tensor
    count: Tensor
    candidates: Tensor
    can_place: Tensor
    affinity: Tensor | None


@dataclass(frozen=True, eq=False)
class PlayedSteps:
    """Episodes that were played, decision by decision.

    Attributes:
        of: instance of each episode, a number within the graphs, ``(E,)``.
        ops: op of each decision, ``(E, t)``.
        actions: device of each decision, ``(E, t)``.
        is_live: whether there was a decision, ``(E, t)``.
        candidates: ``(E, t, m, f)``.
        can_place: ``(E, t, m)``.
    """

    of: Tensor
    ops: Tensor
    actions: Tensor
    is_live: Tensor
    candidates: Tensor
    can_place: Tensor


class StepScore(nn.Module):
    """A logit for each device of a decision, and a prediction of the final value.

    Args:
        h: width.
        num_affinities: ``a``.
    """

    def __init__(self, h: int, num_affinities: int) -> None:
        super().__init__()
        num_features = len(CANDIDATE_FEATURES) + 2 * num_affinities
        self.op = nn.Linear(h, h)
        self.whole = nn.Linear(h, h, bias=False)
        self.device = nn.Linear(h, h, bias=False)
        self.placed = nn.Linear(h + 1, h, bias=False)
        self.candidate = nn.Linear(num_features, h, bias=False)
        self.others = nn.Linear(h, h, bias=False)
        self.middle = nn.Linear(h, h)
        self.out = nn.Linear(h, 1)
        self.query = nn.Linear(h, h, bias=False)
        self.key = nn.Linear(h, h, bias=False)
        self.direct = nn.Linear(num_features, 1, bias=False)
        self.value = nn.Sequential(nn.Linear(3 * h, h), nn.ReLU(), nn.Linear(h, 1))
        self._begin_as_rule()

    def _begin_as_rule(self) -> None:
        """Start close to HEFT: the device where the op ends first is the likeliest, and the rest of the network says little."""
        with torch.no_grad():
            self.direct.weight.zero_()
            self.direct.weight[0, CANDIDATE_FEATURES.index("end_beyond_best")] = _RULE_SHARPNESS
            self.out.weight.mul_(0.1)
            self.key.weight.mul_(0.1)

    def prepare(self, encoded: tuple[Tensor, Tensor, Tensor], near: Tensor | None, link: Tensor) -> EncodedInstances:
        """Encode for all decisions what an encoder found (`network.OperatorEncoder`)."""
        op_h, device_h, whole_h = encoded
        op = self.op(op_h) + self.whole(whole_h)[:, None]
        return EncodedInstances(op, self.query(op_h), self.device(device_h), op_h, near, link)

    def forward(self, encoded: EncodedInstances, given: PlacementDecisions) -> tuple[Tensor, Tensor]:
        """Logits ``(E, t, m)``, minus infinity where a device may not be chosen, and predicted values ``(E, t)``."""
        told = given.candidates
        if given.affinity is not None:
            far = torch.einsum("etma,emd->etda", given.affinity, encoded.link[given.of])
            told = torch.cat([told, given.affinity, far], dim=-1)
        mean = given.placed / given.count.clamp(min=1)[..., None]
        share = given.count / (given.count.sum(dim=-1, keepdim=True) + 1.0)
        op = encoded.op[given.of[:, None], given.ops]
        hidden = torch.relu(
            op[:, :, None]
            + encoded.device[given.of][:, None]
            + self.placed(torch.cat([mean, share[..., None]], dim=-1))
            + self.candidate(told)
        )
        allowed = given.can_place[..., None]
        among = _mean_of(hidden, allowed)
        last = torch.relu(self.middle(hidden) + self.others(among)[..., None, :])
        logits = self.out(last)[..., 0] + self.direct(told)[..., 0]
        query = encoded.query[given.of[:, None], given.ops]
        drawn = (query[:, :, None] * self.key(mean)).sum(dim=-1) / mean.shape[-1] ** 0.5
        most = last.masked_fill(~allowed, 0.0).amax(dim=-2)
        value = self.value(torch.cat([_mean_of(last, allowed), most, op], dim=-1))[..., 0]
        return (logits + drawn).masked_fill(~given.can_place, -torch.inf), value


def _mean_of(values: Tensor, allowed: Tensor) -> Tensor:
    return (values * allowed).sum(dim=-2) / allowed.sum(dim=-2).clamp(min=1)
