"""The step-by-step policy: which device the next ops get, from embeddings and from what each device would make of them.

Legend of shapes: ``b`` instances, ``E`` episodes (several of an instance), ``t`` decisions, ``n`` ops, ``m`` devices,
``h`` width, ``f`` features of a candidate.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from ...errors import ConfigError
from ...simulation.operators.decisions.candidates import CANDIDATE_FEATURES, FROM_PLACED, OP_FEATURES
from ...simulation.operators.decisions.stacked import PlacingOrder
from .affinity import Affinity, gathered
from .graphs import OperatorGraphs
from .network import OperatorEncoder, OperatorNetworkSettings, PairScore
from .op_choice import FROM_SCHEDULE, OpChoice
from .step_score import EncodedInstances, PlacementDecisions, PlayedChoices, PlayedSteps, StepScore

_STAY = 2.0
"""An untrained network's inclination to leave a placed op where it is."""


class StepPolicy(nn.Module):
    """Encodes an instance once and scores the devices of each decision with shared weights, however many there are.

    Args:
        given: widths.
        order: in which ops get devices, see `simulation.operators.decisions.stacked.PlacingRules`.
        refine_steps: see there.
    """

    def __init__(self, given: OperatorNetworkSettings, order: PlacingOrder = "upward-rank", refine_steps: int = 0) -> None:
        super().__init__()
        self.settings, self.order, self.refine_steps = given, order, refine_steps
        self.encoder = OperatorEncoder(given)
        walks = 0 if {"edges", "transfers"} & set(given.without) else given.walks
        against = "against" not in given.without
        self.affinity = Affinity(given.hidden, walks, given.walk_steps, goes_to_readers=against) if walks else None
        self.score = StepScore(given.hidden, self.affinity.size if self.affinity else 0)
        kept = [float("transfers" not in given.without or name not in FROM_PLACED) for name in CANDIDATE_FEATURES]
        self.kept: Tensor
        self.register_buffer("kept", torch.tensor(kept), persistent=False)
        has_choices = order == "policy" or refine_steps > 0
        self.choice = OpChoice(given.hidden) if has_choices else None
        self.stay = nn.Parameter(torch.tensor(_STAY)) if refine_steps else None
        kept = [float("transfers" not in given.without or name not in FROM_SCHEDULE) for name in OP_FEATURES]
        self.kept_of_op: Tensor
        self.register_buffer("kept_of_op", torch.tensor(kept), persistent=False)

    def encode(self, graphs: OperatorGraphs, *, walks: bool = True) -> EncodedInstances:
        """What does not change from decision to decision; ``walks`` False leaves affinities to the caller."""
        encoded = self.encoder(graphs)
        near = self.affinity.between(encoded[0], graphs) if walks and self.affinity is not None else None
        link = graphs.links[..., 1]
        made = self.score.prepare(encoded, near, torch.zeros_like(link) if "devices" in self.settings.without else link)
        return made if self.choice is None else replace(made, pick=self.choice.prepare(encoded[0], encoded[2]))

    def decide(self, encoded: EncodedInstances, given: PlacementDecisions) -> tuple[Tensor, Tensor]:
        """Logits ``(E, t, m)``, minus infinity where a device may not be chosen; how far the final value is foreseen to be above
        the mean of the instance's episodes, relative to it, ``(E, t)``."""
        logits, value = self.score(encoded, replace(given, candidates=given.candidates * self.kept))
        if self.stay is not None and given.was_on is not None:
            logits = logits + self.stay * _one_hot(given.was_on, logits.shape[2])
        return logits, value

    def pick(self, encoded: EncodedInstances, of: Tensor, among: PlayedChoices) -> Tensor:
        """Logits of the ops that may be chosen, ``(E, t, r)``."""
        assert self.choice is not None
        assert encoded.pick is not None
        logits: Tensor = self.choice(encoded.pick, of, among.open_ops, among.features * self.kept_of_op, among.is_open)
        return logits

    def episode_logits(self, graphs: OperatorGraphs, played: PlayedSteps) -> tuple[Tensor, Tensor, Tensor | None]:
        """`decide` and `pick` for all decisions of episodes that have been played, in one pass."""
        encoded, choices, m = self.encode(graphs), played.choices, played.candidates.shape[2]
        chosen = nn.functional.one_hot(played.actions, m).to(encoded.op_h.dtype)
        chosen = chosen * played.is_live[..., None]
        if choices is not None:  # an op that is moved leaves another device
            chosen = chosen - _one_hot(choices.was_on, m) * played.is_live[..., None]
        each = encoded.op_h[played.of[:, None], played.ops]
        placed = _before(torch.einsum("etm,eth->etmh", chosen, each))
        affinity = None
        if encoded.near is not None and self.refine_steps:
            affinity = gathered(encoded.near, played.of, played.ops, _standing(graphs, played, m))
        elif encoded.near is not None:
            on, is_before = _places(graphs, played, chosen)
            affinity = gathered(encoded.near, played.of, played.ops, on, is_before)
        given = (placed, _before(chosen), played.candidates, played.can_place, affinity)
        was_on = None if choices is None else choices.was_on
        made = self.decide(encoded, PlacementDecisions(played.of, played.ops, *given, was_on))
        return (*made, None if choices is None else self.pick(encoded, played.of, choices))


