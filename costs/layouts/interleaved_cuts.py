"""The cut of a pipeline whose stages hold several chunks each, among those that fit the devices.

Chunks of a stage share its memory, so that no chunk fits or not by itself, and to balance them over several stages is as hard as
partitioning numbers. Cuts are tried chunk by chunk; one is left where its stage is full already, or where what is still to be
cut must overfill a stage, or all stages together, or must be busier than wanted. These bounds lose nothing, but they do
not always end the search: it then stops after `MAX_TRIED` chunks and says so.

Legend: ``u`` units that stay whole, ``p`` stages, ``v`` chunks of a stage, ``k = p v`` chunks, ``t`` moments of a schedule,
``r`` bounds on memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...plans.partition import Layout
from .memory import FRAGMENTATION, RUNTIME_BYTES
from .schedules import FORWARD, orders

WIDENINGS = (1.0, 1.1, 1.5, np.inf)
"""Within so many times the least load without regard to memory a cut that fits is looked for, one after the other."""


MAX_TRIED = 200_000
"""Chunks that are tried within a load before it is given up; some 10 ms."""


class Held(NamedTuple):
    """What units hold, see `graph_cuts.Chain`.

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


def fitting_cuts(
    layout: Layout,
    busy_s: NDArray[np.float64],
    transfer_s: NDArray[np.float64],
    held: Held,
    capacity_bytes: float,
    cuts: NDArray[np.int64],
) -> tuple[bool, bool]:
    """Put in place of the least busy cut the least busy one that fits, and of these the one that sends least.

    Args:
        layout: of an interleaved schedule.
        busy_s: of a micro-batch through all units before each one, ``(u + 1,)``.
        transfer_s: in which a micro-batch goes past each place behind each chunk, ``(k, u + 1)``.
        held: what units hold.
        capacity_bytes: memory of a device.
        cuts: first unit of each chunk and, last, ``u``: the best cut without regard to memory; written, ``(k + 1,)``.

    Returns:
        Whether a cut that fits was found, and whether this is certain: that no cut is better or, without one, that none fits.
    """
    pp, hides, recomputes = layout.pp, layout.overlap_pp, layout.recompute == "full"
    flying = most_flying(layout)
    sums = _sums(flying, pp)
    room_bytes = np.append(np.full(len(sums) - 1, capacity_bytes - RUNTIME_BYTES), pp * (capacity_bytes - RUNTIME_BYTES))
    shared = (busy_s, transfer_s, hides, *held, recomputes, capacity_bytes, flying, sums, room_bytes)
    if _fits(*held, recomputes, capacity_bytes, flying, cuts):
        return True, True
    loads = [load_s(busy_s, transfer_s, hides, chunk, cuts[chunk], cuts[chunk + 1]) for chunk in range(len(cuts) - 1)]
    are_all_tried = True
    least_bytes = _rests(busy_s, transfer_s, hides, *held, recomputes, sums, flying.shape[2], np.inf)[2][0, 0]
    if np.any(least_bytes * (1.0 - 1e-12) > room_bytes):  # whatever the cut
        return False, True
    for widening in WIDENINGS:
        found_s, is_least = _seek(*shared, max(loads) * widening, False, MAX_TRIED, cuts)
        are_all_tried &= is_least
        if found_s < np.inf:
            _, is_least = _seek(*shared, found_s, True, MAX_TRIED, cuts)
            return True, are_all_tried and is_least
    return False, are_all_tried


@lru_cache(maxsize=256)
def _flying(schedule: str, pp: int, virtual_stages: int, num_micro_batches: int) -> NDArray[np.float64]:
    found = []
    for tasks in orders(schedule, pp, virtual_stages, num_micro_batches):
        change = np.zeros((len(tasks), virtual_stages))
        change[np.arange(len(tasks)), tasks[:, 1]] = np.where(tasks[:, 0] == FORWARD, 1.0, -1.0)
        moments = np.unique(np.cumsum(change, axis=0), axis=0)
        # A moment at which another one has at least as many of every chunk in flight is never the worst.
        is_below = (moments[:, None, :] <= moments[None, :, :]).all(2)
        found.append(moments[is_below.sum(1) == 1])
    most = np.zeros((pp, max(map(len, found)), virtual_stages))
    for stage, moments in enumerate(found):
        most[stage, : len(moments)] = moments
    most.flags.writeable = False
    return most


def most_flying(layout: Layout) -> NDArray[np.float64]:
    """Micro-batches of each chunk that a stage keeps at the moments which may be its worst, ``(p, t, v)``."""
    return _flying(layout.schedule, layout.pp, layout.virtual_stages, layout.num_micro_batches)


