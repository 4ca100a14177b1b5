"""The cut of a pipeline whose stages hold several chunks each, among those that fit the devices.

Chunks of a stage share its memory, so that no chunk fits or not by itself. The least load under which a cut fits is looked
for between the loads of which this is settled: `cut_branching.seek_cut` finds a cut within a load or shows that there is
none, first with little effort for each load, then with ten times as much, and so on. Within the least load the cut that
sends least is found likewise. The answer is exact unless a search took more than `MOST_STEPS`, and then it says so.

Legend: ``u`` units that stay whole, ``p`` stages, ``v`` chunks of a stage, ``k = p v`` chunks, ``t`` ticks of a schedule,
``n`` runs (`chunk_runs`).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...plans.partition import Layout
from ..pipelines.schedules import FORWARD, STEADY_ROUNDS, orders, round_size
from ..work.memory import RUNTIME_BYTES
from .chunk_runs import (
    FOUR,
    LOAD,
    Pipeline,
    Runs,
    all_runs,
    drop_overfull,
    drop_slower,
    fits,
    least_load_s,
    load_s,
    paths_of,
    room_bytes,
)
from .cut_branching import seek_cut
from .memory_prices import Prices, first_prices

MOST_STEPS = 5e9
"""Steps of a search before it is given up, about a minute: a step is a run of units that is looked at."""

FIRST_STEPS = 1e6
"""Steps that are spent on a load before others are looked at."""

MOST_TRANSITIONS = 3e6
"""Steps of a dynamic programme up to which it is preferred to another branch."""

MOST_VAIN = 4
"""Loads that are left open before more steps are spent on each."""

ROUNDING = 1e-12
"""Relative. Sums in another order must not part what is equally busy."""


class StageMemoryUse(NamedTuple):
    """What units hold, see `unit_chain.Chain`.

    Attributes:
        state_bytes: of all units before each one: weights, gradients, optimizer, ``(u + 1,)``.
        activation_bytes: of a micro-batch through all units before each one, ``(u + 1,)``.
        workspace_bytes: largest of a unit, ``(u,)``.
        crossing_bytes: what a micro-batch brings past each place between two units, ``(u + 1,)``.
    """

    state_bytes: NDArray[np.float64]
    activation_bytes: NDArray[np.float64]
    workspace_bytes: NDArray[np.float64]
    crossing_bytes: NDArray[np.float64]


class Fitting(NamedTuple):
    """What is known of the cuts that fit.

    Attributes:
        is_found: whether one was found.
        is_proven: whether no cut is better or, where none was found, none fits.
        least_bytes: the fullest stage of any cut holds no less, where that is open; else zero.
    """

    is_found: bool
    is_proven: bool
    least_bytes: float = 0.0


def fitting_cuts(
    layout: Layout,
    busy_s: NDArray[np.float64],
    transfer_s: NDArray[np.float64],
    held: StageMemoryUse,
    capacity_bytes: float,
    cuts: NDArray[np.int64],
    most_steps: float | None = None,
) -> Fitting:
    """Put in place of the least busy cut the least busy one that fits, and of these the one that sends least.

    Args:
        layout: of an interleaved schedule.
        busy_s: of a micro-batch through all units before each one, ``(u + 1,)``.
        transfer_s: in which a micro-batch goes past each place behind each chunk, ``(k, u + 1)``.
        held: what units hold.
        capacity_bytes: memory of a device.
        cuts: first unit of each chunk and, last, ``u``: the best cut without regard to memory; written, ``(k + 1,)``.
        most_steps: of the search; `MOST_STEPS` by default.
    """
    recomputes = layout.recompute == "full"
    pipeline = Pipeline(busy_s, transfer_s, layout.overlap_pp, *held, recomputes, capacity_bytes, most_flying(layout))
    if fits(pipeline, cuts):
        return Fitting(True, True)
    return _Search(pipeline, MOST_STEPS if most_steps is None else most_steps).run(cuts)


class _Search:
    """A search for the best cut of those that fit.

    Args:
        pipeline: is cut.
        most_steps: after which it is given up.
    """

    def __init__(self, pipeline: Pipeline, most_steps: float) -> None:
        self._pipeline, self._most_steps = pipeline, most_steps
        self._paths = paths_of(pipeline)
        self._prices: Prices = first_prices(pipeline.flying)
        self._steps = 0.0

    def run(self, cuts: NDArray[np.int64]) -> Fitting:
        """Write the cut in place of the best one without regard to memory."""
        if self._pipeline.capacity_bytes < RUNTIME_BYTES:
            return Fitting(False, True)
        self._runs, are_all = all_runs(self._pipeline)
        if not are_all:
            return Fitting(False, False)
        self._thin()
        is_found, is_proven = self._least_busy(cuts)
        if is_found and is_proven:
            is_proven = self._least_sent(cuts)
        if is_proven:
            return Fitting(is_found, True)
        return Fitting(is_found, False, self._least_bytes(cuts.copy()))

    def _thin(self) -> None:
        """Keep the runs with which each stage by itself may fit."""
        flying = self._pipeline.flying
        ticks, floors = np.argmax(flying.sum(2), axis=1), np.zeros((len(flying), FOUR))
        ids = np.arange(len(self._runs.ends), dtype=np.int32)
        n = drop_overfull(self._pipeline, self._runs, ids, ticks, self._paths, floors)
        self._runs = Runs(self._runs.ends[ids[:n]], self._runs.figures[ids[:n]])

    def _least_busy(self, cuts: NDArray[np.int64]) -> tuple[bool, bool]:
        """Write the least busy cut that fits; whether one was found, and whether none is less busy."""
        least_s = max(self._load_s(cuts), least_load_s(self._runs, self._paths))
        loads = np.unique(self._runs.figures[:, LOAD])
        loads = loads[loads >= least_s * (1.0 - ROUNDING)]
        low, high, steps = -1, len(loads), FIRST_STEPS  # nothing fits within the one, something within the other, if at all
        while True:
            vain: list[int] = []
            while (at := _between(loads, low, high, vain)) is not None and len(vain) < MOST_VAIN:
                if self._steps >= self._most_steps:
                    return high < len(loads), False
                found_s, is_done = self._seek(loads[at], steps, cuts)
                if found_s < np.inf:
                    high = max(low + 1, int(np.searchsorted(loads, found_s * (1.0 - ROUNDING))))
                elif is_done:
                    low = at
                else:
                    vain.append(at)
                vain = [one for one in vain if low < one < high]
            if high - low <= 1:
                return high < len(loads), True
            steps *= 10.0

    def _seek(self, limit_s: float, steps: float, cuts: NDArray[np.int64]) -> tuple[float, bool]:
        """Write a cut that fits and whose chunks are busy no longer; how long they are, and whether none is there."""
        ids = np.flatnonzero(self._runs.figures[:, LOAD] <= limit_s * (1.0 + ROUNDING)).astype(np.int32)
        found = seek_cut(self._pipeline, self._runs, ids, False, np.inf, steps, MOST_TRANSITIONS, self._prices, cuts)
        self._steps += found.steps
        return found.value, found.is_done

    def _least_sent(self, cuts: NDArray[np.int64]) -> bool:
        """Write the cut that sends least of those that are no busier; whether none sends less."""
        limit_s, transfer_s = self._load_s(cuts), self._pipeline.transfer_s
        sent_s = sum(transfer_s[chunk, last] for chunk, last in enumerate(cuts[1:])) * (1.0 - ROUNDING)
        ids = np.flatnonzero(self._runs.figures[:, LOAD] <= limit_s * (1.0 + ROUNDING)).astype(np.int32)
        n = drop_slower(self._runs, ids, self._paths, sent_s)
        prices = first_prices(self._pipeline.flying)
        prices.ticks[:] *= 0.9
        prices.waits[:] = 0.1
        steps = max(FIRST_STEPS, self._most_steps - self._steps)
        found = seek_cut(self._pipeline, self._runs, ids[:n], True, sent_s, steps, MOST_TRANSITIONS, prices, cuts)
        return bool(found.is_done)

    def _least_bytes(self, cuts: NDArray[np.int64]) -> float:
        """Bytes that the fullest stage of any cut holds at least, by the prices."""
        ids = np.arange(len(self._runs.ends), dtype=np.int32)
        # No cut takes less than no time: the prices change until the steps are used up.
        found = seek_cut(self._pipeline, self._runs, ids, False, 0.0, 300.0 * len(ids), 0.0, self._prices, cuts)
        return float((max(0.0, found.least_room) * room_bytes(self._pipeline) + RUNTIME_BYTES) * (1.0 - 1e-9))

    def _load_s(self, cuts: NDArray[np.int64]) -> float:
        """Seconds for which the busiest chunk of a cut is busy."""
        p = self._pipeline
        return float(max(load_s(p.busy_s, p.transfer_s, p.hides, k, cuts[k], cuts[k + 1]) for k in range(len(cuts) - 1)))


def _between(loads: NDArray[np.float64], low: int, high: int, vain: list[int]) -> int | None:
    """The load to look at next: the least one, the largest one where nothing fits so far, the middle of the widest gap.

    None where nothing is between those that are settled or were looked at in vain.
    """
    if low < 0 < high and 0 not in vain:
        return 0
    if low < len(loads) - 1 < high and len(loads) - 1 not in vain:
        return len(loads) - 1
    gaps = [(a, b) for a, b in pairwise([low, *sorted(vain), high]) if b - a > 1]
    if not gaps:
        return None
    logs = np.log(np.maximum(loads, 1e-300))
    a, b = max(gaps, key=lambda gap: (logs[min(gap[1], len(logs) - 1)] - logs[max(gap[0], 0)], gap[1] - gap[0]))
    middle = np.searchsorted(logs, (logs[max(a, 0)] + logs[min(b, len(logs) - 1)]) / 2)
    return int(np.clip(middle, a + 1, b - 1))


@lru_cache(maxsize=256)
def _flying(schedule: str, pp: int, virtual_stages: int, num_micro_batches: int, round_of: int) -> NDArray[np.float64]:
    found = []
    for tasks in orders(schedule, pp, virtual_stages, num_micro_batches, round_of):
        change = np.zeros((len(tasks), virtual_stages))
        change[np.arange(len(tasks)), tasks[:, 1]] = np.where(tasks[:, 0] == FORWARD, 1.0, -1.0)
        ticks = np.unique(np.cumsum(change, axis=0), axis=0)
        # A moment at which another one has at least as many of every chunk in flight is never the worst.
        is_below = (ticks[:, None, :] <= ticks[None, :, :]).all(2)
        found.append(ticks[is_below.sum(1) == 1])
    most = np.zeros((pp, max(map(len, found)), virtual_stages))
    for stage, ticks in enumerate(found):
        most[stage, : len(ticks)] = ticks
    most.flags.writeable = False
    return most


def most_flying(layout: Layout) -> NDArray[np.float64]:
    """Micro-batches of each chunk that a stage keeps at the ticks which may be its worst, ``(p, t, v)``."""
    n = round_size(layout.pp, layout.num_micro_batches)
    # Behind its first rounds a schedule keeps what it kept before.
    number = min(layout.num_micro_batches, STEADY_ROUNDS * n + layout.num_micro_batches % n)
    return _flying(layout.schedule, layout.pp, layout.virtual_stages, number, n)
