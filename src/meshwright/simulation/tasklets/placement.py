"""A placement of tasklets: which device runs which stage and replica, checked and valued independently of the planner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from .instance import TaskletInstance
from .values import matching_s, worked_out


@dataclass(frozen=True, eq=False)
class TaskletPlacement:
    """Devices of stages and replicas.

    Attributes:
        device_of: device of each stage, in the order of the pipeline, and of each replica; column r is one pipeline, ``(k, p)``.
        value_s: seconds of communication in a step, data and pipeline parallelism together.
        data_parallel_s: of the slowest stage.
        pipeline_parallel_s: along the pipeline, forward and backward.
        planner: that found it.
        num_valued: groupings that were valued to find it.
        note: for the reader of the figures; may be empty.
    """

    device_of: NDArray[np.int64]
    value_s: float
    data_parallel_s: float
    pipeline_parallel_s: float
    planner: str
    num_valued: int = 1
    note: str = ""


def placed_tasklets(
    instance: TaskletInstance, stages: NDArray[np.int64], planner: str, *, num_valued: int = 1, note: str = ""
) -> TaskletPlacement:
    """Return a grouping into stages with its best pipelines, valued here and not by the planner.

    Args:
        instance: what is placed.
        stages: devices of each stage, stages and devices within them in any order, ``(k, p)``.
        planner: who found it.
        num_valued: see `TaskletPlacement`.
        note: see `TaskletPlacement`.

    Raises:
        PlanError: a device is in no stage or in several.
    """
    stages = np.asarray(stages, np.int64)
    shape = (instance.num_stages, instance.num_replicas)
    if stages.shape != shape:
        raise PlanError(f"must have the shape {shape}", field="stages", value=str(stages.shape))
    if not np.array_equal(np.sort(stages, axis=None), np.arange(instance.num_devices)):
        raise PlanError("each device must be in exactly one stage", field="stages")
    stages = np.sort(stages, axis=1)
    # Stages in the order of their first devices, so that the answer does not depend on how the grouping was written.
    stages = stages[np.argsort(stages[:, 0])]
    data_s, pipeline_s, _, _, path = worked_out(instance.reduce_s, instance.hand_over_s, stages)
    rows = [stages[path[0]]]
    mate, scratch = np.zeros((2, instance.num_replicas), np.int64), np.zeros(instance.num_replicas, np.int64)
    for stage in path[1:]:
        matching_s(instance.hand_over_s, rows[-1], stages[stage], mate[0], mate[1], scratch)
        row = np.empty_like(rows[-1])
        row[mate[0]] = stages[stage]
        rows.append(row)
    return TaskletPlacement(
        np.stack(rows), float(data_s + pipeline_s), float(data_s), float(pipeline_s), planner, num_valued, note
    )


def tasklet_value_s(instance: TaskletInstance, stages: NDArray[np.int64]) -> float:
    """Return the seconds of communication in a step of a grouping, ``(k, p)``."""
    data_s, pipeline_s, *_ = worked_out(instance.reduce_s, instance.hand_over_s, np.ascontiguousarray(stages, np.int64))
    return float(data_s + pipeline_s)
