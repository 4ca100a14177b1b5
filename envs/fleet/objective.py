"""The objective of a benchmark as a figure of an episode that is over."""

from __future__ import annotations

import numpy as np

from ...simulation.fleet.state import FleetState, JobState
from .settings import FleetSettings

HIGHER_IS_BETTER = frozenset({"deadline_met_rate"})


def objective_value(settings: FleetSettings, state: FleetState, e: int) -> float:
    """The benchmark's objective in episode ``e`` over the counted jobs; nan where none of them completed.

    A job counts as blocked if it is refused, expires in the queue or ends after its deadline.
    """
    counted = settings.counted
    status, finish_s = state.status[e, counted], state.finish_s[e, counted]
    arrival_s, deadline_s = state.arrival_s[e, counted], state.deadline_s[e, counted]
    is_done = status == JobState.COMPLETED
    is_met = is_done & (finish_s <= deadline_s)
    objective = settings.objective
    if objective == "blocking_rate":
        return float(1.0 - is_met.mean())
    if objective == "deadline_met_rate":
        return float(is_met.mean())
    if not is_done.any():
        return float("nan")
    if objective == "mean_wait_s":
        return float((state.start_s[e, counted] - arrival_s)[is_done].mean())
    if objective == "makespan_s":
        return float(finish_s[is_done].max() - arrival_s.min())
    if objective == "device_hours":
        return float(state.held_device_s[e, counted].sum() / 3600.0)
    completion_s = (finish_s - arrival_s)[is_done]
    if objective == "p95_completion_s":
        return float(np.percentile(completion_s, 95))
    assert objective == "mean_completion_s"
    return float(completion_s.mean())


def is_better(settings: FleetSettings, value: float, than: float) -> bool:
    """Whether one value of the objective is better than another."""
    return value > than if settings.objective in HIGHER_IS_BETTER else value < than
