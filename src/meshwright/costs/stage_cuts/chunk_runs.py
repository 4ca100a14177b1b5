"""What a chunk of a pipeline may hold: runs of units, and those of them that no cut which fits can contain.

A cut is a path of runs, one for each chunk, each beginning where the one before it ends. Stages with several chunks share
their memory between them, so that a run fits or not only together with others; yet where even the least that others can
add overfills a stage, the run is out.

Legend: ``u`` units that stay whole, ``p`` stages, ``v`` chunks of a stage, ``k = p v`` chunks, ``t`` ticks of a schedule,
``n`` runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ..work.memory import FRAGMENTATION, RUNTIME_BYTES

CHUNK, FIRST, LAST = 0, 1, 2
"""Columns of `Runs.ends`."""

STATE, KEPT, LARGEST, WAIT, LOAD = 0, 1, 2, 6, 7
"""Columns of `Runs.figures`; of the four from ``LARGEST`` on a stage holds what is largest of its chunks."""

FOUR = 4
"""Recomputed activations, workspace, message in and message out."""

ROUNDING = 1e-11
"""Relative. A bound adds in another order than what it bounds, and must not pass it by a rounding error."""

MOST_RUNS = 6_000_000
"""Beyond so many, half a gigabyte, no cut is looked for."""


class Pipeline(NamedTuple):
    """A pipeline that is to be cut.

    Attributes:
        busy_s: of a micro-batch through all units before each one, ``(u + 1,)``.
        transfer_s: in which a micro-batch goes past each place behind each chunk, ``(k, u + 1)``.
        hides: whether chunks compute on while they send.
        state_bytes: of all units before each one: weights, gradients, optimizer, ``(u + 1,)``.
        activation_bytes: of a micro-batch through all units before each one, ``(u + 1,)``.
        workspace_bytes: largest of a unit, ``(u,)``.
        crossing_bytes: what a micro-batch brings past each place between two units, ``(u + 1,)``.
        recomputes: whether chunks keep what they are given and compute their activations again.
        capacity_bytes: memory of a device.
        flying: micro-batches of each chunk that a stage keeps at the ticks which may be its worst, ``(p, t, v)``.
    """

    busy_s: NDArray[np.float64]
    transfer_s: NDArray[np.float64]
    hides: bool
    state_bytes: NDArray[np.float64]
    activation_bytes: NDArray[np.float64]
    workspace_bytes: NDArray[np.float64]
    crossing_bytes: NDArray[np.float64]
    recomputes: bool
    capacity_bytes: float
    flying: NDArray[np.float64]


class Runs(NamedTuple):
    """Runs of units by chunk and first unit.

    Attributes:
        ends: chunk, first unit and unit behind the last one, ``(n, 3)``.
        figures: bytes of state, bytes kept of a micro-batch in flight, recomputed activations, workspace, message in and
            message out, seconds of the transfer behind it, seconds for which a micro-batch keeps it busy, ``(n, 8)``.
    """

    ends: NDArray[np.int32]
    figures: NDArray[np.float64]


class Paths(NamedTuple):
    """Least costs of paths by what lies between the chunks, see `reset`.

    Attributes:
        ahead: of the chunks before each one up to each place, ``(k + 1, u + 1)``.
        behind: of each chunk and those after it from each place on, ``(k + 1, u + 1)``.
        came: the last run of the path ``ahead``, ``(k + 1, u + 1)``.
    """

    ahead: NDArray[np.float64]
    behind: NDArray[np.float64]
    came: NDArray[np.int64]


@njit(inline="always")
def load_s(busy_s, transfer_s, hides, chunk, first, last):  # type: ignore[no-untyped-def]
    """Seconds for which a micro-batch keeps a chunk busy."""
    own = busy_s[last] - busy_s[first]
    given = transfer_s[chunk - 1, first] if chunk > 0 else 0.0
    sent = given + transfer_s[chunk, last]
    return max(own, sent) if hides else own + sent


@njit()
def fits(pipeline, cuts):  # type: ignore[no-untyped-def]
    """Whether every stage holds its chunks, counted as `graph_memory.graph_stage_memory` counts them."""
    pp, num_ticks, v = pipeline.flying.shape
    kept, largest = np.zeros(num_ticks), np.zeros(FOUR)
    for stage in range(pp):
        state = 0.0
        kept[:] = 0.0
        largest[:] = 0.0
        for place in range(v):
            first, last = cuts[place * pp + stage], cuts[place * pp + stage + 1]
            own = pipeline.activation_bytes[last] - pipeline.activation_bytes[first]
            state += pipeline.state_bytes[last] - pipeline.state_bytes[first]
            if pipeline.recomputes:
                largest[0] = max(largest[0], own)
            largest[1] = max(largest[1], pipeline.workspace_bytes[first:last].max())
            largest[2] = max(largest[2], pipeline.crossing_bytes[first])
            largest[3] = max(largest[3], pipeline.crossing_bytes[last])
            for tick in range(num_ticks):
                own_kept = pipeline.crossing_bytes[first] if pipeline.recomputes else own
                kept[tick] += pipeline.flying[stage, tick, place] * own_kept
        if held_bytes(state, kept.max(), largest) > pipeline.capacity_bytes:
            return False
    return True


@njit(inline="always")
def held_bytes(state, kept, largest):  # type: ignore[no-untyped-def]
    """Bytes of a stage: its state, what it keeps at its worst moment, and the largest of its chunks of all else."""
    changing = kept + largest[0] + largest[1] + largest[2] + largest[3]
    return state + (1.0 + FRAGMENTATION) * changing + RUNTIME_BYTES


@njit(inline="always")
def room_bytes(pipeline):  # type: ignore[no-untyped-def]
    """Memory of a device besides what runs on it anyway; more by so little as `held_bytes` may round."""
    return pipeline.capacity_bytes * (1.0 + 1e-12) - RUNTIME_BYTES


@njit()
def all_runs(pipeline):  # type: ignore[no-untyped-def]
    """Every run that a chunk can hold by itself, and whether these are all: none are listed beyond `MOST_RUNS`."""
    num_chunks, u = len(pipeline.transfer_s), len(pipeline.busy_s) - 1
    ends, figures = np.empty((0, 3), np.int32), np.empty((0, 8))
    n = 0
    for writes in (False, True):
        if writes:
            if n > MOST_RUNS:
                return Runs(ends, figures), False
            ends, figures = np.empty((n, 3), np.int32), np.empty((n, 8))
        n = 0
        for chunk in range(num_chunks):
            most_flying = pipeline.flying[chunk % pipeline.flying.shape[0], :, chunk // pipeline.flying.shape[0]].max()
            for first in range(chunk, u - (num_chunks - chunk) + 1 if chunk > 0 else 1):
                workspace, given = 0.0, pipeline.crossing_bytes[first]
                for last in range(first + 1, u - (num_chunks - chunk - 1) + 1):
                    workspace = max(workspace, pipeline.workspace_bytes[last - 1])
                    state = pipeline.state_bytes[last] - pipeline.state_bytes[first]
                    own = pipeline.activation_bytes[last] - pipeline.activation_bytes[first]
                    kept, again = (given, own) if pipeline.recomputes else (own, 0.0)
                    changing = most_flying * kept + again + workspace + given
                    # All of this grows with the run.
                    if state + (1.0 + FRAGMENTATION) * changing + RUNTIME_BYTES > pipeline.capacity_bytes * (1.0 + ROUNDING):
                        break
                    if chunk == num_chunks - 1 and last < u:
                        continue
                    if writes:
                        ends[n, 0], ends[n, 1], ends[n, 2] = chunk, first, last
                        figures[n, 0], figures[n, 1], figures[n, 2], figures[n, 3] = state, kept, again, workspace
                        figures[n, 4], figures[n, 5] = given, pipeline.crossing_bytes[last]
                        figures[n, 6] = pipeline.transfer_s[chunk, last]
                        figures[n, 7] = load_s(pipeline.busy_s, pipeline.transfer_s, pipeline.hides, chunk, first, last)
                    n += 1
    return Runs(ends, figures), True


@njit()
def paths_of(pipeline):  # type: ignore[no-untyped-def]
    """Room for the least costs of paths."""
    shape = (len(pipeline.transfer_s) + 1, len(pipeline.busy_s))
    return Paths(np.full(shape, np.inf), np.full(shape, np.inf), np.zeros(shape, np.int64))


@njit()
def reset(ends, ids, paths):  # type: ignore[no-untyped-def]
    """Forget the costs of paths wherever one of these runs begins or ends."""
    for i in ids:
        chunk, first, last = ends[i, CHUNK], ends[i, FIRST], ends[i, LAST]
        paths.ahead[chunk, first] = paths.ahead[chunk + 1, last] = np.inf
        paths.behind[chunk, first] = paths.behind[chunk + 1, last] = np.inf
    paths.ahead[0, 0] = paths.behind[-1, -1] = 0.0


@njit()
def least_load_s(runs, paths):  # type: ignore[no-untyped-def]
    """Seconds for which the busiest chunk is busy where memory is not looked at; infinity where no path is left."""
    reset(runs.ends, np.arange(len(runs.ends)), paths)
    for i in range(len(runs.ends)):
        chunk, first, last = runs.ends[i, CHUNK], runs.ends[i, FIRST], runs.ends[i, LAST]
        load = max(paths.ahead[chunk, first], runs.figures[i, LOAD])
        paths.ahead[chunk + 1, last] = min(paths.ahead[chunk + 1, last], load)
    return paths.ahead[-1, -1]


@njit()
def drop_slower(runs, ids, paths, most_s):  # type: ignore[no-untyped-def]
    """Move runs to the front through which a path sends less than so many seconds in all; how many they are."""
    reset(runs.ends, ids, paths)
    for i in ids:
        chunk, first, last = runs.ends[i, CHUNK], runs.ends[i, FIRST], runs.ends[i, LAST]
        waits = paths.ahead[chunk, first] + runs.figures[i, WAIT]
        paths.ahead[chunk + 1, last] = min(paths.ahead[chunk + 1, last], waits)
    for i in ids[::-1]:
        chunk, first, last = runs.ends[i, CHUNK], runs.ends[i, FIRST], runs.ends[i, LAST]
        waits = paths.behind[chunk + 1, last] + runs.figures[i, WAIT]
        paths.behind[chunk, first] = min(paths.behind[chunk, first], waits)
    n = 0
    for i in ids:
        chunk, first, last = runs.ends[i, CHUNK], runs.ends[i, FIRST], runs.ends[i, LAST]
        if paths.ahead[chunk, first] + runs.figures[i, WAIT] + paths.behind[chunk + 1, last] < most_s:
            ids[n] = i
            n += 1
    return n


@njit()
def drop_overfull(pipeline, runs, ids, ticks, paths, floors):  # type: ignore[no-untyped-def]
    """Move runs to the front with which each stage by itself may fit; how many they are.

    A stage holds at least the state and what is kept of the cheapest path, and of all else the most that each of its chunks
    needs at least.

    Args:
        pipeline: is cut.
        runs: of its chunks.
        ids: of those that are looked at, by chunk; written.
        ticks: at which what each stage keeps is counted, ``(p,)``.
        paths: room.
        floors: written: the least that the four largest parts of each stage can be, ``(p, 4)``.
    """
    pp, v = pipeline.flying.shape[0], pipeline.flying.shape[2]
    room, more = room_bytes(pipeline) * (1.0 + ROUNDING), 1.0 + FRAGMENTATION
    least = np.full((pp * v, FOUR), np.inf)
    for i in ids:
        for part in range(FOUR):
            least[runs.ends[i, CHUNK], part] = min(least[runs.ends[i, CHUNK], part], runs.figures[i, LARGEST + part])
    floors[:] = 0.0
    for chunk in range(pp * v):
        for part in range(FOUR):
            floors[chunk % pp, part] = max(floors[chunk % pp, part], least[chunk, part])
    n = len(ids)
    for stage in range(pp):
        flying, floor = pipeline.flying[stage, ticks[stage]], more * floors[stage].sum()
        reset(runs.ends, ids[:n], paths)
        for i in ids[:n]:
            chunk, first, last = runs.ends[i, CHUNK], runs.ends[i, FIRST], runs.ends[i, LAST]
            cost = paths.ahead[chunk, first]
            if chunk % pp == stage:
                cost += runs.figures[i, STATE] + more * flying[chunk // pp] * runs.figures[i, KEPT]
            paths.ahead[chunk + 1, last] = min(paths.ahead[chunk + 1, last], cost)
        if paths.ahead[-1, -1] + floor > room:
            return 0
        for i in ids[:n][::-1]:
            chunk, first, last = runs.ends[i, CHUNK], runs.ends[i, FIRST], runs.ends[i, LAST]
            cost = paths.behind[chunk + 1, last]
            if chunk % pp == stage:
                cost += runs.figures[i, STATE] + more * flying[chunk // pp] * runs.figures[i, KEPT]
            paths.behind[chunk, first] = min(paths.behind[chunk, first], cost)
        num_left = 0
        for i in ids[:n]:
            chunk, first, last = runs.ends[i, CHUNK], runs.ends[i, FIRST], runs.ends[i, LAST]
            cost = paths.ahead[chunk, first] + paths.behind[chunk + 1, last]
            if chunk % pp == stage:
                cost += runs.figures[i, STATE] + more * flying[chunk // pp] * runs.figures[i, KEPT]
                for part in range(FOUR):
                    cost += more * max(floors[stage, part], runs.figures[i, LARGEST + part])
            else:
                cost += floor
            if cost <= room:
                ids[num_left] = i
                num_left += 1
        n = num_left
    return n
