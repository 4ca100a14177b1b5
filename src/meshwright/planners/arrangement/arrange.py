"""Arrange devices into stages of replicas within a budget: regular groupings, annealing from several starts, or all groupings.

The objective is the communication of a step in decentralised training (Yuan et al., 2022, section 3). It is the slowest stage's
exchange of gradients and twice the shortest path through all stages. Few devices are tried in every grouping. For more, an
annealing (`chain_search`) starts from the best regular groupings and from the devices in order. Its rounds continue from the best
grouping, a start or a random grouping, in turn. The best grouping of all rounds is valued again with its best order.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ...budget_clock import NO_MOVE, clock_s
from ...errors import PlanError
from ...simulation.tasklets.instance import TaskletInstance
from ...simulation.tasklets.placement import TaskletPlacement, placed_tasklets, tasklet_value_s
from ...simulation.tasklets.values import MOST_EXACT
from ..tasklets.place import TASKLET_PLANNERS
from ..tasklets.request import TaskletRequest
from ..tasklets.structured import groupings, structured_best
from .chain_search import anneal_chain, chain_value_s

MOST_DEVICES = 12
"""At most 15,400 groupings."""

ALIKE = 0.05
"""Relative difference up to which two links count as equal."""

TEMPERATURES = ((0.1, 1e-3), (0.8, 1e-2), (0.5, 2e-2))
"""Temperature at the start and the end of a round, as shares of the value over the square root of the number of devices. Rounds
use the pairs in turn, because none is best on all networks."""
FIRST_VALUED = 300
"""Regular groupings of each family from which the search starts."""
START_SHARE = 0.15
"""Share of a budget that these may take."""
ROUND_STEPS = 60_000
"""Moves of a round; of the last ones less, as the budget has it."""
CHUNKS = 20
"""Parts of a round, between which the clock is looked at."""
FIRST_STEPS = 50
"""Moves by whose time the parts of a round are cut where there is a budget."""
FREE_ROUNDS = 3
"""Rounds where there is no budget, if not said otherwise."""

CHAIN = "chain"
"""Annealing of stages in their order, of few devices all groupings."""

BEST = "best"
"""The better of that and ``annealing``, each in half of the budget; of more than `MOST_EXACT` stages ``chain`` alone."""

SOLVERS = (BEST, CHAIN, *TASKLET_PLANNERS)
"""Searches by name: those of this module, and those of groupings whose stages are put in order afterwards."""


@dataclass(frozen=True)
class ArrangementRequest:
    """How to arrange devices.

    Attributes:
        budget_s: seconds that the search may take; None: until ``num_rounds`` rounds are done.
        seed: the same seed gives the same arrangement where no budget cuts the search.
        solver: one of `SOLVERS`.
        num_rounds: of annealing where there is no budget.
    """

    budget_s: float | None = None
    seed: int = 0
    solver: str = CHAIN
    num_rounds: int = FREE_ROUNDS


def arrange(instance: TaskletInstance, request: ArrangementRequest | None = None) -> TaskletPlacement:
    """Return the best grouping of devices into stages, and their order, that is found in the budget.

    Args:
        instance: the network, and what stages and replicas send.
        request: budget, seed and solver.

    Raises:
        PlanError: a budget that is not positive, an unknown solver, or regions that the solver cannot cut.
    """
    request = request or ArrangementRequest()
    if request.solver not in SOLVERS:
        raise PlanError("no such solver", field="solver", value=request.solver, choices=SOLVERS)
    if request.budget_s is not None and not 0 < request.budget_s < np.inf:
        raise PlanError("must be a positive number of seconds", field="budget_s", value=request.budget_s)
    is_small = instance.num_devices <= MOST_DEVICES
    if request.solver == BEST and not is_small and instance.num_stages <= MOST_EXACT:
        return _better(instance, request)
    if request.solver not in (BEST, CHAIN):
        return _order_message(
            instance, TASKLET_PLANNERS[request.solver](instance, TaskletRequest(request.budget_s, request.seed))
        )
    if is_small:
        return best_of_all(instance)
    return arrange_from(instance, request, ())


def _better(instance: TaskletInstance, request: ArrangementRequest) -> TaskletPlacement:
    budget_s = None if request.budget_s is None else request.budget_s / 2
    result = {name: arrange(instance, replace(request, budget_s=budget_s, solver=name)) for name in (CHAIN, "annealing")}
    taken, other = sorted(result, key=lambda name: result[name].value_s)
    notes = [f"{taken} found this; {other} {result[other].value_s:.6f} s", *filter(None, [result[taken].note])]
    return replace(result[taken], num_valued=sum(each.num_valued for each in result.values()), note="; ".join(notes))


def arrange_from(instance: TaskletInstance, request: ArrangementRequest, starts: Sequence[NDArray[np.int64]]) -> TaskletPlacement:
    """Return the same search from given groupings; never worse than the best of them.

    Args:
        instance: the network, and what stages and replicas send.
        request: budget and seed.
        starts: devices of each stage in the pipeline's order, the best one first, ``(k, p)`` each; none: regular and random ones.
    """
    _load_compiled_code()
    deadline_s = np.inf if request.budget_s is None else clock_s() + request.budget_s
    search = _ChainSearch(instance, request, deadline_s, starts)
    search.run()
    note = "" if search.num_steps or instance.num_stages == 1 else NO_MOVE
    result = placed_tasklets(instance, search.best, "arrangement", num_valued=search.num_steps, note=note)
    return _order_message(instance, result)


def _order_message(instance: TaskletInstance, placement: TaskletPlacement) -> TaskletPlacement:
    if instance.num_stages <= MOST_EXACT:
        return placement
    return replace(placement, note="; ".join(filter(None, [placement.note, "the order of stages is not proven shortest"])))


class _ChainSearch:
    """One search of one instance."""

    def __init__(
        self,
        instance: TaskletInstance,
        request: ArrangementRequest,
        deadline_s: float,
        starts: Sequence[NDArray[np.int64]] = (),
    ) -> None:
        self._instance, self._deadline_s = instance, deadline_s
        self._budget_s, self._num_rounds, self._have_start = request.budget_s, request.num_rounds, bool(starts)
        self._equal_devices = replace(instance, regions=equal_devices(instance))
        self._region = np.unique(self._equal_devices.regions, return_inverse=True)[1].astype(np.int64).reshape(-1)
        self._random = np.random.SeedSequence(request.seed).generate_state(1, np.uint64).astype(np.uint64)
        self._drawn = np.random.default_rng(request.seed)
        self._starts = [np.ascontiguousarray(start) for start in starts] or self._first_groupings()
        values = [self._value_s(start) for start in self._starts]
        self.best = self._starts[int(np.argmin(values))].copy()
        self._best_s = np.array([min(values)])
        self.num_steps = 0
        self._step_s = 0.0

    def run(self) -> None:
        """Anneal round by round until the budget or the rounds end."""
        if self._instance.num_stages == 1:
            return
        number = 0
        while clock_s() < self._deadline_s and (self._budget_s is not None or number < self._num_rounds):
            self._round(self._start(number), *TEMPERATURES[(number + number // 3) % len(TEMPERATURES)])
            number += 1

    def _start(self, number: int) -> NDArray[np.int64]:
        """Return the best grouping, a start or a random one, in turn; where starts are given, these in place of random ones."""
        if number % 3 == 1:
            return self.best.copy()
        if self._have_start:
            return self._starts[(number - number // 3) % len(self._starts)].copy()
        if number % 3 == 0 and number // 3 < len(self._starts):
            return self._starts[number // 3].copy()
        n = self._instance.num_devices
        return self._drawn.permutation(n).astype(np.int64).reshape(self.best.shape)

    def _round(self, stages: NDArray[np.int64], hottest: float, coldest: float) -> None:
        """Anneal once; where the budget is short, with fewer moves, so that it still cools down."""
        scale_s = self._best_s[0] / self._instance.num_devices**0.5
        inputs = self._instance.reduce_s, self._instance.hand_over_s, self._region
        begun_s, steps, share, own = clock_s(), ROUND_STEPS // CHUNKS, 0.0, np.array([np.inf])
        reached = stages.copy()
        if self._budget_s is not None:
            if not self._step_s:
                hot = scale_s * hottest
                anneal_chain(*inputs, stages, self._random, reached, own, hot, hot, FIRST_STEPS)
                self.num_steps += FIRST_STEPS
                self._step_s = max(1e-9, (clock_s() - begun_s) / FIRST_STEPS)
            steps = min(steps, max(1, int((self._deadline_s - begun_s) / CHUNKS / self._step_s)))
        step_share = 1.0 / CHUNKS
        while share < 1.0:
            after = min(1.0, share + step_share)
            hot, cold = (scale_s * hottest * (coldest / hottest) ** at for at in (share, after))
            anneal_chain(*inputs, stages, self._random, reached, own, hot, cold, steps)
            self.num_steps += steps
            share = after
            now_s = clock_s()
            if now_s >= self._deadline_s:
                break
            left_s, whole_s = self._deadline_s - now_s, (now_s - begun_s) / share
            if whole_s * (1.0 - share) > left_s:  # cool faster
                step_share = max(step_share, (1.0 - share) * (whole_s * step_share) / left_s)
        self._take(reached)

    def _take(self, stages: NDArray[np.int64]) -> None:
        placed = placed_tasklets(self._instance, stages, "round")
        if placed.value_s < self._best_s[0] * (1 - 1e-12):
            self.best = np.ascontiguousarray(placed.device_of)
            self._best_s[0] = placed.value_s

    def _value_s(self, stages: NDArray[np.int64]) -> float:
        return float(chain_value_s(self._instance.reduce_s, self._instance.hand_over_s, stages))

    def _first_groupings(self) -> list[NDArray[np.int64]]:
        instance = self._instance
        in_order = np.arange(instance.num_devices).reshape(instance.num_stages, instance.num_replicas)
        strided = np.ascontiguousarray(in_order.reshape(instance.num_replicas, instance.num_stages).T)
        until_s = np.inf if self._budget_s is None else clock_s() + START_SHARE * self._budget_s
        starts = [in_order, strided]
        for variant in (instance, self._equal_devices):
            with suppress(PlanError):  # regions that cannot be cut evenly
                starts.insert(0, structured_best(variant, FIRST_VALUED, until_s).device_of)
        return [np.ascontiguousarray(placed_tasklets(instance, start, "start").device_of) for start in starts]


@cache
def _load_compiled_code() -> None:
    """Load compiled code, or compile it, before the clock of the first budget of a process begins."""
    tiny = TaskletInstance("tiny", ("a",) * 16, np.zeros((16, 16)), np.ones((16, 16)), 4, 1.0, 1.0)
    search = _ChainSearch(tiny, ArrangementRequest(), np.inf)
    search._round(search.best.copy(), *TEMPERATURES[0])


def equal_devices(instance: TaskletInstance) -> tuple[str, ...]:
    """Return a name for each device, equal for devices whose links to all others take equally long within `ALIKE`."""
    tables = [table for seconds in (instance.reduce_s, instance.hand_over_s) for table in (seconds, seconds.T)]
    region = np.full(instance.num_devices, -1)
    for device in range(instance.num_devices):
        if region[device] < 0:
            is_alike = np.logical_and.reduce([_are_equal(seconds, device) for seconds in tables])
            region[is_alike & (region < 0)] = device
    return tuple(f"alike-{first}" for first in region.tolist())


def _are_equal(seconds: NDArray[np.float64], one: int) -> NDArray[np.bool_]:
    """Return whether a device sees all but itself and the other as each other device does, ``(n,)``."""
    near = np.abs(seconds[one] - seconds) <= ALIKE * seconds
    near[:, one] = True
    np.fill_diagonal(near, True)
    return np.asarray(near.all(axis=1))


def best_of_all(instance: TaskletInstance) -> TaskletPlacement:
    """Return the best of all groupings, each with its best pipelines.

    Raises:
        PlanError: more than `MOST_DEVICES` devices.
    """
    if instance.num_devices > MOST_DEVICES:
        raise PlanError(f"all groupings are tried of at most {MOST_DEVICES} devices", field="devices", value=instance.num_devices)
    best, best_s, count = None, np.inf, 0
    for stages in groupings(range(instance.num_devices), instance.num_replicas):
        grouping = np.array(stages, np.int64)
        count += 1
        value_s = tasklet_value_s(instance, grouping)
        if value_s < best_s:
            best, best_s = grouping, value_s
    assert best is not None, "there is a grouping"
    return placed_tasklets(instance, best, "exact", num_valued=count, note="proven")
