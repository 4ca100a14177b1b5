"""The head of policies that have read their instance, compiled: what torch takes milliseconds for, decision after decision.

One head scores the devices of a decision, of ops (`operators.decoding`) as of tasklets (`tasklets.decoding`). Matrices are
transposed, so that their rows are read in order. Legend of shapes: ``m`` devices, ``h`` width, ``f`` features of a candidate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..compiled import njit
from ..numba_records import by_reference


@by_reference
class Head(NamedTuple):
    """Weights by which devices are scored.

    Attributes:
        candidate: of features, to the first layer, ``(f, h)``.
        out: of the last layer, ``(h,)``.
        direct: of features, to the logit, ``(f,)``.
        middle: of the second layer, ``(h, h)``; empty where the first is the last.
        others: of the mean of all devices' first layers, to the second, ``(h, h)``.
        bias: of the second layer, ``(h,)``.
    """

    candidate: NDArray[np.float32]
    out: NDArray[np.float32]
    direct: NDArray[np.float32]
    middle: NDArray[np.float32]
    others: NDArray[np.float32]
    bias: NDArray[np.float32]


def as_array(tensor: torch.Tensor) -> NDArray[np.float32]:
    """A tensor as compiled code reads it."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), np.float32)


@njit
def add_row(total, row, weight):  # type: ignore[no-untyped-def]
    """Add a multiple of a row to another, ``(h,)``."""
    for k in range(len(total)):
        total[k] += weight * row[k]


@njit
def score_devices(first, query, key, device_features, can, head, scores):  # type: ignore[no-untyped-def]
    """Write the logit of each device that may be chosen.

    Args:
        first: of each device the first layer but for its features, ``(m, h)``; is written over.
        query: of the decision, ``(h,)``.
        key: of each device, ``(m, h)``.
        device_features: features of each device, ``(m, f)``.
        can: which of them may be chosen, ``(m,)``.
        head: weights.
        scores: is written to, ``(m,)``.
    """
    m, h = first.shape
    candidate, direct, out, middle = head.candidate, head.direct, head.out, head.middle
    among, from_among, second, count = np.zeros(h, np.float32), np.zeros(h, np.float32), np.zeros(h, np.float32), 0
    for device in range(m):
        if not can[device]:
            continue
        count += 1
        row = first[device]
        for f in range(len(direct)):
            if device_features[device, f] != 0.0:
                add_row(row, candidate[f], device_features[device, f])
        for k in range(h):
            row[k] = max(row[k], np.float32(0.0))
            among[k] += row[k]
    for other in range(len(middle)):
        for k in range(h):
            from_among[k] += head.others[other, k] * among[other] / np.float32(max(1, count))
    for device in range(m):
        if not can[device]:
            continue
        score, row = np.float32(0.0), first[device]
        if len(middle) > 0:
            for k in range(h):
                second[k] = head.bias[k] + from_among[k]
            for other in range(h):
                if row[other] > 0.0:
                    add_row(second, middle[other], row[other])
            row = second
        for k in range(h):
            score += out[k] * max(row[k], np.float32(0.0)) + query[k] * key[device, k]
        for f in range(len(direct)):
            score += direct[f] * device_features[device, f]
        scores[device] = score


@njit
def likeliest(scores, can, noise, likely):  # type: ignore[no-untyped-def]
    """Return the device of the highest logit with noise, -1 where none may be chosen; write how likely each is without."""
    best, best_score, highest, total = -1, np.float32(-np.inf), np.float32(-np.inf), 0.0
    for device in range(len(scores)):
        if can[device]:
            highest = max(highest, scores[device])
            if scores[device] + noise[device] > best_score:
                best, best_score = device, scores[device] + noise[device]
    for device in range(len(scores)):
        likely[device] = np.exp(scores[device] - highest) if can[device] else 0.0
        total += likely[device]
    if best >= 0:
        likely[:] /= total
    return best
