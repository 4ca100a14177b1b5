"""Measured kernels in two panels: what share of the peak products reach by their size, and predicted over measured times."""

from __future__ import annotations

import numpy as np

from ...costs.training_step.kernels import KernelModel
from ...devices import device_type
from ..calibration.fit_a100 import Residual
from ..calibration.fit_measured import is_aligned
from ..calibration.kernel_table import MeasuredKernels, ProductItem
from ..validation.kernels import LAYER, NOT_MODELLED, KernelErrors
from .style import BLUE, GREEN, INK, ORANGE, PALE, PINK, SKY, VERMILION
from .svg import WIDTH, LegendEntry, canvas, legend_height, shortened

_LEFT, _BETWEEN, _RIGHT, _TITLE, _HEIGHT, _BELOW = 66.0, 84.0, 16.0, 28.0, 380.0, 52.0
_SQUARE, _LAYER, _SKINNY, _SLOW = "square", "of a layer", "skinny", "rows not at 16 bytes"
_PRODUCTS = {
    _LAYER: LegendEntry(_LAYER, SKY, marker="o"),
    _SQUARE: LegendEntry(_SQUARE, BLUE, marker="s"),
    _SKINNY: LegendEntry(_SKINNY, GREEN, marker="^"),
    _SLOW: LegendEntry(_SLOW, VERMILION, marker="X"),
}
_FAMILIES = {
    "stream": LegendEntry("element-wise", PALE, marker="o"),
    "product": LegendEntry("products", SKY, marker="o"),
    "attention_product": LegendEntry("products of attention", GREEN, marker="^"),
    "fused_attention": LegendEntry("fused attention", PINK, marker="D"),
    "loss": LegendEntry("loss", BLUE, marker="s"),
    LAYER: LegendEntry("whole layers", ORANGE, marker="P"),
}
BAND = 0.2
"""Relative error that the second panel shades."""


def kernels_svg(found: KernelErrors) -> str:
    """Draw both panels; the second leaves out points that were fitted on and products on slow rows."""
    from matplotlib.ticker import FuncFormatter, PercentFormatter

    measured = found.measured
    width = (WIDTH - _LEFT - _BETWEEN - _RIGHT) / 2
    keys = [*_PRODUCTS.values(), LegendEntry("squares by the model", INK)], list(_FAMILIES.values())
    top = _TITLE + max(legend_height(some, width) for some in keys) + 12
    title = f"{measured.gpu}, {measured.date}, torch {measured.torch}"
    with canvas(WIDTH, top + _HEIGHT + _BELOW) as sheet:
        second = _LEFT + width + _BETWEEN
        sheet.write(_LEFT, _TITLE / 2, f"Products in bf16 on {shortened(measured.gpu, 40)}", bold=True)
        sheet.write(second, _TITLE / 2, "Rows that nothing was fitted on", bold=True)
        for left, some in zip((_LEFT, second), keys, strict=True):
            sheet.legend(some, left, _TITLE, width)
        axes = sheet.axes(_LEFT, top, width, _HEIGHT)
        axes.grid(visible=True)
        for kind, (flops, shares) in _shares(measured).items():
            key = _PRODUCTS[kind]
            axes.plot(flops, shares, key.marker, color=key.colour, markersize=5, markeredgewidth=0)
        axes.plot(*_model_of_squares(found), color=INK, linewidth=1.4)
        axes.set_xscale("log")
        axes.set(xlabel="10^9 floating-point operations", ylabel=f"share of the peak, {_peak(measured):.0f} TFLOP/s", ylim=(0, 1))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda flops, _: f"{flops / 1e9:,g}"))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes = sheet.axes(second, top, width, _HEIGHT)
        axes.grid(visible=True)
        for begin, key in _FAMILIES.items():
            rows = [
                row
                for family, some in found.families.items()
                for row in some
                if family not in NOT_MODELLED and (family == begin or (begin == LAYER and family.startswith(LAYER)))
            ]
            axes.plot(
                [row.measured for row in rows],
                [row.fitted / row.measured for row in rows],
                key.marker,
                color=key.colour,
                markersize=5,
                markeredgewidth=0,
            )
        axes.axhspan(1 - BAND, 1 + BAND, color=PALE, alpha=0.35, linewidth=0, zorder=0)
        axes.axhline(1.0, color=INK, linewidth=1.0)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda us, _: f"{us:,g}"))
        axes.set(xlabel="measured, microseconds", ylabel=f"predicted over measured; shaded: within {BAND:.0%}")
        axes.set_ylim(0, max([2.0, *(1.05 * row.fitted / row.measured for some in _modelled(found) for row in some)]))
        return sheet.svg("kernels", f"Measured kernels, {title}")


def _modelled(found: KernelErrors) -> list[tuple[Residual, ...]]:
    return [rows for family, rows in found.families.items() if family in _FAMILIES or family.startswith(LAYER)]


def _shares(measured: MeasuredKernels) -> dict[str, tuple[list[float], list[float]]]:
    """By kind of product: operations, and share of the peak that was reached."""
    shown: dict[str, tuple[list[float], list[float]]] = {kind: ([], []) for kind in _PRODUCTS}
    for item in measured.of("product"):
        assert isinstance(item, ProductItem)
        assert item.us is not None
        kind = item.name if item.name in (_SQUARE, _SKINNY) else _LAYER
        flops, shares = shown[kind if is_aligned(item) else _SLOW]
        flops.append(item.priced().flops)
        shares.append(item.priced().flops / item.us / 1e6 / _peak(measured))
    return shown


def _model_of_squares(found: KernelErrors) -> tuple[list[float], list[float]]:
    kernels = KernelModel(device_type(found.measured.device), found.constants)
    sizes = [int(size) // 64 * 64 for size in np.geomspace(256, 16_384, 97)]
    squares = [ProductItem(family="product", name=_SQUARE, m=size, n=size, k=size).priced() for size in sizes]
    times = [kernels.product_s(one) for one in squares]
    peak = kernels.device.peak_flops_per_s
    return [one.flops for one in squares], [one.flops / seconds / peak for one, seconds in zip(squares, times, strict=True)]


def _peak(measured: MeasuredKernels) -> float:
    """TFLOP/s."""
    return device_type(measured.device).peak_flops_per_s / 1e12
