"""Memory of an op-split plan, rank by rank.

Legend of shapes: ``n`` ops, ``degree`` ranks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import PlanError
from ..jobs.graph import JobGraph
from .placement import Placement
from .splitting.op_splits import OpSplits

if TYPE_CHECKING:
    from ..clusters.cluster import Cluster

STATE_BYTES_PER_WEIGHT_BYTE = 8.0
"""Bytes of model state per byte of weights in a graph, under mixed-precision Adam.

A parameter takes 16 bytes: 2 weight (the one that a graph counts), 2 gradient, 4 master weight, 4 momentum, 4 variance.

Source:
    Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020, section 3.1.
"""

MEMORY_UNCERTAINTY = 0.06
"""Relative: the larger of the two errors that the memory of published runs leaves (parameters and optimizer)."""


def is_tight(held_bytes: float, room_bytes: float) -> bool:
    """Return whether a layout that fits leaves less memory than the estimate can be off by."""
    return held_bytes <= room_bytes < held_bytes * (1 + MEMORY_UNCERTAINTY)


def tight_text(held_bytes: float, room_bytes: float) -> str:
    """Say that a fit is tight, in words; else empty."""
    if not is_tight(held_bytes, room_bytes):
        return ""
    of_device = f"{held_bytes / 1e9:.1f} of {room_bytes / 1e9:.1f} GB of a device"
    return f"memory is tight: {of_device}. The estimate can be off by {MEMORY_UNCERTAINTY:.0%}, so this may run out of memory"


def tight_in(why: str | None) -> str | None:
    """Return the remark of `tight_text` in the reason of a plan; None where there is none."""
    return next(iter(re.findall("memory is tight: [^;]*", why or "")), None)


def op_split_memory_bytes(graph: JobGraph, splits: OpSplits) -> NDArray[np.float64]:
    """Return the peak memory of each rank of an op-split plan in bytes, ``(degree,)``.

    An op that is split ``s`` ways is on the first ``s`` ranks. Each of them holds the op's whole model state (weights, gradients,
    optimizer), since a split divides the batch alone. It holds ``1 / s`` of its activations until the backward pass. The largest
    ``1 / s`` of a workspace is added once, since one op runs at a time.

    Raises:
        PlanError: the splits are of another graph.
    """
    if splits.num_ops != graph.num_ops:
        raise PlanError(f"{splits.num_ops} split degrees for a graph of {graph.num_ops} ops", field="splits", value=graph.name)
    rank_bytes = STATE_BYTES_PER_WEIGHT_BYTE * graph.parameter_bytes + graph.activation_bytes / splits.splits
    workspace = graph.workspace_bytes / splits.splits
    memory = np.empty(splits.degree)
    first = 0
    for degree in np.unique(splits.splits).tolist():  # ranks first..degree-1 hold the ops that are split at least degree ways
        here = splits.splits >= degree
        memory[first:degree] = rank_bytes[here].sum() + workspace[here].max()
        first = degree
    return memory


def check_memory(memory_bytes: NDArray[np.float64], placement: Placement, cluster: Cluster) -> None:
    """Refuse a plan that does not fit.

    Args:
        memory_bytes: peak of each rank, ``(num_ranks,)``.
        placement: device of each rank.
        cluster: the devices.

    Raises:
        PlanError: the first rank that needs more than its device has, with both numbers.
    """
    capacity = cluster.memory_bytes[placement.devices]
    for rank in np.flatnonzero(memory_bytes > capacity)[:1].tolist():
        device = cluster.device_name(int(placement.devices[rank]))
        raise PlanError(
            f"needs {memory_bytes[rank] / 1e9:.3f} GB, device {device} has {capacity[rank] / 1e9:.3f} GB", field=f"rank {rank}"
        )
