"""Whole episodes of a fleet by a rule or at random, compiled."""

import numpy as np

from ...compiled import njit
from ...simulation.fleet import dynamics
from .rule_kernel import choose


@njit
def play_rule(problem, state, e, rule):  # type: ignore[no-untyped-def]
    """Play episode ``e``, which has begun, to its end by a rule; the number of decisions."""
    count = 0
    while not state.is_over[e]:
        dynamics.act(problem, state, e, choose(problem, state, e, rule))
        count += 1
    return count


@njit
def play_at_random(problem, state, e, rng):  # type: ignore[no-untyped-def]
    """Play an episode in which each possible action is equally likely.

    Args:
        problem, state, e: whose episode.
        rng: a NumPy generator, which advances.
    """
    count = 0
    while not state.is_over[e]:
        dynamics.act(problem, state, e, choose_at_random(state, e, rng))
        count += 1
    return count


@njit
def choose_at_random(state, e, rng):  # type: ignore[no-untyped-def]
    """An action of episode ``e``, each possible one as likely as any other."""
    possible = np.flatnonzero(state.can_act[e])
    return possible[int(rng.random() * len(possible))]
