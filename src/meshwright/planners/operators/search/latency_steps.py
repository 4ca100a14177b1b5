"""Annealing steps for latency: a move's value follows from the ops whose ends it changes, mostly a few before it is refused.

The devices run their ops in one topological order, which moves also change. An op goes before or behind the nearest ops of its
device, as far as its inputs and readers allow. Ops to visit are bits by their places in that order: each is visited once, after
all that it waits for. Behind the moved ops, the way from an op to the end of the schedule keeps its length (its tail; Nowicki
and Smutnicki 1996). Where its new end plus the tail exceeds the allowed value, the move is refused.

Legend of shapes: ``n`` ops, ``m`` devices, ``w`` words of 64 bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....compiled import njit
from ....numba_records import by_reference
from ....simulation.ragged import arrays_of
from .problem import SearchProblem, UnitDevices, draw, draw_below, draw_moves, undo

CRITICAL_SHARE = 0.9
"""Share of moves that begin with a unit of the longest chain of the schedule."""
ORDER_SHARE = 0.2
"""Share of moves that change the order of ops alone."""
REORDER_SHARE = 0.3
"""Share of moves to other devices after which the first op moved also gets another place in the order."""
ROUNDING = 1.0 + 1e-12
"""Sums from the end of a schedule differ from those from its begin by rounding."""
MOVED, FOLLOWERS, TOUCHED, REACH = range(4)
"""Places of counts."""
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT = np.zeros(64, np.int64)
"""Number of a bit, at the first six bits of its product with the sequence (Leiserson, Prokop, Randall 1998)."""
_BIT[[(0x03F79D71B4CB0A89 << bit & 2**64 - 1) >> 58 for bit in range(64)]] = np.arange(64)


@by_reference
class Schedule(NamedTuple):
    """The schedule of where units are, and a trial of it.

    Attributes:
        order: ops in the order in which devices run them, that of a move which is tried, ``(n,)``.
        place_of: place of each op in it, ``(n,)``.
        device_of: device of each op, that of a move which is tried, ``(n,)``.
        before: op that the device of each runs before it, with that move; the first one's is ``n + device``, whose own is the
            last one, ``(n + m,)``.
        behind: the same for the next one, ``(n + m,)``.
        home_of: device of each op without that move, ``(n,)``.
        end_s: end of each op, without that move, and zeros, ``(n + m,)``.
        after_s: longest way from there to the end of the schedule, ``(n,)``.
        trial_s: end of each op with the move, and zeros, ``(n + m,)``.
        moved: ops that the move took to another place or device, ``(4 n,)``.
        followers: ops that were behind them on their devices, ``(4 n,)``.
        touched: ops with another end in the trial, ``(n,)``.
        counts: of those three, and the last place that a moved op has or had, ``(4,)``.
        bits: ops to look at, by place, ``(w,)``.
    """

    order: NDArray[np.int64]
    place_of: NDArray[np.int64]
    device_of: NDArray[np.int64]
    before: NDArray[np.int64]
    behind: NDArray[np.int64]
    home_of: NDArray[np.int64]
    end_s: NDArray[np.float64]
    after_s: NDArray[np.float64]
    trial_s: NDArray[np.float64]
    moved: NDArray[np.int64]
    followers: NDArray[np.int64]
    touched: NDArray[np.int64]
    counts: NDArray[np.int64]
    bits: NDArray[np.uint64]


def schedule_of(problem: SearchProblem, units: UnitDevices, order: NDArray[np.int64]) -> Schedule:
    """Return the schedule of units on their devices with ops in this order, ``(n,)``."""
    n, m = problem.times_s.shape
    made = arrays_of(
        Schedule,
        {
            "home_of after_s touched": n,
            "end_s trial_s": n + m,
            "moved followers": 4 * n,
            "counts": 4,
            "bits": (n - 1) // 64 + 1,
        },
        {"home_of": -1},
        order=order.copy(),
        place_of=np.argsort(order).astype(np.int64),
        device_of=units.device_of[problem.unit_of],
        before=np.arange(n + m),
        behind=np.arange(n + m),
    )
    _begin(problem, made)
    return made


@njit
def _begin(problem, schedule):  # type: ignore[no-untyped-def]
    for op in schedule.order:
        _link(schedule, op)
    try_schedule(problem, schedule, np.inf)
    keep_trial(problem, schedule)


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
            op = _critical_op(schedule, current_s, units.random)
        count, old_place = 0, schedule.place_of[op]
        if draw(units.random) < ORDER_SHARE:
            if not _pass_neighbour(problem, schedule, op, units.random):
                continue
        else:
            count = draw_moves(problem, units, problem.unit_of[op])
            if count == 0:
                continue
            for at in range(count):
                assign(problem, schedule, units, units.moved[at])
            if draw(units.random) < REORDER_SHARE:
                least, most = _places(problem, schedule, op)
                _reposition(schedule, op, least + draw_below(units.random, most - least + 1))
        most_s = current_s - temperature_s * np.log(1.0 - draw(units.random))
        value_s = try_schedule(problem, schedule, most_s)
        if value_s < np.inf:
            keep_trial(problem, schedule)
            current_s = value_s
            if value_s < best_s[0]:
                best_s[0] = value_s
                best_of[:] = units.device_of
                best_order[:] = schedule.order
        else:
            if schedule.place_of[op] != old_place:
                _reposition(schedule, op, old_place)
            undo(problem.memory, units, count)
            for at in range(count):
                assign(problem, schedule, units, units.moved[at])
            drop_trial(schedule)


@njit
def _link(schedule, op):  # type: ignore[no-untyped-def]
    """Let an op's device run it at its place in the order."""
    order, place_of, device_of = schedule.order, schedule.place_of, schedule.device_of
    n, place = len(order), place_of[op]
    # Both from the op's place and from the device's end: the nearer one is met first.
    at, before = place - 1, schedule.before[n + device_of[op]]
    while before < n and place_of[before] > place:
        if at >= 0 and device_of[order[at]] == device_of[op]:
            before = order[at]
            break
        at, before = at - 1, schedule.before[before]
    behind = schedule.behind[before]
    schedule.before[op], schedule.behind[op] = before, behind
    schedule.behind[before], schedule.before[behind] = op, op
    schedule.moved[schedule.counts[MOVED]] = op
    schedule.counts[MOVED] += 1
    schedule.counts[REACH] = max(schedule.counts[REACH], place)


