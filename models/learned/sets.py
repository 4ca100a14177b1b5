"""A shared layer over the members of sets, then mean and maximum, both ways in a few passes over the members' figures.

Legend: ``n`` members, ``b`` samples, ``f`` features, ``h`` figures of a member.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...compiled import njit

# Figures that are gone through together, so that what is gathered of them stays in the nearest cache.
CHUNK = 1024


class PooledSet(NamedTuple):
    """Sets on their way, as `set_gradient` reads them.

    Attributes:
        pooled: mean and maximum, ``(b, 2 h)``.
        members: ``(n b, f)``.
        figures: of each member, before the cut at zero, ``(n, b h)``.
        greatest: whose the maximum is, ``(b h,)``; -1: nobody's is above zero.
    """

    pooled: Tensor
    members: Tensor
    figures: Tensor
    greatest: NDArray[np.int32]


def pool_set(members: Tensor, weight: Tensor, bias: Tensor) -> PooledSet:
    """Pool the sets ``(n, b, f)``."""
    n, b, _ = members.shape
    flat = members.flatten(0, 1).contiguous()
    figures = torch.addmm(bias, flat, weight.T).view(n, -1)
    mean, most = torch.empty((2, b, len(bias)), dtype=figures.dtype)
    greatest = np.empty(mean.numel(), np.int32)
    _pool(figures.numpy(), mean.view(-1).numpy(), most.view(-1).numpy(), greatest)
    return PooledSet(torch.cat([mean, most], dim=1), flat, figures, greatest)


def set_gradient(made: PooledSet, gradient: Tensor) -> Tensor:
    """The gradient of the members' figures, ``(n b, h)``, by that of what is pooled.

    Where several members have the greatest figure, the first one gets its gradient; torch shares it out.
    """
    of_mean, of_most = (part.reshape(-1).numpy() for part in gradient.chunk(2, dim=1))
    spread = torch.empty_like(made.figures)
    _spread(made.figures.numpy(), of_mean, of_most, made.greatest, spread.numpy())
    return spread.view(len(made.members), -1)


class LearnedSet(torch.autograd.Function):
    """`encoders.SetEncoder` while PyTorch differentiates it on a CPU. Members have no gradient."""

    @staticmethod
    def forward(ctx: Any, members: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """``(n, b, f)`` to ``(b, 2 h)``."""
        ctx.made = pool_set(members, weight, bias)
        pooled: Tensor = ctx.made.pooled
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        """The gradients of weight and bias."""
        flat = set_gradient(ctx.made, gradients[0])
        return None, (ctx.made.members.T @ flat).T, flat.sum(dim=0)


# The choices below are made between values that have been read already, over long rows: so they compile to vector instructions.


@njit
def _pool(figures, mean, most, greatest):  # type: ignore[no-untyped-def]
    """Mean and maximum of ``relu`` over the first axis, and whose the maximum is; -1: nobody is above zero."""
    n, size = figures.shape
    zero, share = np.float32(0.0), figures.dtype.type(1.0 / n)
    for begin in range(0, size, CHUNK):
        end = min(begin + CHUNK, size)
        total, best, whose = mean[begin:end], most[begin:end], greatest[begin:end]
        total[:] = zero
        best[:] = zero
        whose[:] = -1
        for m in range(n):
            row, number = figures[m, begin:end], np.int32(m)
            for k in range(end - begin):
                x, high, at = row[k], best[k], whose[k]
                total[k] += x if x > zero else zero
                best[k] = x if x > high else high
                whose[k] = number if x > high else at
        for k in range(end - begin):
            total[k] *= share


@njit
def _spread(figures, of_mean, of_most, greatest, out):  # type: ignore[no-untyped-def]
    """The gradient of the figures."""
    n, size = figures.shape
    zero, share = np.float32(0.0), figures.dtype.type(1.0 / n)
    for begin in range(0, size, CHUNK):
        end = min(begin + CHUNK, size)
        mean, most, whose = of_mean[begin:end], of_most[begin:end], greatest[begin:end]
        for m in range(n):
            row, to, number = figures[m, begin:end], out[m, begin:end], np.int32(m)
            for k in range(end - begin):
                whole = mean[k] * share + (most[k] if whose[k] == number else zero)
                to[k] = whole if row[k] > zero else zero
