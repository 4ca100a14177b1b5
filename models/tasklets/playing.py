"""The policy at play: many episodes, greedily or drawn, and decisions replayed for learning.

Legend of shapes: ``b`` networks, ``E`` episodes, ``t`` decisions, ``n`` devices, ``f`` features of a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ...compiled import njit
from ...envs.tasklets.batch import FillingBatch
from ...simulation.tasklets.filling import NUM_CANDIDATE_FEATURES, NUM_PROGRESS_FEATURES, begin_filling, join
from .compiled_filling import fill_stages, filling_weights
from .graphs import TaskletGraphs
from .policy import FilledSteps, TaskletPolicy


def play(
    policy: TaskletPolicy,
    graphs: TaskletGraphs,
    batch: FillingBatch,
    numbers: NDArray[np.int64],
    *,
    samples: int = 1,
    rng: np.random.Generator | None = None,
) -> tuple[list[NDArray[np.int64]], NDArray[np.float64]]:
    """Fill the stages of some networks, of each some times.

    Args:
        policy: that decides.
        graphs: features of these networks.
        batch: with room for an episode of each.
        numbers: of the networks in the batch, ``(b,)``.
        samples: episodes of each network, which follow each other.
        rng: for drawing; None takes the likeliest device each time.

    Returns:
        Devices in the order in which they joined, and the value with the stages in their best order, in lower bounds, of ``E`` episodes.
    """
    joined, values = [], []
    for row, weights in enumerate(filling_weights(policy, graphs)):
        at = int(numbers[row])
        n = batch.instances[at].num_devices
        for _ in range(samples):
            noise = None if rng is None else rng.gumbel(size=(n, n)).astype(np.float32)
            fill_stages(weights, batch.stacked, batch.state, row, at, noise)
            batch.reorder(np.array([row]))
            joined.append(batch.state.joined[row, :n].copy())
            values.append(batch.state.value_s[row] / batch.stacked.scale_s[at])
    return joined, np.array(values)


def replayed(
    batch: FillingBatch, numbers: NDArray[np.int64], of: NDArray[np.int64], joined: Sequence[NDArray[np.int64]]
) -> FilledSteps:
    """The decisions of episodes.

    Args:
        batch: whose first episode is used.
        numbers: of the networks in the batch, ``(b,)``.
        of: network of each episode among these, ``(E,)``.
        joined: devices in the order in which they joined, of each episode.
    """
    count_e, t = len(joined), max(map(len, joined))
    n = int(batch.stacked.num_devices[numbers].max())
    wanted = np.zeros((count_e, t), np.int64)
    for row, each in enumerate(joined):
        wanted[row, : len(each)] = each
    candidates = np.zeros((count_e, t, n, NUM_CANDIDATE_FEATURES), np.float32)
    progress = np.zeros((count_e, t, NUM_PROGRESS_FEATURES), np.float32)
    can_join = np.zeros((count_e, t, n), np.bool_)
    _replay(batch.stacked, batch.state, numbers[of], wanted, candidates, progress, can_join)
    return FilledSteps(*(torch.from_numpy(each) for each in (of, wanted, candidates, progress, can_join)))


@njit
def _replay(stacked, state, numbers, joined, candidates, progress, can_join):  # type: ignore[no-untyped-def]
    n = can_join.shape[2]
    for row in range(len(numbers)):
        begin_filling(stacked, state, 0, numbers[row])
        for step in range(stacked.num_devices[numbers[row]]):
            candidates[row, step] = state.candidates[0, :n]
            progress[row, step] = state.progress[0]
            can_join[row, step] = state.can_join[0, :n]
            join(stacked, state, 0, joined[row, step])
