"""Fit the constants of matrix products and fused attention on a device to tables of measured times (see `kernel_csv`).

The fit uses the 1st, 3rd, ... row of each table, by least squares of logarithms, family by family. Products in 16 bits come
first, then those in fp8, then attention. The tables do not determine element-wise kernels, the loss, the host and the update.
Their constants stay as at the start; attention backward keeps its ratio to forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs.training_step.kernels import CONSTANTS, AttentionSettings, Fp8Settings, KernelModel, KernelSettings, kernel_settings
from ...devices import DeviceType, device_type
from ...errors import ConfigError
from ...settings import load
from ..progress import Progress
from .fit_measured import OUTLYING
from .kernel_csv import ATTENTION, FP8_PRODUCT, PRODUCT, TableKernel, read
from .least_squares import FittedKernels, Residual, fit_constants, summary

Bounds = dict[str, tuple[float, float, float]]
"""Least value of each constant that is fitted, where the fit starts, and largest."""

FITTED: dict[str, Bounds] = {
    PRODUCT: {
        "product_efficiency": (0.1, 0.77, 1.0),
        "product_overhead_k": (0.0, 64.0, 1000.0),
        "kernel_gap_us": (0.0, 2.5, 50.0),
        "product_memory_efficiency": (0.1, 0.8, 1.0),
        "last_wave_share": (0.0, 0.5, 1.0),
    },
    FP8_PRODUCT: {
        "fp8.product_efficiency": (0.1, 0.77, 1.0),
        "fp8.product_overhead_k": (0.0, 128.0, 2000.0),
        "fp8.cast_bytes_per_number": (0.0, 3.0, 60.0),
        "fp8.start_us": (0.0, 8.0, 50.0),
    },
    ATTENTION: {
        "fused_attention_efficiency": (0.02, 0.5, 1.0),
        "attention.half_length": (0.0, 1000.0, 10000.0),
        "attention.narrow_share": (0.2, 0.8, 1.5),
        "attention.start_us": (0.0, 15.0, 50.0),
    },
}

PARTS: dict[str, type[Fp8Settings | AttentionSettings]] = {"fp8": Fp8Settings, "attention": AttentionSettings}
"""Constants that have several of their own."""

LONG_US = 10.0
"""Products of at least so long are summed up by themselves: of shorter ones the launch is most of the time."""

LEAST_ROWS = 16
"""Of a family, to be fitted on."""


class TableCalibration(FittedKernels):
    """See `FittedKernels`."""

    def rows(self) -> list[tuple[str, str, dict[str, Any]]]:
        """See `FittedKernels`; products of `LONG_US` and longer by themselves too."""
        result = []
        for family, side, errors in super().rows():
            rows = (self.fitted if side == "fitted on" else self.left_out)[family]
            long = [row for row in rows if row.measured >= LONG_US]
            result.append((family, side, errors))
            if family != ATTENTION and 0 < len(long) < len(rows):
                result.append((f"{family}, {LONG_US:g} us and longer", side, summary(long)))
        return result


def calibrate(
    paths: Iterable[str | Path],
    device_name: str,
    *,
    start: str | None = None,
    num_multiprocessors: int | None = None,
    progress: Progress | None = None,
) -> TableCalibration:
    """Fit the constants of products and attention to tables.

    Args:
        paths: the tables.
        device_name: on which type they were measured.
        start: constants for everything else, by name or file; None: those of the device type.
        num_multiprocessors: of the device; None: those of the start.
        progress: called with a phase, steps done and steps.

    Raises:
        InputFileError, ConfigError: a table or ``start`` is missing or wrong; an unknown device type; a family of less than
            `LEAST_ROWS` rows to be fitted on.
    """
    rows = [row for path in paths for row in read(path)]
    device = device_type(device_name)
    started = kernel_settings(device_name) if start is None else load(KernelSettings, CONSTANTS.path(start))
    constants = {"device": device_name, "num_multiprocessors": num_multiprocessors or started.num_multiprocessors}
    backward = started.fused_attention_backward_efficiency / started.fused_attention_efficiency
    settled = started.model_copy(update={**constants, "calibrated": True, "steps_of": {}})
    fitted: dict[str, tuple[Residual, ...]] = {}
    left_out: dict[str, tuple[Residual, ...]] = {}
    for family, bounds in FITTED.items():
        own = [row for row in rows if row.family == family]
        if not own:
            continue
        used, others = ([row for row in own if row.number % 2 == side] for side in (0, 1))
        if min(len(used), len(others)) < LEAST_ROWS:
            problem = f"half of the rows are fitted on, and {LEAST_ROWS} at least are wanted"
            raise ConfigError(problem, field=family, value=str(len(used)))
        settled = _fitted(settled, device, bounds, used, progress, family)
        if family == ATTENTION:
            ratio = {"fused_attention_backward_efficiency": float(f"{backward * settled.fused_attention_efficiency:.4g}")}
            settled = settled.model_copy(update=ratio)
        kernels = KernelModel(device, settled)
        fitted[family], left_out[family] = (
            tuple(Residual(row.item, 1e6 * kernels.kernel_s(row.kernel), row.us) for row in some) for some in (used, others)
        )
    names = [name for family in fitted for name in FITTED[family]]
    return TableCalibration(settled, started, names, fitted, left_out)


def _fitted(
    constants: KernelSettings,
    device: DeviceType,
    bounds: Bounds,
    rows: Sequence[TableKernel],
    progress: Progress | None,
    family: str,
) -> KernelSettings:
    us, start = np.array([row.us for row in rows]), np.array([middle for _, middle, _ in bounds.values()])

    def residuals(values: NDArray[np.float64]) -> NDArray[np.float64]:
        kernels = KernelModel(device, _with(constants, dict(zip(bounds, values.tolist(), strict=True))))
        seconds = np.array([kernels.kernel_s(row.kernel) for row in rows], np.float64)
        return np.asarray(np.log(1e6 * seconds / us), np.float64)

    return _with(constants, fit_constants(residuals, bounds, start, progress, 100, family, f_scale=OUTLYING))


def _with(constants: KernelSettings, values: dict[str, float]) -> KernelSettings:
    """Return the constants with some of them replaced, named as in `FITTED`."""
    update: dict[str, Any] = {name: value for name, value in values.items() if "." not in name}
    own = {name: {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{name}.")} for name in PARTS}
    update |= {name: PARTS[name].model_validate(own[name]) for name in PARTS if own[name]}
    return constants.model_copy(update=update)
