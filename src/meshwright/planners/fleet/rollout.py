"""A rollout planner of a fleet: each of a few possible actions is tried, and a rule plays the rest.

A trial is played on a copy of the episode, in compiled code, until every present job has left. It does not know later jobs and
failures. The action with the best trial is taken, of equal ones the rule's own.

Source:
    Bertsekas, Tsitsiklis and Wu, "Rollout algorithms for combinatorial optimization", 1997.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...simulation.fleet import dynamics
from ...simulation.fleet.state import FleetProblem, FleetState, Total, new_state
from .rule import FleetRule
from .rule_kernel import best_action, choose, start_action

MOST_TRIALS = 24
"""Actions that are tried at most before each decision."""

REFUSAL = 1e9
"""Cost of a job that never runs."""


class FleetRollout:
    """A rollout planner.

    Args:
        problem: whose episodes it plays.
        num_jobs: of an episode.
        rule: that plays after the first action.
        weights: payment of a trial for each of the totals and for each second, ``(8,)``.
    """

    def __init__(self, problem: FleetProblem, num_jobs: int, rule: FleetRule, weights: NDArray[np.float64]) -> None:
        self._problem, self._rule, self._weights = problem, rule, weights
        self._unfailing = problem._replace(mean_failure_s=np.inf)
        self._trial = new_state(problem, 1, num_jobs)
        self._actions = np.empty(MOST_TRIALS, np.int64)

    def choose(self, state: FleetState, e: int) -> int:
        """Return the action of episode ``e``, one of those that are possible."""
        count = _trials(self._problem, state, e, self._rule, self._actions)
        best, most = int(self._actions[0]), -np.inf
        if count == 1:
            return best
        for action in self._actions[:count].tolist():
            for copy, values in zip(self._trial, state, strict=True):
                copy[0] = values[e]
            self._trial.arrival_s[0, state.num_arrived[e] :] = np.inf
            self._trial.turns_at_s[~self._trial.is_out] = np.inf
            paid = _paid(self._unfailing, self._trial, action, self._rule, self._weights)
            if paid > most:
                best, most = action, paid
        return best


@njit
def _trials(problem, state, e, rule, actions):  # type: ignore[no-untyped-def]
    """Write the actions to try: the rule's own, to pass, each job as the rule would start it, then all degrees of each job."""
    actions[0] = choose(problem, state, e, rule)
    count = 1
    if state.building[e] >= 0:
        return count
    count = _add(actions, count, 0)
    for place in range(problem.visible_waiting):
        if state.offered[e, place] >= 0:
            count = _add(actions, count, start_action(problem, state, e, rule, place))
    for place in range(len(state.offered[e])):
        if state.offered[e, place] >= 0:
            for d in range(len(problem.degrees)):
                count = _add(actions, count, best_action(problem, state, e, rule, place, d))
    return count


@njit
def _add(actions, count, action):  # type: ignore[no-untyped-def]
    """Return the number of actions after one that may be among them."""
    if count == len(actions):
        return count
    for i in range(count):
        if actions[i] == action:
            return count
    actions[count] = action
    return count + 1


@njit
def _paid(problem, trial, action, rule, weights):  # type: ignore[no-untyped-def]
    """Return the payment of a trial. Where refusals have no weight, each costs more than any saved time."""
    dynamics.act(problem, trial, 0, action)
    while not trial.is_over[0]:
        dynamics.act(problem, trial, 0, choose(problem, trial, 0, rule))
    paid = weights[-1] * trial.now_s[0]
    if weights[Total.BLOCKED] == 0.0:
        paid -= REFUSAL * (trial.totals[0, Total.BLOCKED] + trial.num_waiting[0])
    for i in range(trial.totals.shape[1]):
        paid += weights[i] * trial.totals[0, i]
    return paid


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
    """Return an action of episode ``e``, each possible one as likely as any other."""
    possible = np.flatnonzero(state.can_act[e])
    return possible[int(rng.random() * len(possible))]
