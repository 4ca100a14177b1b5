"""Compiled decisions of a policy that chooses ops as well as devices (`op_choice.OpChoice`).

Legend of shapes as of `compiled_steps`; ``g`` groups.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...envs.operators.batch import PlacementBatch
from ...numba_records import by_reference
from .step_kernel import likeliest, score_devices, stand, tell_near, walk_to_group


@by_reference
class PickWeights(NamedTuple):
    """Embeddings and weights of `op_choice.OpChoice`, the names of which they bear; ``stay`` is added for an op's own device."""

    prepared: NDArray[np.float32]
    features: NDArray[np.float32]
    out: NDArray[np.float32]
    direct: NDArray[np.float32]
    stay: NDArray[np.float32]


class ChoosingPlay:
    """One episode: the placement so far, and the next decision.

    Args:
        weights: of `step_score.StepScore`.
        pick: of `op_choice.OpChoice`.
        walks: over the edges.
        n: ops.
    """

    def __init__(self, weights: Any, pick: PickWeights, walks: Any, n: int) -> None:
        m, h = weights.device.shape
        num_affinities = walks.steps * walks.weight.shape[1]
        self._given = weights, pick, walks
        self._standing = (
            np.zeros((m, h), np.float32),
            np.zeros(m, np.float32),
            np.zeros((m, h), np.float32),
            np.zeros((m, h), np.float32),
            np.zeros((n, m, num_affinities), np.float32),
        )

    def play(self, batch: PlacementBatch, noise: NDArray[np.float32], likely: NDArray[np.float64]) -> None:
        """Decide until the first episode, which has begun, is over.

        Args:
            batch: of one episode of the instance that was read.
            noise: see `compiled_steps.CompiledSteps.play`.
            likely: is written to: how likely each device was for each group, ``(g, m)``.
        """
        while batch.is_live[0]:
            op, device = _decide(batch.stacked, batch.state, noise, likely, *self._given, *self._standing)
            batch.step(np.array([device]), np.array([op]))


@njit
def _decide(stacked, state, noise, likely, weights, pick, walks, total, count, from_placed, key, near):  # type: ignore[no-untyped-def]
    """The next op and its device, which it stands on from now on."""
    m, h = weights.device.shape
    chosen, best = -1, np.float32(-np.inf)
    for op in range(stacked.num_ops[0]):
        if not state.is_open[0, op]:
            continue
        told = state.op_features[0, op]
        score = noise[stacked.group[0, op], m]
        for f in range(len(told)):
            score += pick.direct[f] * told[f]
        for k in range(h):
            sum_k = pick.prepared[op, k]
            for f in range(len(told)):
                sum_k += pick.features[k, f] * told[f]
            score += pick.out[k] * max(sum_k, np.float32(0.0))
        if score > best or chosen < 0:
            chosen, best = op, score
    group = stacked.group[0, chosen]
    own, can = state.device_of[0, group], state.op_can[0, chosen]
    device_told, scores = np.zeros((m, weights.direct.size), np.float32), np.zeros(m, np.float32)
    tell_near(state.op_candidates[0, chosen], near[chosen], weights.link, device_told)
    score_devices(chosen, can, device_told, count, from_placed, key, np.zeros((m, h), np.float32), weights, scores)
    if own >= 0:
        scores[own] += pick.stay[0]
    device = likeliest(scores, can, noise[group], likely[group])
    if device != own:
        if own >= 0:
            stand(chosen, own, np.float32(-1.0), total, count, from_placed, key, weights)
            walk_to_group(stacked, walks, group, own, np.float32(-1.0), near)
        stand(chosen, device, np.float32(1.0), total, count, from_placed, key, weights)
        walk_to_group(stacked, walks, group, device, np.float32(1.0), near)
    return chosen, device