@njit
def _unlink(schedule, op):  # type: ignore[no-untyped-def]
    """Take an op from its device."""
    before, behind = schedule.before[op], schedule.behind[op]
    schedule.behind[before], schedule.before[behind] = behind, before
    schedule.followers[schedule.counts[FOLLOWERS]] = behind
    schedule.counts[FOLLOWERS] += 1
    schedule.counts[REACH] = max(schedule.counts[REACH], schedule.place_of[op])


@njit
def _reposition(schedule, op, place):  # type: ignore[no-untyped-def]
    """Give an op another place in the order, those between move on by one."""
    order, place_of = schedule.order, schedule.place_of
    old = place_of[op]
    _unlink(schedule, op)
    step = 1 if place > old else -1
    for at in range(old, place, step):
        order[at] = order[at + step]
        place_of[order[at]] = at
    order[place] = op
    place_of[op] = place
    _link(schedule, op)


@njit
def _places(problem, schedule, op):  # type: ignore[no-untyped-def]
    """Return the first and the last place in the order that an op's inputs and readers allow."""
    least, most = 0, len(schedule.order) - 1
    for at in range(problem.first[op], problem.first[op + 1]):
        least = max(least, schedule.place_of[problem.producer[at]] + 1)
    for at in range(problem.first_out[op], problem.first_out[op + 1]):
        most = min(most, schedule.place_of[problem.reader[at]] - 1)
    return least, most


@njit
def _pass_neighbour(problem, schedule, op, random):  # type: ignore[no-untyped-def]
    """Let an op pass the next ones of its device in the order, mostly one; whether it can."""
    (least, most), passed = _places(problem, schedule, op), op
    following = schedule.before if draw(random) < 0.5 else schedule.behind
    while passed == op or draw(random) >= 0.6:
        other = following[passed]
        if other >= len(schedule.order) or not least <= schedule.place_of[other] <= most:
            break
        passed = other
    if passed != op:
        _reposition(schedule, op, schedule.place_of[passed])
    return passed != op


@njit
def assign(problem, schedule, units, unit):  # type: ignore[no-untyped-def]
    """Run a unit's ops where the unit is, at their places in the order."""
    for at in range(problem.first_op[unit], problem.first_op[unit + 1]):
        op = problem.op[at]
        _unlink(schedule, op)
        schedule.device_of[op] = units.device_of[unit]
        _link(schedule, op)


@njit
def _critical_op(schedule, current_s, random):  # type: ignore[no-untyped-def]
    """Return an op of a chain that makes the schedule as long as it is, or of any where draws find none."""
    op = 0
    for _ in range(len(schedule.order)):
        op = draw_below(random, len(schedule.order))
        if schedule.end_s[op] + schedule.after_s[op] >= current_s / ROUNDING:
            break
    return op


