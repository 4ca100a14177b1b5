"""The compiled loop that plays a table of tasks; see `schedules`, whose legend holds here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from .tasks import AHEAD, BACK, BACKWARD, FORWARD, NONE, WEIGHT


@njit
def play_chunks(  # type: ignore[no-untyped-def]
    tasks, v, m, task_s, send_s, overlaps_sends, starts_s, waits_s, lasts_s, goes_back, is_mirrored
):
    """Play a schedule, as `play_tasks` does, whose chunks wait for parameters and report when gradients are made.

    Args:
        tasks, v, task_s, overlaps_sends, starts_s: as there.
        m: micro-batches through each chunk.
        send_s: of a transfer from each chunk to the next one and back, ``(p v,)``, or forward and then back, ``(2 p v,)``.
        waits_s: for how long after the start of its stage the first forward pass of each chunk begins no earlier, ``(p, v)``.
        lasts_s: written, when the last backward pass of each chunk is computed, ``(p, v)``.
        goes_back: whether the second chunks of the stages follow each other from the last stage to the first.
        is_mirrored: whether these are the model once more, whose micro-batches enter at the last stage.
    """
    p, n = tasks.shape[0], tasks.shape[1]
    chunks = p * v
    ready = np.full((2, chunks, m), np.inf)  # when a pass may start; infinite: not known yet
    for i in range(m):
        ready[0, 0, i] = starts_s[0]
        if is_mirrored:
            ready[0, p, i] = starts_s[p - 1]
    done = np.zeros(p, np.int64)
    clock = starts_s.copy()
    first = np.zeros(p)
    busy = np.zeros(p)
    moved = True
    while moved:
        moved = False
        for turn in range(2):
            for step in range(p):
                stage = step if turn == 0 else p - 1 - step
                while done[stage] < n:
                    kind = tasks[stage, done[stage], 0]
                    place = tasks[stage, done[stage], 1]
                    i = tasks[stage, done[stage], 2]
                    if kind == NONE:
                        break
                    held = task_s[stage, place, kind] if kind != BACK else 0.0
                    if kind == WEIGHT:
                        clock[stage] += held
                    else:
                        chunk = place * p + (p - 1 - stage if goes_back and place == 1 else stage)
                        way = 0 if kind in (FORWARD, AHEAD) else 1
                        start = ready[way, chunk, i]
                        if kind == AHEAD:  # its backward pass is one of the other chunk
                            start = max(start, ready[1, chunks - 1 - chunk, tasks[stage, done[stage] + 1, 2]])
                        if start == np.inf:
                            break
                        target = chunk + 1 - 2 * way
                        goes = 0 <= target < chunks and not (is_mirrored and min(chunk, target) == p - 1)
                        sent = send_s[max(0, min(chunk, target)) + way * (len(send_s) - chunks)] if goes and p > 1 else 0.0
                        if not overlaps_sends:
                            held += sent
                        if kind == FORWARD and i == 0:
                            start = max(start, starts_s[stage] + waits_s[stage, place])
                        if done[stage] == 0:
                            first[stage] = start
                        begun = max(clock[stage], start)
                        clock[stage] = begun + held
                        if kind == BACKWARD and i == m - 1:
                            lasts_s[stage, place] = begun + task_s[stage, place, kind]
                        if goes:
                            ready[way, target, i] = clock[stage] + (sent if overlaps_sends else 0.0)
                        elif way == 0:
                            ready[1, chunk, i] = clock[stage]
                    busy[stage] += held
                    done[stage] += 1
                    moved = True
    for stage in range(p):
        if done[stage] < n and tasks[stage, done[stage], 0] != NONE:
            return clock, busy, first, False
    return clock, busy, first, True


@njit
def play_tasks(tasks, v, m, task_s, send_s, overlaps_sends, starts_s):  # type: ignore[no-untyped-def]
    """Play a schedule: when each stage ends and starts, how long it is busy, and whether all is done."""
    waits_s, lasts_s = np.zeros((len(tasks), v)), np.zeros((len(tasks), v))
    return play_chunks(tasks, v, m, task_s, send_s, overlaps_sends, starts_s, waits_s, lasts_s, False, False)


def ways_s(send_s: float | NDArray[np.float64], chunks: int) -> NDArray[np.float64]:
    """Transfers between each chunk and the next one, or both ways, see `schedules.play_schedule`."""
    sends = np.asarray(send_s, np.float64)
    return sends if sends.shape == (2 * chunks,) else np.broadcast_to(sends, chunks)
