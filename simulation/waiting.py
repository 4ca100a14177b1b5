"""The queue of waiting jobs: who may enter, who leaves because its deadline is out of reach; first come, first served.

The compiled functions read the arrays of `simulation.dynamics`, which says when waiting jobs are put up for decision.
"""

from __future__ import annotations

import numpy as np

from ..compiled import njit
from .candidates import limit_s


@njit
def can_wait(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Whether the job at hand would wait (or go on waiting) if it were turned down now."""
    if episodes.at_hand[e] < episodes.num_waiting[e]:
        return True
    return episodes.num_waiting[e] < problem.queue_capacity and episodes.obstacle[e] != 4


@njit
def expire(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Waiting jobs whose deadline no block could meet any more leave as blocked."""
    i = 0
    while i < episodes.num_waiting[e]:
        k = episodes.waiting[e, i]
        graph = episodes.graph_id[e, k]
        fastest_s = np.inf
        for c in range(problem.step_s.shape[1]):
            if problem.can_run[graph, c]:
                fastest_s = min(fastest_s, episodes.num_steps[e, k] * problem.step_s[graph, c])
        if fastest_s > limit_s(episodes, e, k):
            episodes.outcome[e, k] = 6
            episodes.num_expired[e] += 1
            leave(episodes, e, i)
        else:
            i += 1


@njit
def leave(episodes, e, place):  # type: ignore[no-untyped-def]
    """Take the job at a place of the queue out of it; the others move up."""
    last = episodes.num_waiting[e] - 1
    for i in range(place, last):
        episodes.waiting[e, i] = episodes.waiting[e, i + 1]
    episodes.waiting[e, last] = -1
    episodes.num_waiting[e] = last