def _sums(flying: NDArray[np.float64], pp: int) -> NDArray[np.float64]:
    """Which chunks each bound on memory counts, with how many micro-batches in flight, ``(r, k)``; -1 where it does not.

    One for each moment of each stage and, last, one for all stages together, each at its fullest moment.
    """
    v = flying.shape[2]
    found = []
    for stage, moments in enumerate(flying):
        for moment in moments[moments.any(1)]:
            row = np.full(pp * v, -1.0)
            row[stage::pp] = moment
            found.append(row)
    together = np.empty(pp * v)
    for stage, moments in enumerate(flying):
        together[stage::pp] = moments[np.argmax(moments.sum(1))]
    return np.array([*found, together])


@njit(inline="always")
def load_s(busy_s, transfer_s, hides, chunk, first, last):  # type: ignore[no-untyped-def]
    """Seconds for which a micro-batch keeps a chunk busy."""
    own = busy_s[last] - busy_s[first]
    given = transfer_s[chunk - 1, first] if chunk > 0 else 0.0
    sent = given + transfer_s[chunk, last]
    return max(own, sent) if hides else own + sent


@njit()
def _fits(state_bytes, activation_bytes, workspace_bytes, crossing_bytes, recomputes, capacity, flying, cuts):  # type: ignore[no-untyped-def]
    """Whether every stage holds its chunks."""
    stages = np.zeros((len(cuts) - 1, 5 + flying.shape[1]))
    for chunk in range(len(cuts) - 1):
        first, last = cuts[chunk], cuts[chunk + 1]
        held = _hold(
            state_bytes, activation_bytes, workspace_bytes, crossing_bytes, recomputes, flying, stages, chunk, first, last
        )
        if held > capacity:
            return False
    return True


@njit()
def _hold(  # type: ignore[no-untyped-def]
    state_bytes, activation_bytes, workspace_bytes, crossing_bytes, recomputes, flying, stages, chunk, first, last
):
    """Bytes of a stage with its chunks up to this one, counted as `graph_memory.graph_stage_memory` counts them.

    Row ``chunk`` of ``stages`` follows from that of the chunk before it on its stage: state, largest recomputed activations,
    workspace, message in and message out, and what is kept at each moment.
    """
    pp, num_moments = flying.shape[0], flying.shape[1]
    stage, place = chunk % pp, chunk // pp
    if place == 0:
        stages[chunk] = 0.0
    else:
        stages[chunk] = stages[chunk - pp]
    own = activation_bytes[last] - activation_bytes[first]
    stages[chunk, 0] += state_bytes[last] - state_bytes[first]
    if recomputes:
        stages[chunk, 1] = max(stages[chunk, 1], own)
    for unit in range(first, last):
        stages[chunk, 2] = max(stages[chunk, 2], workspace_bytes[unit])
    stages[chunk, 3] = max(stages[chunk, 3], crossing_bytes[first])
    stages[chunk, 4] = max(stages[chunk, 4], crossing_bytes[last])
    kept, most = crossing_bytes[first] if recomputes else own, 0.0
    for moment in range(num_moments):
        stages[chunk, 5 + moment] += flying[stage, moment, place] * kept
        most = max(most, stages[chunk, 5 + moment])
    changing = most + stages[chunk, 1] + stages[chunk, 2] + stages[chunk, 3] + stages[chunk, 4]
    return stages[chunk, 0] + (1.0 + FRAGMENTATION) * changing + RUNTIME_BYTES


@njit(inline="always")
def _floor_bytes(own, workspace, given, sent, recomputes, flying, num_places):  # type: ignore[no-untyped-def]
    """What a chunk adds at least to its stage besides its state: the largest of several chunks is no less than their mean."""
    kept = flying * (given if recomputes else own)
    return (1.0 + FRAGMENTATION) * (kept + ((own if recomputes else 0.0) + workspace + given + sent) / num_places)


