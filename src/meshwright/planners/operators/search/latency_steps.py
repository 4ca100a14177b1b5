"""Annealing steps for latency: a move is valued by the schedule that follows from it, from the first op on that it changes.

The devices run their ops in one topological order, which moves change as well: an op goes before or behind the nearest ops of
its device, as far as its inputs and readers allow.

Legend of shapes: ``n`` ops, ``m`` devices, ``b`` blocks of `STRIDE` places in the order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....compiled import njit
from .problem import SearchProblem, UnitDevices, draw, draw_below, draw_moves, undo

CRITICAL_SHARE = 0.5
"""Share of moves that begin with a unit of the longest chain of the schedule."""
ORDER_SHARE = 0.2
"""Share of moves that change the order of ops alone."""
REORDER_SHARE = 0.3
"""Share of moves to other devices after which the first op moved also gets another place in the order."""
STRIDE = 16
"""Places between two notes of when each device is free, from which a schedule is continued."""


class Schedule(NamedTuple):
    """The schedule of where units are, and a trial of it.

    Attributes:
        order: ops in the order in which devices run them, that of a move which is tried, ``(n,)``.
        place_of: place of each op in it, ``(n,)``.
        device_of: device of each op, that of a move which is tried, ``(n,)``.
        end_s: end of each op, without that move, ``(n,)``.
        trial_s: end of each op with it, ``(n,)``.
        free_s: when each device is free before each block, ``(b, m)``.
        now_s: when each device is free, while a schedule is worked out, ``(m,)``.
        last_s: end of the last op before each block, ``(b,)``.
        critical: ops of a chain that ends last, ``(n,)``.
        num_critical: how many they are, 0 where they are not known yet, ``(1,)``.
    """

    order: NDArray[np.int64]
    place_of: NDArray[np.int64]
    device_of: NDArray[np.int64]
    end_s: NDArray[np.float64]
    trial_s: NDArray[np.float64]
    free_s: NDArray[np.float64]
    now_s: NDArray[np.float64]
    last_s: NDArray[np.float64]
    critical: NDArray[np.int64]
    num_critical: NDArray[np.int64]


def schedule_of(problem: SearchProblem, units: UnitDevices, order: NDArray[np.int64]) -> Schedule:
    """The schedule of units on their devices with ops in this order, ``(n,)``."""
    n, m = problem.times_s.shape
    blocks = (n - 1) // STRIDE + 1
    made = Schedule(
        order.copy(),
        np.argsort(order).astype(np.int64),
        units.device_of[problem.unit_of],
        np.zeros(n),
        np.zeros(n),
        np.zeros((blocks, m)),
        np.zeros(m),
        np.zeros(blocks),
        np.zeros(n, np.int64),
        np.zeros(1, np.int64),
    )
    try_schedule(problem, made, 0, np.inf)
    keep_trial(made, 0)
    return made


@njit
def anneal_latency(  # type: ignore[no-untyped-def]
    problem, units, schedule, best_of, best_order, best_s, start_temperature_s, end_temperature_s, num_steps
):
    """Try a number of moves while the temperature falls geometrically.

    ``best_of``, ``best_order`` and ``best_s`` (one number) are where the best placement of units, its order and its value are
    kept.
    """
    current_s = schedule.end_s.max()
    temperature_s = start_temperature_s
    factor = (end_temperature_s / start_temperature_s) ** (1.0 / num_steps) if start_temperature_s > 0.0 else 1.0
    n = len(schedule.order)
    for _ in range(num_steps):
        temperature_s *= factor
        op = draw_below(units.random, n)
        if draw(units.random) < CRITICAL_SHARE:
            op = _critical_op(problem, schedule, units.random)
        count, begin, old_place = 0, n, -1
        if draw(units.random) < ORDER_SHARE:
            old_place = schedule.place_of[op]
            begin = _pass_neighbour(problem, schedule, op, units.random)
            if begin == n:
                continue
        else:
            count = draw_moves(problem, units, problem.unit_of[op])
            if count == 0:
                continue
            for at in range(count):
                begin = min(begin, assign(problem, schedule, units, units.moved[at]))
            if draw(units.random) < REORDER_SHARE:
                old_place = schedule.place_of[op]
                begin = min(begin, _reposition(schedule, op, _draw_place(problem, schedule, op, units.random)))
        most_s = current_s - temperature_s * np.log(1.0 - draw(units.random))
        value_s = try_schedule(problem, schedule, begin, most_s)
        if value_s <= most_s:
            keep_trial(schedule, begin)
            schedule.num_critical[0] = 0
            current_s = value_s
            if value_s < best_s[0]:
                best_s[0] = value_s
                best_of[:] = units.device_of
                best_order[:] = schedule.order
        else:
            if old_place >= 0:
                _reposition(schedule, op, old_place)
            undo(problem.memory, units, count)
            for at in range(count):
                assign(problem, schedule, units, units.moved[at])


@njit
def _reposition(schedule, op, place):  # type: ignore[no-untyped-def]
    """Give an op another place in the order, those between move on by one; the first place that changes."""
    order, place_of = schedule.order, schedule.place_of
    old = place_of[op]
    step = 1 if place > old else -1
    for at in range(old, place, step):
        order[at] = order[at + step]
        place_of[order[at]] = at
    order[place] = op
    place_of[op] = place
    return min(old, place)


@njit
def _first_place(problem, schedule, op):  # type: ignore[no-untyped-def]
    """The first place in the order that an op's inputs allow."""
    least = 0
    for at in range(problem.first[op], problem.first[op + 1]):
        least = max(least, schedule.place_of[problem.producer[at]] + 1)
    return least


