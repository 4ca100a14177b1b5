"""Annealing steps for latency: a move is valued by the schedule that runs ops by falling upward rank, from the first op moved.

Legend of shapes: ``n`` ops, ``m`` devices, ``b`` blocks of `STRIDE` ops.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....compiled import njit
from .problem import SearchProblem, UnitDevices, draw, draw_below, draw_moves, undo

CRITICAL_SHARE = 0.5
"""Share of moves that begin with a unit of the longest chain of the schedule."""
STRIDE = 16
"""Ops between two notes of when each device is free, from which a schedule is continued."""


class Schedule(NamedTuple):
    """The schedule of where units are, and a trial of it.

    Attributes:
        device_of: device of each op, that of a move which is tried, ``(n,)``.
        end_s: end of each op, without that move, ``(n,)``.
        trial_s: end of each op with it, ``(n,)``.
        free_s: when each device is free before each block, ``(b, m)``.
        now_s: when each device is free, while a schedule is worked out, ``(m,)``.
        last_s: end of the last op before each block, ``(b,)``.
        critical: ops of a chain that ends last, ``(n,)``.
        num_critical: how many they are, 0 where they are not known yet, ``(1,)``.
    """

    device_of: NDArray[np.int64]
    end_s: NDArray[np.float64]
    trial_s: NDArray[np.float64]
    free_s: NDArray[np.float64]
    now_s: NDArray[np.float64]
    last_s: NDArray[np.float64]
    critical: NDArray[np.int64]
    num_critical: NDArray[np.int64]


def schedule_of(problem: SearchProblem, units: UnitDevices) -> Schedule:
    """The schedule of units on their devices."""
    n, m = problem.times_s.shape
    blocks = n // STRIDE + 1
    made = Schedule(
        units.device_of[problem.unit_of],
        np.zeros(n),
        np.zeros(n),
        np.zeros((blocks, m)),
        np.zeros(m),
        np.zeros(blocks),
        np.zeros(n, np.int64),
        np.zeros(1, np.int64),
    )
    _try(problem, made, 0, np.inf)
    _keep(made, 0)
    return made


@njit
def anneal_latency(problem, units, schedule, best_of, best_s, start_temperature_s, end_temperature_s, num_steps):  # type: ignore[no-untyped-def]
    """Try so many moves while the temperature falls geometrically; the best value met.

    ``best_of`` and ``best_s`` (one number) are where the best placement of units is kept.
    """
    current_s = schedule.end_s.max()
    temperature_s = start_temperature_s
    factor = (end_temperature_s / start_temperature_s) ** (1.0 / num_steps) if start_temperature_s > 0.0 else 1.0
    for _ in range(num_steps):
        temperature_s *= factor
        if draw(units.random) < CRITICAL_SHARE:
            unit = problem.unit_of[_critical_op(problem, schedule, units.random)]
        else:
            unit = draw_below(units.random, len(units.device_of))
        count = draw_moves(problem, units, unit)
        if count == 0:
            continue
        most_s = current_s - temperature_s * np.log(1.0 - draw(units.random))
        begin = len(schedule.device_of)
        for place in range(count):
            begin = min(begin, _assign(problem, schedule, units, units.moved[place]))
        value_s = _try(problem, schedule, begin, most_s)
        if value_s <= most_s:
            _keep(schedule, begin)
            schedule.num_critical[0] = 0
            current_s = value_s
            if value_s < best_s[0]:
                best_s[0] = value_s
                best_of[:] = units.device_of
        else:
            undo(problem.memory, units, count)
            for place in range(count):
                _assign(problem, schedule, units, units.moved[place])


@njit
def _assign(problem, schedule, units, unit):  # type: ignore[no-untyped-def]
    """Let a unit's ops run where the unit is; the first of them."""
    for place in range(problem.first_op[unit], problem.first_op[unit + 1]):
        schedule.device_of[problem.op[place]] = units.device_of[unit]
    return problem.op[problem.first_op[unit]]


@njit
def _critical_op(problem, schedule, random):  # type: ignore[no-untyped-def]
    """An op of a chain that makes the schedule as long as it is: each waits for the one before, its output or its device."""
    if schedule.num_critical[0] == 0:
        device_of, end_s = schedule.device_of, schedule.end_s
        op, count = int(np.argmax(end_s)), 0
        while op >= 0:
            schedule.critical[count] = op
            count += 1
            device = device_of[op]
            start_s = end_s[op] - problem.times_s[op, device]
            before, latest_s = -1, 0.0
            for place in range(problem.first[op], problem.first[op + 1]):
                source = problem.producer[place]
                home = device_of[source]
                there_s = end_s[source]
                if home != device:
                    there_s += problem.latency_s[home, device] + problem.input_bytes[place] * problem.s_per_byte[home, device]
                if there_s > latest_s:
                    before, latest_s = source, there_s
            if latest_s < start_s * (1.0 - 1e-9):
                other = op - 1
                while other >= 0 and device_of[other] != device:
                    other -= 1
                before = other
            op = before
        schedule.num_critical[0] = count
    return schedule.critical[draw_below(random, schedule.num_critical[0])]


@njit
def _try(problem, schedule, begin, most_s):  # type: ignore[no-untyped-def]
    """End of the last op where ops from ``begin`` on have moved; infinite as soon as it is known to be more than ``most_s``."""
    times_s, first, producer, input_bytes = problem.times_s, problem.first, problem.producer, problem.input_bytes
    latency_s, s_per_byte, tail_s = problem.latency_s, problem.s_per_byte, problem.tail_s
    device_of, end_s, trial_s, now_s = schedule.device_of, schedule.end_s, schedule.trial_s, schedule.now_s
    block = begin // STRIDE
    now_s[:] = schedule.free_s[block]
    value_s = schedule.last_s[block]
    for op in range(block * STRIDE, begin):
        now_s[device_of[op]] = end_s[op]
        value_s = max(value_s, end_s[op])
    for op in range(begin, len(device_of)):
        device = device_of[op]
        start = now_s[device]
        for place in range(first[op], first[op + 1]):
            source = producer[place]
            home = device_of[source]
            there = trial_s[source]
            if home != device:
                there += latency_s[home, device] + input_bytes[place] * s_per_byte[home, device]
            start = max(start, there)
        end = start + times_s[op, device]
        if end + tail_s[op] > most_s:
            trial_s[begin:op] = end_s[begin:op]
            return np.inf
        now_s[device] = end
        trial_s[op] = end
        value_s = max(value_s, end)
    return value_s


@njit
def _keep(schedule, begin):  # type: ignore[no-untyped-def]
    """Make the trial the schedule."""
    n = len(schedule.device_of)
    block = begin // STRIDE
    schedule.now_s[:] = schedule.free_s[block]
    value_s = schedule.last_s[block]
    for op in range(block * STRIDE, n):
        if op % STRIDE == 0:
            schedule.free_s[op // STRIDE] = schedule.now_s
            schedule.last_s[op // STRIDE] = value_s
        schedule.end_s[op] = schedule.trial_s[op]
        schedule.now_s[schedule.device_of[op]] = schedule.end_s[op]
        value_s = max(value_s, schedule.end_s[op])
