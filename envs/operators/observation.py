"""What an agent sees of a partial placement, written by compiled code into arrays that exist already.

Legend of shapes: ``E`` episodes, ``n`` ops, ``m`` devices, as of `OperatorPlacementEnv`, which says what each key means.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ...compiled import njit
from ...numba_records import by_reference
from ...simulation.operators.decisions.candidates import NUM_CANDIDATE_FEATURES
from ...simulation.operators.decisions.placing import PlacingState
from ...simulation.operators.decisions.stacked import StackedInstances
from ..vector_env import empty_observations


@by_reference
class PlacementObservations(NamedTuple):
    """Observations of ``E`` episodes, one array per key of the observation space."""

    placed: NDArray[np.int64]
    op_dynamic: NDArray[np.float32]
    device_dynamic: NDArray[np.float32]
    candidate: NDArray[np.float32]
    current: NDArray[np.int64]
    action_mask: NDArray[np.int8]


def placement_space(n: int, m: int) -> spaces.Dict:
    """The observation space with at most ``n`` ops and ``m`` devices."""

    def share(*shape: int) -> spaces.Box:
        return spaces.Box(0.0, 1.0, shape, np.float32)

    return spaces.Dict(
        {
            "placed": spaces.Box(0, m, (n,), np.int64),
            "op_dynamic": share(n, 3),
            "device_dynamic": share(m, 3),
            "candidate": share(m, NUM_CANDIDATE_FEATURES),
            "current": spaces.Discrete(n),
            "action_mask": spaces.Box(0, 1, (m,), np.int8),
        }
    )


def new_placement_observations(num_episodes: int, n: int, m: int) -> PlacementObservations:
    """Empty observations of a number of episodes."""
    return PlacementObservations(**empty_observations(placement_space(n, m), num_episodes))


def observe_placements(
    stacked: StackedInstances,
    state: PlacingState,
    lead: NDArray[np.int64],
    which: NDArray[np.bool_],
    out: PlacementObservations,
) -> None:
    """Write the observations of the episodes of a mask ``(E,)``."""
    _observe_all(stacked, state, lead, which, out)


@njit
def _observe_all(stacked, state, lead, which, out):  # type: ignore[no-untyped-def]
    for e in range(len(which)):
        if which[e]:
            _observe(stacked, state, e, out)
            out.candidate[e] = 0.0
            out.action_mask[e] = 0
            out.current[e] = lead[e]
            for j in range(stacked.num_devices[state.instance[e]]):
                for feature in range(state.candidates.shape[2]):
                    out.candidate[e, j, feature] = state.candidates[e, j, feature]
                out.action_mask[e, j] = state.can_place[e, j]


@njit
def _observe(stacked, state, e, out):  # type: ignore[no-untyped-def]
    """Write what is observed of ops and devices."""
    i = state.instance[e]
    n, m, scale = stacked.num_ops[i], stacked.num_devices[i], stacked.scale_s[i]
    out.placed[e] = 0
    out.op_dynamic[e] = 0.0
    out.device_dynamic[e] = 0.0
    for op in range(n):
        on = state.device_of[e, stacked.group[i, op]]
        out.placed[e, op] = on + 1
        if on >= 0:
            out.op_dynamic[e, op, 0] = state.start_s[e, op] / (state.start_s[e, op] + scale)
            out.op_dynamic[e, op, 1] = state.end_s[e, op] / (state.end_s[e, op] + scale)
        total, known = 0.0, 0.0
        for place in range(stacked.first_in[i, op], stacked.first_in[i, op + 1]):
            total += stacked.in_bytes[i, place]
            if state.device_of[e, stacked.group[i, stacked.producer[i, place]]] >= 0:
                known += stacked.in_bytes[i, place]
        if total > 0.0:
            out.op_dynamic[e, op, 2] = known / total
    for j in range(m):
        free = state.busy_end_s[e, j, state.num_busy[e, j] - 1] if state.num_busy[e, j] > 0 else 0.0
        out.device_dynamic[e, j, 0] = free / (free + scale)
        memory = stacked.memory_bytes[i, j]
        left = 1.0
        if np.isfinite(memory) and memory > 0.0:
            left = 1.0 - (state.held_bytes[e, j] + state.workspace_bytes[e, j]) / memory
        out.device_dynamic[e, j, 1] = left
        out.device_dynamic[e, j, 2] = state.work_s[e, j] / (state.work_s[e, j] + scale)
