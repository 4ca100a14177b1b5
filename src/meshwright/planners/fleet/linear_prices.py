"""A rule with a price of a device-second, patience and order of jobs that are linear in the observation.

It equals a network of `models.fleet.prices` with direct weights alone, in compiled code. So these weights can be searched for
on thousands of whole episodes. The formulas are there; a test holds the two equal.

Legend: ``x`` features, see `DIRECT` and `RELATIVE`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...compiled import njit
from ...simulation.fleet import dynamics
from ...simulation.fleet.actions import first_pause, start_number
from ...simulation.fleet.offers import choice_step_s
from ...simulation.fleet.runs import restart_s
from ...simulation.fleet.state import JobState
from ...simulation.named_columns import Column
from .rules import WAITING_WEIGHT


class PriceFigure(Column):
    """Figures that prices are linear in: logarithms, but for the last two.

    Jobs waiting and running are counted for each `PriceUnits.devices` devices of the cluster. So the same weights have the same
    meaning in a larger cluster with proportionally more arrivals.
    """

    WORK = "work left"
    AGE = "age"
    WAITING = "waiting jobs"
    RUNNING = "running jobs"
    FREE = "free devices"
    ALWAYS = "always"


DIRECT = PriceFigure.names()
RELATIVE = (*DIRECT, "pressure")
"""Where figures are relative to what is usual on a fleet one more: `PriceUnits.pressure`. The allowed extra cost of a start and
the required saving of a restart are then multiplied by the exponential of the linear term. So no weights keep a job waiting for
ever."""
PER_DEVICES = 256.0
USUAL_JOBS = 8.0
"""Jobs of the usual number of devices on `PriceUnits.devices`: those of `PER_DEVICES` devices, as on ``llm-256``."""
DEARER = 0.22
"""Logarithm of how much dearer than the cheapest a start may be before the weights: by a quarter."""
STAYS = 0.4
"""The same of what a running job saves by a restart."""
SMALLER = 3.0
"""Logarithm of how much less work a waiting job has than a running one that pauses for it."""
SHARPNESS, ORDER = 30.0, 10.0
"""Of costs, and of the order of jobs."""
MOST_FACTOR = 5.0
"""Logarithm at which that exponential is cut, so that it stays a number."""
FIRST_NAMED = 1e-3
"""Decrement of a placement's score from the one that the fleet lists before it, where figures are relative. So a network takes
the first of equal ones, as this rule does."""
MOST_RATIO = 1e4
"""Step times over the least beyond which they are cut."""
LEAST, MOST = 1e-3, 1e3
"""Between which shares are whose logarithms are features."""


class PriceUnits(NamedTuple):
    """Units of the features.

    Attributes:
        work_device_s: device-seconds that the work left of a job is compared with.
        time_s: its age.
        devices: jobs waiting and running are counted for each so many.
        pressure: logarithm to base 2 of the devices that would be busy if every job took its fastest entry, over those of the
            cluster. Above 0 not all can have it for long.
    """

    work_device_s: float
    time_s: float
    devices: float
    pressure: float


@njit
def play_by_prices(problem, state, e, weights, units, most):  # type: ignore[no-untyped-def]
    """Play episode ``e``, which has begun, to its end or for a number of decisions; weights ``(3, x)``."""
    count = 0
    while not state.is_over[e] and count < most:
        dynamics.act(problem, state, e, choose_by_prices(problem, state, e, weights, units))
        count += 1


@njit
def choose_by_prices(problem, state, e, weights, units):  # type: ignore[no-untyped-def]
    """Return the action of the best score; one of those that are possible, none of them to pick hosts."""
    menu, num_devices = problem.menu, problem.network.devices_per_host * len(problem.network.host_group)
    waiting, running = state.num_waiting[e], state.num_running[e]
    jobs = max(0.1, WAITING_WEIGHT * waiting + running)
    is_relative = weights.shape[1] > len(DIRECT)
    x = np.ones(weights.shape[1])
    x[len(DIRECT) :] = units.pressure
    part = units.devices / num_devices
    x[PriceFigure.WAITING] = np.log1p(part * waiting) - 1.0
    x[PriceFigure.RUNNING] = np.log1p(part * running) - 2.5
    x[PriceFigure.FREE] = state.free[e].sum() / num_devices
    count = state.offered.shape[1]
    price, dearer, work = np.zeros(count), np.zeros(count), np.zeros(count)
    least = np.inf
    for place in range(count):
        job = state.offered[e, place]
        if job < 0:
            continue
        left = state.num_steps[e, job] - state.done_steps[e, job]
        share = left * menu.work_device_s[state.job_type[e, job]] / units.work_device_s
        age = (state.now_s[e] - state.arrival_s[e, job]) / units.time_s
        x[PriceFigure.WORK] = np.log(min(MOST, max(LEAST, share))) / 2.0
        x[PriceFigure.AGE] = np.log(min(MOST, max(LEAST, age))) / 2.0
        price[place] = jobs * np.exp((weights[0] * x).sum())
        dearer[place] = (weights[1] * x).sum()
        work[place] = np.log(max(1e-6, share)) + (weights[2] * x).sum()
        if state.status[e, job] != JobState.RUNNING:
            least = min(least, work[place])
    best, most = 0, 0.0 if state.can_act[e, 0] else -np.inf
    for place in range(count):
        if state.offered[e, place] >= 0:
            behind = work[place] - least
            action, score = _best_start(problem, state, e, place, price[place], dearer[place], behind, is_relative)
            if score > most:
                best, most = action, score
    for place in range(problem.visible_waiting, count):
        action = first_pause(problem) + place - problem.visible_waiting
        if state.offered[e, place] >= 0 and state.can_act[e, action]:
            gap = work[place] - least if least < np.inf else -SMALLER
            score = ORDER * min(1.0, max(-4.0, gap - SMALLER))
            if score > most:
                best, most = action, score
    return best


@njit
def _best_start(problem, state, e, place, price, dearer, behind, is_relative):  # type: ignore[no-untyped-def]
    """Return the start of a job on offer that scores best, and its score; minus infinity where none is possible."""
    menu, job = problem.menu, state.offered[e, place]
    num_devices = problem.network.devices_per_host * len(problem.network.host_group)
    kind = state.job_type[e, job]
    begin, end = menu.first_entry[kind], menu.first_entry[kind + 1]
    is_running = state.status[e, job] == JobState.RUNNING
    held = menu.degree[state.entry[e, job]] if is_running else 0
    fastest_s = np.inf
    for entry in range(begin, end):
        fastest_s = min(fastest_s, menu.step_s[entry].min())
    cheapest, held_cost = np.inf, np.inf
    for entry in range(begin, end):
        ratio = min(MOST_RATIO, menu.step_s[entry].min() / fastest_s)
        cost = ratio * (1.0 + price * menu.degree[entry] / num_devices)
        cheapest = min(cheapest, cost)
        if menu.degree[entry] == held:
            held_cost = min(held_cost, cost)
    left = state.num_steps[e, job] - state.done_steps[e, job]
    restart = 0.0
    if is_running or state.done_steps[e, job] > 0:
        # On as many hosts as the job runs or ran on last: the new number is not known.
        restart = restart_s(problem, state, e, job, state.last_hosts[e, job]) / (left * fastest_s)
    compared = held_cost if is_running and held_cost < np.inf else cheapest
    allowed = dearer + (-STAYS if is_running else DEARER)
    if is_relative:
        dearer = min(MOST_FACTOR, max(-MOST_FACTOR, dearer))
        allowed = -STAYS * np.exp(-dearer) if is_running else DEARER * np.exp(dearer)
    number = max(0, place - problem.visible_waiting + 1)
    best, most = 0, -np.inf
    for entry in range(begin, end):
        for choice in range(len(problem.rule)):
            action = start_number(problem, place, entry - begin, choice)
            if not state.can_act[e, action]:
                continue
            ratio = min(MOST_RATIO, choice_step_s(problem, state, e, job, number, entry, choice) / fastest_s)
            taken = (ratio + restart) * (1.0 + price * menu.degree[entry] / num_devices)
            score = SHARPNESS * (allowed + np.log(compared / taken)) - (0.0 if is_running else ORDER * behind)
            score -= FIRST_NAMED * choice * is_relative
            if score > most:
                best, most = action, score
    return best, most
