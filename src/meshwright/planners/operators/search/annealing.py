"""Simulated annealing of a placement: moves and swaps, valued by compiled code, within a budget of time or of moves.

A search goes through rounds. In each the temperature falls geometrically; the next round starts from the best placement that was
found. With a number of moves the answer depends on the seed alone; with a budget it also depends on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ....budget_clock import NO_MOVE, clock_s
from ....errors import PlanError
from ....simulation.operators.instance import OperatorInstance
from ....simulation.operators.placement import OperatorObjective, OperatorPlacement, check, placed, value
from ....simulation.operators.schedules import best_order
from ..request import PlacementRequest
from ..rules.etf import earliest_starts
from ..rules.heft import heft_devices
from ..rules.packing import memory_of
from ..stages.ideals import linear
from .latency_steps import anneal_latency, schedule_of
from .load_steps import anneal_loads, loads_of
from .multilevel import multilevel
from .problem import devices_of_units, problem_of

STEPS_PER_GROUP = 4_000
"""Moves for each group where neither a number of moves nor a budget is given."""
HOTTEST, COLDEST = 2.0, 0.005
"""Temperatures at the begin and end of a round, as shares of the search's first value. The first is over the number of units,
the second over its root, since a move among more units changes the value by less."""
FEW_STEPS = 200.0
"""Moves for each unit below which a round begins cooler, as there is no time to cool down from more."""
STEPS_PER_ROUND = 5_000
"""Moves for each unit beyond which another round is worth more than a slower one."""
HOTTER = 3.0
"""Every second round, counted from the last, begins so much hotter, to leave what the others cannot."""
FIRST_CHUNK = 64
"""Moves of the first call of compiled code, by whose time the next ones are cut."""
CHUNK_SHARE, LEAST_CHUNK_S, MOST_CHUNK_S = 0.02, 3e-4, 0.02
"""Of a round, the time of one call of compiled code, between the time that makes a call worth while and a short wait."""
STARTS_SHARE = 0.4
"""Share of a budget after which a search is not begun, nor another start worked out."""
LINEAR_BUDGET_S, LINEAR_SIZE = 10.0, 4_000
"""Least budget and largest number of ops times devices at which a search for throughput also starts from stages along an order.
It then takes about a second."""
ENDING_S, ENDING_S_PER_OP = 6e-5, 4e-7
"""Seconds to check and value the result."""


def anneal(
    instance: OperatorInstance,
    request: PlacementRequest,
    *,
    start: Sequence[NDArray[np.int64]] | NDArray[np.int64] | None = None,
    num_steps: int | None = None,
    hottest: float = HOTTEST,
) -> OperatorPlacement:
    """Improve a placement by annealing.

    Args:
        instance: what is placed.
        request: objective, seed and budget; the budget counts from this call, without the time to load compiled code.
        start: a placement to start from, ``(n,)``, or several, ``(s, n)``, with the best taken. By default those of HEFT and of
            earliest start, for throughput also those of `multilevel` and, where there is time, `linear`.
        num_steps: moves to try; by default until the budget ends, or without a budget `STEPS_PER_GROUP` for each group.
        hottest: the temperature at which a round begins, in the unit of `HOTTEST`; less where the start is good.

    Raises:
        PlanError: a start is not legal, or none is given and no legal one was found.
    """
    _load_compiled_code()
    begun_s = clock_s()
    budget_s = np.inf if request.budget_s is None else request.budget_s
    if start is None:
        starts, orders = _starts(instance, request, begun_s + STARTS_SHARE * budget_s)
    else:
        starts = list(np.asarray(start, np.int64).reshape(-1, instance.num_ops))
        for each in starts:
            check(instance, each)
        orders = [best_order(instance, each) for each in starts]
    values_s = [value(instance, *each) for each in zip(starts, [request.objective] * len(starts), orders, strict=True)]
    best = int(np.argmin(values_s))
    deadline_s = begun_s + budget_s - ENDING_S - ENDING_S_PER_OP * instance.num_ops
    if num_steps is None and clock_s() - begun_s > STARTS_SHARE * (deadline_s - begun_s):
        return placed(instance, starts[best], request.objective, "annealing", order=orders[best], note=NO_MOVE)
    search = _Search(instance, request.objective, starts[best], orders[best], request.seed, hottest)
    if num_steps is None and budget_s == np.inf:
        num_steps = STEPS_PER_GROUP * instance.num_groups
    if num_steps is not None:
        search.run_steps(num_steps)
    else:
        search.run_until(deadline_s)
    device_of, order = search.best()
    return placed(instance, device_of, request.objective, "annealing", order=order)


@cache
def _load_compiled_code() -> None:
    """Load compiled code, or compile it, before the clock of the first budget of a process begins."""
    tiny = OperatorInstance.of_outputs("tiny", np.ones((2, 2)), [(0, 1)], [1.0, 1.0])
    for objective in ("latency", "throughput"):
        request = PlacementRequest(objective)
        starts, orders = _starts(tiny, request, np.inf)
        search = _Search(tiny, objective, starts[0], orders[0], 0, HOTTEST)
        search.run_steps(1)
        placed(tiny, *search.best()[:1], objective, "tiny")


def _starts(
    instance: OperatorInstance, request: PlacementRequest, deadline_s: float
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Return placements to start from and their orders: HEFT's, and others before a deadline.

    Raises:
        PlanError: no placement was found that memory and devices allow.
    """
    starts = [heft_devices(instance)]
    orders = [best_order(instance, starts[0])]
    if clock_s() < deadline_s:
        by_start, order = earliest_starts(instance)
        starts += [by_start, by_start]
        orders += [order, best_order(instance, by_start)]
    if request.objective == "throughput" and clock_s() < deadline_s:
        planners = [multilevel]
        has_time = request.budget_s is None or request.budget_s >= LINEAR_BUDGET_S
        if has_time and instance.num_ops * instance.num_devices <= LINEAR_SIZE:
            planners.append(linear)
        for planner in planners:
            with suppress(PlanError):  # stages in order may not be possible
                result = planner(instance, request)
                starts.append(result.device_of)
                orders.append(result.order)
    return starts, orders


