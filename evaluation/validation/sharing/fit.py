"""The constants of the sharing model, fitted to simulated sets of jobs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ....simulation.fleet.sharing import CONSTANTS
from .simulated_sets import SimulatedSet
from .validate import sharing_errors

FIRST_STEP, LAST_STEP = 0.16, 0.01

TAIL = 0.15
"""Weight of the 95th percentile of the errors relative to their mean."""


def fit(sets: Sequence[SimulatedSet]) -> NDArray[np.float64]:
    """Constants of least error: steps along one constant at a time from those in use, halved where none is better.

    Args:
        sets: to which they are fitted; the errors are those of jobs that share links.
    """
    best = np.array(CONSTANTS)
    least = _loss(sets, best)
    step = FIRST_STEP
    while step >= LAST_STEP:
        tried = [best + sign * step * axis for axis in np.eye(len(best)) for sign in (-1, 1)]
        losses = [_loss(sets, one) if (one >= 0).all() and one[3] <= 1 else np.inf for one in tried]
        if min(losses) < least:
            least, best = min(losses), tried[int(np.argmin(losses))]
        else:
            step /= 2
    return np.round(best, 2)


def _loss(sets: Sequence[SimulatedSet], constants: NDArray[np.float64]) -> float:
    errors = np.abs(sharing_errors(sets, constants))
    return float(errors.mean() + TAIL * np.quantile(errors, 0.95))