@njit()
def _rests(  # type: ignore[no-untyped-def]
    busy_s, transfer_s, hides, state_bytes, activation_bytes, workspace_bytes, crossing_bytes, recomputes, sums, num_places, limit
):
    """Least load of the busiest chunk, least transfers and least memory by each bound, of chunks from each one and place on.

    Only chunks within the load ``limit`` count; ``(k + 1, u + 1)`` and, of memory, ``(k + 1, u + 1, r)``.
    """
    num_chunks, u, num_sums = len(transfer_s), len(busy_s) - 1, len(sums)
    loads = np.full((num_chunks + 1, u + 1), np.inf)
    waits = np.full((num_chunks + 1, u + 1), np.inf)
    memory = np.full((num_chunks + 1, u + 1, num_sums), np.inf)
    loads[num_chunks, u] = waits[num_chunks, u] = 0.0
    memory[num_chunks, u] = 0.0
    for chunk in range(num_chunks - 1, -1, -1):
        for first in range(chunk, u - (num_chunks - chunk) + 1):
            workspace = 0.0
            for last in range(first + 1, u - (num_chunks - chunk - 1) + 1):
                workspace = max(workspace, workspace_bytes[last - 1])
                if busy_s[last] - busy_s[first] > limit:
                    break
                load = load_s(busy_s, transfer_s, hides, chunk, first, last)
                if load > limit or loads[chunk + 1, last] == np.inf:
                    continue
                loads[chunk, first] = min(loads[chunk, first], max(load, loads[chunk + 1, last]))
                waits[chunk, first] = min(waits[chunk, first], transfer_s[chunk, last] + waits[chunk + 1, last])
                own = activation_bytes[last] - activation_bytes[first]
                given, sent = crossing_bytes[first], crossing_bytes[last]
                state = state_bytes[last] - state_bytes[first]
                for row in range(num_sums):
                    bytes_ = memory[chunk + 1, last, row]
                    if sums[row, chunk] >= 0.0:
                        bytes_ += state + _floor_bytes(own, workspace, given, sent, recomputes, sums[row, chunk], num_places)
                    memory[chunk, first, row] = min(memory[chunk, first, row], bytes_)
    return loads, waits, memory


@njit()
def _seek(  # type: ignore[no-untyped-def]
    busy_s,
    transfer_s,
    hides,
    state_bytes,
    activation_bytes,
    workspace_bytes,
    crossing_bytes,
    recomputes,
    capacity,
    flying,
    sums,
    room_bytes,
    limit,
    by_waits,
    most_tried,
    cuts,
):
    """Write the fitting cut of the least busy chunk within a load or, by waits, of the least transfers.

    Returns what it has least of, infinity where none was found, and whether all cuts were tried or bounded.
    """
    num_chunks, u = len(transfer_s), len(busy_s) - 1
    limit *= 1.0 + 1e-12  # sums in another order must not part what is equally busy
    rest_loads, rest_waits, rest_bytes = _rests(
        busy_s,
        transfer_s,
        hides,
        state_bytes,
        activation_bytes,
        workspace_bytes,
        crossing_bytes,
        recomputes,
        sums,
        flying.shape[2],
        limit,
    )
    stages = np.zeros((num_chunks, 5 + flying.shape[1]))
    load, wait, used = np.zeros(num_chunks + 1), np.zeros(num_chunks + 1), np.zeros((num_chunks + 1, len(sums)))
    tried = np.zeros(num_chunks + 1, np.int64)
    best, chunk, num_tried = np.inf, 0, 0
    while chunk >= 0 and num_tried < most_tried:
        num_tried += 1
        tried[chunk + 1] += 1
        first, last = tried[chunk], tried[chunk + 1]
        if last > u - (num_chunks - chunk - 1) or busy_s[last] - busy_s[first] > limit:
            chunk -= 1
            continue
        if rest_loads[chunk + 1, last] == np.inf:
            continue
        load[chunk + 1] = max(load[chunk], load_s(busy_s, transfer_s, hides, chunk, first, last))
        wait[chunk + 1] = wait[chunk] + transfer_s[chunk, last]
        if load[chunk + 1] > limit:
            continue
        least = wait[chunk + 1] + rest_waits[chunk + 1, last] if by_waits else max(load[chunk + 1], rest_loads[chunk + 1, last])
        if least >= best:
            continue
        own = activation_bytes[last] - activation_bytes[first]
        given, sent, workspace = crossing_bytes[first], crossing_bytes[last], workspace_bytes[first:last].max()
        is_full = False
        for row in range(len(sums)):
            used[chunk + 1, row] = used[chunk, row]
            if sums[row, chunk] >= 0.0:
                used[chunk + 1, row] += state_bytes[last] - state_bytes[first]
                used[chunk + 1, row] += _floor_bytes(own, workspace, given, sent, recomputes, sums[row, chunk], flying.shape[2])
            # A bound adds in another order than the memory of a stage.
            is_full |= (used[chunk + 1, row] + rest_bytes[chunk + 1, last, row]) * (1.0 - 1e-12) > room_bytes[row]
        if is_full:
            continue
        held = _hold(
            state_bytes, activation_bytes, workspace_bytes, crossing_bytes, recomputes, flying, stages, chunk, first, last
        )
        if held > capacity:
            continue
        if chunk == num_chunks - 1:
            best = wait[num_chunks] if by_waits else load[num_chunks]
            cuts[:] = tried
        else:
            chunk += 1
            tried[chunk + 1] = tried[chunk]
    return best, chunk < 0
