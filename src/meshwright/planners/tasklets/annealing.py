"""Annealing of a grouping: devices of two stages change places, one by one or several of one region for those of another.

The changed parts of the value are computed anew: reductions of the two stages, and their hand-overs to all others. Only the
slowest hand-over between two stages counts, so most moves change nothing. Moves are therefore judged by the value and, with a
smaller weight, by the mean over devices of the least time of a hand-over. The best grouping is that with the best value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ...budget_clock import NO_MOVE, clock_s
from ...compiled import njit
from ...errors import PlanError
from ...simulation.tasklets.instance import TaskletInstance
from ...simulation.tasklets.placement import TaskletPlacement, placed_tasklets, tasklet_value_s
from ...simulation.tasklets.values import ordered_path_s, path_table, reduction_s, update, worked_out
from ..operators.search.problem import draw, draw_below
from .request import TaskletRequest
from .structured import structured_best

HOTTEST, COLDEST = 0.4, 4e-3
"""Temperatures at the begin and end of a round, as shares of the search's first value over the root of the number of devices. A
move among more devices changes the value by less."""
NUM_STEPS = 30_000
"""Moves where there is no budget."""
STEPS_PER_ROUND = 10_000
"""Moves of one round."""
CHUNK = 20
"""Moves of the first call of compiled code, by whose time the next ones are cut."""
NEAR_WEIGHT = 0.6
"""Weight of the least times of devices, relative to the slowest hand-over."""
BLOCK_SHARE = 0.3
"""Share of moves that exchange as many devices as two regions have in common in two stages."""
FIRST_VALUED = 300
"""Regular groupings of each family from which the search starts."""
START_SHARE = 0.3
"""Share of a budget that these may take."""


def anneal_tasklets(
    instance: TaskletInstance,
    request: TaskletRequest,
    *,
    start: Sequence[NDArray[np.int64]] | None = None,
    num_steps: int | None = None,
) -> TaskletPlacement:
    """Improve a grouping by annealing; the next round starts from the best grouping so far.

    Args:
        instance: what is placed.
        request: seed and budget, which counts from this call, without the time to load compiled code.
        start: groupings ``(k, p)``; the best one is taken. By default the best of some regular ones and of the devices in
            order.
        num_steps: moves to try; by default until the budget ends, or without one `NUM_STEPS`.

    Raises:
        PlanError: a start has a device twice or not at all.
    """
    _load_compiled_code()
    begun_s = clock_s()
    starts_until_s = np.inf if request.budget_s is None else begun_s + START_SHARE * request.budget_s
    starts = list(start) if start is not None else _starts(instance, starts_until_s)
    for each in starts if start is not None else ():
        placed_tasklets(instance, each, "start")
    best = min(starts, key=lambda stages: tasklet_value_s(instance, stages))
    search = _TaskletSearch(instance, np.ascontiguousarray(best, np.int64), request.seed)
    if num_steps is not None or request.budget_s is None:
        for steps in _rounds(NUM_STEPS if num_steps is None else num_steps):
            search.restart()
            search.chunk(0.0, 1.0, steps)
    else:
        search.run_until(begun_s + request.budget_s)
    note = "" if search.num_steps else NO_MOVE
    return placed_tasklets(instance, search.best, "annealing", num_valued=search.num_steps, note=note)


@cache
def _load_compiled_code() -> None:
    """Load compiled code, or compile it, before the clock of the first budget of a process begins."""
    tiny = TaskletInstance("tiny", ("a", "a"), np.zeros((2, 2)), np.ones((2, 2)), 2, 1.0, 1.0)
    search = _TaskletSearch(tiny, structured_best(tiny, 1).device_of, 0)
    search.chunk(0.0, 1.0, 1)


def _starts(instance: TaskletInstance, deadline_s: float) -> list[NDArray[np.int64]]:
    in_order = np.arange(instance.num_devices).reshape(instance.num_stages, instance.num_replicas)
    try:
        return [structured_best(instance, FIRST_VALUED, deadline_s).device_of, in_order]
    except PlanError:  # regions that cannot be cut evenly
        return [in_order]


def _rounds(num_steps: int) -> list[int]:
    count = max(1, num_steps // STEPS_PER_ROUND)
    return [num_steps // count] * count


class _TaskletSearch:
    """One annealing of one instance."""

    def __init__(self, instance: TaskletInstance, start: NDArray[np.int64], seed: int) -> None:
        self._instance = instance
        self._region = np.unique(instance.regions, return_inverse=True)[1].astype(np.int64).reshape(-1)
        self._random = np.random.SeedSequence(seed).generate_state(1, np.uint64).astype(np.uint64)
        self._scale_s = tasklet_value_s(instance, start)
        self._best_s = np.array([self._scale_s])
        self.best = start.copy()
        self.num_steps = 0
        self.restart()

    def restart(self) -> None:
        """Go on from the best grouping."""
        self._stages = self.best.copy()
        _, _, self._stage_s, self._between_s, _ = worked_out(self._instance.reduce_s, self._instance.hand_over_s, self._stages)

    def chunk(self, begin: float, end: float, num_steps: int) -> None:
        """Try so many moves in this part of a round."""
        scale_s = self._scale_s / self._instance.num_devices**0.5
        hot, cold = (scale_s * HOTTEST * (COLDEST / HOTTEST) ** share for share in (begin, end))
        inputs = (self._instance.reduce_s, self._instance.hand_over_s, self._region)
        _anneal(
            *inputs, self._stages, self._stage_s, self._between_s, self._random, self.best, self._best_s, hot, cold, num_steps
        )
        self.num_steps += num_steps

    def run_until(self, deadline_s: float) -> None:
        """Try moves until the clock (`budget_clock.clock_s`) reaches a deadline."""
        begin_s = now_s = clock_s()
        steps, per_step_s, end_s = CHUNK, 0.0, deadline_s
        while now_s < deadline_s:
            if now_s >= end_s:
                self.restart()
                begin_s = now_s
                end_s = min(deadline_s, now_s + STEPS_PER_ROUND * per_step_s)
            share = (now_s - begin_s) / max(1e-9, end_s - begin_s)
            self.chunk(min(1.0, share), min(1.0, share + 0.02), steps)
            before_s, now_s = now_s, clock_s()
            if per_step_s == 0.0:
                per_step_s = (now_s - before_s) / steps
                rounds = max(1, round((deadline_s - now_s) / per_step_s / STEPS_PER_ROUND))
                end_s = now_s + (deadline_s - now_s) / rounds
            per_step_s = 0.5 * per_step_s + 0.5 * (now_s - before_s) / steps
            steps = max(1, int(min(0.02, deadline_s - now_s) / max(1e-9, per_step_s)))


@njit
def _anneal(  # type: ignore[no-untyped-def]
    reduce_s,
    hand_over_s,
    region,
    stages,
    stage_s,
    between_s,
    random,
    best,
    best_s,
    start_temperature_s,
    end_temperature_s,
    num_steps,
):
    """Try so many moves while the temperature falls geometrically."""
    k, p = stages.shape
    if k < 2:
        return
    scratch, path, table = np.zeros((3, p), np.int64), np.zeros(k, np.int64), path_table(k)
    old = np.zeros((2, p), np.int64)
    near_s = np.zeros((k, k))
    for first in range(k):
        for second in range(first):
            _set_near(hand_over_s, stages, first, second, near_s)
    old_stage_s, old_between_s, old_near_s = stage_s.copy(), between_s.copy(), near_s.copy()
    current_s = _energy(stage_s, between_s, near_s, table, path)
    temperature_s = start_temperature_s
    factor = (end_temperature_s / start_temperature_s) ** (1.0 / num_steps) if start_temperature_s > 0.0 else 1.0
    for _ in range(num_steps):
        temperature_s *= factor
        first = draw_below(random, k)
        second = (first + 1 + draw_below(random, k - 1)) % k
        old[0], old[1] = stages[first], stages[second]
        exchange(region, stages[first], stages[second], draw_below(random, stages.shape[1]), BLOCK_SHARE, random)
        most_s = current_s - temperature_s * np.log(1.0 - draw(random))
        value_s = max(reduction_s(reduce_s, stages[first]), reduction_s(reduce_s, stages[second]))
        if value_s <= most_s:
            update(reduce_s, hand_over_s, stages, first, second, stage_s, between_s, scratch)
            for other in range(k):
                for one in (first, second):
                    if other != one:
                        _set_near(hand_over_s, stages, one, other, near_s)
            value_s = _least_energy(stage_s, between_s, near_s)
            if value_s <= most_s:
                value_s = _energy(stage_s, between_s, near_s, table, path)
            if value_s <= most_s:
                current_s = value_s
                old_stage_s[:], old_between_s[:], old_near_s[:] = stage_s, between_s, near_s
                along_s = stage_s.max()
                for place in range(k - 1):
                    along_s += 2.0 * between_s[path[place], path[place + 1]]
                if along_s < best_s[0]:
                    best_s[0] = stage_s.max() + 2.0 * ordered_path_s(between_s, table, path)
                    best[:] = stages
                continue
            stage_s[:], between_s[:], near_s[:] = old_stage_s, old_between_s, old_near_s
        stages[first], stages[second] = old[0], old[1]


@njit
def _energy(stage_s, between_s, near_s, table, path):  # type: ignore[no-untyped-def]
    """Return the value by which moves are judged; ``path`` becomes the best order of stages under it."""
    return stage_s.max() + 2.0 * ordered_path_s(between_s + NEAR_WEIGHT * np.sqrt(between_s * near_s), table, path)


@njit
def _least_energy(stage_s, between_s, near_s):  # type: ignore[no-untyped-def]
    """Return at most the energy: a tree through all stages is no longer than a path (Prim's algorithm)."""
    k = len(stage_s)
    reach_s, is_in, total_s, last = np.full(k, np.inf), np.zeros(k, np.bool_), 0.0, 0
    for _ in range(k - 1):
        is_in[last] = True
        nearest = -1
        for stage in range(k):
            if not is_in[stage]:
                between = between_s[last, stage]
                reach_s[stage] = min(reach_s[stage], between + NEAR_WEIGHT * np.sqrt(between * near_s[last, stage]))
                if nearest < 0 or reach_s[stage] < reach_s[nearest]:
                    nearest = stage
        total_s += reach_s[nearest]
        last = nearest
    return (stage_s.max() + 2.0 * total_s) * (1.0 - 1e-12)


@njit
def _set_near(hand_over_s, stages, one, other, near_s):  # type: ignore[no-untyped-def]
    """Write the mean over the devices of two stages of the least hand-over to the other stage."""
    p = stages.shape[1]
    total = 0.0
    for i in range(p):
        to_other, to_one = np.inf, np.inf
        for j in range(p):
            to_other = min(to_other, hand_over_s[stages[one, i], stages[other, j]])
            to_one = min(to_one, hand_over_s[stages[one, j], stages[other, i]])
        total += to_other + to_one
    near_s[one, other] = near_s[other, one] = total / (2 * p)


@njit
def exchange(region, left, right, i, block_share, random):  # type: ignore[no-untyped-def]
    """Exchange device ``i`` of a stage for one of another stage or, now and then, several of its region for as many.

    Args:
        region: of each device, ``(n,)``.
        left, right: devices of the two stages, ``(p,)`` each, changed in place.
        i: place in ``left``.
        block_share: share of the changes that exchange several, where the regions of the two devices differ.
        random: state of the generator.
    """
    p = len(left)
    j = draw_below(random, p)
    from_left, from_right = region[left[i]], region[right[j]]
    if draw(random) >= block_share or from_left == from_right:
        left[i], right[j] = right[j], left[i]
        return
    in_left, in_right = 0, 0
    for place in range(p):
        in_left += region[left[place]] == from_left
        in_right += region[right[place]] == from_right
    most = min(in_left, in_right)
    count = most if draw(random) < 0.5 else 1 + draw_below(random, most)
    i = j = 0
    for _ in range(count):
        while region[left[i]] != from_left:
            i += 1
        while region[right[j]] != from_right:
            j += 1
        left[i], right[j] = right[j], left[i]
        i += 1
        j += 1
