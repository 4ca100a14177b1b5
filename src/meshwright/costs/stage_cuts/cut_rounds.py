"""Cuts of an interleaved pipeline whose rounds are known: stage by stage, by dynamic programming.

A round is a chunk of every stage, one after the other. Where each round begins and ends is settled, the stages are cut
one after the other in all rounds at once: what is still to come depends only on the ``v`` places behind the chunks of
the stage before, not on how these came about, and what a stage holds only on the places before and behind its own chunks.

Legend: ``u`` units, ``p`` stages, ``v`` rounds, ``k = p v`` chunks, ``n`` runs (`chunk_runs`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from .chunk_runs import CHUNK, FIRST, FOUR, KEPT, LARGEST, LAST, LOAD, ROUNDING, STATE, WAIT, held_bytes

MOST_STATES = 2**18
"""Combinations of the places behind the chunks of a stage that are told apart."""


class KnownRounds(NamedTuple):
    """Rounds whose ends are known.

    Attributes:
        ids: runs that are left, by chunk and first unit, ``(n,)``.
        lowest: first and
        highest: last place at which each chunk may begin, and ``u``; the same where a round begins, ``(k + 1,)``.
        behind: least price of a path from each chunk and place on, ``(k + 1, u + 1)``.
        room_behind: the price of all memory from each stage on, less what its stages hold at least, ``(p + 1,)``.
        wait_price: of a second of transfers; nothing where loads are compared.
        wait_room: the price of all seconds.
        table: -1 for each combination of places, ``(MOST_STATES,)``; left so.
    """

    ids: NDArray[np.int32]
    lowest: NDArray[np.int64]
    highest: NDArray[np.int64]
    behind: NDArray[np.float64]
    room_behind: NDArray[np.float64]
    wait_price: float
    wait_room: float
    table: NDArray[np.int32]


@njit()
def cut_rounds(pipeline, runs, rounds, by_waits, best, cuts):  # type: ignore[no-untyped-def]
    """Write the cut of the least busy chunk or, by waits, of the least transfers, among those that fit.

    Args:
        pipeline: is cut.
        runs: of its chunks.
        rounds: where they begin.
        by_waits: what is compared.
        best: only less counts.
        cuts: written where one is found, ``(k + 1,)``.

    Returns:
        What it has least of, infinity where nothing was found, and how many runs were looked at.
    """
    pp, num_ticks, v = pipeline.flying.shape
    ends, figures, ids, lowest, behind = runs.ends, runs.figures, rounds.ids, rounds.lowest, rounds.behind
    begin, end = np.zeros(behind.shape, np.int64), np.zeros(behind.shape, np.int64)
    for q, i in enumerate(ids):
        chunk, place = ends[i, CHUNK], ends[i, FIRST]
        if end[chunk, place] == 0:
            begin[chunk, place] = q
        end[chunk, place] = q + 1
    # States: the places behind the chunks of a stage, the best value that leads there, and the state before it.
    places, values, came = np.zeros((1024, v), np.int64), np.zeros(1024), np.zeros((1024, 2), np.int64)
    first_of = np.zeros(pp + 2, np.int64)
    first_of[1] = num_states = 1
    for place in range(v):
        places[0, place] = lowest[place * pp]
    at, reached = np.zeros(v, np.int64), np.zeros(v, np.int64)
    state, value, price = np.zeros(v + 1), np.zeros(v + 1), np.zeros(v + 1)
    largest, kept = np.zeros((v + 1, FOUR)), np.zeros((v + 1, num_ticks))
    num_tried = 0
    for stage in range(pp):
        for origin in range(first_of[stage], first_of[stage + 1]):
            value[0] = values[origin]
            at[0] = begin[stage, places[origin, 0]] - 1
            place = 0
            while place >= 0:
                num_tried += 1
                chunk = place * pp + stage
                at[place] += 1
                if at[place] >= end[chunk, places[origin, place]]:
                    place -= 1
                    continue
                i = ids[at[place]]
                state[place + 1] = state[place] + figures[i, STATE]
                for part in range(FOUR):
                    largest[place + 1, part] = max(largest[place, part], figures[i, LARGEST + part])
                most = 0.0
                for tick in range(num_ticks):
                    kept[place + 1, tick] = kept[place, tick] + pipeline.flying[stage, tick, place] * figures[i, KEPT]
                    most = max(most, kept[place + 1, tick])
                if held_bytes(state[place + 1], most, largest[place + 1]) > pipeline.capacity_bytes:
                    continue
                value[place + 1] = value[place] + figures[i, WAIT] if by_waits else max(value[place], figures[i, LOAD])
                if value[place + 1] >= best:
                    continue
                reached[place] = ends[i, LAST]
                to_come = behind[chunk + 1, reached[place]] - behind[(place + 1) * pp, lowest[(place + 1) * pp]]
                price[place + 1] = price[place] + to_come
                if place < v - 1:
                    place += 1
                    at[place] = begin[place * pp + stage, places[origin, place]] - 1
                    continue
                room = rounds.room_behind[stage + 1] + (rounds.wait_room - rounds.wait_price * value[v])
                if price[v] > room + ROUNDING:
                    continue
                key = 0
                for other in range(v):
                    boundary = other * pp + stage + 1
                    key = key * (rounds.highest[boundary] - lowest[boundary] + 1) + reached[other] - lowest[boundary]
                found = rounds.table[key]
                if found < 0:
                    if num_states == len(values):
                        places, came = np.concatenate((places, places)), np.concatenate((came, came))
                        values = np.concatenate((values, values))
                    found, num_states = num_states, num_states + 1
                    rounds.table[key] = found
                    places[found] = reached
                    values[found] = np.inf
                if value[v] < values[found]:
                    values[found] = value[v]
                    came[found, 0], came[found, 1] = origin, key
        for found in range(first_of[stage + 1], num_states):
            rounds.table[came[found, 1]] = -1
        first_of[stage + 2] = num_states
    if first_of[pp] == num_states:
        return np.inf, num_tried
    found = first_of[pp]
    best = values[found]
    cuts[-1] = lowest[-1]
    for stage in range(pp - 1, -1, -1):
        found = came[found, 0]
        for place in range(v):
            cuts[place * pp + stage] = places[found, place]
    return best, num_tried
