"""The policy's decisions in compiled code: what torch takes milliseconds for, decision after decision.

Computes the same logits as `policy.TaskletPolicy`. Legend of shapes: ``n`` devices, ``h`` width, ``f`` features of a candidate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...compiled import njit
from ...numba_records import by_reference
from ...simulation.tasklets.filling import FillingState, StackedNetworks, begin_filling, is_filled, join
from .graphs import TaskletGraphs
from .policy import TaskletPolicy


@by_reference
class FillingWeights(NamedTuple):
    """Embeddings of one network and weights of `policy.TaskletPolicy`, the names of which they bear.

    Weights that a vector is multiplied with from the left are transposed, so that their rows are read in order.
    """

    embedding: NDArray[np.float32]
    device: NDArray[np.float32]
    key: NDArray[np.float32]
    known: NDArray[np.float32]
    stage: NDArray[np.float32]
    previous: NDArray[np.float32]
    left: NDArray[np.float32]
    progress: NDArray[np.float32]
    shift: NDArray[np.float32]
    query: NDArray[np.float32]
    candidate: NDArray[np.float32]
    out: NDArray[np.float32]
    direct: NDArray[np.float32]


@torch.no_grad()
def filling_weights(policy: TaskletPolicy, graphs: TaskletGraphs) -> list[FillingWeights]:
    """A policy that has read some networks, ready to fill the stages of each again and again."""
    embedding = policy.encoder(graphs)
    h = embedding.shape[2]
    device, key = policy.device(embedding), policy.key(embedding) / h**0.5
    count = graphs.is_device.sum(dim=1)
    stage, previous, left, whole, network, progress = policy.context.weight.split(
        [h, h, h, h, graphs.network.shape[1], policy.context.in_features - 4 * h - graphs.network.shape[1]], dim=1
    )
    mean = embedding.sum(dim=1) / count[:, None]
    known = policy.context.bias + mean @ whole.T + graphs.network @ network.T
    shared = [
        policy.shift.weight.T,
        policy.query.weight.T,
        policy.candidate.weight.T,
        policy.out.weight[0],
        policy.direct.weight[0],
    ]
    fixed = [_array(each) for each in (stage.T, previous.T, left.T, progress.T, *shared)]
    made = []
    for row, n in enumerate(count.tolist()):
        own = [_array(each[row, :n]) for each in (embedding, device, key)]
        made.append(FillingWeights(*own, _array(known[row]), *fixed))
    return made


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), np.float32)


def fill_stages(
    weights: FillingWeights, stacked: StackedNetworks, state: FillingState, e: int, at: int, noise: NDArray[np.float32] | None
) -> None:
    """Play one episode to its end.

    Args:
        weights: the policy, and the network as it has read it.
        stacked: that network among others.
        state: of episodes.
        e: the episode.
        at: the network's place.
        noise: added to the logits of each decision, ``(n, n)``; Gumbel's noise draws devices as likely as the policy finds them, none
            takes the likeliest each time.
    """
    _fill(weights, stacked, state, e, at, np.zeros((0, 0), np.float32) if noise is None else noise)


@njit
def _fill(weights, stacked, state, e, at, noise):  # type: ignore[no-untyped-def]
    begin_filling(stacked, state, e, at)
    n, h = weights.embedding.shape
    p = n // stacked.num_stages[at]
    stage, previous, left = np.zeros(h, np.float32), np.zeros(h, np.float32), np.zeros(h, np.float32)
    context, shift, query = np.zeros(h, np.float32), np.zeros(h, np.float32), np.zeros(h, np.float32)
    hidden = np.zeros(h, np.float32)
    for device in range(n):
        left += weights.embedding[device]
    step = 0
    while not is_filled(stacked, state, e):
        inside = step % p
        context[:] = weights.known
        for k in range(weights.progress.shape[0]):
            context += state.progress[e, k] * weights.progress[k]
        _add_mean(context, stage, max(1, inside), weights.stage)
        if step >= p:
            _add_mean(context, previous, p, weights.previous)
        _add_mean(context, left, n - step, weights.left)
        shift[:] = np.float32(0.0)
        query[:] = np.float32(0.0)
        for k in range(h):
            if context[k] > 0.0:
                shift += context[k] * weights.shift[k]
                query += context[k] * weights.query[k]
        best, best_score = -1, np.float32(-np.inf)
        for device in range(n):
            if not state.can_join[e, device]:
                continue
            score = np.float32(0.0)
            for k in range(h):
                hidden[k] = weights.device[device, k] + shift[k]
                score += query[k] * weights.key[device, k]
            for f in range(weights.candidate.shape[0]):
                told = state.candidates[e, device, f]
                if told != 0.0:
                    score += told * weights.direct[f]
                    for k in range(h):
                        hidden[k] += told * weights.candidate[f, k]
            for k in range(h):
                score += weights.out[k] * max(hidden[k], np.float32(0.0))
            if noise.shape[0] > 0:
                score += noise[step, device]
            if score > best_score:
                best, best_score = device, score
        join(stacked, state, e, best)
        step += 1
        left -= weights.embedding[best]
        stage += weights.embedding[best]
        if step % p == 0:
            previous[:] = stage
            stage[:] = np.float32(0.0)


@njit
def _add_mean(context, total, count, weight):  # type: ignore[no-untyped-def]
    for k in range(len(total)):
        context += total[k] / np.float32(count) * weight[k]
