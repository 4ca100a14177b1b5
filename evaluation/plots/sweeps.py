"""What the trials of a sweep reached, drawn: trial after trial, each key against the result, and how much each key mattered."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .style import BLUE, GREY, INK, ORANGE, PALE, VERMILION
from .svg import PANEL, WIDTH, canvas, printable, shortened

MOST_LETTERS = 24
_CLOSEST = 0.06  # of an axis, between two labels
_COLOURS = {"complete": BLUE, "pruned": ORANGE, "failed": GREY}
_MARKERS = {"complete": "o", "pruned": "x", "failed": "s"}


def history_svg(trials: Sequence[tuple[int, str, float]], best: Sequence[tuple[int, float]], measure: str) -> str:
    """Each trial's value by its number, and the best so far.

    Args:
        trials: number, state and value of each that has one.
        best: the best so far after each trial that was trained to its end.
        measure: what the values are.
    """
    with canvas(PANEL, 280) as sheet:
        axes = sheet.axes(60, 36, PANEL - 72, 190)
        axes.grid()
        axes.set(xlabel="trial", ylabel=printable(measure))
        axes.locator_params(axis="x", integer=True, min_n_ticks=1)
        for state, colour in _COLOURS.items():
            of = [(number, value) for number, kind, value in trials if kind == state]
            if of:
                axes.plot(*zip(*of, strict=True), _MARKERS[state], color=colour, markersize=5, label=state)
        if best:
            axes.step(*zip(*best, strict=True), where="post", color=INK, linewidth=1.4, label="best so far")
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncol=4, frameon=False, fontsize=8)
        return sheet.svg("sweep-history", "Values of the trials, in their order")


def parallel_svg(keys: Sequence[str], rows: Sequence[tuple[Mapping[str, Any], float]], logs: Sequence[bool], measure: str) -> str:
    """A line for each trial across an axis for each key, the darker the better; the last axis is the value.

    Args:
        keys: that were tried.
        rows: values of the keys and the result of each trial, the best first.
        logs: whether each key's axis is logarithmic.
        measure: what the results are.
    """
    columns = [_heights([values.get(key) for values, _ in rows], log) for key, log in zip(keys, logs, strict=True)]
    columns.append(_heights([value for _, value in rows], False))
    names = [*keys, measure]
    with canvas(WIDTH, 360) as sheet:
        axes = sheet.axes(70, 44, WIDTH - 150, 270)
        axes.set_xlim(0, len(names) - 1)
        axes.set_ylim(-0.03, 1.03)
        axes.axis("off")
        lines = np.array([heights for heights, _ in columns])
        for rank in reversed(range(len(rows))):
            share = rank / max(1, len(rows) - 1)
            axes.plot(
                lines[:, rank], color=BLUE if share <= 0.25 else PALE, linewidth=2.2 if rank == 0 else 1.0, alpha=1 - 0.5 * share
            )
        if rows:
            axes.plot(lines[:, 0], color=VERMILION, linewidth=2.4)
        for i, (name, (_, ticks)) in enumerate(zip(names, columns, strict=True)):
            axes.plot([i, i], [0, 1], color=INK, linewidth=0.8)
            axes.text(i, 1.06, shortened(printable(name), MOST_LETTERS), ha="center", va="bottom", fontsize=8.5)
            for height, text in ticks:
                axes.text(i + 0.015, height, shortened(printable(text), 12), ha="left", va="center", fontsize=7.5)
        return sheet.svg("sweep-parallel", "Values of all keys of each trial")


def importance_svg(shares: Mapping[str, float]) -> str:
    """How much each key mattered, the most important first."""
    names = sorted(shares, key=lambda key: -shares[key])
    with canvas(PANEL, 64 + 26 * len(names)) as sheet:
        axes = sheet.axes(160, 10, PANEL - 200, 26 * len(names))
        at = np.arange(len(names))
        axes.barh(at, [100 * shares[name] for name in names], color=BLUE, height=0.6)
        axes.set_yticks(at, [shortened(printable(name), MOST_LETTERS) for name in names])
        axes.invert_yaxis()
        axes.set(xlabel="importance (%)", xlim=(0, 100))
        for i, name in enumerate(names):
            axes.text(100 * shares[name] + 1, i, f"{100 * shares[name]:.0f}", va="center", fontsize=8)
        return sheet.svg("sweep-importance", "Importance of each key")


def _heights(values: Sequence[Any], log: bool) -> tuple[NDArray[np.float64], list[tuple[float, str]]]:
    """Places on an axis from 0 to 1, and its labels; values that are no numbers have a place each."""
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if not is_number:
        texts = sorted({json.dumps(value) for value in values})
        place = {text: i / max(1, len(texts) - 1) for i, text in enumerate(texts)}
        return np.array([place[json.dumps(value)] for value in values]), [(at, text) for text, at in place.items()]
    numbers = [math.log(value) if log else float(value) for value in values] or [0.0]
    low, high = min(numbers), max(numbers)
    span = high - low or 1.0
    ends = [(0.0, low)] if high == low else [(0.0, low), (0.5, (low + high) / 2), (1.0, high)]
    labels = [(at, f"{math.exp(x) if log else x:.3g}") for at, x in ends]
    places = (np.array(numbers) - low) / span
    tried = sorted({(float(at), str(value)) for at, value in zip(places, values, strict=True)})
    if all(isinstance(value, int) for value in values) and all(b - a >= _CLOSEST for (a, _), (b, _) in pairwise(tried)):
        labels = tried  # whole numbers by themselves: the middle of 8 and 32 was not tried
    return places, labels
