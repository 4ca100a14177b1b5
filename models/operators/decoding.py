"""The policy's decisions in compiled code.

Computes the same scores as `step_score.StepScore`. Affinities are not worked out for all pairs of ops: each op that is placed
adds to those from which a walk leads to it. Legend of shapes: ``n`` ops, ``m`` devices, ``h`` width, ``j`` kinds of walk, ``s``
steps, ``a = j s`` affinities, ``e`` edges.
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
from ..decode_kernel import Head, add_row, as_array, likeliest, score_devices
from .graphs import OperatorGraphs
from .policy import OperatorPolicy


@by_reference
class _Weights(NamedTuple):
    """Embeddings and weights of `step_score.StepScore`, the names of which they bear; matrices are transposed."""

    op_h: NDArray[np.float32]
    op: NDArray[np.float32]
    query: NDArray[np.float32]
    device: NDArray[np.float32]
    link: NDArray[np.float32]
    placed: NDArray[np.float32]
    key: NDArray[np.float32]
    head: Head


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
    def __init__(self, policy: OperatorPolicy, graphs: OperatorGraphs) -> None:
        encoded, score = policy.encode(graphs, walks=False), policy.score
        kept = torch.ones(score.direct.in_features)
        kept[: len(policy.kept)] = policy.kept
        self._weights = _Weights(
            op_h=as_array(encoded.op_h[0]),
            op=as_array(encoded.op[0]),
            query=as_array(encoded.query[0] / encoded.op_h.shape[2] ** 0.5),
            device=as_array(encoded.device[0]),
            link=as_array(encoded.link[0]),
            placed=as_array(score.placed.weight.T),
            key=as_array(score.key.weight.T),
            head=Head(
                candidate=as_array((score.candidate.weight * kept).T),
                out=as_array(score.out.weight[0]),
                direct=as_array(score.direct.weight[0] * kept),
                middle=as_array(score.middle.weight.T),
                others=as_array(score.others.weight.T),
                bias=as_array(score.middle.bias),
            ),
        )
        self._to_each = _walks(policy, encoded.op_h, graphs)

    def play(self, batch: PlacementBatch, noise: NDArray[np.float32] | None = None) -> NDArray[np.float64]:
        """Place the first instance of a batch in its first episode.

        Args:
            batch: whose first instance is the one that was read.
            noise: added to the logits of each group's devices, ``(g, m)``; Gumbel's noise draws as likely as the policy finds it,
                none takes the likeliest each time.

        Returns:
            How likely the policy found each device for each op when it came to it, ``(n, m)``; rows of ops that no decision
            reached are 0.
        """
        batch.begin(np.zeros(1, np.int64))
        instance = batch.instances[0]
        likely = np.zeros((instance.num_groups, instance.num_devices))
        added = np.zeros(likely.shape, np.float32) if noise is None else noise
        batch.is_dead[0] = _place_all(batch.stacked, batch.state, likely, added, self._weights, self._to_each)
        batch.is_live[0] = False
        if not batch.is_dead[0]:
            batch.reorder(np.zeros(1, np.int64))
        return np.asarray(likely[instance.group])


def _walks(policy: OperatorPolicy, op_h: torch.Tensor, graphs: OperatorGraphs) -> _Walks:
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
    total, count = np.zeros((m, h), np.float32), np.zeros(m, np.float32)
    from_placed, key = np.zeros((m, h), np.float32), np.zeros((m, h), np.float32)
    near = np.zeros((n, m, walks.steps * walks.weight.shape[1]), np.float32)
    hidden, device_features = np.zeros((m, h), np.float32), np.zeros((m, len(weights.head.direct)), np.float32)
    scores = np.zeros(m, np.float32)
    while not is_over(stacked, state, 0):
        op = stacked.lead[0, state.num_decided[0]]
        group, can = stacked.group[0, op], state.can_place[0]
        _write_device_features(state.candidates[0], near[op], weights.link, device_features)
        decided = np.float32(count.sum())
        for device in range(m):
            share = count[device] / (decided + np.float32(1.0))
            for k in range(h):
                known = weights.op[op, k] + weights.device[device, k]
                hidden[device, k] = known + from_placed[device, k] + weights.placed[h, k] * share
        score_devices(hidden, weights.query[op], key, device_features, can, weights.head, scores)
        best = likeliest(scores, can, noise[group], likely[group])
        if best < 0:
            return True
        count[best] += np.float32(1.0)
        add_row(total[best], weights.op_h[op], np.float32(1.0))
        from_placed[best], key[best] = np.float32(0.0), np.float32(0.0)
        for k in range(h):
            mean = total[best, k] / count[best]
            add_row(from_placed[best], weights.placed[k], mean)
            add_row(key[best], weights.key[k], mean)
        _walk_to_group(stacked, walks, group, near[:, best])
        place_next(stacked, state, 0, best)
    return False


@njit
def _write_device_features(candidates, near, link, device_features):  # type: ignore[no-untyped-def]
    """Features of each device: those of the candidate, what is near on it, and what is near on others by the length of links."""
    m, num_affinities = near.shape
    num_features = device_features.shape[1] - 2 * num_affinities
    for device in range(m):
        for f in range(num_features):
            device_features[device, f] = candidates[device, f]
        for a in range(num_affinities):
            device_features[device, num_features + a] = near[device, a]
            far = np.float32(0.0)
            for other in range(m):
                far += near[other, a] * link[other, device]
            device_features[device, num_features + num_affinities + a] = far


@njit
def _walk_to_group(stacked, walks, group, near):  # type: ignore[no-untyped-def]
    """Add to the affinities to what is on a device, ``(n, a)``, those to a group that has just been placed there.

    Of each op these are how likely walks from it are at an op of the group after each number of steps.
    """
    n, num_walks = len(near), walks.weight.shape[1]
    here, there = np.zeros((n, num_walks), np.float32), np.zeros((n, num_walks), np.float32)
    is_reached = np.zeros(n, np.int8)
    for op in range(n):
        if stacked.group[0, op] != group:
            continue
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
                    here[at, walk], there[at, walk] = there[at, walk], 0.0
            reached = after
        for at in reached:
            here[at, :] = 0.0
