"""The policy's decisions in compiled code.

Computes the same logits as `policy.TaskletPolicy`. Legend of shapes: ``n`` devices, ``h`` width.
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
from ..decode_kernel import Head, add_row, as_array, likeliest, score_devices
from .graphs import TaskletGraphs
from .policy import TaskletPolicy


@by_reference
class FillingWeights(NamedTuple):
    """Embeddings of one network and weights of `policy.TaskletPolicy`, the names of which they bear; matrices are transposed."""

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
    head: Head


@torch.no_grad()
def filling_weights(policy: TaskletPolicy, graphs: TaskletGraphs) -> list[FillingWeights]:
    """The weights of a policy that has read some networks and can fill the stages of each any number of times."""
    embedding = policy.encoder(graphs)
    h = embedding.shape[2]
    device, key = policy.device(embedding), policy.key(embedding) / h**0.5
    count = graphs.is_device.sum(dim=1)
    sizes = [h, h, h, h, graphs.network.shape[1], NUM_PROGRESS_FEATURES]
    stage, previous, left, whole, network, progress = torch.split(policy.context.weight, sizes, dim=1)
    known = policy.context.bias + embedding.sum(dim=1) / count[:, None] @ whole.T + graphs.network @ network.T
    none = np.zeros((0, h), np.float32)
    head = Head(
        candidate=as_array(policy.candidate.weight.T),
        out=as_array(policy.out.weight[0]),
        direct=as_array(policy.direct.weight[0]),
        middle=none,
        others=none,
        bias=none[:, 0],
    )
    return [
        FillingWeights(
            embedding=as_array(embedding[row, :n]),
            device=as_array(device[row, :n]),
            key=as_array(key[row, :n]),
            known=as_array(known[row]),
            stage=as_array(stage.T),
            previous=as_array(previous.T),
            left=as_array(left.T),
            progress=as_array(progress.T),
            shift=as_array(policy.shift.weight.T),
            query=as_array(policy.query.weight.T),
            head=head,
        )
        for row, n in enumerate(count.tolist())
    ]


def fill_stages(
    weights: FillingWeights,
    stacked: StackedNetworks,
    state: FillingState,
    e: int,
    at: int,
    noise: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Play one episode to its end; other threads may play others at the same time.

    Args:
        weights: the policy, and the network as it has read it.
        stacked: that network among others.
        state: of episodes.
        e: the episode.
        at: the network's place.
        noise: added to the logits of each decision, ``(n, n)``; Gumbel's noise draws devices as likely as the policy finds them,
            none takes the likeliest each time.

    Returns:
        Logarithms of the probabilities of what was taken, ``(n,)``.
    """
    n = len(weights.embedding)
    log_p = np.zeros(n, np.float32)
    _fill(weights, stacked, state, e, at, np.zeros((n, n), np.float32) if noise is None else noise, log_p)
    return log_p


@njit(nogil=True)
def _fill(weights, stacked, state, e, at, noise, log_p):  # type: ignore[no-untyped-def]
    begin_filling(stacked, state, e, at)
    n, h = weights.embedding.shape
    p = n // stacked.num_stages[at]
    stage, previous, left = np.zeros(h, np.float32), np.zeros(h, np.float32), np.zeros(h, np.float32)
    context, shift, query = np.zeros(h, np.float32), np.zeros(h, np.float32), np.zeros(h, np.float32)
    hidden, scores, likely = np.zeros((n, h), np.float32), np.zeros(n, np.float32), np.zeros(n)
    for device in range(n):
        add_row(left, weights.embedding[device], np.float32(1.0))
    step = 0
    while not is_filled(stacked, state, e):
        context[:] = weights.known
        for k in range(weights.progress.shape[0]):
            add_row(context, weights.progress[k], state.progress[e, k])
        for k in range(h):
            add_row(context, weights.stage[k], stage[k] / np.float32(max(1, step % p)))
            add_row(context, weights.previous[k], previous[k] / np.float32(p))
            add_row(context, weights.left[k], left[k] / np.float32(n - step))
        shift[:] = np.float32(0.0)
        query[:] = np.float32(0.0)
        for k in range(h):
            if context[k] > 0.0:
                add_row(shift, weights.shift[k], context[k])
                add_row(query, weights.query[k], context[k])
        for device in range(n):
            if state.can_join[e, device]:
                for k in range(h):
                    hidden[device, k] = weights.device[device, k] + shift[k]
        score_devices(hidden, query, weights.key, state.candidates[e], state.can_join[e], weights.head, scores)
        best = likeliest(scores, state.can_join[e], noise[step], likely)
        log_p[step] = np.log(likely[best])
        join(stacked, state, e, best)
        step += 1
        add_row(left, weights.embedding[best], np.float32(-1.0))
        add_row(stage, weights.embedding[best], np.float32(1.0))
        if step % p == 0:
            previous[:] = stage
            stage[:] = np.float32(0.0)
