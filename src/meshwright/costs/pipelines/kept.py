"""Micro-batches that a stage keeps at once under its schedule."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...plans.partition import ZERO_BUBBLE, Layout
from .schedules import STEADY_ROUNDS, orders, steady_round
from .tasks import AHEAD, BACK, BACKWARD, FORWARD, INPUT, WEIGHT

Kept = tuple[tuple[int, ...], ...]


def first_rounds(layout: Layout) -> tuple[int, int]:
    """Return the micro-batches after which a schedule keeps no more than before, and those after which it repeats itself."""
    m = layout.num_micro_batches
    n = steady_round(layout.schedule, layout.pp, layout.chunks_per_rank, m)
    return min(m, STEADY_ROUNDS * n + m % n), n


def kept_together(layout: Layout, stage: int) -> Kept:
    """Return numbers of micro-batches that a stage keeps at once, ``2 v`` of its ``v`` chunks in turn.

    For each chunk: micro-batches that wait for their backward pass, then those that wait for their weight gradient alone. A
    moment is left out if another one has at least as many of all.
    """
    return _kept_together(layout.schedule, layout.pp, layout.chunks_per_rank, *first_rounds(layout), stage)


@lru_cache(maxsize=65_536)
def _kept_together(schedule: str, p: int, v: int, m: int, round_of: int, stage: int) -> Kept:
    kind, place, _ = orders(schedule, p, v, m, round_of)[stage].T
    change, grows = np.zeros((len(kind), v, 2), np.int64), (kind == FORWARD) | (kind == AHEAD)
    change[grows, place[grows], 0] = 1
    for one, puts_off in ((BACKWARD, schedule in ZERO_BUBBLE), (BACK, False), (INPUT, True)):
        change[kind == one, place[kind == one]] = -1, puts_off
    change[kind == WEIGHT, place[kind == WEIGHT], 1] = -1
    ticks = np.cumsum(change.reshape(len(kind), 2 * v), axis=0)
    ticks = ticks[~np.append(grows[1:], False)]  # before a forward pass there is less
    if v == 1:  # of each number that waits for backward passes the most that wait for weight gradients
        most = np.full(ticks[:, 0].max() + 1, -1)
        np.maximum.at(most, ticks[:, 0], ticks[:, 1])
        above = np.maximum.accumulate(np.append(most[1:], -1)[::-1])[::-1]
        return tuple((int(before), int(most[before])) for before in np.flatnonzero(most > above))
    ticks = np.unique(ticks, axis=0)
    is_below = (ticks[:, None] <= ticks[None]).all(2)
    return tuple(map(tuple, ticks[is_below.sum(1) == 1].tolist()))
