"""Means over seeds with 95 % intervals, and paired differences between policies that met the same episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

CONFIDENCE = 0.95


def interval(values: Sequence[float | None]) -> dict[str, float] | None:
    """Mean and 95 % interval of a sample; None where there is no value at all.

    The interval is Student's t over the seeds, which are independent episodes. A single value has none: low and
    high are then the value itself.

    Source:
        Student, "The probable error of a mean", 1908.
    """
    sample = np.array([v for v in values if v is not None and math.isfinite(v)])
    if len(sample) == 0:
        return None
    mean = float(sample.mean())
    half = 0.0
    if len(sample) > 1:
        from scipy.stats import t

        half = float(t.ppf(0.5 + CONFIDENCE / 2, len(sample) - 1) * sample.std(ddof=1) / math.sqrt(len(sample)))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def paired(values: Sequence[float], against: Sequence[float]) -> dict[str, float]:
    """Mean and 95 % interval of the differences of two policies seed by seed.

    Raises:
        ValueError: the samples are of unequal length or empty.
    """
    found = interval([a - b for a, b in zip(values, against, strict=True)])
    if found is None:
        raise ValueError("no seed to compare on")
    return found
