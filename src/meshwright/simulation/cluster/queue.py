"""The queue of waiting jobs: who may enter, where, and who leaves because its deadline is out of reach.

The compiled functions read the arrays of `simulation.cluster.state`; `simulation.cluster.dynamics` says when waiting jobs
are put up for decision.
"""

import numpy as np

from ...compiled import njit
from .problem import QueueOrder
from .state import Outcome


@njit
def limit_s(problem, episodes, e, k):  # type: ignore[no-untyped-def]
    """Return how long job ``k`` may run if it starts now."""
    waited_s = episodes.now_s[e] - episodes.arrival_s[e, k]
    return episodes.allowed_s[e, k] * (1.0 + problem.deadline_tolerance) - waited_s


@njit
def timed_as(problem, episodes, e, graph, block):  # type: ignore[no-untyped-def]
    """Return the placement class whose figures hold for a graph on a block: its own, or that which the episode has fixed."""
    if problem.is_keyed_by_degree:
        fixed = episodes.fixed_block[e, graph, problem.degree[block]]
        if fixed >= 0:
            return problem.placement_class[fixed]
    return problem.placement_class[block]


@njit
def class_durations_s(problem, episodes, e, k):  # type: ignore[no-untyped-def]
    """Return how long job ``k`` runs on the blocks of each class, infinite where it cannot, ``(c,)``."""
    graph, num_steps = episodes.graph_id[e, k], episodes.num_steps[e, k]
    result = np.full(problem.num_classes, np.inf)
    for c in range(problem.num_classes):
        if problem.can_run[graph, c]:
            column = c
            if problem.is_keyed_by_degree:
                fixed = episodes.fixed_block[e, graph, problem.class_degree[c]]
                if fixed >= 0:
                    column = problem.placement_class[fixed]
            result[c] = num_steps * problem.step_s[graph, column]
    return result


@njit
def can_wait(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Return whether the current job would wait (or go on waiting) if it were turned down now."""
    if episodes.queue_index[e] < episodes.num_waiting[e]:
        return True
    return episodes.num_waiting[e] < problem.queue_capacity and episodes.obstacle[e] != Outcome.DEADLINE


@njit
def enter(problem, episodes, e, k):  # type: ignore[no-untyped-def]
    """Let job ``k`` wait, behind all that come before it in the order of the queue."""
    key, place = _key(problem, episodes, e, k), episodes.num_waiting[e]
    while place > 0 and _key(problem, episodes, e, episodes.waiting[e, place - 1]) > key:
        episodes.waiting[e, place] = episodes.waiting[e, place - 1]
        place -= 1
    episodes.waiting[e, place] = k
    episodes.num_waiting[e] += 1


@njit
def _key(problem, episodes, e, k):  # type: ignore[no-untyped-def]
    """Return the key that is least for the first job; it is constant where arrival decides."""
    if problem.queue_order == QueueOrder.SHORTEST_REMAINING:
        return class_durations_s(problem, episodes, e, k).min()
    if problem.queue_order == QueueOrder.DEADLINE:
        return episodes.arrival_s[e, k] + episodes.allowed_s[e, k]
    return 0.0


@njit
def expire(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Block waiting jobs whose deadline no block could meet any more."""
    i = 0
    while i < episodes.num_waiting[e]:
        k = episodes.waiting[e, i]
        if class_durations_s(problem, episodes, e, k).min() > limit_s(problem, episodes, e, k):
            episodes.outcome[e, k] = Outcome.EXPIRED
            episodes.num_expired[e] += 1
            leave(episodes, e, i)
        else:
            i += 1


@njit
def leave(episodes, e, place):  # type: ignore[no-untyped-def]
    """Remove the job at a place of the queue; the others move up."""
    last = episodes.num_waiting[e] - 1
    for i in range(place, last):
        episodes.waiting[e, i] = episodes.waiting[e, i + 1]
    episodes.waiting[e, last] = -1
    episodes.num_waiting[e] = last
