"""The published genetic search: crossover of five genes, repair of sizes, one pass of cyclic partitioning.

Source: Yuan et al., "Decentralized training of foundation models in heterogeneous environments", 2022, section 3.3, after Bui
and Moon's hybrid. Cyclic partitioning is by Kang and Moon (2000). The population starts random. Each new grouping is bred of
two, improved and valued, and replaces the worse parent unless it is worse than both.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ...budget_clock import clock_s
from ...compiled import njit
from ...simulation.tasklets.instance import TaskletInstance
from ...simulation.tasklets.placement import TaskletPlacement, placed_tasklets
from ...simulation.tasklets.values import worked_out
from ..operators.search.problem import draw_below
from .request import TaskletRequest

POPULATION = 100
NUM_GENES = 5
CHUNK = 20
"""Groupings bred between two looks at the clock."""


def genetic(instance: TaskletInstance, request: TaskletRequest) -> TaskletPlacement:
    """Return the best grouping of a genetic search that values as many as asked for, the first population included.

    With a budget it breeds until that ends, however many are asked for.
    """
    random = np.random.SeedSequence(request.seed).generate_state(1, np.uint64).astype(np.uint64)
    inputs = instance.reduce_s, instance.hand_over_s, instance.num_stages
    _load_compiled_code()
    deadline_s = np.inf if request.budget_s is None else clock_s() + request.budget_s
    population = POPULATION if request.budget_s is not None else min(POPULATION, max(2, request.num_evaluations))
    stage_of, value_s = _first(*inputs, population, random)
    best, best_s = stage_of[np.argmin(value_s)].copy(), np.array([value_s.min()])
    trials = 0
    while clock_s() < deadline_s:
        left = CHUNK if request.budget_s is not None else max(0, request.num_evaluations - population)
        _breed(*inputs, stage_of, value_s, best, best_s, left, random)
        trials += left
        if request.budget_s is None:
            break
    stages = np.argsort(best, kind="stable").reshape(instance.num_stages, instance.num_replicas)
    return placed_tasklets(instance, stages, "genetic", num_valued=population + trials)


@cache
def _load_compiled_code() -> None:
    """Load compiled code, or compile it, before the clock of the first budget of a process begins."""
    inputs = np.zeros((4, 4)), np.ones((4, 4)), 2
    random = np.zeros(1, np.uint64)
    stage_of, value_s = _first(*inputs, 2, random)
    _breed(*inputs, stage_of, value_s, stage_of[0].copy(), value_s[:1].copy(), 1, random)


@njit
def _first(reduce_s, hand_over_s, k, population, random):  # type: ignore[no-untyped-def]
    """Return a population of random groupings, the stage of each device in each, and their values."""
    n = len(reduce_s)
    stage_of, value_s = np.empty((population, n), np.int64), np.empty(population)
    for one in range(population):
        for device in range(n):
            stage_of[one, device] = device % k
        for device in range(n - 1, 0, -1):
            other = draw_below(random, device + 1)
            stage_of[one, device], stage_of[one, other] = stage_of[one, other], stage_of[one, device]
        value_s[one] = _value_s(reduce_s, hand_over_s, stage_of[one], k)
    return stage_of, value_s


@njit
def _breed(reduce_s, hand_over_s, k, stage_of, value_s, best, best_s, trials, random):  # type: ignore[no-untyped-def]
    """Breed so many groupings; the population, the best grouping and its value are changed."""
    population, n = stage_of.shape
    for _ in range(trials):
        mother, father = draw_below(random, population), draw_below(random, population)
        child = stage_of[father].copy()
        for _ in range(NUM_GENES):
            device = draw_below(random, n)
            child[device] = stage_of[mother, device]
        _repair(child, k)
        child = _cycled(hand_over_s, child, k)
        found_s = _value_s(reduce_s, hand_over_s, child, k)
        worse = mother if value_s[mother] > value_s[father] else father
        if found_s <= value_s[worse]:
            stage_of[worse], value_s[worse] = child, found_s
        if found_s < best_s[0]:
            best_s[0] = found_s
            best[:] = child


@njit
def _value_s(reduce_s, hand_over_s, stage_of, k):  # type: ignore[no-untyped-def]
    n = len(stage_of)
    stages, count = np.empty((k, n // k), np.int64), np.zeros(k, np.int64)
    for device in range(n):
        stages[stage_of[device], count[stage_of[device]]] = device
        count[stage_of[device]] += 1
    data_s, pipeline_s, _, _, _ = worked_out(reduce_s, hand_over_s, stages)
    return data_s + pipeline_s


@njit
def _repair(stage_of, k):  # type: ignore[no-untyped-def]
    """Move devices of stages that are too large to the first ones that are too small."""
    size = np.bincount(stage_of, minlength=k)
    target = len(stage_of) // k
    for device in range(len(stage_of)):
        if size[stage_of[device]] > target:
            small = 0
            while size[small] >= target:
                small += 1
            size[stage_of[device]] -= 1
            size[small] += 1
            stage_of[device] = small


@njit
def _gains(hand_over_s, stage_of, is_locked, k):  # type: ignore[no-untyped-def]
    """Return for each stage the device that leaves it, where to, the gain of that, and its gain for every stage.

    The device that leaves is the one with the nearest neighbour in its own stage: a stage wants cheap hand-overs to others, not
    inside. It gains the mean hand-over to the other stage's devices less that to its nearest.
    """
    n = len(stage_of)
    size = np.bincount(stage_of, minlength=k)
    leaves, target = np.full(k, -1, np.int64), np.full(k, -1, np.int64)
    nearest, gain = np.full(k, np.inf), np.full(k, -np.inf)
    gain_to = np.full((k, k), -np.inf)
    for device in range(n):
        if is_locked[device]:
            continue
        own, inside = stage_of[device], np.inf
        for other in range(n):
            if other != device and stage_of[other] == own:
                inside = min(inside, hand_over_s[device, other])
        if inside < nearest[own]:
            nearest[own], leaves[own] = inside, device
    for own in range(k):
        if leaves[own] < 0:
            continue
        mean_s = np.zeros(k)
        for other in range(n):
            mean_s[stage_of[other]] += hand_over_s[leaves[own], other] / size[stage_of[other]]
        for target_stage in range(k):
            if target_stage != own:
                gain_to[own, target_stage] = mean_s[target_stage] - nearest[own]
                if gain_to[own, target_stage] > gain[own]:
                    gain[own], target[own] = gain_to[own, target_stage], target_stage
    return leaves, target, gain, gain_to


@njit
def _cycled(hand_over_s, inputs, k):  # type: ignore[no-untyped-def]
    """Run one pass of cyclic partitioning: cycles of moves through stages, each kept up to its best move."""
    n = len(inputs)
    is_locked, was_target = np.zeros(n, np.bool_), np.zeros(k, np.bool_)
    current, best, total_s, best_s = inputs.copy(), inputs.copy(), 0.0, 0.0
    moved, moved_from = np.empty(n, np.int64), np.empty(n, np.int64)
    gained, closing = np.empty(n), np.empty(n)
    for _ in range(k):
        leaves, target, gain, gain_to = _gains(hand_over_s, current, is_locked, k)
        start = np.argmax(gain)
        if leaves[start] < 0:
            break
        stage, count = start, 0
        while count < n:
            device, destination = leaves[stage], target[stage]
            if device < 0:  # all of the stage are locked: the last one goes home
                device, destination = moved[count - 1], start
            moved[count], moved_from[count] = device, stage
            gained[count], closing[count] = gain[stage], gain_to[stage, start]
            current[device] = destination
            is_locked[device], was_target[destination] = True, True
            count += 1
            stage = destination
            if stage == start:
                break
            leaves, target, gain, gain_to = _gains(hand_over_s, current, is_locked, k)
        last, most_s, sum_s = 0, 0.0, 0.0
        for place in range(1, count):
            sum_s += gained[place - 1]
            if sum_s + closing[place] > most_s:
                last, most_s = place, sum_s + closing[place]
        for place in range(count - 1, last, -1):
            current[moved[place]] = moved_from[place]
        current[moved[last]] = start
        total_s += most_s
        if total_s > best_s:
            best_s = total_s
            best[:] = current
        if was_target.all():
            break
    return best
