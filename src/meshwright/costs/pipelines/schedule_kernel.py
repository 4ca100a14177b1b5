"""The compiled loop that plays a table of tasks; see `schedules`, whose legend holds here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit


@njit
def play_chunks(tasks, v, m, task_s, send_s, overlaps_sends, starts_s, waits_s, lasts_s):  # type: ignore[no-untyped-def]
    """Play a schedule, as `play_tasks` does, whose chunks wait for parameters and report when gradients are made.

    Args:
        tasks, v, m, task_s, overlaps_sends, starts_s: as there.
        send_s: of a transfer from each chunk to the next one and back, ``(p v,)``, or forward and then back, ``(2 p v,)``.
        waits_s: for how long after the start of its stage the first forward pass of each chunk begins no earlier, ``(p, v)``.
        lasts_s: written, when the last backward pass of each chunk is computed, ``(p, v)``.
    """
    p, n = tasks.shape[0], tasks.shape[1]
    chunks = p * v
    ready = np.full((2, chunks, m), np.inf)  # when a pass may start; infinite: not known yet
    for i in range(m):
        ready[0, 0, i] = starts_s[0]
    done = np.zeros(p, np.int64)
    clock = starts_s.copy()
    first = np.zeros(p)
    busy = np.zeros(p)
    left = p * n
    while left > 0:
        before = left
        for turn in range(2):
            for step in range(p):
                stage = step if turn == 0 else p - 1 - step
                while done[stage] < n:
                    kind = tasks[stage, done[stage], 0]
                    place = tasks[stage, done[stage], 1]
                    i = tasks[stage, done[stage], 2]
                    chunk = place * p + stage
                    held = task_s[stage, place, kind]
                    if kind == 2:
                        clock[stage] += held
                    else:
                        start = ready[kind, chunk, i]
                        if start == np.inf:
                            break
                        target = chunk + 1 if kind == 0 else chunk - 1
                        sends = p > 1 and 0 <= target < chunks
                        way = send_s[max(0, min(chunk, target)) + kind * (len(send_s) - chunks)]
                        if sends and not overlaps_sends:
                            held += way
                        if kind == 0 and i == 0:
                            start = max(start, starts_s[stage] + waits_s[stage, place])
                        if done[stage] == 0:
                            first[stage] = start
                        begun = max(clock[stage], start)
                        clock[stage] = begun + held
                        if kind == 1 and i == m - 1:
                            lasts_s[stage, place] = begun + task_s[stage, place, kind]
                        if 0 <= target < chunks:
                            ready[kind, target, i] = clock[stage] + (way if sends and overlaps_sends else 0.0)
                        elif kind == 0:
                            ready[1, chunk, i] = clock[stage]
                    busy[stage] += held
                    done[stage] += 1
                    left -= 1
        if left == before:
            return clock, busy, first, False
    return clock, busy, first, True


@njit
def play_tasks(tasks, v, m, task_s, send_s, overlaps_sends, starts_s):  # type: ignore[no-untyped-def]
    """Play a schedule: when each stage ends and starts, how long it is busy, and whether all is done."""
    waits_s = np.zeros((len(tasks), v))
    return play_chunks(tasks, v, m, task_s, send_s, overlaps_sends, starts_s, waits_s, np.zeros((len(tasks), v)))


def ways_s(send_s: float | NDArray[np.float64], chunks: int) -> NDArray[np.float64]:
    """Transfers between each chunk and the next one, or both ways, see `schedules.play_schedule`."""
    sends = np.asarray(send_s, np.float64)
    return sends if sends.shape == (2 * chunks,) else np.broadcast_to(sends, chunks)
