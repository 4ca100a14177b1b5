"""The policy network: scores every candidate with shared weights, so it serves any number of them. Also its ablations.

Legend: ``b`` samples, ``a`` candidates, ``v`` offered candidates of all samples together. The job graph enters through an
embedding. It is computed once per forward pass for each distinct graph, and cached while the weights do not change. Everything
that changes from decision to decision joins late and is cheap. Candidates that are not offered are left out of all arithmetic.

With a prior, scores are those of a linear scorer (see `models.linear_prior`) times a sharpness, and corrections that are zero at
first; PPO learns both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..compiled import njit
from ..envs.observation import CANDIDATE_FEATURES, CLUSTER_FEATURES, DEVICE_FEATURES, JOB_FEATURES, SLOTS
from ..envs.static_features import DEGREE_FEATURES, StaticFeatures
from .encoders import GraphEncoder, GraphTotals, NoGraph, SetEncoder, StaticTensors
from .linear_prior import KEY as PRIOR
from .settings import NetworkSettings

# Score of a candidate that is not offered; finite, so that no gradient becomes NaN.
NOT_OFFERED = -1e8

SLOTTED = ("cluster_slots", "candidate_slots")
"""Keys whose members are degrees, which have features of their own."""


class CandidateNetwork(nn.Module):
    """Scores of all candidates and the value of the state.

    Args:
        widths: widths.
        static: the scenario's graphs and degrees.
        has_prior: whether it reads the scores of a linear scorer.
    """

    def __init__(self, widths: NetworkSettings, static: StaticFeatures, *, has_prior: bool = False) -> None:
        super().__init__()
        self.settings, self.has_prior = widths, has_prior
        slots = 2 * len(SLOTS) + len(DEGREE_FEATURES)
        if widths.messages:
            self.graph_encoder: GraphEncoder | GraphTotals | NoGraph = GraphEncoder(
                widths.graph_hidden, widths.graph_embedding, widths.graph_rounds
            )
        else:
            self.graph_encoder = GraphTotals(widths.graph_embedding)
        self.device_encoder = SetEncoder(len(DEVICE_FEATURES), widths.device_hidden)
        self.slot_encoder = SetEncoder(slots, widths.slot_hidden)
        context = (
            len(JOB_FEATURES) + len(CLUSTER_FEATURES) + widths.graph_embedding + self.device_encoder.size + self.slot_encoder.size
        )
        self.context = nn.Sequential(nn.Linear(context, widths.hidden), nn.ReLU())
        self.candidate = nn.Linear(len(CANDIDATE_FEATURES) + self.slot_encoder.size, widths.hidden)
        self.candidate_context = nn.Linear(widths.hidden, widths.hidden)
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(widths.hidden, widths.hidden), nn.ReLU(), nn.Linear(widths.hidden, 1))
        self.value = nn.Sequential(
            nn.Linear(widths.hidden + widths.graph_embedding, widths.hidden), nn.ReLU(), nn.Linear(widths.hidden, 1)
        )
        (init_zero_ if has_prior else init_small_)(self.score[-1])
        if has_prior:
            self.prior_sharpness = nn.Parameter(torch.ones(()))
        self.static = StaticTensors(static)
        self._cache: Tensor | None = None
        self._cached_weights: tuple[object, ...] = ()
        self._encoder_weights: list[nn.Parameter] | None = None

    def forget(self) -> None:
        """Drop the kept graph embeddings; for callers whose change of the weights PyTorch does not count.

        Fused optimizers and ``weight.data`` are such.
        """
        self._cache = None

    def blind_to_graphs(self) -> None:
        """Embed every graph as zeros from now on; graphs then differ by their simulated times alone."""
        self.graph_encoder, self._cache, self._encoder_weights = NoGraph(self.settings.graph_embedding), None, None

    def graph_embeddings(self) -> Tensor:
        """Return the embedding of each graph of the scenario, ``(g, embedding)``.

        Kept between calls that need no gradient, while the encoder's weights stay as they are and where they are.
        """
        if torch.is_grad_enabled():
            return self._encode()
        if self._encoder_weights is None:  # to look for them takes longer than to compare them
            self._encoder_weights = [*self.graph_encoder.parameters()]
        weights = tuple((one.data_ptr(), one._version) for one in self._encoder_weights)  # nothing public counts changes in place
        if self._cache is None or self._cached_weights != weights:
            self._cache, self._cached_weights = self._encode(), weights
        return self._cache

    def forward(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the scores ``(b, a)`` and values ``(b,)`` of a batch of observations (see `envs.job_partitioning`)."""
        seen = self.laid_out(observation)
        result, values = self._offered_scores(seen)
        return _padded(seen, result), values

    def laid_out(self, observation: dict[str, Tensor]) -> Offered:
        """Return the observations as the layers read them, with each degree's own features."""
        return Offered.from_observation(observation, dict.fromkeys(SLOTTED, self.static.degrees))

    def _offered_scores(self, seen: Offered) -> tuple[Tensor, Tensor]:
        """Return the scores ``(v,)`` of the candidates that are offered alone, and values ``(b,)``."""
        embedded = self.graph_embeddings()[seen.states["graph_id"].reshape(-1).long()]
        context = self._context(seen.states, embedded)
        features = [seen.rows["candidates"], self.slot_encoder(seen.rows["candidate_slots"])]
        hidden = self.candidate(torch.cat(features, dim=1)) + self.candidate_context(context)[seen.sample]
        result: Tensor = self.score(hidden).squeeze(1)
        if self.has_prior:
            result = result + self.prior_sharpness * seen.rows[PRIOR]
        return result, self._value(context, embedded)

    def values(self, observation: dict[str, Tensor]) -> Tensor:
        """Return the values ``(b,)`` alone."""
        states = self.laid_out(observation).states
        embedded = self.graph_embeddings()[states["graph_id"].reshape(-1).long()]
        return self._value(self._context(states, embedded), embedded)

    def _encode(self) -> Tensor:
        static = self.static
        encoded: Tensor = self.graph_encoder(static.ops, static.edges, static.graph_of_op, static.num_graphs)
        return encoded

    def _context(self, states: dict[str, Tensor], embedded: Tensor) -> Tensor:
        parts = [
            states["job"],
            states["cluster"],
            embedded,
            self.device_encoder(states["devices"]),
            self.slot_encoder(states["cluster_slots"]),
        ]
        joined: Tensor = self.context(torch.cat(parts, dim=1))
        return joined

    def _value(self, context: Tensor, embedded: Tensor) -> Tensor:
        value: Tensor = self.value(torch.cat([context, embedded], dim=1))
        return value.squeeze(1)


def _padded(seen: Offered, result: Tensor) -> Tensor:
    """Return the scores of offered candidates ``(v,)`` among all, ``(b, a)``."""
    shape = len(seen.count), seen.num_candidates
    scores = torch.full(shape, NOT_OFFERED, dtype=result.dtype, device=result.device)
    return scores.index_put((seen.sample, seen.candidate), result)


def init_small_(last: nn.Module) -> None:
    """Initialise the last layer of a head with almost nothing."""
    assert isinstance(last, nn.Linear)
    nn.init.uniform_(last.weight, -0.01, 0.01)
    nn.init.zeros_(last.bias)


def init_zero_(last: nn.Module) -> None:
    """Initialise the last layer of a head with zeros, so that it scores nothing until it has learned."""
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)


SETS = ("devices", "cluster_slots", "candidate_slots")
"""Keys whose members come first."""


@dataclass(frozen=True)
class Offered:
    """A batch of observations without the candidates that are not offered, laid out as the network reads them.

    ``d`` are the members of a set (degrees, devices), ``f`` features. Sets have their members first, the order in which
    `SetEncoder` sums.

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
    """Return of ``(b, a, d, f)`` the chosen ones, members first, with features of the members themselves after theirs."""
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
