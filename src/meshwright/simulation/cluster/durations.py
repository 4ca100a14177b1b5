"""How long the current job runs and may run, as candidates, the queue and observations need it."""

import numpy as np

from ...compiled import njit


@njit
def limit_s(problem, episodes, e, k):  # type: ignore[no-untyped-def]
    """How long job ``k`` may run if it starts now."""
    waited_s = episodes.now_s[e] - episodes.arrival_s[e, k]
    return episodes.allowed_s[e, k] * (1.0 + problem.deadline_tolerance) - waited_s


@njit
def timed_as(problem, episodes, e, graph, block):  # type: ignore[no-untyped-def]
    """Placement class whose figures hold for a graph on a block or placement: its own, or that which the episode has fixed."""
    if problem.is_keyed_by_degree:
        fixed = episodes.fixed_block[e, graph, problem.degree[block]]
        if fixed >= 0:
            return problem.placement_class[fixed]
    return problem.placement_class[block]


@njit
def class_durations_s(problem, episodes, e, k):  # type: ignore[no-untyped-def]
    """How long job ``k`` runs on the blocks of each class, infinite where it cannot, ``(c,)``."""
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