@njit
def _last_place(problem, schedule, op):  # type: ignore[no-untyped-def]
    """The last place in the order that an op's readers allow."""
    most = len(schedule.order) - 1
    for at in range(problem.first_out[op], problem.first_out[op + 1]):
        most = min(most, schedule.place_of[problem.reader[at]] - 1)
    return most


@njit
def _draw_place(problem, schedule, op, random):  # type: ignore[no-untyped-def]
    least = _first_place(problem, schedule, op)
    return least + draw_below(random, _last_place(problem, schedule, op) - least + 1)


@njit
def _pass_neighbour(problem, schedule, op, random):  # type: ignore[no-untyped-def]
    """Let an op pass the next ones of its device in the order, mostly one; the first place that changes, ``n`` if it cannot."""
    device_of, order, place = schedule.device_of, schedule.order, schedule.place_of[op]
    goes_back = draw(random) < 0.5
    limit = _first_place(problem, schedule, op) if goes_back else _last_place(problem, schedule, op)
    step = -1 if goes_back else 1
    passed = place
    at = place
    while at != limit:
        at += step
        if device_of[order[at]] == device_of[op]:
            passed = at
            if draw(random) < 0.6:
                break
    return len(order) if passed == place else _reposition(schedule, op, passed)


@njit
def assign(problem, schedule, units, unit):  # type: ignore[no-untyped-def]
    """Run a unit's ops where the unit is, at the first of their places in the order."""
    begin = len(schedule.order)
    for at in range(problem.first_op[unit], problem.first_op[unit + 1]):
        op = problem.op[at]
        schedule.device_of[op] = units.device_of[unit]
        begin = min(begin, schedule.place_of[op])
    return begin


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
                place = schedule.place_of[op] - 1
                while place >= 0 and device_of[schedule.order[place]] != device:
                    place -= 1
                before = schedule.order[place] if place >= 0 else -1
            op = before
        schedule.num_critical[0] = count
    return schedule.critical[draw_below(random, schedule.num_critical[0])]


@njit
def try_schedule(problem, schedule, begin, most_s):  # type: ignore[no-untyped-def]
    """End of the last op where the order or devices changed from a place on; infinite once it is known to be over ``most_s``."""
    times_s, first, producer, input_bytes = problem.times_s, problem.first, problem.producer, problem.input_bytes
    latency_s, s_per_byte, tail_s = problem.latency_s, problem.s_per_byte, problem.tail_s
    order, device_of, end_s, trial_s, now_s = schedule.order, schedule.device_of, schedule.end_s, schedule.trial_s, schedule.now_s
    block = begin // STRIDE
    now_s[:] = schedule.free_s[block]
    value_s = schedule.last_s[block]
    for place in range(block * STRIDE, begin):
        op = order[place]
        now_s[device_of[op]] = end_s[op]
        value_s = max(value_s, end_s[op])
    for place in range(begin, len(order)):
        op = order[place]
        device = device_of[op]
        start = now_s[device]
        for at in range(first[op], first[op + 1]):
            source = producer[at]
            home = device_of[source]
            there = trial_s[source]
            if home != device:
                there += latency_s[home, device] + input_bytes[at] * s_per_byte[home, device]
            start = max(start, there)
        end = start + times_s[op, device]
        if end + tail_s[op] > most_s:
            for tried in range(begin, place):
                trial_s[order[tried]] = end_s[order[tried]]
            return np.inf
        now_s[device] = end
        trial_s[op] = end
        value_s = max(value_s, end)
    return value_s


@njit
def keep_trial(schedule, begin):  # type: ignore[no-untyped-def]
    """Make the trial the schedule."""
    block = begin // STRIDE
    schedule.now_s[:] = schedule.free_s[block]
    value_s = schedule.last_s[block]
    for place in range(block * STRIDE, len(schedule.order)):
        op = schedule.order[place]
        if place % STRIDE == 0:
            schedule.free_s[place // STRIDE] = schedule.now_s
            schedule.last_s[place // STRIDE] = value_s
        schedule.end_s[op] = schedule.trial_s[op]
        schedule.now_s[schedule.device_of[op]] = schedule.end_s[op]
        value_s = max(value_s, schedule.end_s[op])
