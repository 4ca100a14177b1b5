"""All groupings of a few devices into stages: the best of all, as a proof."""

from __future__ import annotations

import numpy as np

from ...errors import PlanError
from ...simulation.tasklets.instance import TaskletInstance
from ...simulation.tasklets.placement import TaskletPlacement, placed_tasklets, tasklet_value_s
from ..tasklets.structured import groupings

MOST_DEVICES = 12
"""At most 15,400 groupings."""


def best_of_all(instance: TaskletInstance) -> TaskletPlacement:
    """The best of all groupings, each with its best pipelines.

    Raises:
        PlanError: more than `MOST_DEVICES` devices.
    """
    if instance.num_devices > MOST_DEVICES:
        raise PlanError(f"all groupings are tried of at most {MOST_DEVICES} devices", field="devices", value=instance.num_devices)
    best, best_s, count = None, np.inf, 0
    for stages in groupings(range(instance.num_devices), instance.num_replicas):
        grouping = np.array(stages, np.int64)
        count += 1
        value_s = tasklet_value_s(instance, grouping)
        if value_s < best_s:
            best, best_s = grouping, value_s
    assert best is not None, "there is a grouping"
    return placed_tasklets(instance, best, "exact", num_valued=count, note="proven")
