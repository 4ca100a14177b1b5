"""A rule that scores every start and every refusal linearly, in compiled code, so that its weights can be searched for.

A waiting job may start by each possible entry of its menu, or be refused where refusals are allowed. Each action scores a
weighted sum of a few figures of the job, the entry and the cluster. To pass scores 0; the best action is taken. Running jobs
continue. Hosts are picked by a rule of `rule_kernel`. A network of `models.fleet.linear_head` begins with these scores and adds
its own.

Legend: ``x`` figures, those of `START`, then those of `REFUSAL`; ``E`` entries of the menu.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...numba_records import by_reference
from ...simulation.fleet import dynamics
from ...simulation.fleet.actions import first_refusal, start_number
from ...simulation.fleet.state import FleetProblem
from ...simulation.named_columns import Column
from .linear_prices import LEAST, MOST, PER_DEVICES
from .rule import FleetRule
from .rule_kernel import choose


class StartFigure(Column):
    """Figures of a start, each with a weight of its own; without a deadline those of the deadline are 0.

    ``work``, ``waste`` and ``devices`` are logarithms. ``work`` is of the remaining work, with the unit an eighth of the work
    of `PER_DEVICES` devices in a mean duration. ``waste`` is of its device-seconds over the least, ``devices`` of its devices
    over 8. ``time`` is its time over that to the deadline. ``slack`` is the logarithm of the time to the deadline over the
    job's least time, ``free`` the share of free devices. ``waiting`` and ``running`` are logarithms of such jobs for each
    `PER_DEVICES` devices, about 0 where the cluster is busy.
    """

    ALWAYS = "always"
    WORK = "work"
    WASTE = "waste"
    TIME = "time"
    DEVICES = "devices"
    SLACK = "slack"
    FREE = "free"
    WAITING = "waiting"
    RUNNING = "running"
    DEVICES_FREE = "devices x free"
    DEVICES_WAITING = "devices x waiting"
    DEVICES_RUNNING = "devices x running"
    WASTE_WAITING = "waste x waiting"
    WORK_WAITING = "work x waiting"


class RefusalFigure(Column):
    """Figures of a refusal, as `StartFigure` says; ``limit`` is the logarithm of the time to the deadline in mean durations."""

    ALWAYS = "always"
    WORK = "work"
    SLACK = "slack"
    FREE = "free"
    WAITING = "waiting"
    RUNNING = "running"
    WORK_WAITING = "work x waiting"
    WORK_FREE = "work x free"
    LIMIT = "limit"


START, REFUSAL = StartFigure.names(), RefusalFigure.names()
FIRST_REFUSAL = len(StartFigure)
"""Where weights of refusals begin."""

MOST_DECISIONS = 1 << 62
"""Default limit of an episode."""

BUSY_WAITING, BUSY_RUNNING = 1.0, 2.5
"""Offsets of the logarithms of one more than the waiting and the running jobs."""

FIRST_WEIGHTS = np.zeros(len(START) + len(REFUSAL))
"""Where a search begins: small jobs first, few devices, no refusals."""
FIRST_WEIGHTS[StartFigure.ALWAYS] = 1.0
FIRST_WEIGHTS[StartFigure.WORK] = -0.5
FIRST_WEIGHTS[StartFigure.WASTE] = -2.0
FIRST_WEIGHTS[StartFigure.TIME] = -0.5
FIRST_WEIGHTS[StartFigure.DEVICES] = -0.2
FIRST_WEIGHTS[FIRST_REFUSAL + RefusalFigure.ALWAYS] = -2.0
FIRST_WEIGHTS[FIRST_REFUSAL + RefusalFigure.WORK] = 1.0


@by_reference
class FleetScores(NamedTuple):
    """A rule that scores linearly, with its weights.

    Attributes:
        rule: that picks hosts, and acts where nothing may be passed.
        weights: ``(x,)``.
        least_step_s: of each entry, where it is fastest, ``(E,)``.
        duration_s: mean duration of a job.
    """

    rule: FleetRule
    weights: NDArray[np.float64]
    least_step_s: NDArray[np.float64]
    duration_s: float


def linear_scorer(problem: FleetProblem, rule: FleetRule, weights: NDArray[np.float64], duration_s: float) -> FleetScores:
    """Return the rule of some weights; without those of refusals they are as at the start."""
    every = np.append(weights, FIRST_WEIGHTS[len(weights) :])
    return FleetScores(rule, every, problem.menu.step_s.min(axis=(1, 2, 3)), duration_s)


@njit
def play_by_scores(problem, state, e, scorer, most=MOST_DECISIONS):  # type: ignore[no-untyped-def]
    """Play episode ``e``, which has begun, to its end or for a number of decisions; returns that number."""
    count = 0
    while not state.is_over[e] and count < most:
        dynamics.act(problem, state, e, choose_by_scores(problem, state, e, scorer))
        count += 1
    return count


@njit
def choose_by_scores(problem, state, e, scorer):  # type: ignore[no-untyped-def]
    """Return the action of the best score, of equal ones the first; where hosts are picked, the rule's host."""
    if state.building[e] >= 0:
        return choose(problem, state, e, scorer.rule)
    menu, w, refuse = problem.menu, scorer.weights, scorer.weights[FIRST_REFUSAL:]
    num_devices = problem.network.devices_per_host * len(problem.network.host_group)
    part = PER_DEVICES / num_devices
    free = state.free[e].sum() / num_devices
    waiting = np.log1p(part * state.num_waiting[e]) - BUSY_WAITING
    running = np.log1p(part * state.num_running[e]) - BUSY_RUNNING
    best, most = 0, 0.0 if state.can_act[e, 0] else -np.inf
    for place in range(problem.visible_waiting):
        job = state.offered[e, place]
        if job < 0:
            continue
        kind = state.job_type[e, job]
        begin, end = menu.first_entry[kind], menu.first_entry[kind + 1]
        left = state.num_steps[e, job] - state.done_steps[e, job]
        share = 8.0 * left * menu.work_device_s[kind] / PER_DEVICES / scorer.duration_s
        work = np.log(min(MOST, max(LEAST, share)))
        least_s = scorer.least_step_s[begin:end].min() * left
        limit_s = state.deadline_s[e, job] - state.now_s[e]
        slack, limit = 0.0, 0.0
        if limit_s < np.inf:
            slack = np.log(min(MOST, max(1.0, limit_s / least_s)))
            limit = np.log(min(MOST, max(LEAST, limit_s / scorer.duration_s)))
        refusal = first_refusal(problem) + place
        if problem.may_refuse and state.can_act[e, refusal]:
            score = refuse[RefusalFigure.ALWAYS] + refuse[RefusalFigure.WORK] * work + refuse[RefusalFigure.SLACK] * slack
            score = score + refuse[RefusalFigure.FREE] * free + refuse[RefusalFigure.WAITING] * waiting
            more = refuse[RefusalFigure.RUNNING] * running + refuse[RefusalFigure.WORK_WAITING] * work * waiting
            score += more + refuse[RefusalFigure.WORK_FREE] * work * free + refuse[RefusalFigure.LIMIT] * limit
            if score > most:
                best, most = refusal, score
        of_job = w[StartFigure.ALWAYS] + w[StartFigure.WORK] * work + w[StartFigure.SLACK] * slack + w[StartFigure.FREE] * free
        of_job = of_job + w[StartFigure.WAITING] * waiting + w[StartFigure.RUNNING] * running
        of_job = of_job + w[StartFigure.WORK_WAITING] * work * waiting
        per_devices = w[StartFigure.DEVICES] + w[StartFigure.DEVICES_FREE] * free + w[StartFigure.DEVICES_WAITING] * waiting
        per_devices = per_devices + w[StartFigure.DEVICES_RUNNING] * running
        per_waste = w[StartFigure.WASTE] + w[StartFigure.WASTE_WAITING] * waiting
        for entry in range(begin, end):
            step_s = scorer.least_step_s[entry]
            time = min(1.0, step_s * left / limit_s) if limit_s < np.inf else 0.0
            waste = np.log(step_s * menu.degree[entry] / menu.work_device_s[kind])
            score = of_job + w[StartFigure.TIME] * time + per_waste * waste + per_devices * np.log(menu.degree[entry] / 8.0)
            for choice in range(len(problem.rule)):
                action = start_number(problem, place, entry - begin, choice)
                if state.can_act[e, action] and score > most:
                    best, most = action, score
    return best
