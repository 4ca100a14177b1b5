"""Observations without the candidates that are not offered, laid out as the network reads them.

Legend: ``b`` samples, ``a`` candidates, ``v`` offered candidates of all samples together, sample after sample; ``d`` members of
a set (degrees, devices), ``f`` features. Sets have their members first, ``(d, b, f)``, the order in which `SetEncoder` sums.
A rollout is laid out once, and each minibatch then takes its rows with one copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

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
    def of(cls, observation: dict[str, Tensor]) -> Offered:
        """From observations as the environment makes them, ``(b, ...)`` and ``(b, a, ...)`` each."""
        is_offered = observation["action_mask"] > 0
        sample, candidate = is_offered.nonzero(as_tuple=True)
        states, rows = {}, {}
        for key, value in observation.items():
            if key.startswith("candidate"):
                rows[key] = _members_first(key, value[sample, candidate])
            elif key != "action_mask":
                states[key] = _members_first(key, value)
        return cls(states, rows, is_offered.sum(dim=1), sample, candidate, is_offered.shape[1])

    def take(self, samples: Tensor) -> Offered:
        """Some samples, ``(n,)``, in that order."""
        last = self.count.cumsum(0)
        count = self.count[samples]
        sample = torch.arange(len(samples), device=count.device).repeat_interleave(count)
        ends = count.cumsum(0)
        shift = last[samples] - ends
        picked = torch.arange(len(sample), device=count.device) + shift[sample]
        return Offered(
            {key: value.index_select(1 if key in SETS else 0, samples) for key, value in self.states.items()},
            {key: value.index_select(1 if key in SETS else 0, picked) for key, value in self.rows.items()},
            count,
            sample,
            self.candidate[picked],
            self.num_candidates,
        )

    def map(self, change: Callable[[Tensor], Tensor]) -> Offered:
        """The same with every tensor changed."""
        states = {key: change(value) for key, value in self.states.items()}
        rows = {key: change(value) for key, value in self.rows.items()}
        return Offered(states, rows, change(self.count), change(self.sample), change(self.candidate), self.num_candidates)


def _members_first(key: str, value: Tensor) -> Tensor:
    return value.transpose(0, 1).contiguous() if key in SETS else value
