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
from ...simulation.tasklets.filling import (
    NUM_PROGRESS_FEATURES,
    FillingState,
    StackedNetworks,
    begin_filling,
    is_filled,
    join,
)
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
    """The weights of a policy that has read some networks and can fill the stages of each any number of times."""
    embedding = policy.encoder(graphs)
    h = embedding.shape[2]
    device, key = policy.device(embedding), policy.key(embedding) / h**0.5
    count = graphs.is_device.sum(dim=1)
    told = [h, h, h, h, graphs.network.shape[1], NUM_PROGRESS_FEATURES]
    stage, previous, left, whole, network, progress = torch.split(policy.context.weight, told, dim=1)
    mean = embedding.sum(dim=1) / count[:, None]
    known = policy.context.bias + mean @ whole.T + graphs.network @ network.T
    return [
        FillingWeights(
            embedding=_array(embedding[row, :n]),
            device=_array(device[row, :n]),
            key=_array(key[row, :n]),
            known=_array(known[row]),
            stage=_array(stage.T),
            previous=_array(previous.T),
            left=_array(left.T),
            progress=_array(progress.T),
            shift=_array(policy.shift.weight.T),
            query=_array(policy.query.weight.T),
            candidate=_array(policy.candidate.weight.T),
            out=_array(policy.out.weight[0]),
            direct=_array(policy.direct.weight[0]),
        )
        for row, n in enumerate(count.tolist())
    ]


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), np.float32)


def fill_stages(
    weights: FillingWeights,
    stacked: StackedNetworks,
    state: FillingState,
    e: int,
    at: int,
    noise: NDArray[np.float32] | None = None,
    log_p: NDArray[np.float32] | None = None,
) -> None:
    """Play one episode to its end; other threads may play others at the same time.

    Args:
        weights: the policy, and the network as it has read it.
        stacked: that network among others.
        state: of episodes.
        e: the episode.
        at: the network's place.
        noise: added to the logits of each decision, ``(n, n)``; Gumbel's noise draws devices as likely as the policy finds them,
            none takes the likeliest each time.
        log_p: written to: logarithms of the probabilities of what was taken, ``(n,)``.
    """
    given = np.zeros((0, 0), np.float32) if noise is None else noise
    _fill(weights, stacked, state, e, at, given, np.zeros(0, np.float32) if log_p is None else log_p)


@njit(nogil=True)
def _fill(weights, stacked, state, e, at, noise, log_p):  # type: ignore[no-untyped-def]
    begin_filling(stacked, state, e, at)
    n, h = weights.embedding.shape
    p = n // stacked.num_stages[at]
    stage, previous, left = np.zeros(h, np.float32), np.zeros(h, np.float32), np.zeros(h, np.float32)
    context, shift, query = np.zeros(h, np.float32), np.zeros(h, np.float32), np.zeros(h, np.float32)
    hidden, scores = np.zeros(h, np.float32), np.zeros(n, np.float32)
    for device in range(n):
        _add(left, weights.embedding[device], np.float32(1.0))
    step = 0
    while not is_filled(stacked, state, e):
        context[:] = weights.known
        for k in range(weights.progress.shape[0]):
            _add(context, weights.progress[k], state.progress[e, k])
        for k in range(h):
            _add(context, weights.stage[k], stage[k] / np.float32(max(1, step % p)))
            _add(context, weights.previous[k], previous[k] / np.float32(p))
            _add(context, weights.left[k], left[k] / np.float32(n - step))
        shift[:] = np.float32(0.0)
        query[:] = np.float32(0.0)
        for k in range(h):
            if context[k] > 0.0:
                _add(shift, weights.shift[k], context[k])
                _add(query, weights.query[k], context[k])
        best, best_score, highest = -1, np.float32(-np.inf), np.float32(-np.inf)
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
                    _add(hidden, weights.candidate[f], told)
            for k in range(h):
                score += weights.out[k] * max(hidden[k], np.float32(0.0))
            scores[device] = score
            highest = max(highest, score)
            if noise.shape[0] > 0:
                score += noise[step, device]
            if score > best_score:
                best, best_score = device, score
        if log_p.shape[0] > 0:
            total = 0.0
            for device in range(n):
                if state.can_join[e, device]:
                    total += np.exp(scores[device] - highest)
            log_p[step] = scores[best] - highest - np.log(total)
        join(stacked, state, e, best)
        step += 1
        _add(left, weights.embedding[best], np.float32(-1.0))
        _add(stage, weights.embedding[best], np.float32(1.0))
        if step % p == 0:
            previous[:] = stage
            stage[:] = np.float32(0.0)


@njit
def _add(total, row, weight):  # type: ignore[no-untyped-def]
    for k in range(len(total)):
        total[k] += weight * row[k]
