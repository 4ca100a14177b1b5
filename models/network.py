"""The policy network: scores every candidate with shared weights, so it serves any number of them. Also its ablations.

Legend: ``b`` samples, ``a`` candidates, ``v`` offered candidates of all samples together. The job graph enters through an
embedding. It is computed once per forward pass for each distinct graph, and cached while the weights do not change. Everything
that changes from decision to decision joins late and is cheap. Candidates that are not offered are left out of all arithmetic.

With the layers ``after``, a candidate's score is a correction plus a sharpness times its immediate reward and the value of the
state after it. Without them, it is the correction alone. The value of a state is then the mean of the candidates' values,
weighted by their probabilities, and a correction. Values are learned before PPO, which does not change them: it learns the
sharpness and the corrections. PPO's rewards may have another unit than these values; ``value_scale`` converts them.

With ``prior``, scores also hold those of a linear scorer (see `models.linear_prior`) times a sharpness of their own, none at
first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..compiled import njit
from ..envs.observation import CANDIDATE_FEATURES, CLUSTER_FEATURES, DEVICE_FEATURES, JOB_FEATURES, SLOTS, ObservationArrays
from ..envs.static_features import DEGREE_FEATURES, StaticFeatures
from .afterstate_value import AfterstateValue
from .encoders import GraphEncoder, GraphTotals, NoGraph, SetEncoder, StaticTensors
from .linear_prior import KEY as PRIOR
from .settings import NetworkSettings, Part

# Features that follow from the simulated step times of a candidate.
_LOOK_AHEAD = ("completion against deadline", "completion", "device-seconds", "communication share", "efficiency")

# Score of a candidate that is not offered; finite, so that no gradient becomes NaN.
NOT_OFFERED = -1e8

SLOTTED = ("cluster_slots", "candidate_slots")
"""Keys whose members are degrees, which have features of their own."""

READ = ("candidate_shapes", "candidate_any", "cluster_shapes", "cluster_any")
"""Keys of an observation that only the values of candidates are computed from."""


@dataclass(frozen=True)
class CandidateValue:
    """Values of the offered candidates of all samples.

    Attributes:
        sample, candidate: which they are, ``(v,)``.
        immediate_reward: reward at once, ``(v,)``.
        after: discounted reward that follows, ``(v,)``.
        hidden: what ``after`` is read from, ``(v, f)``.
    """

    sample: Tensor
    candidate: Tensor
    immediate_reward: Tensor
    after: Tensor
    hidden: Tensor


class CandidateNetwork(nn.Module):
    """Scores of all candidates and the value of the state.

    Args:
        widths: widths.
        static: the scenario's graphs and degrees.
    """

    value_scale: Tensor

    def __init__(self, widths: NetworkSettings, static: StaticFeatures) -> None:
        super().__init__()
        self.settings = widths
        slots = 2 * len(SLOTS) + len(DEGREE_FEATURES)
        if "graph" in widths.without:
            self.graph_encoder: GraphEncoder | GraphTotals | NoGraph = GraphTotals(widths.graph_embedding)
        else:
            self.graph_encoder = GraphEncoder(widths.graph_hidden, widths.graph_embedding, widths.graph_rounds)
        self.device_encoder = SetEncoder(len(DEVICE_FEATURES), widths.device_hidden)
        self.slot_encoder = SetEncoder(slots, widths.slot_hidden)
        context = (
            len(JOB_FEATURES) + len(CLUSTER_FEATURES) + widths.graph_embedding + self.device_encoder.size + self.slot_encoder.size
        )
        self.context = nn.Sequential(nn.Linear(context, widths.hidden), nn.ReLU())
        seen = len(CANDIDATE_FEATURES) + self.slot_encoder.size + (widths.after[-1] if widths.after else 0)
        self.candidate = nn.Linear(seen, widths.hidden)
        self.candidate_context = nn.Linear(widths.hidden, widths.hidden)
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(widths.hidden, widths.hidden), nn.ReLU(), nn.Linear(widths.hidden, 1))
        self.value = nn.Sequential(
            nn.Linear(widths.hidden + widths.graph_embedding, widths.hidden), nn.ReLU(), nn.Linear(widths.hidden, 1)
        )
        init_small_(self.score[-1])
        if widths.after:
            self.after = AfterstateValue.from_features(static, widths.after, widths.kind_hidden, widths.standardised)
            self.pays = nn.Linear(len(CANDIDATE_FEATURES) + 1, 1)
            self.log_sharpness = nn.Parameter(torch.zeros(()))
            self.register_buffer("value_scale", torch.ones(()))
            init_small_(self.value[-1])
        if widths.prior:
            self.prior_sharpness = nn.Parameter(torch.zeros(()))
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
        """Embedding of each graph of the scenario, ``(g, embedding)``.

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
        """Scores ``(b, a)`` and values ``(b,)`` of a batch of observations (see `envs.job_partitioning`)."""
        seen = self.laid_out(observation)
        result, values = self._offered_scores(seen)
        return _padded(seen, result), values

    def laid_out(self, observation: dict[str, Tensor]) -> Offered:
        """Observations as the layers read them: without what the network does without, and with each degree's own features."""
        return Offered.from_observation(ablated(observation, self.settings.without), dict.fromkeys(SLOTTED, self.static.degrees))

    def _offered_scores(self, seen: Offered) -> tuple[Tensor, Tensor]:
        """Scores ``(v,)`` of the candidates that are offered alone, and values ``(b,)``."""
        embedded = self.graph_embeddings()[seen.states["graph_id"].reshape(-1).long()]
        context = self._context(seen.states, embedded)
        features = [seen.rows["candidates"], self.slot_encoder(seen.rows["candidate_slots"])]
        candidate_value = self.candidate_value_of(seen) if self.settings.after else None
        if candidate_value is not None:
            features.append(candidate_value.hidden.detach())
        hidden = self.candidate(torch.cat(features, dim=1)) + self.candidate_context(context)[seen.sample]
        result: Tensor = self.score(hidden).squeeze(1)
        if self.settings.prior:
            result = result + self.prior_sharpness * seen.rows[PRIOR]
        value = self._value(context, embedded)
        if candidate_value is None:
            return result, value
        # What PPO learns is the correction; choosing by values must not change them.
        total = (candidate_value.immediate_reward + candidate_value.after).detach()
        result = result + self.log_sharpness.exp() * total
        share = torch.softmax(_padded(seen, result.detach()), dim=1)[seen.sample, seen.candidate]
        return result, value.index_add(0, seen.sample, self.value_scale * share * total)

    def values(self, observation: dict[str, Tensor]) -> Tensor:
        """Values ``(b,)`` alone."""
        if self.settings.after:
            return self.forward(observation)[1]
        states = self.laid_out(observation).states
        embedded = self.graph_embeddings()[states["graph_id"].reshape(-1).long()]
        return self._value(self._context(states, embedded), embedded)

    def candidate_value_of(self, seen: Offered) -> CandidateValue:
        """Values of candidates by the state after them; for networks with the layers ``after``."""
        rows = seen.rows
        if "candidate_after" in rows:  # computed already, see `observed`
            after, hidden = rows["candidate_after"][:, 0], rows["candidate_after"][:, 1:]
        else:
            after, hidden = self._after({**rows, "episode": seen.states["episode"][seen.sample]})
        features = torch.cat([rows["candidates"], rows["candidate_ends"]], dim=1)
        return CandidateValue(seen.sample, seen.candidate, self.pays(features).squeeze(1), after, hidden)

    def afterstate_value(self, candidates: dict[str, Tensor]) -> Tensor:
        """Values of the states after given candidates, ``(v,)``.

        Args:
            candidates: the keys ``candidate_shapes``, ``candidate_any`` and ``episode`` of an observation, a row each.
        """
        return self._after(ablated(candidates, self.settings.without))[0]

    def observed(self, seen: ObservationArrays) -> dict[str, NDArray[Any]]:
        """Current observations by key, in which ``candidate_after`` replaces the keys `READ`; the network takes either."""
        if not self.settings.after:
            return seen.current()
        others = {key: value for key, value in seen.current().items() if key not in READ}
        return {**others, "candidate_after": self.candidates_after(seen)}

    @torch.no_grad()
    def candidates_after(self, seen: ObservationArrays) -> NDArray[np.float32]:
        """Value of the state after each candidate, and what it is read from, ``(e, a, 1 + f)``; zeros where none is offered."""
        e, a = np.nonzero(seen.action_mask)
        read = {"candidate_shapes": seen.candidate_shapes[e, a], "candidate_any": seen.candidate_any[e, a]}
        rows = {key: self.static.shapes.new_tensor(value) for key, value in {**read, "episode": seen.episode[e]}.items()}
        after, hidden = self._after(ablated(rows, self.settings.without))
        result = np.zeros((*seen.action_mask.shape, 1 + hidden.shape[1]), np.float32)
        result[e, a, 0], result[e, a, 1:] = after.cpu(), hidden.cpu()
        return result

    def _after(self, rows: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        candidate_value: tuple[Tensor, Tensor] = self.after(
            self.static, rows["candidate_shapes"], rows["candidate_any"], rows["episode"]
        )
        return candidate_value

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
    """Scores of offered candidates ``(v,)`` among all, ``(b, a)``."""
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


def ablated(observation: dict[str, Tensor], parts: Sequence[Part]) -> dict[str, Tensor]:
    """Return a copy of a batch of observations, or of some of their keys, without some parts (see `models.settings.Part`).

    Blank features are zero. Where time is blank, every slot shows what is free by the first one. The state after a candidate
    then shows which blocks it takes, not for how long. Without ``reject``, the rejection is offered only where nothing else is.
    ``graph`` concerns the encoder, not the observation.
    """
    if not parts or tuple(parts) == ("graph",):
        return observation
    shown = dict(observation)
    present = shown.keys()
    if "reject" in parts and "action_mask" in present:
        mask = shown["action_mask"]
        shown["action_mask"] = torch.cat([mask[:, :1] * (mask[:, 1:] == 0).all(dim=1, keepdim=True), mask[:, 1:]], dim=1)
    if "look-ahead" in parts:
        _blank(shown, "candidates", CANDIDATE_FEATURES, _LOOK_AHEAD)
        _blank(shown, "job", JOB_FEATURES, ("fastest against deadline",))
        if "candidate_ends" in present:
            shown["candidate_ends"] = torch.zeros_like(shown["candidate_ends"])
    if "time-to-free" in parts:
        _blank(shown, "cluster", CLUSTER_FEATURES, ("mean time left",))
        _blank(shown, "devices", DEVICE_FEATURES, ("time left",))
        for key in present & {"cluster_slots", "candidate_slots"}:
            half = shown[key].shape[-1] // 2  # shares, then whether any
            shown[key] = shown[key][..., [0] * half + [half] * half]
        for key in present & {"cluster_shapes", "cluster_any", "candidate_shapes", "candidate_any"}:
            shown[key] = shown[key][..., :1].expand_as(shown[key])
    return shown


def _blank(shown: dict[str, Tensor], key: str, features: Sequence[str], names: Sequence[str]) -> None:
    if key not in shown:
        return
    shown[key] = shown[key].clone()
    shown[key][..., [features.index(name) for name in names]] = 0.0


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
