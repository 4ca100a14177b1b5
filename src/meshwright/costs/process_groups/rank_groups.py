"""The ranks that a message of a layout runs over, in the layout's own numbering: tp fastest, then cp, dp, pp.

Legend: ``w`` ranks of a pipeline stage, ``g`` groups of a stage along an axis, ``k`` ranks of a group.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...plans.partition import Layout

SPATIAL = frozenset(("sp", "sp_d", "sp_h", "sp_w"))
"""Axes of the parts of a volume."""

IN_PASSES = frozenset(("tp", "cp", "ep", "etp")) | SPATIAL
"""Axes whose messages belong to passes, where passes send neither weights nor their gradients."""

NEAR = frozenset(("tp", "cp", "ep", "etp", "shard")) | SPATIAL
"""Axes whose groups lie in runs of neighbours."""


def group_size(layout: Layout, axis: str) -> int:
    """Return the ranks of a group, ``k``; see `operations.Axis`."""
    same = layout.copies
    return {
        "tp": layout.tp,
        "cp": layout.cp,
        "ep": layout.ep,
        "etp": layout.expert_tp,
        "dp_cp": same,
        "expert_dp": layout.expert_copies,
        "shard": layout.num_shards,
        "replica": same // layout.num_shards,
        "pp": min(2, layout.pp),
        "ends": min(2, layout.pp),
        "mirror": 2 if layout.has_mirrored_stages else 1,
        "sp": layout.sp,
        "sp_d": layout.sp_d,
        "sp_h": layout.sp_h,
        "sp_w": layout.sp_w,
    }[axis]


def stage_width(layout: Layout) -> int:
    """Return the ranks of the first stage, ``w``; of every one where stages have equally many."""
    return layout.stage_width(0)


def stage_groups(layout: Layout, axis: str) -> NDArray[np.int64]:
    """Return the groups of the first stage along an axis, but not ``pp`` or ``ends``, ``(g, k)``; see `stage_pairs` for these."""
    same = layout.copies
    ranks = np.arange(stage_width(layout))
    if axis == "dp_cp":
        return ranks.reshape(same, layout.tp).T
    if axis in ("sp_d", "sp_h", "sp_w"):  # the groups of one volume follow each other
        grid = ranks.reshape(-1, layout.sp_d, layout.sp_h, layout.sp_w)
        place = ("sp_d", "sp_h", "sp_w").index(axis) + 1
        return np.moveaxis(grid, place, -1).reshape(-1, grid.shape[place])
    if axis in NEAR:
        size, apart = group_size(layout, axis), _distance(layout, axis)
        return np.swapaxes(ranks.reshape(-1, size, apart), 1, 2).reshape(-1, size)
    step = layout.expert_tp * layout.ep if axis == "expert_dp" else layout.tp * layout.num_shards
    return ranks.reshape(-1, step).T


def _distance(layout: Layout, axis: str) -> int:
    """Return the distance from one rank to the next of a group along an axis of `NEAR`."""
    return {"tp": 1, "etp": 1, "ep": layout.expert_tp}.get(axis, layout.tp)


def stage_pairs(layout: Layout, source: int, target: int) -> NDArray[np.int64]:
    """Return each rank of a stage with its counterpart on another one of as many ranks, ``(w, 2)``."""
    ranks = np.arange(layout.stage_width(source))
    return np.stack([ranks + layout.first_rank(source), ranks + layout.first_rank(target)], axis=1)


def lane_width(layout: Layout, pass_axes: frozenset[str] = IN_PASSES) -> int:
    """Return the number of ranks of a stage whose passes wait for each other: a run of neighbours that divides the stage.

    Groups that share ranks belong to one lane.

    Args:
        layout: how a job is cut.
        pass_axes: axes of the messages of passes; ``tp`` is always one.
    """
    if any(group_size(layout, axis) > 1 for axis in pass_axes - NEAR):
        return stage_width(layout)
    return math.lcm(layout.tp, *(_distance(layout, axis) * group_size(layout, axis) for axis in pass_axes & NEAR))
