"""Means over seeds with 95 % bootstrap intervals, and paired differences between policies that met the same episodes.

Seeds are independent episodes, so an interval resamples them: `NUM_RESAMPLES` times as many values as there are, drawn from them
with replacement. The ends are bias-corrected and accelerated (BCa), because figures of episodes are skewed. They are taken at
levels a little further out, because a resampled mean of few values varies too little. Without this, intervals of 10 or 20 values
hold the true mean in 91 or 92 of 100 cases, not in 95. The generator is fixed, so that the same values give the same bytes.

Source:
    Efron, "Better bootstrap confidence intervals", 1987; Hesterberg, "What teachers should know about the bootstrap",
    2015, section 5.3 (the expanded percentile interval).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

CONFIDENCE = 0.95
NUM_RESAMPLES = 10_000
FEWEST_CASES = 5
"""Fewest cases for a claim: intervals of five cover 87 to 91 % in simulations (docs/concepts.md), of two half."""

CHALLENGERS = ("learned", "own")
"""Kinds of policies that verdicts compare with baselines: networks, and those that users write."""
NO_POLICY = ("reference", "published")
"""Kinds of rows that play nothing."""

Interval = dict[str, Any]
Row = Mapping[str, Any]
Item = TypeVar("Item")
# Means over the same episodes that differ by no more, relative to them, are equal: the order of summation may differ.
ROUNDING = 1e-12


def interval(values: Sequence[float | None]) -> Interval | None:
    """Return the mean and 95 % interval of a sample as ``mean``, ``low`` and ``high``; None where there is no value at all.

    A single value has no interval: its low and high are None.
    """
    sample = np.array([v for v in values if v is not None and math.isfinite(v)], np.float64)
    if len(sample) == 0:
        return None
    if len(sample) == 1:
        return {"mean": float(sample[0]), "low": None, "high": None}
    mean, spread = float(sample.mean()), float(sample.std())
    if sample.min() == sample.max() or spread == 0:  # equal values, or equal but for the last digit
        return {"mean": float(sample[0]), "low": float(sample.min()), "high": float(sample.max())}
    low, high = _ends_of_mean(tuple(((sample - mean) / spread).tolist()))
    return {"mean": mean, "low": mean + spread * low, "high": mean + spread * high}


@lru_cache(maxsize=1024)  # a report, a table and a verdict ask for the same figures
def _ends_of_mean(sample: tuple[float, ...]) -> tuple[float, float]:
    """Return the ends of the interval of a sample of mean 0 and deviation 1."""
    from scipy.stats import bootstrap

    ends = bootstrap(
        (np.array(sample),),
        np.mean,
        n_resamples=NUM_RESAMPLES,
        confidence_level=1.0 - 2.0 * _tail(len(sample)),
        method="BCa",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(ends.low), float(ends.high)


def paired(values: Sequence[float], against: Sequence[float]) -> Interval:
    """Return the mean and 95 % interval of the differences of two policies seed by seed.

    Raises:
        ValueError: the samples are of unequal length or empty.
    """
    result = interval([a - b for a, b in zip(values, against, strict=True)])
    if result is None:
        raise ValueError("no seed to compare on")
    return result | {"cases": len(values)}


def excludes_zero(difference: Mapping[str, Any]) -> int:
    """Return -1 where an interval lies below zero, 1 where above, 0 where it holds zero, there is none, or cases are few."""
    if difference["low"] is None or difference.get("cases", FEWEST_CASES) < FEWEST_CASES:
        return 0
    return int(difference["low"] > 0) - int(difference["high"] < 0)


def least(items: Iterable[Item], mean: Callable[[Item], float]) -> list[Item]:
    """Return the items of the least mean, in the order given; several tie, and there are none where nothing is known."""
    known = list(items)
    lowest = min(map(mean, known), default=math.nan)
    return [item for item in known if math.isclose(mean(item), lowest, rel_tol=ROUNDING)]


def _tail(num_values: int) -> float:
    """Return the share beyond each end, so that the interval of normal values is as wide as Student's."""
    from scipy.special import ndtr, stdtrit

    widened = math.sqrt(num_values / (num_values - 1)) * stdtrit(num_values - 1, 0.5 - CONFIDENCE / 2)
    return max(float(ndtr(widened)), 1.0 / NUM_RESAMPLES)  # no end lies beyond the outermost resample


def tied_groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Group rows of policies of one kind whose figures agree in every case; each group where its first row is.

    References are no policies and are never grouped.

    Args:
        rows: of an evaluation, as ``results.json`` holds them.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        key = json.dumps([row["kind"], row["per_case"], row["details"]], sort_keys=True)
        groups.setdefault(f"{row['policy']} {key}" if row["kind"] in NO_POLICY else key, []).append(row)
    return list(groups.values())


def joined(rows: Sequence[Row], name: Callable[[str], str] = str) -> str:
    """Return the names of rows as one.

    Args:
        rows: of policies that played the same.
        name: what a policy is called.
    """
    return ", ".join(name(str(row["policy"])) for row in rows)
