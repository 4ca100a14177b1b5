"""DualPipe and DualPipeV: the order of passes on every rank.

Both fill a rank with passes of two chunks, a *near* one at the end where micro-batches enter, a *far* one where they leave.
Once the pipeline is full, forward and backward passes are paired. A forward pass of one chunk and a backward pass of the other
are tasks that begin and end together. While the pipeline fills and empties, some backward passes are split, and their weight
gradients fill gaps.

Of ``p`` ranks ``h`` are between an end and the fold: half of them under DualPipe, whose halves mirror each other, all under
DualPipeV. With ``n`` micro-batches through each chunk, the rank ``r`` from its end does

- ``2 (h - r - 1)`` forward passes of its near chunk, then ``r + 1`` of both in turn.
- ``h - r - 1`` times: input and weight gradients of the far chunk, then its next forward pass.
- ``n - 2 h + r + 1`` times two pairs: near forward with far backward, far forward with near backward.
- ``h - r - 1`` times a far backward pass and such a second pair.
- ``2 (r + 1)`` backward passes, far and near in turn, the later half of inputs alone.
- ``h - r - 1`` times a weight gradient and a near input gradient, then the ``r + 1`` weight gradients that are left.

Ranks at the fold split their first pair. With free transfers and ``F = W = B / 2`` such a rank is idle, as published, for ``(h
- 1) (F&B + B - 3 W)``. There ``2 h`` is the published number of stages, ``F&B`` a pair. No rank keeps more than ``2 h + 1``
chunks.

Legend: as in `schedules`; `tasks` has further kinds of tasks.

Source:
    DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.2.1 and table 2; deepseek-ai/DualPipe, README.md and
    dualpipe/.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from .tasks import AHEAD, BACK, BACKWARD, FORWARD, INPUT, KINDS, NONE, WEIGHT, Tasks


def both_ways(num_stages: int, num_micro_batches: int, *, is_mirrored: bool) -> Tasks:
    """Return the tasks of each rank, ``(p, n, 3)``: kind, place of the chunk on its rank, micro-batch.

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
    """Return the tasks of a rank up to the fold; its near chunk has place 0, the far one place 1."""
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
    """Return how many tasks of each chunk there are of each kind that has seconds, ``(p, 2, 5)``."""
    result = np.zeros((len(tasks), 2, KINDS), np.int64)
    kind, place = tasks[:, :, 0], tasks[:, :, 1]
    for one in range(KINDS):
        for where in (0, 1):
            result[:, where, one] = ((kind == one) & (place == where)).sum(axis=1)
    return result
