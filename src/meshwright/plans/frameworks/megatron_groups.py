"""Megatron's process groups: which ranks Megatron-LM lets communicate, from the parallel degrees and its rank order.

Megatron numbers ranks by an order string such as ``tp-cp-ep-dp-pp``, fastest axis first, and cuts the ranks into groups along one
or more axes. It does so twice: the *dense* ranks have no ``ep`` axis, the *expert* ranks have ``ep`` and no ``cp``. Both must
have the same pipeline. Legend: ``world`` ranks in Megatron's numbering.

Source:
    The documentation of ``RankGenerator`` and ``generate_masked_orthogonal_rank_groups`` in megatron-core 0.16.1; the tests
    compare the groups with that release's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..partition import ParallelDegrees

DEFAULT_ORDER = "tp-cp-ep-dp-pp"
MAPPED_ORDER = "tp-cp-ep-pp-dp"
"""The order under ``--use-tp-pp-dp-mapping``."""


def rank_groups(sizes: Mapping[str, int], order: str, axes: str) -> NDArray[np.int64]:
    """Return the groups of ranks that differ along some axes only, in Megatron's sequence.

    Args:
        sizes: degree of each axis in ``order``.
        order: axes with hyphens between, fastest first.
        axes: one or more axes of ``order`` with hyphens between, for example ``dp-cp``.

    Returns:
        ``(num_groups, group_size)``; within a group and among groups the first axis of ``order`` counts fastest.
    """
    names = order.split("-")[::-1]
    inside = set(axes.split("-"))
    grid = np.arange(math.prod(sizes[name] for name in names)).reshape([sizes[name] for name in names])
    outer = [place for place, name in enumerate(names) if name not in inside]
    inner = [place for place, name in enumerate(names) if name in inside]
    group_size = math.prod(sizes[names[place]] for place in inner)
    return np.ascontiguousarray(grid.transpose(outer + inner).reshape(-1, group_size))


def dense_sizes(degrees: ParallelDegrees) -> dict[str, int]:
    """Return the axes of the ranks that hold the dense layers."""
    return {"tp": degrees.tp, "cp": degrees.cp, "ep": 1, "dp": degrees.dp, "pp": degrees.pp}


def expert_sizes(degrees: ParallelDegrees) -> dict[str, int]:
    """Return axes of the ranks that hold the experts, of tensor-parallel degree ``etp``: the rest are replicas."""
    return {"tp": degrees.expert_tp, "cp": 1, "ep": degrees.ep, "dp": degrees.expert_copies, "pp": degrees.pp}


def allows(degrees: ParallelDegrees, order: str) -> bool:
    """Return whether Megatron starts in this order.

    The pipelines of dense and expert ranks must be the same ranks, and any order but the default counts as unusable
    with expert parallelism: groups of experts would leave their pipeline stage.
    """
    if order == DEFAULT_ORDER or degrees.pp == 1:
        return order == DEFAULT_ORDER or degrees.ep == 1
    dense, expert = (rank_groups(sizes(degrees), order, "pp") for sizes in (dense_sizes, expert_sizes))
    return degrees.ep == 1 and np.array_equal(dense, expert)


def groups(degrees: ParallelDegrees, order: str) -> dict[str, NDArray[np.int64]]:
    """Return every kind of group that Megatron makes of these degrees, by the axes along which its ranks differ.

    ``expert-dp`` and ``tp-ep`` are groups of the expert ranks, ``ep`` too; all others of the dense ranks.
    """
    of_dense, of_experts = dense_sizes(degrees), expert_sizes(degrees)
    dense = {axes: rank_groups(of_dense, order, axes) for axes in ("tp", "cp", "dp", "pp", "dp-cp", "tp-pp", "tp-cp")}
    expert = {axes: rank_groups(of_experts, order, axes) for axes in ("ep", "tp-ep", "dp")}
    return {**dense, "ep": expert["ep"], "tp-ep": expert["tp-ep"], "expert-dp": expert["dp"]}


def rank_coordinates(degrees: ParallelDegrees, order: str) -> NDArray[np.int64]:
    """Place of each of Megatron's ranks along pp, dp, cp, ep and tp, ``(world, 5)``: its position in those groups."""
    result = groups(degrees, order)
    places = np.empty((degrees.world, 5), np.int64)
    for column, axis in enumerate(("pp", "dp", "cp", "ep", "tp")):
        members = result[axis]
        places[members, column] = np.arange(members.shape[1])
    return places