def _one_hot(devices: Tensor, m: int) -> Tensor:
    """1 at each device, nowhere where it is -1, ``(E, t, m)``."""
    return (devices[..., None] == torch.arange(m)).float()


def _standing(graphs: OperatorGraphs, played: PlayedSteps, m: int) -> Tensor:
    """Where each op is before each decision, ``(E, t, n, m)``."""
    group_of = graphs.group[played.of]
    decided = group_of.gather(1, played.ops)
    now, found = torch.full_like(group_of, -1), []
    for step in range(played.ops.shape[1]):
        found.append(now)
        is_it = (group_of == decided[:, step, None]) & played.is_live[:, step, None] & graphs.is_op[played.of]
        now = torch.where(is_it, played.actions[:, step, None], now)
    return _one_hot(torch.stack(found, dim=1), m)


def _before(values: Tensor) -> Tensor:
    """Sums over the decisions before each."""
    summed = values.cumsum(dim=1)
    return torch.cat([torch.zeros_like(summed[:, :1]), summed[:, :-1]], dim=1)


def _places(graphs: OperatorGraphs, played: PlayedSteps, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Where each op stands in the end, ``(E, n, m)``, and which stood before each decision, ``(E, t, n)``."""
    (count_e, t), n, m = played.ops.shape, graphs.group.shape[1], chosen.shape[2]
    group_of = graphs.group[played.of]
    decided = group_of.gather(1, played.ops)
    on = torch.zeros(count_e, n, m).scatter_add(1, decided[..., None].expand(-1, -1, m), chosen)
    when = torch.full((count_e, n), t)
    episode, step = played.is_live.nonzero(as_tuple=True)
    when[episode, decided[episode, step]] = step
    when = when.gather(1, group_of).masked_fill(~graphs.is_op[played.of], t)
    is_before = (when[:, None] < torch.arange(t)[None, :, None]).to(chosen.dtype)
    return on.gather(1, group_of[..., None].expand(-1, -1, m)), is_before


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


def new_policy(given: OperatorNetworkSettings, order: PlacingOrder = "upward-rank", refine_steps: int = 0) -> OperatorPolicy:
    """An untrained policy of a kind; one that places all at once has no order, and refines nothing.

    Raises:
        ConfigError: it is to.
    """
    if given.kind == "steps":
        return StepPolicy(given, order, refine_steps)
    for field, asked, is_usual in (("order", order, order == "upward-rank"), ("refine_steps", refine_steps, refine_steps == 0)):
        if not is_usual:
            raise ConfigError("a one-shot policy decides everything at once", field=f"placement.{field}", value=asked)
    return OneShotPolicy(given)
