"""Multilevel partitioning: the graph is coarsened, the small graph placed, and the placement refined while it is made fine again.

The method is that of METIS (Karypis and Kumar 1998). Heavy-edge matching joins the ops that send each other most. The coarsest
graph is cut into balanced parts, and each finer one starts from the cut of the coarser. Refinement moves units by the gain in
the objective itself, not in the cut bytes. It is greedy, as in METIS. Each pass visits all units in random order and tries the
devices of connected units. A move is made only if it gains and memory allows it. The first pass without a gain is the last.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ....compiled import njit
from ....errors import PlanError
from ....simulation.operators.instance import OperatorInstance, numbered
from ....simulation.operators.placement import OperatorPlacement, placed, value
from ....simulation.operators.schedules import best_order, mean_times_s, upward_order
from ..request import PlacementRequest
from ..rules.heft import heft_devices
from ..rules.packing import GroupMemory, fits, memory_of, place_group, reserve
from .latency_steps import assign, drop_trial, keep_trial, schedule_of, try_schedule
from .load_steps import follow, loads_of
from .problem import devices_of_units, draw_below, merged_memory, problem_of, put

FEWEST_UNITS = 24
"""Units at which coarsening ends, or four for each device."""
LEAST_SHRINKING = 0.95
"""Coarsening ends where a level has more than this share of the units of the one before."""
LARGEST_SHARE = 0.5
"""Largest share of a unit in the mean work of a device."""
MOST_PASSES = 10
"""As METIS has it."""


def multilevel(instance: OperatorInstance, request: PlacementRequest) -> OperatorPlacement:
    """Coarsen, place, refine.

    Raises:
        PlanError: no placement was found that memory and devices allow.
    """
    memory = memory_of(instance)
    levels = _levels(instance, memory, request.seed)
    unit_of_group, starts = _coarse_starts(instance, memory, levels)
    coarse = merged_memory(memory, unit_of_group)
    refined = [_refined(instance, request, coarse, unit_of_group, each) for each in starts]
    device_of = min(
        (each[unit_of_group] for each in refined), key=lambda each: value(instance, each[instance.group], request.objective)
    )
    taken = next(number for number, each in enumerate(levels) if each is unit_of_group)
    for finer in reversed(levels[:taken]):
        device_of_unit = np.empty(int(finer.max()) + 1, np.int64)
        device_of_unit[finer] = device_of
        device_of = _refined(instance, request, merged_memory(memory, finer), finer, device_of_unit)[finer]
    return placed(instance, device_of[instance.group], request.objective, "multilevel")


def _levels(instance: OperatorInstance, memory: GroupMemory, seed: int) -> list[NDArray[np.int64]]:
    """Return the unit of each group on every level, from groups by themselves to the coarsest, ``(g,)`` each."""
    rng = np.random.default_rng(seed)
    source, target = instance.group[instance.edges].reshape(-1, 2).T
    seconds = np.zeros(instance.num_groups)
    np.add.at(seconds, instance.group, mean_times_s(instance))
    most_s = max(LARGEST_SHARE * float(seconds.sum()) / instance.num_devices, float(seconds.max()))
    levels = [np.arange(instance.num_groups)]
    while True:
        unit_of = levels[-1]
        units = int(unit_of.max()) + 1
        if units <= max(FEWEST_UNITS, 4 * instance.num_devices):
            return levels
        merged = _matched(unit_of, source, target, instance.edge_bytes, seconds, most_s, memory, rng)
        if int(merged.max()) + 1 > LEAST_SHRINKING * units:
            return levels
        levels.append(merged)


def _matched(
    unit_of: NDArray[np.int64],
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    edge_bytes: NDArray[np.float64],
    seconds: NDArray[np.float64],
    most_s: float,
    memory: GroupMemory,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Join units in pairs, each with the free neighbour that it shares most bytes with; unit of each group, ``(g,)``."""
    units = int(unit_of.max()) + 1
    level = merged_memory(memory, unit_of)
    unit_s = np.bincount(unit_of, seconds, minlength=units)
    shared: list[dict[int, float]] = [{} for _ in range(units)]
    for one, other, size in zip(unit_of[source].tolist(), unit_of[target].tolist(), edge_bytes.tolist(), strict=True):
        if one != other:
            shared[one][other] = shared[one].get(other, 0.0) + size
            shared[other][one] = shared[one][other]
    mate = np.full(units, -1, np.int64)
    for unit in rng.permutation(units).tolist():
        if mate[unit] >= 0:
            continue
        for other in sorted(shared[unit], key=lambda other: (-shared[unit][other], other)):
            held = level.resident[unit] + level.resident[other] + max(level.workspace[unit], level.workspace[other])
            fits = level.can_run[unit] & level.can_run[other] & (held <= level.room)
            if mate[other] < 0 and unit_s[unit] + unit_s[other] <= most_s and fits.any():
                mate[unit], mate[other] = other, unit
                break
    joined = np.where(mate >= 0, np.minimum(mate, np.arange(units)), np.arange(units))
    return numbered(joined[unit_of])


def _coarse_starts(
    instance: OperatorInstance, memory: GroupMemory, levels: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Return the coarsest level that fits memory, and devices of its units: balanced runs of ops, and by HEFT.

    Raises:
        PlanError: not even single groups were fitted.
    """
    for level in reversed(levels):
        coarse = merged_memory(memory, level)
        if not coarse.can_run.any(axis=1).all():
            continue
        try:
            by_heft = np.empty(len(coarse.resident), np.int64)
            by_heft[level[instance.group]] = heft_devices(replace(instance, group=numbered(level[instance.group])))
            return level, [_balanced(instance, coarse, level), by_heft]
        except PlanError:
            if level is levels[0]:
                raise
    raise PlanError("no legal placement was found", field="memory_bytes")


def _balanced(instance: OperatorInstance, memory: GroupMemory, unit_of_group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the device of each unit: in order of their first ops, each device gets as much work as its speed says, ``(u,)``."""
    reserved = reserve(instance, memory)
    unit_of = unit_of_group[instance.group]
    order = list(dict.fromkeys(unit_of[upward_order(instance)].tolist()))
    runs = np.where(np.isfinite(instance.times_s), instance.times_s, 0.0)
    seconds = np.zeros((len(order), instance.num_devices))
    np.add.at(seconds, unit_of, runs)
    speed = 1.0 / np.maximum(runs.sum(axis=0), 1e-300)
    share = np.cumsum(speed / speed.sum())
    work = seconds.mean(axis=1)
    total, done = max(float(work.sum()), 1e-300), 0.0
    for unit in order:
        target = min(int(np.searchsorted(share, (done + 0.5 * work[unit]) / total)), instance.num_devices - 1)
        for device in sorted(range(instance.num_devices), key=lambda device: abs(device - target)):
            if place_group(memory, reserved, unit, device):
                break
        done += work[unit]
    return reserved.device_of


def _refined(
    instance: OperatorInstance,
    request: PlacementRequest,
    memory: GroupMemory,
    unit_of_group: NDArray[np.int64],
    device_of_unit: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the devices of units after moves that gain, ``(u,)``."""
    problem, ops = problem_of(instance, unit_of_group[instance.group], memory)
    units = devices_of_units(memory, device_of_unit, request.seed)
    if request.objective == "throughput":
        refine_loads(problem, units, loads_of(problem, units))
        return units.device_of
    order = best_order(instance, device_of_unit[unit_of_group][instance.group])
    refine_latency(problem, units, schedule_of(problem, units, np.argsort(ops)[order]))
    return units.device_of


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
    """Return the devices of the units that a unit is tied to, without its own, on which it fits."""
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
