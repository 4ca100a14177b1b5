"""Measured kernels in two panels: what share of the peak products reach by their size, and predicted over measured times."""

from __future__ import annotations

import numpy as np

from ...costs.training_step.kernels import KernelModel
from ...devices import device_type
from ..calibration.fit_measured import is_aligned
from ..calibration.kernel_table import ProductItem
from ..validation.kernels import LAYER, NOT_MODELLED, KernelErrors
from .figure import Figure, Panel, axis, band, figure, line, marks, shortened
from .style import BLUE, GREEN, INK, ORANGE, PALE, PINK, SKY, VERMILION

_SQUARE, _LAYER, _SKINNY, _SLOW = "square", "of a layer", "skinny", "rows not at 16 bytes"
_PRODUCTS = {_LAYER: (SKY, "circle"), _SQUARE: (BLUE, "square"), _SKINNY: (GREEN, "triangle-up"), _SLOW: (VERMILION, "x")}
_FAMILIES = {
    "stream": ("element-wise", PALE, "circle"),
    "product": ("products", SKY, "circle"),
    "attention_product": ("products of attention", GREEN, "diamond"),
    "fused_attention": ("fused attention", PINK, "diamond"),
    "loss": ("loss", BLUE, "triangle-down"),
    LAYER: ("whole layers", ORANGE, "cross"),
}
BAND = 0.2
"""Relative error that the second panel shades."""


def kernels_figure(errors: KernelErrors) -> Figure:
    """Draw both panels; the second leaves out points that were fitted on and products on slow rows."""
    measured = errors.measured
    peak = device_type(measured.device).peak_flops_per_s
    reached: dict[str, list[tuple[float, float]]] = {kind: [] for kind in _PRODUCTS}  # 10^9 operations, % of the peak
    for item in measured.of("product"):
        assert isinstance(item, ProductItem)
        assert item.us is not None
        kind = item.name if item.name in (_SQUARE, _SKINNY) else _LAYER
        flops = item.priced().flops
        reached[kind if is_aligned(item) else _SLOW].append((flops / 1e9, 100 * flops / (1e-6 * item.us) / peak))
    products = [
        marks(kind, [x for x, _ in reached[kind]], [y for _, y in reached[kind]], colour, marker={"symbol": symbol, "size": 7})
        for kind, (colour, symbol) in _PRODUCTS.items()
    ]
    kernels = KernelModel(device_type(measured.device), errors.constants)
    sizes = [int(size) // 64 * 64 for size in np.geomspace(256, 16_384, 97)]
    squares = [ProductItem(family="product", name=_SQUARE, m=size, n=size, k=size).priced() for size in sizes]
    shares = [100 * square.flops / kernels.product_s(square) / peak for square in squares]
    model = line("squares by the model", [square.flops / 1e9 for square in squares], shares, (INK, "solid"))
    x = axis("10^9 floating-point operations", is_log=True)
    y = axis(f"share of the peak, {peak / 1e12:.0f} TFLOP/s (%)", span=(0, 100))
    first = Panel([*products, model], x, y, f"Products in bf16 on {shortened(measured.gpu, 40)}", 380.0)
    traces, highest, times = [], 2.0, [1.0]
    for begin, (name, colour, symbol) in _FAMILIES.items():
        rows = [
            row
            for family, some in errors.families.items()
            if family not in NOT_MODELLED and (family.startswith(LAYER) if begin == LAYER else family == begin)
            for row in some
        ]
        ratios = [row.fitted / row.measured for row in rows]
        traces.append(marks(name, [row.measured for row in rows], ratios, colour, marker={"symbol": symbol, "size": 7}))
        highest, times = max([highest, *(1.05 * ratio for ratio in ratios)]), times + [row.measured for row in rows]
    ends = [min(times), max(times)]
    traces.append(line("as measured", ends, [1.0, 1.0], (INK, "solid"), line={"width": 1}, showlegend=False))
    traces.insert(0, band(ends, [1 - BAND] * 2, [1 + BAND] * 2, PALE) | {"opacity": 0.35})
    x, y = (
        axis("measured, microseconds", is_log=True),
        axis(f"predicted over measured; shaded: within {BAND:.0%}", span=(0, highest)),
    )
    second = Panel(traces, x, y, "Rows that nothing was fitted on", 380.0)
    label = f"Measured kernels, {measured.gpu}, {measured.date}, torch {measured.torch}"
    return figure(label, [first, second])
