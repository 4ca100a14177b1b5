"""The step-by-step policy's greedy decisions in compiled code: what torch takes milliseconds for, decision after decision.

Computes the same scores as `policy.StepScore`. Legend of shapes: ``n`` ops, ``m`` devices, ``h`` width, ``f`` features of a
candidate.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ...compiled import njit
from ...envs.operators.batch import PlacementBatch
from ...simulation.operators.placing import is_over, place_next
from .graphs import OperatorGraphs
from .policy import StepPolicy


@torch.no_grad()
def play_greedily(policy: StepPolicy, graphs: OperatorGraphs, batch: PlacementBatch) -> NDArray[np.float64]:
    """Place the first instance of a batch in its first episode, as `playing.play` does without a generator.

    Returns:
        How likely the policy found each device for each op when it came to it, ``(n, m)``; rows of ops that no decision reached
        are 0.
    """
    op_h, device_h, whole_h = policy.encoder(graphs)
    op_part, query, device_part, _ = policy.score.prepare(op_h, device_h, whole_h)
    score = policy.score
    tensors = (
        op_h[0],
        op_part[0],
        query[0] / op_h.shape[2] ** 0.5,
        device_part[0],
        score.placed.weight,
        score.candidate.weight * policy.kept,
        score.middle.weight,
        score.middle.bias,
        score.out.weight[0],
        score.direct.weight[0] * policy.kept,
        score.key.weight,
    )
    arrays = tuple(np.ascontiguousarray(tensor.numpy()) for tensor in tensors)
    batch.begin(np.zeros(1, np.int64))
    instance = batch.instances[0]
    likely = np.zeros((instance.num_groups, instance.num_devices))
    batch.is_dead[0] = _place_all(batch.stacked, batch.state, likely, *arrays)
    batch.is_live[0] = False
    return np.asarray(likely[instance.group])


@njit
def _place_all(  # type: ignore[no-untyped-def]
    stacked, state, likely, op_h, op_part, query, device_part, w_placed, w_candidate, w_middle, b_middle, w_out, w_direct, w_key
):
    """Place everything; whether some op found no device."""
    m, h = device_part.shape
    num_features = w_direct.size
    total, count = np.zeros((m, h), np.float32), np.zeros(m, np.float32)
    from_placed, key = np.zeros((m, h), np.float32), np.zeros((m, h), np.float32)
    hidden = np.zeros(h, np.float32)
    decided = np.float32(0.0)
    while not is_over(stacked, state, 0):
        op = stacked.lead[0, state.num_decided[0]]
        group = stacked.group[0, op]
        best, best_score = -1, np.float32(-np.inf)
        for device in range(m):
            if not state.can_place[0, device]:
                continue
            told = state.candidates[0, device]
            share = count[device] / (decided + np.float32(1.0))
            for k in range(h):
                sum_k = op_part[op, k] + device_part[device, k] + from_placed[device, k] + w_placed[k, h] * share
                for f in range(num_features):
                    sum_k += w_candidate[k, f] * told[f]
                hidden[k] = max(sum_k, np.float32(0.0))
            score = np.float32(0.0)
            for k in range(h):
                last = b_middle[k]
                for other in range(h):
                    last += w_middle[k, other] * hidden[other]
                score += w_out[k] * max(last, np.float32(0.0)) + query[op, k] * key[device, k]
            for f in range(num_features):
                score += w_direct[f] * told[f]
            likely[group, device] = score
            if score > best_score:
                best, best_score = device, score
        if best < 0:
            return True
        total_likely = 0.0
        for device in range(m):
            likely[group, device] = np.exp(likely[group, device] - best_score) if state.can_place[0, device] else 0.0
            total_likely += likely[group, device]
        likely[group] /= total_likely
        count[best] += np.float32(1.0)
        decided += np.float32(1.0)
        for k in range(h):
            total[best, k] += op_h[op, k]
        for k in range(h):
            sum_placed, sum_key = np.float32(0.0), np.float32(0.0)
            for other in range(h):
                mean = total[best, other] / count[best]
                sum_placed += w_placed[k, other] * mean
                sum_key += w_key[k, other] * mean
            from_placed[best, k], key[best, k] = sum_placed, sum_key
        place_next(stacked, state, 0, best)
    return False
