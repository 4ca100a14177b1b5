"""The step-by-step policy's decisions in compiled code: what torch takes milliseconds for, decision after decision.

Computes the same scores as `step_score.StepScore`. Affinities are not worked out for all pairs of ops: each op that is placed
adds to those from which a walk leads to it. Legend of shapes: ``n`` ops, ``m`` devices, ``h`` width, ``f`` features of a
candidate, ``j`` kinds of walk, ``s`` steps, ``a = j s`` affinities, ``e`` edges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...compiled import njit
from ...envs.operators.batch import PlacementBatch
from ...numba_records import by_reference
from ...simulation.operators.decisions.placing import is_over, place_next
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorObjective
from .compiled_choices import ChoosingPlay, PickWeights
from .graphs import OperatorGraphs
from .policy import StepPolicy
from .step_kernel import likeliest, score_devices, stand, tell_near, walk_to_group
from .step_score import EncodedInstances


@by_reference
class _Weights(NamedTuple):
    """Embeddings and weights of `step_score.StepScore`, the names of which they bear."""

    op_h: NDArray[np.float32]
    op: NDArray[np.float32]
    query: NDArray[np.float32]
    device: NDArray[np.float32]
    link: NDArray[np.float32]
    placed: NDArray[np.float32]
    candidate: NDArray[np.float32]
    others: NDArray[np.float32]
    middle: NDArray[np.float32]
    middle_bias: NDArray[np.float32]
    out: NDArray[np.float32]
    direct: NDArray[np.float32]
    key: NDArray[np.float32]


@by_reference
class _Walks(NamedTuple):
    """The ops from which a step leads to each op.

    Attributes:
        first: place of each op's first, ``(n + 1,)``.
        source: those ops, ``(2 e,)``.
        weight: probability of the step, ``(2 e, j)``.
        steps: of the longest walk.
    """

    first: NDArray[np.int64]
    source: NDArray[np.int64]
    weight: NDArray[np.float32]
    steps: int


class CompiledSteps:
    """A policy that has read one instance and can place it any number of times.

    Args:
        policy: that decides.
        graphs: features of the instance alone.
    """

    @torch.no_grad()
    def __init__(self, policy: StepPolicy, graphs: OperatorGraphs) -> None:
        encoded, score = policy.encode(graphs, walks=False), policy.score
        kept = torch.ones(score.direct.in_features)
        kept[: len(policy.kept)] = policy.kept
        tensors = (
            encoded.op_h[0],
            encoded.op[0],
            encoded.query[0] / encoded.op_h.shape[2] ** 0.5,
            encoded.device[0],
            encoded.link[0],
            score.placed.weight,
            score.candidate.weight * kept,
            score.others.weight,
            score.middle.weight,
            score.middle.bias,
            score.out.weight[0],
            score.direct.weight[0] * kept,
            score.key.weight,
        )
        self.policy = policy
        self._pick = None if policy.choice is None else _pick_weights(policy, encoded)
        self._weights = _Weights(*(np.ascontiguousarray(tensor.numpy()) for tensor in tensors))
        self._to_each = _walks(policy, encoded.op_h, graphs)

    @property
    def num_logits(self) -> int:
        """Logits of each group: of its devices, and where the policy chooses ops its own."""
        return len(self._weights.device) + (self._pick is not None)

    def new_batch(self, instance: OperatorInstance, objective: OperatorObjective) -> PlacementBatch:
        """Episodes for `play`, under the rules that the policy plays by."""
        return PlacementBatch([instance], objective, 1, order=self.policy.order, refine_steps=self.policy.refine_steps)

    def play(self, batch: PlacementBatch, noise: NDArray[np.float32] | None = None) -> NDArray[np.float64]:
        """Place the first instance of a batch in its first episode.

        Args:
            batch: whose first instance is the one that was read.
            noise: added to the logits of each group's devices, and where the policy chooses ops to that of the group, which
                stands last, ``(g, num_logits)``; Gumbel's noise draws as likely as the policy finds it, none takes the
                likeliest each time.

        Returns:
            How likely the policy found each device for each op when it came to it, ``(n, m)``; rows of ops that no decision
            reached are 0.
        """
        batch.begin(np.zeros(1, np.int64))
        instance = batch.instances[0]
        shape = (instance.num_groups, instance.num_devices)
        likely = np.zeros(shape)
        if self._pick is not None:
            added = np.zeros((shape[0], shape[1] + 1), np.float32) if noise is None else noise
            chosen = ChoosingPlay(self._weights, self._pick, self._to_each, len(instance.group))
            chosen.play(batch, added, likely)
            return np.asarray(likely[instance.group])
        added = np.zeros(shape, np.float32) if noise is None else noise
        batch.is_dead[0] = _place_all(batch.stacked, batch.state, likely, added, self._weights, self._to_each)
        batch.is_live[0] = False
        if not batch.is_dead[0]:
            batch.reorder(np.zeros(1, np.int64))
        return np.asarray(likely[instance.group])


def _pick_weights(policy: StepPolicy, encoded: EncodedInstances) -> PickWeights:
    assert policy.choice is not None
    assert encoded.pick is not None
    stay = 0.0 if policy.stay is None else float(policy.stay)
    tensors = [
        encoded.pick[0],
        policy.choice.features.weight * policy.kept_of_op,
        policy.choice.out.weight[0],
        policy.choice.direct.weight[0] * policy.kept_of_op,
        torch.tensor([stay]),
    ]
    return PickWeights(*(np.ascontiguousarray(tensor.numpy()) for tensor in tensors))


def _walks(policy: StepPolicy, op_h: torch.Tensor, graphs: OperatorGraphs) -> _Walks:
    n = op_h.shape[1]
    if policy.affinity is None:
        return _Walks(np.zeros(n + 1, np.int64), np.zeros(0, np.int64), np.zeros((0, 0), np.float32), 0)
    down, up = policy.affinity.step_weights(op_h, graphs)
    source = torch.cat([graphs.producer, graphs.reader]).numpy()
    target = torch.cat([graphs.reader, graphs.producer]).numpy()
    order = np.argsort(target, kind="stable")
    first = np.searchsorted(target[order], np.arange(n + 1))
    return _Walks(first, source[order], torch.cat([down, up]).numpy()[order], policy.affinity.steps)


@njit
def _place_all(stacked, state, likely, noise, weights, walks):  # type: ignore[no-untyped-def]
    """Place everything; whether some op found no device."""
    n, (m, h) = len(weights.op_h), weights.device.shape
    num_affinities = walks.steps * walks.weight.shape[1]
    total, count = np.zeros((m, h), np.float32), np.zeros(m, np.float32)
    from_placed, key = np.zeros((m, h), np.float32), np.zeros((m, h), np.float32)
    near = np.zeros((n, m, num_affinities), np.float32)
    hidden, told = np.zeros((m, h), np.float32), np.zeros((m, weights.direct.size), np.float32)
    scores = np.zeros(m, np.float32)
    while not is_over(stacked, state, 0):
        op = stacked.lead[0, state.num_decided[0]]
        group = stacked.group[0, op]
        can = state.can_place[0]
        tell_near(state.candidates[0], near[op], weights.link, told)
        if not score_devices(op, can, told, count, from_placed, key, hidden, weights, scores):
            return True
        best = likeliest(scores, can, noise[group], likely[group])
        stand(op, best, np.float32(1.0), total, count, from_placed, key, weights)
        if num_affinities > 0:
            walk_to_group(stacked, walks, group, best, np.float32(1.0), near)
        place_next(stacked, state, 0, best)
    return False