class _Search:
    """One annealing of one instance; what it found is kept from round to round."""

    def __init__(
        self,
        instance: OperatorInstance,
        objective: OperatorObjective,
        start: NDArray[np.int64],
        order: NDArray[np.int64],
        seed: int,
        hottest: float,
    ) -> None:
        self._instance, self._hottest = instance, hottest
        self._objective = objective
        self._problem, self._ops = problem_of(instance, instance.group, memory_of(instance))
        self._num_units = instance.num_groups
        self._best_of = np.empty(self._num_units, np.int64)
        self._best_of[instance.group] = start
        self._best_order = np.argsort(self._ops)[order]
        self._units = devices_of_units(self._problem.memory, self._best_of, seed)
        self._restart()
        scale_s = self._schedule.end_s.max() if objective == "latency" else self._loads.load_s.max()
        self._scale_s = float(scale_s)
        self._best_s = np.array([self._scale_s])
        self._heat(FIRST_CHUNK)

    def best(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the best placement that was met, and its order of ops, ``(n,)`` each."""
        return self._best_of[self._instance.group], self._ops[self._best_order]

    def run_steps(self, num_steps: int) -> None:
        """Try so many moves."""
        num_rounds = _num_rounds(num_steps / self._num_units)
        for number in range(num_rounds):
            self._heat(num_steps / num_rounds, num_rounds - number)
            self._restart()
            steps = num_steps * (number + 1) // num_rounds - num_steps * number // num_rounds
            if steps:
                self._chunk(0.0, 1.0, steps)

    def run_until(self, deadline_s: float) -> None:
        """Try moves until the clock (`budget_clock.clock_s`) reaches a deadline."""
        now_s = clock_s()
        num_steps = FIRST_CHUNK
        steps_per_s = 0.0
        begin_s, end_s, rounds_left = now_s, deadline_s, -1
        while now_s < deadline_s:
            if now_s >= end_s and rounds_left > 0:
                rounds_left -= 1
                begin_s, end_s = now_s, now_s + (deadline_s - now_s) / max(1, rounds_left)
                self._heat(steps_per_s * (end_s - begin_s), rounds_left)
                self._restart()
            share = min(1.0, (now_s - begin_s) / (end_s - begin_s))
            self._chunk(share, min(1.0, share + CHUNK_SHARE), num_steps)
            before_s, now_s = now_s, clock_s()
            steps_per_s = max(0.5 * steps_per_s, num_steps / max(1e-9, now_s - before_s))
            if rounds_left < 0:
                rounds_left = _num_rounds(steps_per_s * (deadline_s - now_s) / self._num_units)
                begin_s, end_s = now_s, now_s + max(1e-9, (deadline_s - now_s) / rounds_left)
                self._heat(steps_per_s * (end_s - begin_s), rounds_left)
            chunk_s = min(max(CHUNK_SHARE * (end_s - begin_s), LEAST_CHUNK_S), MOST_CHUNK_S, deadline_s - now_s)
            num_steps = max(8, int(steps_per_s * chunk_s))

    def _heat(self, num_steps: float, rounds_left: int = 1) -> None:
        """Choose how hot a round of so many moves begins, with so many rounds left, itself included."""
        few = min(1.0, max(1.0, num_steps) / self._num_units / FEW_STEPS) ** 1.5
        coldest_s = self._scale_s * COLDEST / self._num_units**0.5
        wanted_s = self._scale_s * self._hottest * few * (1.0 if rounds_left % 2 else HOTTER) / self._num_units
        self._hot_s = max(coldest_s, wanted_s)
        self._cooling = coldest_s / max(self._hot_s, 1e-300)

    def _restart(self) -> None:
        problem = self._problem
        fresh = devices_of_units(problem.memory, self._best_of, 0)
        for name in ("device_of", "used", "widest"):
            getattr(self._units, name)[:] = getattr(fresh, name)
        if self._objective == "latency":
            self._schedule = schedule_of(problem, self._units, self._best_order)
        else:
            self._loads = loads_of(problem, self._units)

    def _chunk(self, begin: float, end: float, num_steps: int) -> None:
        hot, cold = (self._hot_s * self._cooling**share for share in (begin, end))
        best = (self._best_of, self._best_order, self._best_s)
        if self._objective == "latency":
            anneal_latency(self._problem, self._units, self._schedule, *best, hot, cold, num_steps)
        else:
            anneal_loads(self._problem, self._units, self._loads, self._best_of, self._best_s, hot, cold, num_steps)


def _num_rounds(steps_per_unit: float) -> int:
    """Return the rounds of a search of so many moves for each unit."""
    return max(1, int(1.0 + np.log2(max(1.0, steps_per_unit / STEPS_PER_ROUND))))
