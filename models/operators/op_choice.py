"""What the policy makes of each op that it may place or move next, where it chooses the order itself.

A decision is then made in two steps, first the op and then its device, each with a distribution of its own. Legend of shapes:
``E`` episodes, ``t`` decisions, ``r`` ops that may be chosen, ``h`` width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...simulation.operators.decisions.candidates import NUM_OP_FEATURES, OP_FEATURES

_RULE = {"rank_below_highest": -60.0, "gain": 30.0, "slack": -30.0}
"""Weights of features in an untrained network's logits: HEFT's order, and in refinement what may gain most."""
FROM_SCHEDULE = ("start_beyond_first", "end_beyond_first", "regret", "gain", "slack")
"""Features that come from neighbours that are placed already."""


class OpChoice(nn.Module):
    """A logit for each op that may be chosen.

    Args:
        h: width.
    """

    def __init__(self, h: int) -> None:
        super().__init__()
        self.op = nn.Linear(h, h)
        self.whole = nn.Linear(h, h, bias=False)
        self.features = nn.Linear(NUM_OP_FEATURES, h, bias=False)
        self.out = nn.Linear(h, 1)
        self.direct = nn.Linear(NUM_OP_FEATURES, 1, bias=False)
        with torch.no_grad():
            self.direct.weight.zero_()
            for name, weight in _RULE.items():
                self.direct.weight[0, OP_FEATURES.index(name)] = weight
            self.out.weight.mul_(0.1)

    def prepare(self, op_h: Tensor, whole_h: Tensor) -> Tensor:
        """What does not change from decision to decision, ``(b, n, h)``."""
        made: Tensor = self.op(op_h) + self.whole(whole_h)[:, None]
        return made

    def forward(self, prepared: Tensor, of: Tensor, open_ops: Tensor, features: Tensor, is_open: Tensor) -> Tensor:
        """Logits ``(E, t, r)``, minus infinity where padded.

        Args:
            prepared: by `prepare`, ``(b, n, h)``.
            of: instance of each episode, ``(E,)``.
            open_ops: ``(E, t, r)``.
            features: ``(E, t, r, 8)``.
            is_open: ``(E, t, r)``.
        """
        hidden = torch.relu(prepared[of[:, None, None], open_ops] + self.features(features))
        logits: Tensor = (self.out(hidden) + self.direct(features))[..., 0]
        return logits.masked_fill(~is_open, -torch.inf)
