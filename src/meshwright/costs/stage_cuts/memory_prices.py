"""Prices on the memory of a pipeline's stages, and the path of runs that is cheapest by them.

Each moment of each stage has a price, all of them one in sum, and a device's room is the unit of memory. A cut that fits
costs one at most, whatever the prices; what a cut costs is a sum over its chunks, or more, so that the cheapest path of
runs tells what any cut costs at least. Above one nothing fits, and a run through which no path costs one or less is out.
Prices rise where the cheapest path overfills a stage and fall elsewhere (multiplicative weights).

Legend: ``u`` units, ``p`` stages, ``v`` chunks of a stage, ``k = p v`` chunks, ``t`` ticks of a schedule, ``n`` runs
(`chunk_runs`).

Source:
    Geoffrion, "Lagrangean relaxation for integer programming", 1974; Arora, Hazan and Kale, "The multiplicative weights
    update method", 2012, section 3.2, for the prices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ..work.memory import FRAGMENTATION
from .chunk_runs import CHUNK, FIRST, FOUR, KEPT, LARGEST, LAST, LOAD, STATE, WAIT, reset, room_bytes


class Prices(NamedTuple):
    """What memory costs.

    Attributes:
        ticks: a device's room at each moment of each stage, ``(p, t)``.
        shares: of that, charged to each chunk for each of the four parts of which a stage holds the largest, ``(k, 4)``: of the
            chunks of a stage they add up to one, since the largest is no less than any mean.
        waits: as many seconds of transfers as the best cut has, ``(1,)``; with ``ticks`` one in all.
    """

    ticks: NDArray[np.float64]
    shares: NDArray[np.float64]
    waits: NDArray[np.float64]


class Path(NamedTuple):
    """The cheapest path.

    Attributes:
        cuts: first unit of each chunk and, last, ``u``, ``(k + 1,)``.
        runs: its runs, ``(k,)``.
        used: share of a device's room at each moment of each stage, ``(p, t)``.
        largest: bytes of the four largest parts of each stage, ``(p, 4)``.
        worst: the fullest moment of each stage, ``(p,)``.
    """

    cuts: NDArray[np.int64]
    runs: NDArray[np.int64]
    used: NDArray[np.float64]
    largest: NDArray[np.float64]
    worst: NDArray[np.int64]


@njit()
def first_prices(flying):  # type: ignore[no-untyped-def]
    """Even prices."""
    pp, num_ticks, v = flying.shape
    ticks = np.zeros((pp, num_ticks))
    for stage in range(pp):
        num = max(1, num_moments_of(flying, stage))
        ticks[stage, :num] = 1.0 / (pp * num)
    return Prices(ticks, np.full((pp * v, FOUR), 1.0 / v), np.zeros(1))


@njit()
def num_moments_of(flying, stage):  # type: ignore[no-untyped-def]
    """Moments of a stage at which it keeps anything; they stand first."""
    found = 0
    for tick in range(flying.shape[1]):
        found += flying[stage, tick].any()
    return found


@njit()
def copied(prices):  # type: ignore[no-untyped-def]
    """The same prices in arrays of their own."""
    return Prices(prices.ticks.copy(), prices.shares.copy(), prices.waits.copy())


@njit()
def overwrite(prices, others):  # type: ignore[no-untyped-def]
    """Write other prices over these."""
    prices.ticks[:] = others.ticks
    prices.shares[:] = others.shares
    prices.waits[:] = others.waits


@njit()
def price_runs(pipeline, runs, ids, prices, best, floors, costs):  # type: ignore[no-untyped-def]
    """Write what each run costs, and return what all cuts cost besides: the least that the largest parts can be."""
    pp, num_ticks, v = pipeline.flying.shape
    unit, more = room_bytes(pipeline), 1.0 + FRAGMENTATION
    factors, base = np.zeros((pp * v, 2 + FOUR)), 0.0
    for chunk in range(pp * v):
        stage = chunk % pp
        for tick in range(num_ticks):
            price = prices.ticks[stage, tick] / unit
            factors[chunk, STATE] += price
            factors[chunk, KEPT] += more * price * pipeline.flying[stage, tick, chunk // pp]
        for part in range(FOUR):
            factors[chunk, LARGEST + part] = more * factors[chunk, STATE] * prices.shares[chunk, part]
            if chunk < pp:
                base += more * factors[chunk, STATE] * floors[stage, part]
    wait_price = prices.waits[0] / best if prices.waits[0] > 0.0 else 0.0
    for q, i in enumerate(ids):
        chunk = runs.ends[i, CHUNK]
        cost = factors[chunk, STATE] * runs.figures[i, STATE] + factors[chunk, KEPT] * runs.figures[i, KEPT]
        for part in range(FOUR):
            above = runs.figures[i, LARGEST + part] - floors[chunk % pp, part]
            if above > 0.0:
                cost += factors[chunk, LARGEST + part] * above
        costs[q] = cost + wait_price * runs.figures[i, WAIT]
    return base


@njit()
def rooms_behind(pipeline, prices, floors):  # type: ignore[no-untyped-def]
    """Price of the room of each stage and those after it, less what their largest parts cost at least, ``(p + 1,)``."""
    pp = pipeline.flying.shape[0]
    share = (1.0 + FRAGMENTATION) / room_bytes(pipeline)
    found = np.zeros(pp + 1)
    for stage in range(pp - 1, -1, -1):
        found[stage] = found[stage + 1] + prices.ticks[stage].sum() * (1.0 - share * floors[stage].sum())
    return found


@njit()
def find_cheapest(runs, ids, costs, paths):  # type: ignore[no-untyped-def]
    """Cost of the cheapest path, which stands in ``paths`` then."""
    reset(runs.ends, ids, paths)
    for q, i in enumerate(ids):
        chunk, first, last = runs.ends[i, CHUNK], runs.ends[i, FIRST], runs.ends[i, LAST]
        cost = paths.ahead[chunk, first] + costs[q]
        if cost < paths.ahead[chunk + 1, last]:
            paths.ahead[chunk + 1, last] = cost
            paths.came[chunk + 1, last] = i
    return paths.ahead[-1, -1]


@njit()
def find_rests(runs, ids, costs, paths):  # type: ignore[no-untyped-def]
    """Write the costs behind each place; `find_cheapest` comes first."""
    for q in range(len(ids) - 1, -1, -1):
        i = ids[q]
        chunk, first, last = runs.ends[i, CHUNK], runs.ends[i, FIRST], runs.ends[i, LAST]
        paths.behind[chunk, first] = min(paths.behind[chunk, first], costs[q] + paths.behind[chunk + 1, last])


@njit()
def drop_dear(runs, ids, costs, room, paths):  # type: ignore[no-untyped-def]
    """Move runs to the front through which a path costs no more than the room; how many they are."""
    find_rests(runs, ids, costs, paths)
    n = 0
    for q, i in enumerate(ids):
        chunk, first, last = runs.ends[i, CHUNK], runs.ends[i, FIRST], runs.ends[i, LAST]
        if paths.ahead[chunk, first] + costs[q] + paths.behind[chunk + 1, last] <= room:
            ids[n] = i
            n += 1
    return n


@njit()
def follow(pipeline, runs, paths, path):  # type: ignore[no-untyped-def]
    """Write the cheapest path; seconds of its busiest chunk and of all its transfers."""
    pp, num_ticks, v = pipeline.flying.shape
    unit, more = room_bytes(pipeline), 1.0 + FRAGMENTATION
    place = path.cuts[-1] = len(pipeline.busy_s) - 1
    for chunk in range(pp * v - 1, -1, -1):
        i = path.runs[chunk] = paths.came[chunk + 1, place]
        place = path.cuts[chunk] = runs.ends[i, FIRST]
    path.used[:] = 0.0
    path.largest[:] = 0.0
    load, waits = 0.0, 0.0
    for chunk, i in enumerate(path.runs):
        stage = chunk % pp
        load, waits = max(load, runs.figures[i, LOAD]), waits + runs.figures[i, WAIT]
        for part in range(FOUR):
            path.largest[stage, part] = max(path.largest[stage, part], runs.figures[i, LARGEST + part])
        for tick in range(num_ticks):
            kept = pipeline.flying[stage, tick, chunk // pp] * runs.figures[i, KEPT]
            path.used[stage, tick] += (runs.figures[i, STATE] + more * kept) / unit
    for stage in range(pp):
        path.used[stage] += more * path.largest[stage].sum() / unit
        path.worst[stage] = np.argmax(path.used[stage])
    return load, waits


@njit()
def change_prices(pipeline, runs, path, cost, waits, by_waits, stride, num_paths, prices):  # type: ignore[no-untyped-def]
    """Raise prices where a path takes more than there is, and lower them elsewhere.

    Args:
        pipeline, runs: what is cut.
        path: the cheapest one.
        cost: of the path, one where it may fit.
        waits: of the path, in those of the best cut.
        by_waits: whether waits have a price.
        stride: how much prices change at first; the more often, the less.
        num_paths: how often they change with this.
        prices: written.
    """
    pp, v = pipeline.flying.shape[0], pipeline.flying.shape[2]
    farthest = max(np.abs(path.used - 1.0).max(), abs(waits - 1.0) if by_waits else 0.0, 1e-9)
    rate = min(4.0, (1.02 - cost) / farthest**2, 4.0 * stride / (farthest * np.sqrt(num_paths)))
    total = 0.0
    for stage in range(pp):
        for tick in range(max(1, num_moments_of(pipeline.flying, stage))):
            price = max(prices.ticks[stage, tick], 1e-7 / pp)
            prices.ticks[stage, tick] = price * np.exp(rate * (path.used[stage, tick] - 1.0))
            total += prices.ticks[stage, tick]
    if by_waits:
        prices.waits[0] = max(prices.waits[0], 1e-7) * np.exp(rate * (waits - 1.0))
        total += prices.waits[0]
    prices.ticks[:] /= total
    prices.waits[:] /= total
    share = (1.0 + FRAGMENTATION) / room_bytes(pipeline)
    for stage in range(pp):
        for part in range(FOUR):
            if path.largest[stage, part] > 0.0:
                total = 0.0
                for chunk in range(stage, pp * v, pp):
                    below = share * (runs.figures[path.runs[chunk], LARGEST + part] - path.largest[stage, part])
                    prices.shares[chunk, part] = max(prices.shares[chunk, part], 1e-4) * np.exp(2.0 * rate * below)
                    total += prices.shares[chunk, part]
                prices.shares[stage::pp, part] /= total
