"""The step-by-step policy: which device the next ops get, from embeddings and from what each device would make of them.

Legend of shapes: ``b`` instances, ``E`` episodes (several of an instance), ``t`` decisions, ``n`` ops, ``m`` devices,
``h`` width, ``f`` features of a candidate.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...simulation.operators.candidates import CANDIDATE_FEATURES, FROM_PLACED
from .graphs import OperatorGraphs
from .network import OperatorEncoder, OperatorNetworkSettings, PairScore

_RULE_SHARPNESS = -30.0
"""Weight of ``end_beyond_best`` in an untrained network's logits."""


class StepPolicy(nn.Module):
    """Encodes an instance once and scores the devices of each decision with shared weights, however many there are."""

    def __init__(self, given: OperatorNetworkSettings) -> None:
        super().__init__()
        self.settings = given
        self.encoder = OperatorEncoder(given)
        self.score = StepScore(given.hidden)
        kept = [float("transfers" not in given.without or name not in FROM_PLACED) for name in CANDIDATE_FEATURES]
        self.kept: Tensor
        self.register_buffer("kept", torch.tensor(kept), persistent=False)

    def episode_logits(
        self, graphs: OperatorGraphs, of: Tensor, ops: Tensor, candidates: Tensor, can_place: Tensor, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits of all decisions of episodes that have been played, and the foreseen values, in one pass.

        Args:
            graphs: instances.
            of: instance of each episode, ``(E,)``.
            ops: op of each decision; any op once the episode is over, ``(E, t)``.
            candidates: ``(E, t, m, f)``.
            can_place: ``(E, t, m)``.
            actions: device of each decision, ``(E, t)``.

        Returns:
            Logits ``(E, t, m)``, minus infinity where a device may not be chosen; how far the final value is foreseen to be above
            the mean of the instance's episodes, relative to it, ``(E, t)``.
        """
        op_h, device_h, whole_h = self.encoder(graphs)
        chosen = torch.nn.functional.one_hot(actions, candidates.shape[2]).to(op_h.dtype)
        each = op_h[of[:, None], ops]
        placed = torch.einsum("etm,eth->etmh", chosen, each).cumsum(dim=1)
        placed = torch.cat([torch.zeros_like(placed[:, :1]), placed[:, :-1]], dim=1)
        count = chosen.cumsum(dim=1)
        count = torch.cat([torch.zeros_like(count[:, :1]), count[:, :-1]], dim=1)
        keyed = self.score.prepare(op_h, device_h, whole_h)
        judged: tuple[Tensor, Tensor] = self.score(keyed, of, ops, placed, count, candidates * self.kept, can_place)
        return judged

    def step_logits(
        self, keyed: tuple[Tensor, ...], of: Tensor, ops: Tensor, placed: Tensor, count: Tensor, candidates: Tensor, can: Tensor
    ) -> Tensor:
        """Logits of one decision of each episode, ``(E, m)``; arguments as in `episode_logits` without ``t``."""
        given = (ops[:, None], placed[:, None], count[:, None], (candidates * self.kept)[:, None], can[:, None])
        logits: Tensor = self.score(keyed, of, *given)[0]
        return logits[:, 0]


class StepScore(nn.Module):
    """A logit for each device of a decision."""

    def __init__(self, h: int) -> None:
        super().__init__()
        num_features = len(CANDIDATE_FEATURES)
        self.op = nn.Linear(h, h)
        self.whole = nn.Linear(h, h, bias=False)
        self.device = nn.Linear(h, h, bias=False)
        self.placed = nn.Linear(h + 1, h, bias=False)
        self.candidate = nn.Linear(num_features, h, bias=False)
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

    def prepare(self, op_h: Tensor, device_h: Tensor, whole_h: Tensor) -> tuple[Tensor, ...]:
        """What does not change from decision to decision.

        Returns:
            What each op adds ``(b, n, h)``, its query ``(b, n, h)``, what each device adds ``(b, m, h)``, ops ``(b, n, h)``.
        """
        return self.op(op_h) + self.whole(whole_h)[:, None], self.query(op_h), self.device(device_h), op_h

    def forward(
        self, keyed: tuple[Tensor, ...], of: Tensor, ops: Tensor, placed: Tensor, count: Tensor, candidates: Tensor, can: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits ``(E, t, m)`` and foreseen values ``(E, t)``; arguments as of `StepPolicy.episode_logits`."""
        op_part, query, device_part, _ = keyed
        mean = placed / count.clamp(min=1)[..., None]
        share = count / (count.sum(dim=-1, keepdim=True) + 1.0)
        hidden = (
            op_part[of[:, None], ops][:, :, None]
            + device_part[of][:, None]
            + self.placed(torch.cat([mean, share[..., None]], dim=-1))
            + self.candidate(candidates)
        )
        last = torch.relu(self.middle(torch.relu(hidden)))
        logits = self.out(last)[..., 0] + self.direct(candidates)[..., 0]
        drawn = (query[of[:, None], ops][:, :, None] * self.key(mean)).sum(dim=-1) / mean.shape[-1] ** 0.5
        allowed = can[..., None]
        mean_of = (last * allowed).sum(dim=-2) / allowed.sum(dim=-2).clamp(min=1)
        most_of = last.masked_fill(~allowed, 0.0).amax(dim=-2)
        value = self.value(torch.cat([mean_of, most_of, op_part[of[:, None], ops]], dim=-1))[..., 0]
        return (logits + drawn).masked_fill(~can, -torch.inf), value


class OneShotPolicy(nn.Module):
    """A distribution over devices for every op in one pass, without any feature of a schedule."""

    def __init__(self, given: OperatorNetworkSettings) -> None:
        super().__init__()
        self.settings = given
        self.encoder = OperatorEncoder(given)
        self.score = PairScore(
            given.hidden,
            given.turns,
            reads=("edges" not in given.without, not {"edges", "against"} & set(given.without)),
        )

    def forward(self, graphs: OperatorGraphs) -> Tensor:
        """Logarithms of probabilities, ``(b, n, m)``."""
        op_h, device_h, _ = self.encoder(graphs)
        made: Tensor = self.score(op_h, device_h, graphs)
        return made


OperatorPolicy = StepPolicy | OneShotPolicy


def new_policy(given: OperatorNetworkSettings) -> OperatorPolicy:
    """An untrained policy of a kind."""
    return StepPolicy(given) if given.kind == "steps" else OneShotPolicy(given)
