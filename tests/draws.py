"""How many cases a property draws: few in everyday runs, many in ``make laws``, which states the same laws at length."""

import os
from typing import Any

import hypothesis

FACTOR = float(os.environ.get("MESHWRIGHT_DRAWS", "1"))
"""``make laws`` sets 8."""

EVERYDAY = 25
"""Cases of a property that names no number of its own."""


def draws(number: int, **others: Any) -> hypothesis.settings:
    """A decorator: this property draws ``number`` cases, times ``MESHWRIGHT_DRAWS``."""
    return hypothesis.settings(max_examples=max(1, round(number * FACTOR)), **others)


def cases(number: int) -> range:
    """The seeds of a test that draws by itself: ``number`` of them, times ``MESHWRIGHT_DRAWS``."""
    return range(max(1, round(number * FACTOR)))
