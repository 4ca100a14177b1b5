"""Observations without the candidates that are not offered, laid out as the network reads them.

Legend: ``b`` samples, ``a`` candidates, ``v`` offered candidates of all samples together, sample after sample; ``d`` members of
a set (degrees, devices), ``f`` features. Sets have their members first, ``(d, b, f)``, the order in which `SetEncoder` sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..compiled import njit

SETS = ("devices", "cluster_slots", "candidate_slots")
"""Keys whose members come first."""


@dataclass(frozen=True)
class Offered:
    """A batch of observations.

    Attributes:
        states: what each sample has once: ``(b, ...)``, or ``(d, b, f)`` of `SETS`.
        rows: what each offered candidate has: ``(v, f)``, or ``(d, v, f)`` of `SETS`.
        count: offered candidates of each sample, ``(b,)``.
        sample, candidate: which they are, ``(v,)``.
        num_candidates: ``a``.
    """

    states: dict[str, Tensor]
    rows: dict[str, Tensor]
    count: Tensor
    sample: Tensor
    candidate: Tensor
    num_candidates: int

    @classmethod
    def from_observation(cls, observation: dict[str, Tensor], own: Mapping[str, Tensor] | None = None) -> Offered:
        """Make it from observations as the environment gives them, ``(b, ...)`` and ``(b, a, ...)`` each.

        Args:
            observation: arrays by their keys.
            own: of some of `SETS`, features of the members themselves, ``(d, f)``, put after those of each sample.
        """
        is_offered = observation["action_mask"] > 0
        sample, candidate = is_offered.nonzero(as_tuple=True)
        states: dict[str, Tensor] = {}
        rows: dict[str, Tensor] = {}
        each, alone = torch.arange(len(is_offered), device=sample.device), torch.zeros_like(sample[:1])
        for key, value in observation.items():
            if key == "action_mask":
                continue
            is_row = key.startswith("candidate")
            if key in SETS:
                picked = (value, sample, candidate) if is_row else (value.unsqueeze(1), each, alone.expand(len(each)))
                result = _members_first(*picked, (own or {}).get(key))
            else:
                result = value[sample, candidate] if is_row else value
            (rows if is_row else states)[key] = result
        return cls(states, rows, is_offered.sum(dim=1), sample, candidate, is_offered.shape[1])


def _members_first(value: Tensor, sample: Tensor, candidate: Tensor, own: Tensor | None) -> Tensor:
    """Of ``(b, a, d, f)`` the chosen ones, members first, with features of the members themselves after theirs."""
    num = len(sample)
    if value.device.type != "cpu" or value.dtype != torch.float32 or value.requires_grad:
        result = value[sample, candidate].transpose(0, 1)
        return result.contiguous() if own is None else torch.cat([result, own[:, None].expand(-1, num, -1)], dim=2)
    of_member = torch.empty((value.shape[2], 0)) if own is None else own
    out = torch.empty((value.shape[2], num, value.shape[3] + of_member.shape[1]))
    read = (value.contiguous(), sample, candidate.contiguous(), of_member.contiguous(), out)
    _lay_out(*(one.numpy() for one in read))
    return out


@njit
def _lay_out(value, sample, candidate, own, out):  # type: ignore[no-untyped-def]
    num_members, num, all_features = out.shape
    width = value.shape[3]
    for m in range(num_members):
        for v in range(num):
            b, a = sample[v], candidate[v]
            for f in range(width):  # one by one: a copy of a slice costs more than these few numbers
                out[m, v, f] = value[b, a, m, f]
            for f in range(width, all_features):
                out[m, v, f] = own[m, f - width]
