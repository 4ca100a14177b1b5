"""Predicted against measured step times over a run, as a drawing whose numbers are ready to be written into SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...decisions import Observation
from ...feedback.runs import median_step_s
from .rendering import duration

MOST_COLUMNS = 240
"""Of the drawing: steps that are nearer to each other are drawn as one, by their median and their range."""

WIDTH, HEIGHT = 1000.0, 200.0
"""Of the drawing, in its own units; the page stretches it."""

HIGHEST = 2.0
"""The axis ends at so many times the larger of prediction and median; a sentence says what lies above."""

_ROUND = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def step_times(observed: Sequence[Observation], predicted_s: float | None) -> dict[str, Any] | None:
    """Return a drawing of measured step times, as values of the template; None where nothing was measured.

    ``band`` is the area between the fastest and slowest of neighbouring steps, ``line`` joins their medians, ``predicted_y`` is
    the height of the predicted time. ``top`` and ``middle`` label the axis, which begins at zero.
    """
    if not observed:
        return None
    steps = np.array([one.step for one in observed], np.float64)
    seconds = np.array([one.step_s for one in observed], np.float64)
    typical_s = max(float(np.median(seconds)), predicted_s or 0.0)
    top_s = _axis(max(seconds.max(), predicted_s or 0.0), typical_s)
    first, last = steps.min(), steps.max()
    column = np.minimum((steps - first) / max(1.0, last - first) * MOST_COLUMNS, MOST_COLUMNS - 1).astype(np.int64)
    upper, lower, line = [], [], []
    for number in np.unique(column).tolist():
        here = column == number
        x = WIDTH / 2 if first == last else (float(steps[here].mean()) - first) / (last - first) * WIDTH
        low, middle, high = (_y(float(value), top_s) for value in np.quantile(seconds[here], [0.0, 0.5, 1.0]))
        upper.append(f"{x:.1f},{high:.1f}")
        lower.append(f"{x:.1f},{low:.1f}")
        line.append(f"{x:.1f},{middle:.1f}")
    if len(line) == 1:  # a single point is no line
        line = [f"0,{line[0].partition(',')[2]}", f"{WIDTH:g},{line[0].partition(',')[2]}"]
    above = seconds[seconds > top_s]
    return {
        "band": " ".join(upper + lower[::-1]),
        "line": " ".join(line),
        "predicted_y": None if predicted_s is None else _y(predicted_s, top_s),
        "top": duration(top_s),
        "middle": duration(top_s / 2),
        "first": int(first),
        "last": int(last),
        "summary": _summary(len(observed), median_step_s(observed) or typical_s, predicted_s),
        "above": f"{len(above)} of them took longer than the axis, up to {duration(float(above.max()))}." if len(above) else "",
    }


def _summary(number: int, median_s: float, predicted_s: float | None) -> str:
    measured = f"{number:,} measured step time{'s' * (number != 1)}, {duration(median_s)} in the median"
    if not predicted_s:
        return f"{measured}."
    return f"{measured}; predicted were {duration(predicted_s)}: {median_s / predicted_s:.2f} times that was measured."


def _axis(largest_s: float, typical_s: float) -> float:
    """Return the end of the axis: a round number that lies a little above."""
    wanted_s = min(largest_s, HIGHEST * typical_s) * 1.05
    unit_s = 10.0 ** math.floor(math.log10(wanted_s))
    return next(one * unit_s for one in _ROUND if one * unit_s >= wanted_s)


def _y(seconds: float, top_s: float) -> float:
    return HEIGHT * (1 - min(1.0, seconds / top_s))
