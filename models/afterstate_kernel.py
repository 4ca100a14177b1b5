"""`models.afterstate_value.AfterstateValue` for all candidates of many episodes, compiled.

The states after the candidates of a decision differ in few figures from the one after rejection, so the first layer is
computed once for that one and mended for the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compiled import njit
from ..envs.observation import ObservationArrays
from .afterstate_value import AfterWeights


def write_afterstate_values(seen: ObservationArrays, weights: AfterWeights, out: NDArray[np.float32]) -> None:
    """Write the value of the state after each offered candidate, and the layer that it is read from.

    Args:
        seen: current observations of ``e`` episodes.
        weights: of the scenario.
        out: ``(e, a, 1 + second)``: value first. Candidates that are not offered are left at zero.
    """
    write_values(seen.candidate_shapes, seen.candidate_any, seen.episode, seen.action_mask, weights, out)


@njit(fastmath=True)
def write_values(shapes, is_any, episode, mask, weights, out):  # type: ignore[no-untyped-def]
    """`write_afterstate_values` by the observation's arrays: shapes, whether any, episode and mask of the candidates."""
    num_shapes, num_slots = shapes.shape[2], shapes.shape[3]
    num_degrees = is_any.shape[2]
    width = len(weights.first_bias)
    base, hidden = np.empty(width, np.float32), np.empty(width, np.float32)
    out[:] = np.float32(0.0)
    for e in range(shapes.shape[0]):
        base[:] = weights.first_bias
        for i in range(episode.shape[1]):
            _add(base, weights.first[len(weights.first) - episode.shape[1] + i], episode[e, i])
        for s in range(num_shapes):
            for h in range(num_slots):
                _add(base, weights.first[s * num_slots + h], shapes[e, 0, s, h])
        for d in range(num_degrees):
            for h in range(num_slots):
                _add(base, weights.first[(num_shapes + d) * num_slots + h], is_any[e, 0, d, h])
        for a in range(shapes.shape[1]):
            if mask[e, a] == 0:
                continue
            hidden[:] = base
            for s in range(num_shapes):
                for h in range(num_slots):
                    _add(hidden, weights.first[s * num_slots + h], shapes[e, a, s, h] - shapes[e, 0, s, h])
            for d in range(num_degrees):
                for h in range(num_slots):
                    _add(hidden, weights.first[(num_shapes + d) * num_slots + h], is_any[e, a, d, h] - is_any[e, 0, d, h])
            _read(hidden, weights, out[e, a])


@njit(fastmath=True)
def _add(to, row, times):  # type: ignore[no-untyped-def]
    if times != np.float32(0.0):
        for j in range(len(to)):
            to[j] += times * row[j]


@njit(fastmath=True)
def _read(lifted, weights, out):  # type: ignore[no-untyped-def]
    second = out[1:]
    second[:] = weights.second_bias
    for j in range(len(lifted)):
        _add(second, weights.second[j], np.float32(np.tanh(lifted[j])))
    value = weights.value_bias[0]
    for k in range(len(second)):
        second[k] = np.float32(np.tanh(second[k]))
        value += second[k] * weights.value[k]
    out[0] = value


def current_with_values(seen: ObservationArrays, weights: AfterWeights) -> dict[str, NDArray[Any]]:
    """Observations by key in which the values of candidates replace what they are computed from.

    ``candidate_after``, ``(e, a, 1 + second)``, replaces the keys `READ`; a `CandidateNetwork` takes either.
    """
    out = np.empty((*seen.action_mask.shape, 1 + len(weights.value)), np.float32)
    write_afterstate_values(seen, weights, out)
    return {**{key: value for key, value in seen.current().items() if key not in READ}, "candidate_after": out}


# Keys of an observation that only the values of candidates are computed from.
READ = ("candidate_shapes", "candidate_any", "cluster_shapes", "cluster_any")
