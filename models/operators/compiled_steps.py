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
from ...simulation.operators.placing import is_over, place_next
from .graphs import OperatorGraphs
from .policy import StepPolicy


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
    """A policy that has read one instance, ready to place it again and again.

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
        self._weights = _Weights(*(np.ascontiguousarray(tensor.numpy()) for tensor in tensors))
        self._to_each = _walks(policy, encoded.op_h, graphs)

    def play(self, batch: PlacementBatch, noise: NDArray[np.float32] | None = None) -> NDArray[np.float64]:
        """Place the first instance of a batch in its first episode.

        Args:
            batch: whose first instance is the one that was read.
            noise: added to the logits of each group's devices, ``(g, m)``; Gumbel's noise draws devices as likely as the policy
                finds them, none takes the likeliest each time.

        Returns:
            How likely the policy found each device for each op when it came to it, ``(n, m)``; rows of ops that no decision
            reached are 0.
        """
        batch.begin(np.zeros(1, np.int64))
        instance = batch.instances[0]
        shape = (instance.num_groups, instance.num_devices)
        likely, added = np.zeros(shape), np.zeros(shape, np.float32) if noise is None else noise
        batch.is_dead[0] = _place_all(batch.stacked, batch.state, likely, added, self._weights, self._to_each)
        batch.is_live[0] = False
        if not batch.is_dead[0]:
            batch.reorder(np.zeros(1, np.int64))
        return np.asarray(likely[instance.group])


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
    among, from_among = np.zeros(h, np.float32), np.zeros(h, np.float32)
    here, there = np.zeros((n, walks.weight.shape[1]), np.float32), np.zeros((n, walks.weight.shape[1]), np.float32)
    is_reached = np.zeros(n, np.int8)
    decided = np.float32(0.0)
    while not is_over(stacked, state, 0):
        op = stacked.lead[0, state.num_decided[0]]
        group = stacked.group[0, op]
        _tell(state, near[op], weights.link, told)
        among[:] = 0.0
        num_allowed = 0
        for device in range(m):
            if not state.can_place[0, device]:
                continue
            num_allowed += 1
            share = count[device] / (decided + np.float32(1.0))
            for k in range(h):
                sum_k = weights.op[op, k] + weights.device[device, k] + from_placed[device, k] + weights.placed[k, h] * share
                for f in range(told.shape[1]):
                    sum_k += weights.candidate[k, f] * told[device, f]
                hidden[device, k] = max(sum_k, np.float32(0.0))
                among[k] += hidden[device, k]
        if num_allowed == 0:
            return True
        for k in range(h):
            from_among[k] = np.float32(0.0)
            for other in range(h):
                from_among[k] += weights.others[k, other] * among[other] / np.float32(num_allowed)
        best, best_score, highest = -1, np.float32(-np.inf), np.float32(-np.inf)
        for device in range(m):
            if not state.can_place[0, device]:
                continue
            score = np.float32(0.0)
            for k in range(h):
                last = weights.middle_bias[k] + from_among[k]
                for other in range(h):
                    last += weights.middle[k, other] * hidden[device, other]
                score += weights.out[k] * max(last, np.float32(0.0)) + weights.query[op, k] * key[device, k]
            for f in range(told.shape[1]):
                score += weights.direct[f] * told[device, f]
            likely[group, device] = score
            highest = max(highest, score)
            if score + noise[group, device] > best_score:
                best, best_score = device, score + noise[group, device]
        total_likely = 0.0
        for device in range(m):
            likely[group, device] = np.exp(likely[group, device] - highest) if state.can_place[0, device] else 0.0
            total_likely += likely[group, device]
        likely[group] /= total_likely
        count[best] += np.float32(1.0)
        decided += np.float32(1.0)
        for k in range(h):
            total[best, k] += weights.op_h[op, k]
        for k in range(h):
            sum_placed, sum_key = np.float32(0.0), np.float32(0.0)
            for other in range(h):
                mean = total[best, other] / count[best]
                sum_placed += weights.placed[k, other] * mean
                sum_key += weights.key[k, other] * mean
            from_placed[best, k], key[best, k] = sum_placed, sum_key
        if num_affinities > 0:
            for other in range(n):
                if stacked.group[0, other] == group:
                    _walk_to(walks, other, near[:, best], here, there, is_reached)
        place_next(stacked, state, 0, best)
    return False


@njit
def _tell(state, near, link, told):  # type: ignore[no-untyped-def]
    """Features of each device: those of the candidate, what is near on it, and what is near on others by the length of links."""
    m, num_affinities = near.shape
    num_features = told.shape[1] - 2 * num_affinities
    for device in range(m):
        for f in range(num_features):
            told[device, f] = state.candidates[0, device, f]
        for a in range(num_affinities):
            told[device, num_features + a] = near[device, a]
            far = np.float32(0.0)
            for other in range(m):
                far += near[other, a] * link[other, device]
            told[device, num_features + num_affinities + a] = far


@njit
def _walk_to(walks, op, near, here, there, is_reached):  # type: ignore[no-untyped-def]
    """Add to each op's affinities ``near`` ``(n, a)`` how likely walks from it are at ``op`` after each number of steps."""
    num_walks = walks.weight.shape[1]
    reached = [op]
    here[op, :] = 1.0
    for step in range(walks.steps):
        after = [op][:0]
        for at in reached:
            for place in range(walks.first[at], walks.first[at + 1]):
                source = walks.source[place]
                if is_reached[source] == 0:
                    is_reached[source] = 1
                    after.append(source)
                for walk in range(num_walks):
                    there[source, walk] += walks.weight[place, walk] * here[at, walk]
        for at in reached:
            here[at, :] = 0.0
        for at in after:
            is_reached[at] = 0
            for walk in range(num_walks):
                near[at, walk * walks.steps + step] += there[at, walk]
                here[at, walk] = there[at, walk]
                there[at, walk] = 0.0
        reached = after
    for at in reached:
        here[at, :] = 0.0
