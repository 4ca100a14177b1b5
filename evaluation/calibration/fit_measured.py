"""Fit the constants of a device to kernels measured there (see `evaluation.calibration.kernel_table`).

The fit uses the 1st, 3rd, ... row of every kind of kernel, by least squares of logarithms with equal weights of families. The
other rows, of other sizes, and whole layers are for `evaluation.validation.kernels`. Products whose rows do not begin at
multiples of 16 bytes are slow on matrix units and have shares of their own. Excluded is the loss by PyTorch's own operators,
which move fewer bytes than the model counts.

The loss spread over tp is not fitted, as a single device cannot measure it. Nor are times that depend on the framework more than
on the device: the host's, and the work that a step does once. An update's bytes are scaled so that its time stays, as it depends
on the fitted bandwidth.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import files, yaml12
from ...costs.training_step.kernels import KernelModel, KernelSettings, kernel_settings
from ...costs.work.operations import ALIGNED_BYTES, FusedAttention, Product, Sweep
from ...devices import DeviceType, device_type
from ...errors import ConfigError
from ..progress import Progress
from .kernel_table import Item, LossItem, MeasuredKernels, ProductItem, read
from .least_squares import FittedKernels, Residual, fit_constants, summary

FITTED = {
    "product_efficiency": (0.1, 1.0),
    "attention_product_efficiency": (0.05, 1.0),
    "product_overhead_k": (0.0, 1000.0),
    "memory_efficiency": (0.1, 1.0),
    "loss_efficiency": (0.1, 2.0),
    "fused_attention_efficiency": (0.02, 1.0),
    "fused_attention_backward_efficiency": (0.02, 1.0),
    "kernel_gap_us": (0.0, 50.0),
}
"""The constants, with bounds; the fit starts at those that the device has now."""

FAMILIES = ("product", "attention_product", "fused_attention", "stream", "loss")
OUTLYING = 0.1
"""Logarithm of a ratio from which on a row counts less than by its square."""

LEAST_DOUBT = 0.01
"""Nothing is surer than how well a measurement repeats itself (an assumption)."""

LEAST_ROWS = {
    ("product", None): 8,
    ("attention_product", None): 4,
    ("fused_attention", False): 2,
    ("fused_attention", True): 2,
    ("stream", None): 8,
    ("loss", None): 2,
}
"""Rows at least that are fitted on, and left out, by family and whether they are backward; what ``quick`` measures is less."""

DEVIATION_OF_MEAN = 1.25
"""Standard deviation over mean absolute value, of a normal distribution."""

UNALIGNED = {
    "unaligned_product_efficiency": (2, 4),
    "half_aligned_product_efficiency": (8,),
}
"""The shares of products whose rows begin at multiples of so many bytes, as far as there are rows of them."""


class MeasuredCalibration(FittedKernels):
    """See `FittedKernels`; ``fitted`` of its data are all constants that may be."""

    def to_data(self) -> dict[str, Any]:
        """See `FittedKernels`: residuals by side and family."""
        sides = {"fitted on": self.fitted, "left out": self.left_out}
        return {
            "constants": self.constants.model_dump(),
            "fitted": sorted((*FITTED, *UNALIGNED)),
            "residuals": {side: {family: summary(rows) for family, rows in of.items()} for side, of in sides.items()},
        }


def calibrate(path: str | Path, *, progress: Progress | None = None) -> MeasuredCalibration:
    """Fit the constants to a file of measured kernels.

    Args:
        path: what ``meshwright dev calibrate measure`` wrote, or the name of a device whose kernels come measured.
        progress: called with a phase, steps done and steps.

    Raises:
        InputFileError, ConfigError: the file is missing or wrong, names no known device type, or lacks a family that is
            fitted on.
    """
    measured = read(path)
    device = device_type(measured.device)
    shipped = kernel_settings(measured.device)
    start = shipped.model_copy(update={"num_multiprocessors": measured.num_multiprocessors or shipped.num_multiprocessors})
    used, left_out = halves(measured)
    for (family, is_backward), least in LEAST_ROWS.items():
        sides = ([getattr(item, "is_backward", None) for item in some.get(family, [])] for some in (used, left_out))
        fewest = min(len(side) if is_backward is None else side.count(is_backward) for side in sides)
        if fewest < least:
            side = "" if is_backward is None else ", backward" if is_backward else ", forward"
            problem = (
                f"half of the rows are fitted on, and {least} at least are wanted, not {fewest}; measure without --set quick=true"
            )
            raise ConfigError(problem, file=path, field="items", value=family + side)
    names = list(FITTED)
    low, high = (np.array([FITTED[name][side] for name in names]) for side in range(2))
    middle = np.clip([getattr(start, name) for name in names], low, high)
    fitted_on = [_priced(rows) for rows in used.values()]

    def model(values: NDArray[np.float64]) -> KernelModel:
        return KernelModel(device, start.model_copy(update=dict(zip(names, values.tolist(), strict=True))))

    def residuals(values: NDArray[np.float64]) -> NDArray[np.float64]:
        kernels = model(values)
        results = [np.log(1e6 * np.array([kernels.kernel_s(one) for one in priced]) / us) for priced, us in fitted_on]
        return np.concatenate([one / math.sqrt(len(one)) for one in results])

    constants = fit_constants(residuals, FITTED, middle, progress, 100, f_scale=OUTLYING)
    kept_s = shipped.optimizer_bytes_per_parameter / shipped.memory_efficiency
    constants["optimizer_bytes_per_parameter"] = float(f"{kept_s * constants['memory_efficiency']:.4g}")
    constants |= {name: share for name in UNALIGNED if (share := _unaligned_share(measured, name, device)) is not None}
    settled = start.model_copy(update={**constants, "device": measured.device, "calibrated": True})
    kernels = KernelModel(device, settled)
    of_used, of_rest = ({family: held_against(rows, kernels) for family, rows in some.items()} for some in (used, left_out))
    errors = [summary(rows)["mean_relative_error"] for rows in of_rest.values()]
    doubt = max(LEAST_DOUBT, float(f"{DEVIATION_OF_MEAN * math.fsum(errors) / len(errors):.2g}"))
    names = [*FITTED, *(name for name in UNALIGNED if getattr(settled, name) is not None), "uncertainty"]
    return MeasuredCalibration(settled.model_copy(update={"uncertainty": doubt}), shipped, names, of_used, of_rest)


def _unaligned_share(measured: MeasuredKernels, name: str, device: DeviceType) -> float | None:
    """Return the geometric mean of the shares of the peak of the 1st, 3rd, ... such product; None where none was measured."""
    used = unaligned(measured, name)[0]
    if not used:
        return None
    priced, us = _priced(used)
    shares = [
        one.flops / (device.reached_flops_per_s * 1e-6 * time)
        for one, time in zip(priced, us, strict=True)
        if isinstance(one, Product)
    ]
    return float(f"{math.exp(math.fsum(map(math.log, shares)) / len(shares)):.4g}")


def unaligned(measured: MeasuredKernels, name: str) -> tuple[list[Item], list[Item]]:
    """Return the products that one of `UNALIGNED` is of: those to be fitted on, 1st, 3rd, ..., and the others."""
    items: list[Item] = [
        item for item in measured.of("product") if isinstance(item, ProductItem) and item.row_bytes in UNALIGNED[name]
    ]
    return items[::2], items[1::2]


def write(path: str | Path, constants: KernelSettings, source: str) -> None:
    """Write the constants, for ``costs: {kernels: FILE}``, whole or not at all.

    Args:
        path: the YAML file.
        constants: all of a device.
        source: what they were fitted on, for the file's first line.

    Raises:
        InputFileError: the file cannot be written.
    """
    explained = "each key is explained in configs/kernels/a100.yaml"
    first = f"# What kernels reach, fitted by meshwright dev calibrate kernels on {source}; {explained}.\n"
    files.write_text(path, first + yaml12.dump(constants.model_dump()))


def at_bounds(calibration: MeasuredCalibration) -> list[str]:
    """Return the constants that the fit would have moved beyond what is possible."""
    ends = {name: getattr(calibration.constants, name) for name in FITTED}
    return [name for name, bounds in FITTED.items() if ends[name] in bounds and ends[name] > 0]


def halves(measured: MeasuredKernels) -> tuple[dict[str, list[Item]], dict[str, list[Item]]]:
    """Return the rows of each family to fit on (the 1st, 3rd, ... of each kind), and the remaining rows."""
    result: tuple[dict[str, list[Item]], dict[str, list[Item]]] = {}, {}
    seen: dict[tuple[object, ...], int] = defaultdict(int)
    for family in FAMILIES:
        for item in measured.of(family):
            if counts(item):
                kind = family, item.name, *(getattr(item, key, None) for key in ("transposed", "is_causal"))
                result[seen[kind] % 2].setdefault(family, []).append(item)
                seen[kind] += 1
    return result


def counts(item: Item) -> bool:
    """Return whether a row is of what the constants are to describe."""
    return is_aligned(item) and not (isinstance(item, LossItem) and item.operators == "torch")


def is_aligned(item: Item) -> bool:
    """Return whether each row of all three matrices of a product begins at a multiple of 16 bytes; true of what is none.

    Where one does not, the library takes kernels that are 3 to 9 times slower on an H100.
    """
    return not isinstance(item, ProductItem) or item.row_bytes == ALIGNED_BYTES


def held_against(items: Sequence[Item], kernels: KernelModel) -> tuple[Residual, ...]:
    """Return predicted and measured microseconds of rows that a kernel model prices by itself."""
    rows = zip(items, *_priced(items), strict=True)
    return tuple(Residual(called(item), 1e6 * kernels.kernel_s(priced), float(us)) for item, priced, us in rows)


def _priced(items: Sequence[Item]) -> tuple[list[Product | FusedAttention | Sweep], NDArray[np.float64]]:
    """Return the kernels of such rows, and the microseconds that each took."""
    results = [(item.priced(), item.us) for item in items]
    return [one for one, _ in results if one is not None], np.array([us for _, us in results], np.float64)


def called(item: Item) -> str:
    """Return a row by its name and sizes, ``mlp up, m 2048, n 16384, k 4096``."""
    apart = {"family", "name", "us", "host_us", "flops", "moved_bytes", "num_kernels"}
    sizes = item.model_dump(exclude_defaults=True, exclude=apart)
    words = {name.replace("_", " ").removeprefix("is ").removeprefix("has "): value for name, value in sizes.items()}
    settings_text = [word if value is True else f"{word} {value}" for word, value in words.items() if value is not False]
    return ", ".join([item.name, *settings_text])
