"""Refinement of a placement by single moves, compiled: each unit goes where the objective gains most, pass after pass.

This is the greedy refinement of METIS (Karypis and Kumar 1998). Each pass visits all units in random order and tries the
devices of connected units. A move is made only if it gains and memory allows it. The first pass without a gain is the last.
"""

from __future__ import annotations

import numpy as np

from ....compiled import njit
from ..rules.packing import fits
from .latency_steps import assign, drop_trial, keep_trial, try_schedule
from .load_steps import follow
from .problem import draw_below, put

MOST_PASSES = 10
"""As METIS has it."""


@njit
def refine_latency(problem, units, schedule):  # type: ignore[no-untyped-def]
    """Move units while that makes the schedule shorter; the order of ops stays."""
    current_s = schedule.end_s.max()
    for _ in range(MOST_PASSES):
        before_s = current_s
        for unit in _shuffled(len(units.device_of), units.random):
            home, best, best_s = units.device_of[unit], -1, current_s
            for device in _near(problem, units, unit):
                put(problem.memory, units, unit, device)
                assign(problem, schedule, units, unit)
                value_s = try_schedule(problem, schedule, best_s)
                if value_s < best_s:
                    best, best_s = device, value_s
                put(problem.memory, units, unit, home)
                assign(problem, schedule, units, unit)
                drop_trial(schedule)
            if best >= 0:
                put(problem.memory, units, unit, best)
                assign(problem, schedule, units, unit)
                current_s = try_schedule(problem, schedule, np.inf)
                keep_trial(problem, schedule)
        if current_s >= before_s:
            return


@njit
def refine_loads(problem, units, loads):  # type: ignore[no-untyped-def]
    """Move units while that makes the largest load less, or as large on fewer devices' sum of squares."""
    current_s, current_squares = loads.load_s.max(), (loads.load_s**2).sum()
    for _ in range(MOST_PASSES):
        before_s, before_squares = current_s, current_squares
        for unit in _shuffled(len(units.device_of), units.random):
            home, best, best_s, best_squares = units.device_of[unit], -1, current_s, current_squares
            for device in _near(problem, units, unit):
                put(problem.memory, units, unit, device)
                follow(problem, loads, units, unit)
                value_s, squares = loads.load_s.max(), (loads.load_s**2).sum()
                if value_s < best_s or (value_s == best_s and squares < best_squares * (1.0 - 1e-9)):
                    best, best_s, best_squares = device, value_s, squares
                put(problem.memory, units, unit, home)
                follow(problem, loads, units, unit)
            if best >= 0:
                put(problem.memory, units, unit, best)
                follow(problem, loads, units, unit)
                current_s, current_squares = loads.load_s.max(), (loads.load_s**2).sum()
        if current_s >= before_s and current_squares >= before_squares:
            return


@njit
def _near(problem, units, unit):  # type: ignore[no-untyped-def]
    """Devices of the units that a unit is tied to, without its own, on which it fits."""
    is_near = np.zeros(len(units.used), np.bool_)
    for place in range(problem.first_tied[unit], problem.first_tied[unit + 1]):
        device = units.device_of[problem.tied[place]]
        if device != units.device_of[unit] and fits(problem.memory, units.used, units.widest, unit, device):
            is_near[device] = True
    return np.flatnonzero(is_near)


@njit
def _shuffled(count, random):  # type: ignore[no-untyped-def]
    order = np.arange(count)
    for place in range(count - 1, 0, -1):
        other = draw_below(random, place + 1)
        order[place], order[other] = order[other], order[place]
    return order
