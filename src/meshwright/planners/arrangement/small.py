"""All groupings of a few devices into stages: the best of all, as a proof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from ...errors import PlanError
from ...simulation.tasklets.instance import TaskletInstance
from ...simulation.tasklets.placement import TaskletPlacement, placed_tasklets, tasklet_value_s

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
    for stages in _groupings(range(instance.num_devices), instance.num_replicas):
        grouping = np.array(stages, np.int64)
        count += 1
        value_s = tasklet_value_s(instance, grouping)
        if value_s < best_s:
            best, best_s = grouping, value_s
    assert best is not None, "there is a grouping"
    return placed_tasklets(instance, best, "exact", num_valued=count, note="proven")


def _groupings(devices: Sequence[int], size: int) -> Iterator[list[tuple[int, ...]]]:
    """All ways to cut devices into stages of a size, no way twice."""
    if not devices:
        yield []
        return
    for others in combinations(devices[1:], size - 1):
        chosen = set(others)
        rest = [each for each in devices[1:] if each not in chosen]
        for grouping in _groupings(rest, size):
            yield [(devices[0], *others), *grouping]