@njit
def _mark(bits, place):  # type: ignore[no-untyped-def]
    bits[place >> 6] |= np.uint64(1) << np.uint64(place & 63)


@njit
def _next(bits, place):  # type: ignore[no-untyped-def]
    """Take the first bit from a place on; bits of its word before it must be taken already. -1 where there is none."""
    word = place >> 6
    while bits[word] == 0:
        word += 1
        if word == len(bits):
            return -1
    lowest = bits[word] & (~bits[word] + np.uint64(1))
    bits[word] ^= lowest
    return (word << 6) + _BIT[(lowest * _DE_BRUIJN) >> np.uint64(58)]


@njit
def try_schedule(problem, schedule, most_s):  # type: ignore[no-untyped-def]
    """End of the last op after what moved since the schedule was kept; infinite once it is known to be over ``most_s``.

    It is then either kept (`keep_trial`), or what moved is moved back and the trial dropped (`drop_trial`).
    """
    times_s, first, producer, input_bytes = problem.times_s, problem.first, problem.producer, problem.input_bytes
    order, place_of, device_of, bits = schedule.order, schedule.place_of, schedule.device_of, schedule.bits
    before, behind, trial_s, n = schedule.before, schedule.behind, schedule.trial_s, len(schedule.order)
    limit_s = most_s * ROUNDING
    for at in range(schedule.counts[MOVED]):
        op = schedule.moved[at]
        _mark(bits, place_of[op])
        if behind[op] < n:
            _mark(bits, place_of[behind[op]])
    for at in range(schedule.counts[FOLLOWERS]):
        if schedule.followers[at] < n:
            _mark(bits, place_of[schedule.followers[at]])
    place = _next(bits, 0)
    while place >= 0:
        op = order[place]
        device = device_of[op]
        start = trial_s[before[op]]
        for at in range(first[op], first[op + 1]):
            source = producer[at]
            home = device_of[source]
            arrival_s = trial_s[source]
            if home != device:
                arrival_s += problem.latency_s[home, device] + input_bytes[at] * problem.s_per_byte[home, device]
            start = max(start, arrival_s)
        end = start + times_s[op, device]
        if end + (schedule.after_s[op] if place > schedule.counts[REACH] else problem.tail_s[op]) > limit_s:
            return np.inf
        if end != schedule.end_s[op] or device != schedule.home_of[op]:
            trial_s[op] = end
            schedule.touched[schedule.counts[TOUCHED]] = op
            schedule.counts[TOUCHED] += 1
            if behind[op] < n:
                _mark(bits, place_of[behind[op]])
            for at in range(problem.first_out[op], problem.first_out[op + 1]):
                _mark(bits, place_of[problem.reader[at]])
        place = _next(bits, place)
    value_s = 0.0
    for device in range(len(before) - n):
        value_s = max(value_s, trial_s[before[n + device]])
    return value_s if value_s <= most_s else np.inf


@njit
def drop_trial(schedule):  # type: ignore[no-untyped-def]
    """Forget a trial whose moves are taken back."""
    for at in range(schedule.counts[TOUCHED]):
        op = schedule.touched[at]
        schedule.trial_s[op] = schedule.end_s[op]
    schedule.bits[:] = 0
    schedule.counts[:] = 0


@njit
def keep_trial(problem, schedule):  # type: ignore[no-untyped-def]
    """Make the trial the schedule, and work out anew the way from each op to its end."""
    device_of, times_s = schedule.device_of, problem.times_s
    for at in range(schedule.counts[TOUCHED]):
        op = schedule.touched[at]
        schedule.end_s[op] = schedule.trial_s[op]
    for at in range(schedule.counts[MOVED]):
        schedule.home_of[schedule.moved[at]] = device_of[schedule.moved[at]]
    for place in range(schedule.counts[REACH], -1, -1):
        op = schedule.order[place]
        home, other, after = device_of[op], schedule.behind[op], 0.0
        if other < len(schedule.order):
            after = times_s[other, home] + schedule.after_s[other]
        for at in range(problem.first_out[op], problem.first_out[op + 1]):
            reader = problem.reader[at]
            device = device_of[reader]
            path_s = times_s[reader, device] + schedule.after_s[reader]
            if home != device:
                path_s += problem.latency_s[home, device] + problem.output_bytes[at] * problem.s_per_byte[home, device]
            after = max(after, path_s)
        schedule.after_s[op] = after
    schedule.counts[:] = 0
