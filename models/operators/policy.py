"""The policy: which device the next ops get, from embeddings and from what each device would make of them.

Legend of shapes: ``b`` instances, ``E`` episodes (several of an instance), ``t`` decisions, ``n`` ops, ``m`` devices,
``h`` width, ``f`` features of a candidate.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from ...simulation.operators.decisions.candidates import CANDIDATE_FEATURES, FROM_PLACED
from .affinity import Affinity, gathered
from .graphs import OperatorGraphs
from .network import OperatorEncoder, OperatorNetworkSettings
from .step_score import EncodedInstances, PlacementDecisions, PlayedSteps, StepScore


class OperatorPolicy(nn.Module):
    """Encodes an instance once and scores the devices of each decision with shared weights, however many there are."""

    def __init__(self, given: OperatorNetworkSettings) -> None:
        super().__init__()
        self.settings = given
        self.encoder = OperatorEncoder(given)
        walks = 0 if {"edges", "transfers"} & set(given.without) else given.walks
        against = "against" not in given.without
        self.affinity = Affinity(given.hidden, walks, given.walk_steps, goes_to_readers=against) if walks else None
        self.score = StepScore(given.hidden, self.affinity.size if self.affinity else 0)
        kept = [float("transfers" not in given.without or name not in FROM_PLACED) for name in CANDIDATE_FEATURES]
        self.kept: Tensor
        self.register_buffer("kept", torch.tensor(kept), persistent=False)

    def encode(self, graphs: OperatorGraphs, *, walks: bool = True) -> EncodedInstances:
        """What does not change from decision to decision; ``walks`` False leaves affinities to the caller."""
        encoded = self.encoder(graphs)
        near = self.affinity.between(encoded[0], graphs) if walks and self.affinity is not None else None
        link = graphs.links[..., 1]
        return self.score.prepare(encoded, near, torch.zeros_like(link) if "devices" in self.settings.without else link)

    def decide(self, encoded: EncodedInstances, given: PlacementDecisions) -> tuple[Tensor, Tensor]:
        """Logits ``(E, t, m)``, minus infinity where a device may not be chosen; how far the final value is foreseen to be above
        the mean of the instance's episodes, relative to it, ``(E, t)``."""
        made: tuple[Tensor, Tensor] = self.score(encoded, replace(given, candidates=given.candidates * self.kept))
        return made

    def episode_logits(self, graphs: OperatorGraphs, played: PlayedSteps) -> tuple[Tensor, Tensor]:
        """`decide` for all decisions of episodes that have been played, in one pass."""
        encoded, m = self.encode(graphs), played.candidates.shape[2]
        chosen = nn.functional.one_hot(played.actions, m).to(encoded.op_h.dtype) * played.is_live[..., None]
        each = encoded.op_h[played.of[:, None], played.ops]
        placed, affinity = _before(torch.einsum("etm,eth->etmh", chosen, each)), None
        if encoded.near is not None:
            on, is_before = _places(graphs, played, chosen)
            affinity = gathered(encoded.near, played.of, played.ops, on, is_before)
        given = (placed, _before(chosen), played.candidates, played.can_place, affinity)
        return self.decide(encoded, PlacementDecisions(played.of, played.ops, *given))


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
