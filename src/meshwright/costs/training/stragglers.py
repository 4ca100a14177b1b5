"""How long the slowest of several replicas takes whose steps vary.

A step of a replica takes its time times a lognormal factor of mean 1, drawn anew for each replica and step.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

NUM_POINTS = 4001
"""Points of the integral over standard normal deviates from -10 to 10."""


@lru_cache(maxsize=4096)
def slowest_of(num_replicas: int, sigma: float, num_steps: int = 1) -> float:
    """Expected largest sum of steps over the mean of that sum; 1 where nothing varies.

    A sum of lognormal times is taken for lognormal with the sum's own mean and variance, whose logarithm's standard deviation is
    ``sqrt(log(1 + (exp(sigma^2) - 1) / H))``: the loss falls by about the root of the number of steps.

    Args:
        num_replicas: that wait for each other.
        sigma: standard deviation of the logarithm of a step.
        num_steps: steps that each takes before it waits, ``H``.

    Source:
        Fenton, "The sum of log-normal probability distributions in scatter transmission systems", 1960; the expected maximum is
        ``integral of x dF(x)^n``.
    """
    if sigma == 0 or num_replicas == 1:
        return 1.0
    spread = math.sqrt(math.log1p(math.expm1(sigma**2) / num_steps))
    points = np.linspace(-10, 10, NUM_POINTS)
    below = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in points]) ** num_replicas
    values = np.exp(spread * points - spread**2 / 2)
    return float((np.diff(below) * (values[1:] + values[:-1]) / 2).sum())
