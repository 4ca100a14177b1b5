"""Mean and maximum over the members of a set in one pass each way, to the same bits as torch's own operations on one thread.

Legend: ``n`` members, ``b`` samples, ``h`` figures. torch goes through the figures once for ``relu``, ``mean`` and ``amax`` each,
and five times more on the way back; these are small matrices, so that memory, not arithmetic, is what that takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..compiled import njit

GROUP = 16
"""torch adds up so many rows, then so many sums of them, and so on (``cascade_sum`` of its CPU kernels, with four levels)."""

LANES = 4
"""Of the columns that fill no four vectors, it adds up every fourth row by itself."""


COLUMNS = 32
"""How many columns torch adds up at a time: four vectors of eight."""


class SetPooling(torch.autograd.Function):
    """``cat([relu(x).mean(0), relu(x).amax(0)])`` of figures ``(n, b, h)`` on the CPU: ``(b, 2 h)``."""

    @staticmethod
    def forward(ctx: Any, figures: Tensor) -> Tensor:
        """The pooled figures."""
        found = torch.empty((figures.shape[1], 2 * figures.shape[2]), dtype=torch.float32)
        plain = figures.detach().numpy()
        _pool(plain, figures.shape[1] * figures.shape[2] // COLUMNS * COLUMNS, found.numpy())
        ctx.save_for_backward(figures, found)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """The gradient of the figures, ``(n, b, h)``; equal maxima share theirs."""
        figures, found = ctx.saved_tensors
        out = torch.empty_like(figures)
        _spread(figures.detach().numpy(), found.detach().numpy(), gradients[0].contiguous().numpy(), out.numpy())
        return out


def pooled(figures: Tensor) -> Tensor:
    """Mean and maximum of ``relu`` over the members ``(n, b, h)``: ``(b, 2 h)``."""
    if figures.device.type == "cpu" and figures.dtype == torch.float32 and figures.is_contiguous() and figures[:1].numel() > 1:
        made: Tensor = SetPooling.apply(figures)  # type: ignore[no-untyped-call]
        return made
    lifted = torch.relu(figures)
    return torch.cat([lifted.mean(dim=0), lifted.amax(dim=0)], dim=1)


@njit
def _pool(figures, num_whole, out):  # type: ignore[no-untyped-def]
    n, b, h = figures.shape
    sums = np.zeros((4, h), np.float32)
    zero = np.float32(0.0)
    for i in range(b):
        sums[:] = zero
        for k in range(h):
            out[i, h + k] = zero
        for m in range(n):
            for k in range(h):
                x = max(figures[m, i, k], zero)
                sums[0, k] += x
                out[i, h + k] = max(out[i, h + k], x)
            _cascade(sums, m + 1)
        for k in range(h):
            out[i, k] = (((sums[0, k] + sums[1, k]) + sums[2, k]) + sums[3, k]) / np.float32(n)
    lanes = np.zeros((4, LANES), np.float32)
    for column in range(num_whole, b * h):
        i, k = column // h, column % h
        lanes[:] = zero
        for step in range(n // LANES):
            for lane in range(LANES):
                lanes[0, lane] += max(figures[LANES * step + lane, i, k], zero)
            _cascade(lanes, step + 1)
        for lane in range(LANES):
            lanes[0, lane] = ((lanes[0, lane] + lanes[1, lane]) + lanes[2, lane]) + lanes[3, lane]
        for m in range(n // LANES * LANES, n):
            lanes[0, 0] += max(figures[m, i, k], zero)
        out[i, k] = (((lanes[0, 0] + lanes[0, 1]) + lanes[0, 2]) + lanes[0, 3]) / np.float32(n)


@njit
def _cascade(sums, num_rows):  # type: ignore[no-untyped-def]
    """Hand sums on to the next level where so many rows complete them."""
    level = 0
    while level < 3 and num_rows % GROUP == 0:
        for k in range(sums.shape[1]):
            sums[level + 1, k] += sums[level, k]
            sums[level, k] = np.float32(0.0)
        num_rows //= GROUP
        level += 1


@njit
def _spread(figures, found, gradient, out):  # type: ignore[no-untyped-def]
    n, b, h = figures.shape
    zero = np.float32(0.0)
    share = np.empty(h, np.float32)
    mean = np.empty(h, np.float32)
    count = np.empty(h, np.int64)
    for i in range(b):
        count[:] = 0
        for m in range(n):
            for k in range(h):
                count[k] += max(figures[m, i, k], zero) == found[i, h + k]
        for k in range(h):
            mean[k] = gradient[i, k] / np.float32(n)
            share[k] = gradient[i, h + k] / np.float32(count[k])
        for m in range(n):
            for k in range(h):
                x = figures[m, i, k]
                out[m, i, k] = (mean[k] + (share[k] if x == found[i, h + k] else zero)) if x > zero else zero
