"""The best cut of an interleaved pipeline among those that fit, by branch and bound with prices on memory.

Prices (`memory_prices`) often tell at once that nothing fits, or lead to what fits. If not, the places between two rounds
of chunks are halved until each is known and the rest is cut exactly (`cut_rounds`). Nothing is left out that may be better,
and with ``v`` chunks of a stage the work is at worst a polynomial of the units, of degree ``3 v - 1`` for each stage.

Legend: ``u`` units, ``p`` stages, ``v`` chunks of a stage, ``k = p v`` chunks, ``n`` runs (`chunk_runs`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...compiled import njit
from .chunk_runs import CHUNK, FIRST, FOUR, LAST, ROUNDING, drop_overfull, fits, paths_of
from .cut_rounds import MOST_STATES, KnownRounds, cut_rounds
from .memory_prices import (
    Path,
    change_prices,
    copied,
    drop_dear,
    find_cheapest,
    find_rests,
    follow,
    overwrite,
    price_runs,
    rooms_behind,
)

FIRST_PRICES, PRICES = 60, 8
"""Times that prices change before the first branch, and before each other one."""

BETTER = 1e-12
"""Relative. Less by no more is rounding."""


class CutResult(NamedTuple):
    """How a search went.

    Attributes:
        value: seconds of the busiest chunk or of all transfers; infinity where nothing was found.
        is_done: whether nothing is better; where loads are compared, the first cut ends the search without that.
        steps: what it took; 10**8 are about a second.
        least_room: share of a device's room that the fullest stage takes at least, by the prices before the first branch.
    """

    value: float
    is_done: bool
    steps: float
    least_room: float


@njit()
def seek_cut(pipeline, runs, ids, by_waits, best, most_steps, most_transitions, prices, cuts):  # type: ignore[no-untyped-def]
    """Write a cut that fits: any or, by waits, the one of the least transfers.

    Args:
        pipeline: is cut.
        runs: of its chunks.
        ids: of the runs that a cut may hold, by chunk and first unit, ``(n,)``.
        by_waits: whether the least transfers are wanted.
        best: only less seconds of the busiest chunk or, by waits, of all transfers, count.
        most_steps: after which the search is given up.
        most_transitions: steps of a dynamic programme, if no bound cuts it short, up to which it goes before another branch.
        prices: to begin with; written: the best ones of all runs.
        cuts: written where one is found, ``(k + 1,)``.

    Returns:
        How it went, as `CutResult`.
    """
    pp, num_ticks, v = pipeline.flying.shape
    num_chunks = pp * v
    paths, floors, table = paths_of(pipeline), np.zeros((pp, FOUR)), np.full(MOST_STATES, -1, np.int32)
    path = Path(
        np.zeros(num_chunks + 1, np.int64),
        np.zeros(num_chunks, np.int64),
        np.zeros((pp, num_ticks)),
        np.zeros((pp, FOUR)),
        np.zeros(pp, np.int64),
    )
    costs, mean, spread = np.zeros(len(ids)), np.zeros(num_chunks + 1), np.zeros(num_chunks + 1)
    lowest, highest, counts = np.zeros(num_chunks + 1, np.int64), np.zeros(num_chunks + 1, np.int64), np.zeros(num_chunks)
    now, kept_prices = copied(prices), [copied(prices)]
    # A branch stands on the stack with the runs that are left: its chunk, its place, and which side of it is next; -1: none.
    stack, begin, end = np.zeros((64, 3), np.int64), np.zeros(65, np.int64), np.zeros(65, np.int64)
    left = np.concatenate((ids, ids))
    end[0] = len(ids)
    depth, steps, value, least_room = 0, 0.0, np.inf, 0.0
    while True:
        ids = left[begin[depth] : end[depth]]
        n, before = len(ids), 2 * len(ids) + 1
        while 0 < n < 0.9 * before:
            before = n
            n = drop_overfull(pipeline, runs, ids[:n], path.worst, paths, floors)
            steps += 2.0 * pp * before
        mean[:] = 0.0
        spread[:] = 0.0
        highest_cost, num_paths = -np.inf, 0
        while n > 0 and num_paths < (FIRST_PRICES if depth == 0 else PRICES) and steps <= most_steps:
            base = price_runs(pipeline, runs, ids[:n], now, best, floors, costs)
            steps += 3.0 * n
            cost = base + find_cheapest(runs, ids[:n], costs, paths)
            if cost > 1.0 + ROUNDING:
                n = 0
                break
            load, waits = follow(pipeline, runs, paths, path)
            found = waits if by_waits else load
            if found < best and path.used.max() <= 1.0 + 1e-9 and fits(pipeline, path.cuts):
                cuts[:] = path.cuts
                best, value = found * (1.0 - BETTER), found
                if not by_waits or best <= 0.0:
                    return CutResult(value, by_waits, steps, least_room)
            num_paths += 1
            for chunk in range(num_chunks):
                mean[chunk] += path.cuts[chunk]
                spread[chunk] += path.cuts[chunk] ** 2
            if cost > highest_cost:
                highest_cost = cost
                overwrite(kept_prices[depth], now)
                n = drop_dear(runs, ids[:n], costs, 1.0 + ROUNDING - base, paths)
                steps += 2.0 * n
            stride = 1.0 if depth > 0 else 2.0
            change_prices(pipeline, runs, path, cost, waits / best if by_waits else 0.0, by_waits, stride, num_paths, now)
        if depth == 0:
            least_room = highest_cost if n > 0 else 1.0
            overwrite(prices, kept_prices[0])
        if steps > most_steps:
            return CutResult(value, False, steps, least_room)
        chunk = -1
        if n > 0:
            overwrite(now, kept_prices[depth])
            _reach(runs, ids[:n], lowest, highest, counts)
            if _is_small(pp, v, lowest, highest, counts, most_transitions):
                base = price_runs(pipeline, runs, ids[:n], now, best, floors, costs)
                find_cheapest(runs, ids[:n], costs, paths)
                find_rests(runs, ids[:n], costs, paths)
                price = now.waits[0]
                rounds = KnownRounds(
                    ids[:n],
                    lowest,
                    highest,
                    paths.behind,
                    rooms_behind(pipeline, now, floors),
                    price / best if by_waits else 0.0,
                    price,
                    table,
                )
                found, num_tried = cut_rounds(pipeline, runs, rounds, by_waits, best, path.cuts)
                steps += num_tried
                if found < best:
                    cuts[:] = path.cuts
                    best, value = found * (1.0 - BETTER), found
                    if not by_waits or best <= 0.0:
                        return CutResult(value, by_waits, steps, least_room)
            else:
                chunk = _choose(pp, v, mean / num_paths, spread / num_paths, lowest, highest, now.ticks)
        if chunk >= 0:
            middle = mean[chunk] / num_paths
            place = min(max(int(np.floor(middle)), lowest[chunk]), highest[chunk] - 1)
            side = 0 if middle - place < 0.5 else 1
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = chunk, place, 1 - side
            end[depth] = begin[depth] + n
        else:
            depth -= 1
            while depth >= 0 and stack[depth, 2] < 0:
                depth -= 1
            if depth < 0:
                return CutResult(value, True, steps, least_room)
            overwrite(now, kept_prices[depth])
            side = stack[depth, 2]
            stack[depth, 2] = -1
        if depth + 2 > len(stack):
            stack = np.concatenate((stack, stack))
            begin, end = np.concatenate((begin, begin)), np.concatenate((end, end))
        if depth + 2 > len(kept_prices):
            kept_prices.append(copied(now))
        if 2 * end[depth] - begin[depth] > len(left):
            left = np.concatenate((left, left))
        begin[depth + 1] = end[depth]
        end[depth + 1] = end[depth] + _side(
            runs, left[begin[depth] : end[depth]], stack[depth, 0], stack[depth, 1], side, left[end[depth] :]
        )
        depth += 1


@njit()
def _reach(runs, ids, lowest, highest, counts):  # type: ignore[no-untyped-def]
    """Write the first and the last place at which each chunk may begin, and how many runs each has."""
    lowest[:] = np.iinfo(np.int64).max
    highest[:] = 0
    counts[:] = 0.0
    lowest[0] = 0
    for i in ids:
        boundary, place = runs.ends[i, CHUNK] + 1, runs.ends[i, LAST]
        lowest[boundary], highest[boundary] = min(lowest[boundary], place), max(highest[boundary], place)
        counts[boundary - 1] += 1.0


@njit()
def _is_small(pp, v, lowest, highest, counts, most_transitions):  # type: ignore[no-untyped-def]
    """Whether each round is known to begin at one place, and the stages are cut in few steps then."""
    for boundary in range(pp, pp * v, pp):
        if highest[boundary] > lowest[boundary]:
            return False
    steps = 0.0
    for stage in range(pp):
        transitions, states = 1.0, 1.0
        for place in range(v):
            boundary = place * pp + stage + 1
            transitions *= counts[boundary - 1]
            states *= highest[boundary] - lowest[boundary] + 1.0
        steps += transitions
        if states > MOST_STATES:
            return False
    return steps <= most_transitions


@njit()
def _choose(pp, v, mean, square, lowest, highest, ticks):  # type: ignore[no-untyped-def]
    """The chunk whose beginning is least settled, of the first stage while any there is not known; -1 where all are."""
    chosen, most = -1, -1.0
    for is_round in (True, False):
        for chunk in range(pp, pp * v, pp) if is_round else range(1, pp * v):
            if highest[chunk] > lowest[chunk]:
                price = ticks[chunk % pp].sum() + ticks[(chunk - 1) % pp].sum()
                spread = np.sqrt(max(0.0, square[chunk] - mean[chunk] ** 2)) * (price * pp + 0.1)
                spread += 1e-6 * (highest[chunk] - lowest[chunk])
                if spread > most:
                    chosen, most = chunk, spread
        if chosen >= 0:
            break
    return chosen


@njit()
def _side(runs, ids, chunk, place, side, left):  # type: ignore[no-untyped-def]
    """Write the runs of one side of a branch: with a chunk that begins at the place or before, or after it; how many."""
    n = 0
    for i in ids:
        if runs.ends[i, CHUNK] == chunk:
            is_after = runs.ends[i, FIRST] > place
        elif runs.ends[i, CHUNK] + 1 == chunk:
            is_after = runs.ends[i, LAST] > place
        else:
            is_after = side == 1
        if is_after == (side == 1):
            left[n] = i
            n += 1
    return n
