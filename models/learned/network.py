"""`NetworkPass`: a `CandidateNetwork` there and back, to the same gradients up to the order of sums.

Legend: ``b`` samples, ``v`` offered candidates of all samples together.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..encoders import GraphEncoder
from ..linear_prior import KEY as PRIOR
from ..network import CandidateNetwork
from ..offered import Offered
from .graphs import GraphPass, RecordedGraphPass
from .layers import LinearPass, SetPass, gradient_of
from .scores import ScorePass
from .sets import PooledSet


class NetworkPass:
    """Scores and values of a minibatch, and then the gradients of the weights.

    PyTorch's own differentiation takes a third of the time for what lies between the products, which are small here.

    Args:
        network: on a CPU; it is read as it is then at each pass there.
    """

    def __init__(self, network: CandidateNetwork) -> None:
        encoder = network.graph_encoder
        self._network = network
        self._graphs = GraphPass(encoder) if isinstance(encoder, GraphEncoder) else RecordedGraphPass(encoder)
        self._devices, self._slots = SetPass(network.device_encoder), SetPass(network.slot_encoder)
        self._context = LinearPass(network.context[0], is_cut=True)
        self._of_sample = LinearPass(network.candidate_context, is_cut=False)
        self._scores = ScorePass(network.candidate, network.score)
        self._values = LinearPass(network.value[0], is_cut=True), LinearPass(network.value[2], is_cut=False)
        self._graph_ids = torch.empty(0)
        self._pooled: tuple[PooledSet, ...] = ()
        self._widths: tuple[list[int], list[int]] = [], []
        self._factors: list[tuple[nn.Parameter, Tensor]] = []

    @torch.no_grad()
    def there(self, seen: Offered, embeddings: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scores ``(v,)`` of the candidates that are offered, and values ``(b,)``.

        Args:
            seen: observations.
            embeddings: of each graph, where they are known already; there is then no way back.
        """
        network, states = self._network, seen.states
        self._graph_ids = states["graph_id"].reshape(-1).long()
        embedded = (self._graphs.there(network.static) if embeddings is None else embeddings)[self._graph_ids]
        self._pooled = devices, cluster, candidates = (
            self._devices.there(states["devices"]),
            self._slots.there(states["cluster_slots"]),
            self._slots.there(seen.rows["candidate_slots"]),
        )
        parts = [states["job"], states["cluster"], embedded, devices.pooled, cluster.pooled]
        context = self._context.there(torch.cat(parts, dim=1))
        value = self._values[1].there(self._values[0].there(torch.cat([context, embedded], dim=1))).squeeze(1)
        of_candidates = [seen.rows["candidates"], candidates.pooled]
        candidate_value = network.candidate_value_of(seen) if network.settings.after else None
        if candidate_value is not None:
            of_candidates.append(candidate_value.hidden)
        found = self._scores.there(torch.cat(of_candidates, dim=1), self._of_sample.there(context), seen.count)
        self._widths = [part.shape[1] for part in parts], [part.shape[1] for part in of_candidates]
        self._factors = []
        if network.settings.prior:
            found = found + network.prior_sharpness * seen.rows[PRIOR]
            self._factors.append((network.prior_sharpness, seen.rows[PRIOR]))
        if candidate_value is not None:
            total = candidate_value.immediate_reward + candidate_value.after
            self._factors.append((network.log_sharpness, network.log_sharpness.exp() * total))
            found, value = network.with_values(seen, found, value, total)
        return found, value

    @torch.no_grad()
    def back(self, of_scores: Tensor, of_values: Tensor) -> None:
        """Add to the gradients of the weights by those of the scores and values of the latest pass there."""
        for weight, factor in self._factors:
            gradient_of(weight).add_(of_scores @ factor)
        devices, cluster, candidates = self._pooled
        of_parts, of_candidates = self._widths
        begin = of_candidates[0]
        of_slots, of_sample = self._scores.back(of_scores, slice(begin, begin + of_candidates[1]))
        self._slots.back(candidates, of_slots)
        first, last = self._values
        of_read = first.back(last.back(of_values.unsqueeze(1)))
        of_context = self._of_sample.back(of_sample)
        of_context.add_(of_read[:, : of_context.shape[1]])
        begin = sum(of_parts[:2])
        of_embedded, of_devices, of_cluster = torch.split(self._context.back(of_context, slice(begin, None)), of_parts[2:], dim=1)
        self._devices.back(devices, of_devices)
        self._slots.back(cluster, of_cluster)
        of_embedded = of_embedded + of_read[:, of_context.shape[1] :]
        of_graphs = of_embedded.new_zeros((self._network.static.num_graphs, of_embedded.shape[1]))
        self._graphs.back(self._network.static, of_graphs.index_add_(0, self._graph_ids, of_embedded))
