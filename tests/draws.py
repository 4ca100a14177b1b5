"""How many cases a property draws: few in everyday runs, many in ``make laws``, which states the same laws at length."""

import os
from typing import Any

import hypothesis

FACTOR = float(os.environ.get("MESHWRIGHT_DRAWS", "1"))
"""``make laws`` sets 8."""

SHARE = float(os.environ.get("MESHWRIGHT_DRAWS", "0.25"))
"""Everyday runs draw a quarter of the cases that a property names, ``make laws`` eight times as many as it names."""

UNNAMED = 25
"""Cases of a property that names no number of its own."""

FEWEST = 3
"""A property that names so many draws them all in everyday runs: the first case is always the simplest."""


def num_cases(number: int) -> int:
    """How many cases this run draws of a property that names ``number``."""
    return max(min(number, FEWEST), round(number * SHARE), 1)


def draws(number: int, **others: Any) -> hypothesis.settings:
    """A decorator: this property names ``number`` cases; a run draws `num_cases` of them."""
    return hypothesis.settings(max_examples=num_cases(number), **others)


def cases(number: int) -> range:
    """The seeds of a test that draws by itself: ``number`` of them, times ``MESHWRIGHT_DRAWS``."""
    return range(max(1, round(number * FACTOR)))
