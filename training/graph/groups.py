"""Advantages beyond those of episodes that meet the same input.

Source:
    Kool et al., "Buy 4 REINFORCE samples, get a baseline for free!", 2019, for the mean of the others as a baseline. Mao et al.,
    "Variance reduction for reinforcement learning in input-driven environments", 2019, for the same input as its condition.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def beyond_group(
    advantages: NDArray[np.floating[Any]], at: NDArray[np.int64], group: int, within: int = 1
) -> NDArray[np.float64]:
    """Return advantages minus the mean of the group's others at the same point; unchanged where no other was there.

    Args:
        advantages: ``(steps, e)``.
        at: point of each, rising from step to step, ``(steps, e)``.
        group: consecutive episodes that form a group.
        within: points with equal quotients by this are of one input. Of each other episode the first decision at or after the
            point counts, if it is of the same input; 1: at that point itself.
    """
    result = advantages.astype(np.float64)
    own, steps = result.copy(), len(at)
    for e in range(at.shape[1]):
        first = e // group * group
        sums, count = np.zeros(steps), np.zeros(steps)
        for other in (*range(first, e), *range(e + 1, first + group)):
            place = np.minimum(np.searchsorted(at[:, other], at[:, e]), steps - 1)
            theirs = at[place, other]
            is_there = (theirs >= at[:, e]) & (theirs // within == at[:, e] // within)
            sums += np.where(is_there, own[place, other], 0.0)
            count += is_there
        result[:, e] -= sums / np.maximum(count, 1.0)
    return result
