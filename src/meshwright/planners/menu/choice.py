"""The choice of the layouts that become entries of a menu: those that are fastest somewhere.

A layout that is slower on every placement of a job is useless, whatever memory it saves. Memory decides where a layout fits;
elsewhere its time is infinite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NOWHERE_S = 1e12
"""In place of infinity, so that a layout that fits somewhere counts for more than one that is faster elsewhere."""


def worthwhile(
    step_s: NDArray[np.float64],
    memory_bytes: NDArray[np.float64],
    most: int,
    least_gain: float,
    there_s: NDArray[np.float64] | None = None,
) -> list[int]:
    """Return the layouts that are taken, the most useful first; no other beats one of them in time everywhere and in memory.

    The first is the fastest in the geometric mean of all places. Each further one brings the mean of the fastest times down most,
    of equal ones that of less memory.

    Args:
        step_s: seconds of a step of each layout in each place, infinite where it cannot be, ``(n, p)``.
        memory_bytes: of the fullest rank, ``(n,)``.
        most: how many are taken.
        least_gain: a further one is faster than all before by such a share somewhere.
        there_s: seconds of the fastest that is there already in each place, ``(p,)``.
    """
    logs = np.log(np.minimum(step_s, NOWHERE_S))
    best = np.full(step_s.shape[1], np.log(NOWHERE_S))
    if there_s is not None:
        best = np.minimum(best, np.log(np.minimum(there_s, NOWHERE_S)))
    taken: list[int] = []
    while len(taken) < most:
        gains = best - np.minimum(logs, best)
        is_worth = gains.max(axis=1) > max(-np.log1p(-least_gain), 1e-9)
        if not is_worth.any():
            break
        total = np.where(is_worth, gains.sum(axis=1), -np.inf)
        one = int(np.lexsort((memory_bytes, -total))[0])
        taken.append(one)
        best = np.minimum(best, logs[one])
    return [one for one in taken if not any(_beats(step_s, memory_bytes, other, one) for other in taken)]


def _beats(step_s: NDArray[np.float64], memory_bytes: NDArray[np.float64], one: int, other: int) -> bool:
    """Return whether a layout takes no more time anywhere and no more memory than another one, and of something less."""
    is_no_worse = bool((step_s[one] <= step_s[other]).all() and memory_bytes[one] <= memory_bytes[other])
    is_less = bool((step_s[one] < step_s[other]).any() or memory_bytes[one] < memory_bytes[other])
    return is_no_worse and is_less
