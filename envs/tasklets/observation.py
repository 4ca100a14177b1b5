"""What an agent sees of stages that are being filled, written by compiled code into arrays that exist already.

Legend of shapes: ``E`` episodes, ``n`` devices, as of `TaskletEnv`, which says what each key means.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ...compiled import njit
from ...numba_records import by_reference
from ...simulation.tasklets.filling import NUM_CANDIDATE_FEATURES, NUM_PROGRESS_FEATURES
from ..vector_env import empty_observations


@by_reference
class FillingObservations(NamedTuple):
    """Observations of ``E`` episodes, one array per key of the observation space."""

    stage: NDArray[np.int64]
    reduce: NDArray[np.float32]
    hand_over: NDArray[np.float32]
    candidate: NDArray[np.float32]
    progress: NDArray[np.float32]
    action_mask: NDArray[np.int8]


def filling_space(n: int) -> spaces.Dict:
    """The observation space with at most ``n`` devices."""

    def share(*shape: int) -> spaces.Box:
        return spaces.Box(0.0, 1.0, shape, np.float32)

    return spaces.Dict(
        {
            "stage": spaces.Box(0, n, (n,), np.int64),
            "reduce": share(n, n),
            "hand_over": share(n, n),
            "candidate": share(n, NUM_CANDIDATE_FEATURES),
            "progress": share(NUM_PROGRESS_FEATURES),
            "action_mask": spaces.Box(0, 1, (n,), np.int8),
        }
    )


def new_filling_observations(num_episodes: int, n: int) -> FillingObservations:
    """Empty observations of a number of episodes."""
    return FillingObservations(**empty_observations(filling_space(n), num_episodes))


@njit
def observe_filling(stacked, state, which, out):  # type: ignore[no-untyped-def]
    """Write what changes in the episodes of a mask ``(E,)``."""
    for e in range(len(which)):
        if which[e]:
            p = stacked.num_devices[state.instance[e]] // stacked.num_stages[state.instance[e]]
            out.stage[e] = 0
            for place in range(state.num_joined[e]):
                out.stage[e, state.joined[e, place]] = 1 + place // p
            out.candidate[e] = state.candidates[e]
            out.progress[e] = state.progress[e]
            for device in range(state.can_join.shape[1]):
                out.action_mask[e, device] = state.can_join[e, device]


@njit
def observe_network(stacked, state, e, out):  # type: ignore[no-untyped-def]
    """Write what does not change while an episode lasts."""
    at = state.instance[e]
    n = stacked.num_devices[at]
    out.reduce[e] = 0.0
    out.hand_over[e] = 0.0
    for one in range(n):
        for other in range(n):
            seconds = stacked.reduce_s[at, one, other]
            out.reduce[e, one, other] = seconds / (seconds + stacked.reduce_unit_s[at])
            seconds = stacked.hand_over_s[at, one, other]
            out.hand_over[e, one, other] = seconds / (seconds + stacked.hand_over_unit_s[at])
