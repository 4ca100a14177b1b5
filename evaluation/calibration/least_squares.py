"""Constants of kernels that fit measured times best, within the ranges that they can have, and what the fit leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs.training_step.kernels import KernelSettings
from ..progress import Progress

DIGITS = 4
"""Of a fitted constant so many are kept."""


@dataclass(frozen=True)
class Residual:
    """A figure as the fitted constants have it, and as it was measured."""

    item: str
    fitted: float
    measured: float

    @property
    def relative_error(self) -> float:
        """Signed distance over what was measured."""
        return self.fitted / self.measured - 1


def summary(rows: Sequence[Residual]) -> dict[str, Any]:
    """Return the number of rows with their mean, signed mean and greatest relative error."""
    errors = [row.relative_error for row in rows]
    return {
        "items": len(errors),
        "mean_relative_error": math.fsum(map(abs, errors)) / len(errors),
        "mean_signed_error": math.fsum(errors) / len(errors),
        "max_relative_error": max(map(abs, errors)),
    }


@dataclass(frozen=True)
class FittedKernels:
    """Fitted constants with what is left.

    Attributes:
        constants: all constants of the device, fitted ones replaced.
        started: those that the fit started from.
        names: of the fitted constants; ``fp8.start_us`` is that of the part `fp8`.
        fitted: by family, rows that were fitted on, microseconds.
        left_out: by family, rows of the same kinds that were not.
    """

    constants: KernelSettings
    started: KernelSettings
    names: Sequence[str]
    fitted: Mapping[str, Sequence[Residual]]
    left_out: Mapping[str, Sequence[Residual]]

    def values(self) -> list[tuple[str, float | None, float | None]]:
        """Return each fitted constant by name, as fitted and as it was at the start; None where there is none."""
        return [(name, value_of(self.constants, name), value_of(self.started, name)) for name in self.names]

    def rows(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Return the family, side and summary of the rows."""
        sides = {"fitted on": self.fitted, "left out": self.left_out}
        return [(family, side, summary(of[family])) for family in self.fitted for side, of in sides.items() if of.get(family)]

    def to_data(self) -> dict[str, Any]:
        """Return the calibration as plain data."""
        residuals = [{"family": family, "side": side, **errors} for family, side, errors in self.rows()]
        return {"constants": self.constants.model_dump(), "fitted": sorted(self.names), "residuals": residuals}


def value_of(constants: KernelSettings, name: str) -> float | None:
    """Return a constant by name, spelled as in `FittedKernels`; None where there is none."""
    part, _, last = name.rpartition(".")
    result = getattr(constants, part) if part else constants
    return None if result is None else getattr(result, last)


def fit_constants(
    residuals: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    ranges: Mapping[str, Sequence[float]],
    start: NDArray[np.float64],
    progress: Progress | None,
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
