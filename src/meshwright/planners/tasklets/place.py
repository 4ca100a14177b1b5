"""Planners of tasklets by name, and one way to call them."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import PolicyError
from ...simulation.tasklets.instance import TaskletInstance
from ...simulation.tasklets.placement import TaskletPlacement
from .annealing import anneal_tasklets
from .genetic import genetic
from .request import TaskletRequest
from .structured import structured

TASKLET_PLANNERS: dict[str, Callable[[TaskletInstance, TaskletRequest], TaskletPlacement]] = {
    "structured": structured,
    "genetic": genetic,
    "annealing": anneal_tasklets,
}


def place_tasklets(instance: TaskletInstance, planner: str, request: TaskletRequest) -> TaskletPlacement:
    """Group the devices of an instance into stages by the planner of a name.

    Raises:
        PolicyError: no such planner.
        PlanError: the instance is beyond the planner.
    """
    if planner not in TASKLET_PLANNERS:
        raise PolicyError("no such planner", field="planner", value=planner, choices=TASKLET_PLANNERS)
    return TASKLET_PLANNERS[planner](instance, request)
