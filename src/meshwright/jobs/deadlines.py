"""How long a job may take: distributions of the allowed completion time as a fraction of the sequential time.

The sequential time is that of all the job's steps on a single reference device, so 0.25 asks for a fourfold speed-up. The
distributions are those of the PAC-ML benchmark: A is uniform; B, C and D are skewed normal.

Source:
    Parsonson et al., "Partitioning distributed compute jobs with reinforcement learning and graph neural networks", 2023.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ..settings import Settings

_SAMPLE_SIZE = 50_000
_NUM_BINS = 1_000


class NoDeadline(Settings):
    """No job has a deadline."""

    kind: Literal["none"]

    def draw(self, rng: np.random.Generator, num_jobs: int) -> NDArray[np.float64]:
        """Return infinite fractions, ``(num_jobs,)``; the generator is not used."""
        return np.full(num_jobs, np.inf)


class _Bounded(Settings):
    low: float = Field(gt=0)
    high: float = Field(gt=0)
    decimals: int | None = Field(default=None, ge=0, le=9)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        for field in ("low", "high"):
            value = getattr(self, field)
            if self.decimals is not None and round(value, self.decimals) != value:
                raise ValueError(f"{field} {value} has more than {self.decimals} decimals")
        return self


class UniformDeadline(_Bounded):
    """Every value from ``low`` to ``high`` equally likely: the multiples of ``10 ** -decimals``, or all numbers."""

    kind: Literal["uniform"]

    def draw(self, rng: np.random.Generator, num_jobs: int) -> NDArray[np.float64]:
        """Draw fractions, ``(num_jobs,)``."""
        if self.decimals is None:
            return rng.uniform(self.low, self.high, num_jobs)
        scale = 10**self.decimals
        drawn = rng.integers(round(self.low * scale), round(self.high * scale), num_jobs, endpoint=True)
        return np.asarray(drawn / scale, np.float64)


class SkewNormalDeadline(_Bounded):
    """A skewed normal distribution squeezed into ``low`` to ``high``.

    Positive skewness piles jobs up at tight deadlines, negative at loose ones.
    """

    kind: Literal["skew_normal"]
    skewness: float

    def draw(self, rng: np.random.Generator, num_jobs: int) -> NDArray[np.float64]:
        """Draw fractions, ``(num_jobs,)``.

        A large sample is scaled by its own extremes to 0 to ``high``, raised to at least ``low`` and counted in 1,000 bins. Jobs
        draw bins by their mass and take the right edge, rounded. Because the extremes are the sample's own, the distribution
        differs a little from call to call, as the benchmark's does.
        """
        sample = _skew_normal(rng, self.skewness, _SAMPLE_SIZE)
        sample = (sample - sample.min()) / (sample.max() - sample.min()) * self.high
        counts, edges = np.histogram(np.maximum(sample, self.low), _NUM_BINS, range=(self.low, self.high))
        drawn = edges[1:][rng.choice(_NUM_BINS, num_jobs, p=counts / counts.sum())]
        return drawn if self.decimals is None else np.round(drawn, self.decimals)


Deadline = Annotated[NoDeadline | UniformDeadline | SkewNormalDeadline, Field(discriminator="kind")]


def _skew_normal(rng: np.random.Generator, skewness: float, size: int) -> NDArray[np.float64]:
    """Return the values of the standard skew normal distribution.

    ``d |u| + sqrt(1 - d^2) v`` for independent standard normal ``u``, ``v`` and ``d = a / sqrt(1 + a^2)``.

    Source:
        Azzalini, "A class of distributions which includes the normal ones", 1985; Henze, "A probabilistic
        representation of the skew-normal distribution", 1986.
    """
    share = skewness / math.hypot(1.0, skewness)
    half, whole = rng.standard_normal((2, size))
    return np.asarray(share * np.abs(half) + math.sqrt(1.0 - share**2) * whole, np.float64)
