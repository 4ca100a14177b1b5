"""The compiled loops that play a schedule; see `schedules`, whose legend holds here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from .tasks import AHEAD, BACK, BACKWARD, FORWARD, NONE, WEIGHT

PLACE_BITS, STAGE_BITS = 3, 17
"""Bit at which the place begins in a turn, and the stage; the kind is below."""

KIND_MASK, PLACE_MASK = (1 << PLACE_BITS) - 1, (1 << STAGE_BITS - PLACE_BITS) - 1


@njit
def in_turn(tasks, v, m, goes_back, is_mirrored):  # type: ignore[no-untyped-def]
    """Return the tasks of a schedule in an order in which each one follows those that it needs, ``(n',)``.

    Each turn is one number: stage, place and kind. Each chunk takes its micro-batches in turn. None are returned
    where the schedule waits for itself.

    Args:
        tasks: as `schedules.orders` makes them.
        v: chunks of a stage.
        m: micro-batches through each chunk.
        goes_back: whether the second chunks of the stages follow each other from the last stage to the first.
        is_mirrored: whether these are the model once more, whose micro-batches enter at the last stage.
    """
    p, n = tasks.shape[0], tasks.shape[1]
    chunks = p * v
    handed, taken = np.zeros((2, chunks), np.int64), np.zeros((2, chunks), np.int64)
    handed[0, 0] = m
    if is_mirrored:
        handed[0, p] = m
    done, turns, count = np.zeros(p, np.int64), np.empty(p * n, np.int32), 0
    moved = True
    while moved:
        moved = False
        for turn in range(2):
            for step in range(p):
                stage = step if turn == 0 else p - 1 - step
                while done[stage] < n:
                    kind, place = tasks[stage, done[stage], 0], tasks[stage, done[stage], 1]
                    if kind == NONE:
                        break
                    if kind != WEIGHT:
                        chunk = place * p + (p - 1 - stage if goes_back and place == 1 else stage)
                        way, other = 0 if kind in (FORWARD, AHEAD) else 1, chunks - 1 - chunk
                        if taken[way, chunk] == handed[way, chunk]:
                            break
                        if kind == AHEAD and taken[1, other] == handed[1, other]:  # its backward pass is one of the other chunk
                            break
                        taken[way, chunk] += 1
                        target = chunk + 1 - 2 * way
                        if 0 <= target < chunks and not (is_mirrored and min(chunk, target) == p - 1):
                            handed[way, target] += 1
                        elif way == 0:
                            handed[1, chunk] += 1
                    turns[count] = stage << STAGE_BITS | place << PLACE_BITS | kind
                    count += 1
                    done[stage] += 1
                    moved = True
    for stage in range(p):
        if done[stage] < n and tasks[stage, done[stage], 0] != NONE:
            return turns[:0]
    return turns[:count].copy()


@njit
def play_chunks(  # type: ignore[no-untyped-def]
    turns, v, m, task_s, send_s, overlaps_sends, starts_s, waits_s, lasts_s, goes_back, is_mirrored
):
    """Play a schedule whose chunks wait for parameters: when each stage ends, how long it is busy, and when it starts.

    Args:
        turns, v, m, goes_back, is_mirrored: as of `in_turn`.
        task_s: seconds of a task of each chunk, ``(p, v, 3)`` or ``(p, 2, 5)``.
        send_s: of a transfer from each chunk to the next one and back, ``(p v,)``, or forward and then back, ``(2 p v,)``.
        overlaps_sends: whether a stage continues while it sends.
        starts_s: stages begin no earlier, ``(p,)``.
        waits_s: for how long after the start of its stage the first forward pass of each chunk begins no earlier, ``(p, v)``.
        lasts_s: written, when the last backward pass of each chunk is computed, ``(p, v)``.
    """
    p = len(starts_s)
    chunks = p * v
    ready, taken = np.empty((2, chunks, m)), np.zeros((2, chunks), np.int64)  # when a pass may start
    ready[0, 0] = starts_s[0]
    if is_mirrored:
        ready[0, p] = starts_s[p - 1]
    clock, first, busy, has_begun = starts_s.copy(), np.zeros(p), np.zeros(p), np.zeros(p, np.bool_)
    for turn in turns:
        stage, place, kind = turn >> STAGE_BITS, (turn >> PLACE_BITS) & PLACE_MASK, turn & KIND_MASK
        held = task_s[stage, place, kind] if kind != BACK else 0.0
        if kind == WEIGHT:
            clock[stage] += held
            busy[stage] += held
            continue
        chunk = place * p + (p - 1 - stage if goes_back and place == 1 else stage)
        way = 0 if kind in (FORWARD, AHEAD) else 1
        i = taken[way, chunk]
        taken[way, chunk] += 1
        start = ready[way, chunk, i]
        if kind == AHEAD:
            start = max(start, ready[1, chunks - 1 - chunk, taken[1, chunks - 1 - chunk]])
        target = chunk + 1 - 2 * way
        goes = 0 <= target < chunks and not (is_mirrored and min(chunk, target) == p - 1)
        sent = send_s[max(0, min(chunk, target)) + way * (len(send_s) - chunks)] if goes and p > 1 else 0.0
        if not overlaps_sends:
            held += sent
        if kind == FORWARD and i == 0:
            start = max(start, starts_s[stage] + waits_s[stage, place])
        if not has_begun[stage]:
            first[stage], has_begun[stage] = start, True
        begun = max(clock[stage], start)
        clock[stage] = begun + held
        if kind == BACKWARD and i == m - 1:
            lasts_s[stage, place] = begun + task_s[stage, place, kind]
        if goes:
            ready[way, target, i] = clock[stage] + (sent if overlaps_sends else 0.0)
        elif way == 0:
            ready[1, chunk, i] = clock[stage]
        busy[stage] += held
    return clock, busy, first


def ways_s(send_s: float | NDArray[np.float64], chunks: int) -> NDArray[np.float64]:
    """Return the transfers between each chunk and the next one, or both ways, see `schedules.play_schedule`."""
    sends = np.asarray(send_s, np.float64)
    return sends if sends.shape == (2 * chunks,) else np.broadcast_to(sends, chunks)
