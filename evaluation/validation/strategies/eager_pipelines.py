"""Eager 1F1B compared with 1F1B that waits for transfers or does not: four stages, forward 1 s, backward 2 s.

Source: Zhuang et al., "On optimizing the communication of model parallelism", 2022, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....costs.pipelines.schedules import in_flight, play_schedule
from ..published_figures import PublishedFigure

TOLERANCE = 1e-9

PIPELINES = (
    (2, 8, 0.25, ("27", "29.25", "29", "27.5"), ("2", "3")),
    (2, 8, 1.0, ("27", "36", "35", "29"), ("2", "3")),
    (4, 8, 0.25, ("33", "37.75", "37", "34.5"), ("4", "7")),
    (4, 8, 1.0, ("33", "52", "49", "39"), ("4", "7")),
    (4, 16, 0.25, ("57", "65.75", "64", "58.5"), ("4", "7")),
)
"""Stages, micro-batches, seconds of a transfer, what a step takes without transfers and with `WAYS`, and what is kept."""

WAYS = (
    ("1f1b, no transfers", "1f1b", False),
    ("1f1b, blocking", "1f1b", False),
    ("1f1b, overlapped", "1f1b", True),
    ("eager-1f1b", "eager-1f1b", True),
)


def figures() -> Iterator[PublishedFigure]:
    """Seconds of a step in each way, and the micro-batches that the first stage keeps."""
    for p, m, send_s, wanted, kept in PIPELINES:
        item = f"{p} stages, {m} micro-batches, transfer {send_s:g}"
        seconds = np.tile([1.0, 2.0, 0.0], (p, 1, 1))
        for number, (name, schedule, overlaps) in enumerate(WAYS):
            played = play_schedule(schedule, 1, m, seconds, send_s if number else 0.0, overlaps_sends=overlaps)
            yield PublishedFigure(item, f"{name}, s", played.period_s, wanted[number], TOLERANCE)
        for schedule, most in zip(("1f1b", "eager-1f1b"), kept, strict=True):
            yield PublishedFigure(item, f"{schedule}, kept", in_flight(schedule, p, 1, m, 0), most, TOLERANCE)
