"""DualPipe and DualPipeV: the order of passes on every rank, and the compiled loop that plays it.

Both fill a rank with passes of two chunks, a *near* one at the end where micro-batches enter, a *far* one where they leave. Once
the pipeline is full, a forward pass of the one runs beside a backward pass of the other: a pair of tasks that begin and end
together. While it fills and empties, some backward passes are parted, and their weight gradients fill gaps.

Of ``p`` ranks ``h`` are between an end and the fold: half of them under DualPipe, whose halves mirror each other, all under
DualPipeV. With ``n`` micro-batches through each chunk the rank ``r`` from its end does

    2 (h - r - 1) forward passes of its near chunk; r + 1 of both in turn;
    h - r - 1 times: input and weight gradients of the far chunk, then its next forward pass;
    n - 2 h + r + 1 times two pairs: near forward beside far backward, far forward beside near backward;
    h - r - 1 times a far backward pass and such a second pair;
    2 (r + 1) backward passes, far and near in turn, the later half of inputs alone;
    h - r - 1 times a weight gradient and a near input gradient; the r + 1 weight gradients that are left.

Ranks at the fold part their first pair. With free transfers and ``F = W = B / 2`` such a rank is idle, as published, for
``(h - 1) (F&B + B - 3 W)`` (``2 h`` is the published number of stages, ``F&B`` a pair), and no rank keeps more than ``2 h + 1``
chunks.

Legend: as in `schedules`, whose kinds of tasks go on in `tasks`.

Source:
    DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.2.1 and table 2; deepseek-ai/DualPipe, README.md and dualpipe/.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from .tasks import AHEAD, BACK, BACKWARD, FORWARD, INPUT, KINDS, NONE, WEIGHT, Tasks


def both_ways(num_stages: int, num_micro_batches: int, *, is_mirrored: bool) -> Tasks:
    """The tasks of each rank, ``(p, n, 3)``: kind, place of the chunk on its rank, micro-batch.

    Args:
        num_stages: ``p``; even where mirrored.
        num_micro_batches: through each chunk, at least twice as many as ranks up to the fold.
        is_mirrored: DualPipe, else DualPipeV.
    """
    half = num_stages // 2 if is_mirrored else num_stages
    rows = [_row(half, rank, num_micro_batches) for rank in range(half)]
    if is_mirrored:
        rows += [[(kind, 1 - place, micro) for kind, place, micro in row] for row in reversed(rows)]
    made = np.full((num_stages, max(map(len, rows)), 3), NONE, np.int32)
    for stage, row in enumerate(rows):
        made[stage, : len(row)] = row
    return made


def _row(half: int, rank: int, num_micro_batches: int) -> list[tuple[int, int, int]]:
    """The tasks of a rank up to the fold: its near chunk stands at place 0, the far one at 1."""
    row: list[tuple[int, int, int]] = []
    numbers, put_off = {(kind, place): 0 for kind in (FORWARD, BACKWARD) for place in (0, 1)}, deque[tuple[int, int]]()

    def take(kind: int, place: int) -> None:
        counted = FORWARD if kind in (FORWARD, AHEAD) else BACKWARD
        micro = numbers[counted, place]
        numbers[counted, place] += 1
        row.append((kind, place, micro))
        if kind == INPUT:
            put_off.append((place, micro))

    def weigh() -> None:
        row.append((WEIGHT, *put_off.popleft()))

    def pair(place: int) -> None:
        take(AHEAD, place)
        take(BACK, 1 - place)

    behind = half - rank - 1
    for _ in range(2 * behind):
        take(FORWARD, 0)
    for _ in range(rank + 1):
        take(FORWARD, 0)
        take(FORWARD, 1)
    for _ in range(behind):
        take(INPUT, 1)
        weigh()
        take(FORWARD, 1)
    for turn in range(num_micro_batches - 2 * half + rank + 1):
        if turn == 0 and behind == 0:
            take(FORWARD, 0)
            take(BACKWARD, 1)
        else:
            pair(0)
        pair(1)
    for _ in range(behind):
        take(BACKWARD, 1)
        pair(1)
    for turn in range(2 * (rank + 1)):
        take(BACKWARD if turn <= rank else INPUT, 1 - turn % 2)
    for _ in range(behind):
        weigh()
        take(INPUT, 0)
    while put_off:
        weigh()
    return row


def num_tasks(tasks: Tasks) -> NDArray[np.int64]:
    """How many tasks of each chunk there are of each kind that has seconds, ``(p, 2, 5)``."""
    found = np.zeros((len(tasks), 2, KINDS), np.int64)
    kind, place = tasks[:, :, 0], tasks[:, :, 1]
    for one in range(KINDS):
        for where in (0, 1):
            found[:, where, one] = ((kind == one) & (place == where)).sum(axis=1)
    return found


@lru_cache(maxsize=4096)
def kept_at_once(
    num_stages: int, num_micro_batches: int, stage: int, *, is_mirrored: bool
) -> tuple[tuple[int, int, int, int], ...]:
    """What a rank keeps at once, of its chunks in turn: micro-batches that wait for their backward pass, and others of which the
    weight gradient alone is still to come.

    Every four numbers of which no other ones have more of all.
    """
    half = num_stages // 2 if is_mirrored else num_stages
    row = both_ways(num_stages, min(num_micro_batches, 2 * half + 2), is_mirrored=is_mirrored)[stage]
    change = np.zeros((len(row), 4), np.int64)
    for step, (kind, place, _) in enumerate(row.tolist()):
        change[step, 2 * place] = {FORWARD: 1, AHEAD: 1, BACKWARD: -1, BACK: -1, INPUT: -1}.get(kind, 0)
        change[step, 2 * place + 1] = {INPUT: 1, WEIGHT: -1}.get(kind, 0)
    kept = {tuple(one) for one in np.cumsum(change, axis=0).tolist()}
    most = [one for one in kept if not any(o != one and all(a >= b for a, b in zip(o, one, strict=True)) for o in kept)]
    return tuple(sorted((int(a), int(b), int(c), int(d)) for a, b, c, d in most))


@njit
def play_both_ways(tasks, m, is_mirrored, task_s, send_s, starts_s):  # type: ignore[no-untyped-def]
    """Play a bidirectional schedule whose transfers are hidden; see `schedule_kernel.play_tasks`.

    Args:
        tasks: from `both_ways`.
        m: micro-batches through each chunk.
        is_mirrored: DualPipe, whose chunks from ``p`` on are the model once more.
        task_s: seconds of each kind of task of each chunk, ``(p, 2, 5)``.
        send_s: of a transfer from each chunk to the next one and back, ``(2 p,)``, or forward and then back, ``(4 p,)``.
        starts_s: stages begin no earlier, ``(p,)``.
    """
    p, n = tasks.shape[0], tasks.shape[1]
    chunks = 2 * p
    ready = np.full((2, chunks, m), np.inf)  # when a pass may start; infinite: not known yet
    ready[0, 0, :] = starts_s[0]
    if is_mirrored:
        ready[0, p, :] = starts_s[p - 1]
    done = np.zeros(p, np.int64)
    clock = starts_s.copy()
    first = np.zeros(p)
    busy = np.zeros(p)
    moved = True
    while moved:
        moved = False
        for stage in range(p):
            while done[stage] < n and tasks[stage, done[stage], 0] != -1:
                kind = tasks[stage, done[stage], 0]
                place = tasks[stage, done[stage], 1]
                held = task_s[stage, place, kind]
                parts = 2 if kind == 4 else 1
                start = clock[stage]
                for part in range(parts):
                    row = tasks[stage, done[stage] + part]
                    chunk = stage if row[1] == 0 else chunks - 1 - stage
                    if kind != 2:
                        start = max(start, ready[0 if row[0] == 0 or row[0] == 4 else 1, chunk, row[2]])
                if start == np.inf:
                    break
                if done[stage] == 0:
                    first[stage] = start
                clock[stage] = start + held
                for part in range(parts):
                    row = tasks[stage, done[stage] + part]
                    chunk = stage if row[1] == 0 else chunks - 1 - stage
                    if kind == 2:
                        continue
                    forward = row[0] == 0 or row[0] == 4
                    target = chunk + 1 if forward else chunk - 1
                    ends = target < 0 or target == chunks or (is_mirrored and min(chunk, target) == p - 1)
                    if not ends:
                        way = send_s[min(chunk, target) + (0 if forward else len(send_s) - chunks)]
                        ready[0 if forward else 1, target, row[2]] = clock[stage] + way
                    elif forward:
                        ready[1, chunk, row[2]] = clock[stage]
                busy[stage] += held
                done[stage] += parts
                moved = True
    for stage in range(p):
        if done[stage] < n and tasks[stage, done[stage], 0] != -1:
            return clock, busy, first, False
    return clock, busy, first, True
