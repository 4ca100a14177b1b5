"""Constants of kernels that fit measured times best, within the ranges that they can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGITS = 4
"""Of a fitted constant so many are kept."""


def fit_constants(
    residuals: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    ranges: Mapping[str, Sequence[float]],
    start: NDArray[np.float64],
    progress: Callable[[str, int, int], None] | None,
    evaluations: int,
    phase: str = "evaluations",
    **options: Any,
) -> dict[str, float]:
    """Fit constants by least squares in which large errors count less.

    Args:
        residuals: of the constants ``(n,)``, in the order of ``ranges``, to the errors.
        ranges: of each constant, by name: the least and, last, the most.
        start: where the fit starts, ``(n,)``.
        progress: called with the phase, evaluations done and expected.
        evaluations: expected at least.
        phase: in words.
        options: of ``scipy.optimize.least_squares``.
    """
    from scipy.optimize import least_squares

    count = [0]

    def counted(values: NDArray[np.float64]) -> NDArray[np.float64]:
        count[0] += 1
        if progress is not None:
            progress(phase, count[0], max(evaluations, count[0]))
        return residuals(values)

    low, high = (np.array([ends[side] for ends in ranges.values()]) for side in (0, -1))
    scale, steps = np.maximum(start, 1e-2), [1e-3] * len(ranges)
    fit = least_squares(counted, start, bounds=(low, high), x_scale=scale, diff_step=steps, loss="soft_l1", **options)
    return {name: float(f"{value:.{DIGITS}g}") for name, value in zip(ranges, fit.x.tolist(), strict=True)}
