"""Annealing steps for throughput: a move changes the loads of the devices that it touches.

A full pipeline is as slow as its busiest device, so placements of equal value differ in the loads of the other devices. Moves
are judged by the largest load and, with a small weight, by the evenness of all (`_energy`). The best placement is the one with
the least largest load.

Legend of shapes: ``n`` ops, ``m`` devices, ``k`` tensors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....compiled import njit
from .problem import SearchProblem, UnitDevices, draw, draw_below, draw_moves, undo

BUSIEST_SHARE = 0.5
"""Share of moves that begin with a unit of the busiest device."""
EVENNESS = 0.1
"""Weight of the mean of the fourth powers of loads over the largest, in the energy."""


class DeviceLoads(NamedTuple):
    """DeviceLoads of devices, and what they are made of.

    Attributes:
        device_of: device of each op, ``(n,)``.
        num_readers: ops on each device that read each tensor, ``(k, m)``.
        num_away: devices other than a tensor's own on which it is read, ``(k,)``.
        load_s: seconds for which each device is busy, ``(m,)``.
    """

    device_of: NDArray[np.int64]
    num_readers: NDArray[np.int64]
    num_away: NDArray[np.int64]
    load_s: NDArray[np.float64]


def loads_of(problem: SearchProblem, units: UnitDevices) -> DeviceLoads:
    """Return the loads of units on their devices."""
    (k, m), n = problem.tensor_port_s.shape, len(problem.times_s)
    device_of = units.device_of[problem.unit_of]
    readers = np.zeros((k, m), np.int64)
    np.add.at(readers, (problem.input_tensor, device_of[np.repeat(np.arange(n), np.diff(problem.first))]), 1)
    home = device_of[np.repeat(np.arange(n), np.diff(problem.first_tensor))]
    away = readers > 0
    away[np.arange(k), home] = False
    crosses = away.copy()
    crosses[np.arange(k), home] = away.any(axis=1)
    load_s = np.where(crosses, problem.tensor_port_s, 0.0).sum(axis=0)
    np.add.at(load_s, device_of, problem.times_s[np.arange(n), device_of])
    return DeviceLoads(device_of, readers, away.sum(axis=1).astype(np.int64), load_s)


@njit
def anneal_loads(problem, units, loads, best_of, best_s, start_temperature_s, end_temperature_s, num_steps):  # type: ignore[no-untyped-def]
    """Try a number of moves while the temperature falls geometrically; see `latency_steps.anneal_latency`."""
    current_s = _energy(loads.load_s)
    temperature_s = start_temperature_s
    factor = (end_temperature_s / start_temperature_s) ** (1.0 / num_steps) if start_temperature_s > 0.0 else 1.0
    for _ in range(num_steps):
        temperature_s *= factor
        unit = draw_below(units.random, len(units.device_of))
        if draw(units.random) < BUSIEST_SHARE:
            busiest = np.argmax(loads.load_s)
            for _ in range(4 * len(loads.load_s)):
                if units.device_of[unit] == busiest:
                    break
                unit = draw_below(units.random, len(units.device_of))
        count = draw_moves(problem, units, unit)
        if count == 0:
            continue
        for place in range(count):
            follow(problem, loads, units, units.moved[place])
        value_s = _energy(loads.load_s)
        if value_s <= current_s - temperature_s * np.log(1.0 - draw(units.random)):
            current_s = value_s
            largest_s = loads.load_s.max()
            if largest_s < best_s[0]:
                best_s[0] = largest_s
                best_of[:] = units.device_of
        else:
            undo(problem.memory, units, count)
            for place in range(count - 1, -1, -1):
                follow(problem, loads, units, units.moved[place])


@njit
def _energy(load_s):  # type: ignore[no-untyped-def]
    largest, powers = load_s.max(), 0.0
    if largest <= 0.0:
        return 0.0
    for each in load_s:
        share = each / largest
        powers += share * share * share * share
    return largest * (1.0 + EVENNESS * powers / len(load_s))


@njit
def follow(problem, loads, units, unit):  # type: ignore[no-untyped-def]
    """Move a unit's ops to where the unit is, with all loads that this changes."""
    load_s, readers, away, port_s = loads.load_s, loads.num_readers, loads.num_away, problem.tensor_port_s
    for at in range(problem.first_op[unit], problem.first_op[unit + 1]):
        op = problem.op[at]
        old, new = loads.device_of[op], units.device_of[unit]
        if old == new:
            continue
        load_s[old] -= problem.times_s[op, old]
        load_s[new] += problem.times_s[op, new]
        for place in range(problem.first[op], problem.first[op + 1]):
            tensor, home = problem.input_tensor[place], loads.device_of[problem.producer[place]]
            readers[tensor, old] -= 1
            if readers[tensor, old] == 0 and old != home:
                load_s[old] -= port_s[tensor, old]
                away[tensor] -= 1
                if away[tensor] == 0:
                    load_s[home] -= port_s[tensor, home]
            if readers[tensor, new] == 0 and new != home:
                load_s[new] += port_s[tensor, new]
                away[tensor] += 1
                if away[tensor] == 1:
                    load_s[home] += port_s[tensor, home]
            readers[tensor, new] += 1
        for tensor in range(problem.first_tensor[op], problem.first_tensor[op + 1]):
            if away[tensor] > 0:
                load_s[old] -= port_s[tensor, old]
            if readers[tensor, old] > 0:
                load_s[old] += port_s[tensor, old]
                away[tensor] += 1
            if readers[tensor, new] > 0:
                load_s[new] -= port_s[tensor, new]
                away[tensor] -= 1
            if away[tensor] > 0:
                load_s[new] += port_s[tensor, new]
        loads.device_of[op] = new
