"""The order in which the ranks of a layout are numbered, and so which of them share a host.

An order names the axes with hyphens between, fastest first: in ``tp-cp-dp-pp``, Megatron-LM's default, the ranks of a
tensor-parallel group follow each other. Ranks are on devices in their order, host by host, so the first axes stay inside hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from ..errors import PlanError
from .partition import Coordinates, Layout

DEFAULT_ORDER = "tp-cp-dp-pp"

ORDERS = tuple("-".join(order) for order in permutations(DEFAULT_ORDER.split("-")))
"""Every order, the default first."""


def check_order(order: str) -> str:
    """Return the order, or refuse it.

    Raises:
        PlanError: it does not name each of tp, cp, dp and pp once.
    """
    if order not in ORDERS:
        raise PlanError("an order names tp, cp, dp and pp once each", field="order", value=order, choices=ORDERS)
    return order


def axis_size(layout: Layout, axis: str) -> int:
    """Return the ranks along an axis of an order; parts of a volume are placed as slices of a sequence are, at ``cp``."""
    return layout.slices if axis == "cp" else int(getattr(layout, axis))


def strides(layout: Layout, order: str = DEFAULT_ORDER) -> dict[str, int]:
    """Return the difference of rank numbers from one place along an axis to the next, by axis."""
    result, stride = {}, 1
    for axis in order.split("-"):
        result[axis] = stride
        stride *= axis_size(layout, axis)
    return result


def numbers(layout: Layout, order: str = DEFAULT_ORDER) -> NDArray[np.int64]:
    """Return the number in an order of each rank of the layout's own numbering, ``(world,)``.

    Raises:
        PlanError: no such order, or one that mixes stages of unequal meshes.
    """
    _check_meshes(layout, check_order(order))
    own = np.arange(layout.world)
    if layout.is_meshed:
        return own
    steps = strides(layout, order)
    result = np.zeros(layout.world, np.int64)
    for axis, step in strides(layout).items():
        result += own // step % axis_size(layout, axis) * steps[axis]
    return result


def distinct_orders(layout: Layout, orders: Sequence[str]) -> tuple[str, ...]:
    """Return the first of each set of orders with the same numbering: they differ only in axes of size one."""
    results: dict[tuple[str, ...], str] = {}
    for order in orders:
        results.setdefault(tuple(axis for axis in order.split("-") if axis_size(layout, axis) > 1), order)
    return tuple(results.values())


def coordinates(layout: Layout, order: str = DEFAULT_ORDER) -> tuple[Coordinates, ...]:
    """Return the place of every rank in the grid; ``ep`` counts along ``tp``, ``cp``, then ``dp``, whatever the order.

    Raises:
        PlanError: no such order, or one that mixes stages of unequal meshes.
    """
    return tuple(layout.coordinates(rank) for rank in np.argsort(numbers(layout, order)).tolist())


def stages(layout: Layout, order: str = DEFAULT_ORDER) -> NDArray[np.int64]:
    """Return the pipeline stage of every rank, ``(world,)``; raises as `coordinates` does."""
    firsts = [layout.first_rank(stage) for stage in range(1, layout.pp)]
    return np.searchsorted(firsts, np.argsort(numbers(layout, order)), side="right")


def _check_meshes(layout: Layout, order: str) -> None:
    if layout.is_meshed and order != DEFAULT_ORDER:
        problem = "stages of unequal meshes follow each other, rank by rank in their own order"
        raise PlanError(problem, field="order", value=order, choices=(DEFAULT_ORDER,))
