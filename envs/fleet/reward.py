"""Rewards of a fleet: over an episode they sum to a figure of all its jobs that follows the objective of the benchmark.

=====================  ==================================================================================
objective              sum of an episode's rewards
=====================  ==================================================================================
mean_completion_s      minus the completion times of all jobs, plus their usual times, which no decision changes.
p95_completion_s       the same; a percentile is no sum over time.
mean_wait_s            minus the seconds that jobs wait for their first start.
makespan_s             minus the seconds that pass.
blocking_rate          -1 for a job that is refused, expires or ends late, +1 for one that ends in time.
deadline_met_rate      the same.
device_hours           minus the seconds that pass, each times the share of all devices that jobs hold.
=====================  ==================================================================================

Waiting, seconds and devices held are paid as time passes. So is the time that a job waits or is paused, for its completion. The
rest is paid when an end is foreseen, so that a decision is paid for its own effect. The start of a job pays minus the seconds to
the end foreseen then, plus the job's usual time. Every change of that end pays the difference, and the end itself nothing. In the
same way a start pays +1 or -1 for the deadline, and so does each change of the end that crosses it. A job's usual time is that
of its steps on the devices that users request in the mean. Foreseen ends are a potential of the state (Ng, Harada and Russell,
"Policy invariance under reward transformations", 1999). Seconds count in mean durations of a job.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...simulation.fleet.state import FleetState, JobState, Total
from .fleet import Fleet
from .settings import FleetSettings


def reward_weights(fleet: Fleet) -> NDArray[np.float64]:
    """Return the weight of each column of the totals, of passing seconds, of those that are foreseen, and of ends that are."""
    weights = np.zeros(len(Total) + 3)
    scale = 1.0 / fleet.mean_duration_s
    objective = fleet.settings.objective
    if objective in ("mean_completion_s", "p95_completion_s"):
        weights[Total.IN_SYSTEM_S] = weights[-2] = -scale
    elif objective == "mean_wait_s":
        weights[Total.WAITING_S] = -scale
    elif objective == "makespan_s":
        weights[-3] = -scale
    elif objective == "device_hours":
        weights[Total.HELD_DEVICE_S] = -scale / fleet.cluster.num_devices
    else:
        assert objective in ("blocking_rate", "deadline_met_rate")
        weights[Total.BLOCKED], weights[Total.LATE], weights[Total.MET] = -1.0, -1.0, 1.0
        weights[-1] = 1.0
    return weights


def usual_step_s(fleet: Fleet) -> NDArray[np.float64]:
    """Return step seconds of each job type on the first degree that is not below what users ask for in the mean, ``(t,)``."""
    shares = fleet.settings.requested
    mean = sum(degree * often for degree, often in shares.items()) / sum(shares.values())
    first = int(np.searchsorted(fleet.problem.degrees, min(mean, float(fleet.problem.degrees[-1]))))
    order = [*range(first, len(fleet.problem.degrees)), *range(first - 1, -1, -1)]
    best = fleet.best_step_s[:, order]
    result: NDArray[np.float64] = best[np.arange(fleet.num_types), np.isfinite(best).argmax(axis=1)]
    return result


@njit
def predicted_end_s(state, e):  # type: ignore[no-untyped-def]
    """Return the seconds that running jobs have before them."""
    total = 0.0
    for i in range(state.num_running[e]):
        total += state.finish_s[e, state.running[e, i]] - state.now_s[e]
    return total


@njit
def predicted_in_time(state, e):  # type: ignore[no-untyped-def]
    """Return running jobs that will end in time, less those that will end late."""
    total = 0.0
    for i in range(state.num_running[e]):
        job = state.running[e, i]
        total += 1.0 if state.finish_s[e, job] <= state.deadline_s[e, job] else -1.0
    return total


@njit
def note_new(state, e, new):  # type: ignore[no-untyped-def]
    """Write the jobs on offer that have never run into ``new``; their number."""
    count = 0
    for place in range(state.offered.shape[1]):
        job = state.offered[e, place]
        if job >= 0 and np.isnan(state.start_s[e, job]):
            new[count] = job
            count += 1
    return count


@njit
def usual_s(state, e, new, usual_step_s):  # type: ignore[no-untyped-def]
    """Return the seconds that those of some jobs usually take that have started since they were noted."""
    total = 0.0
    for job in new:
        if not np.isnan(state.start_s[e, job]):
            total += state.num_steps[e, job] * usual_step_s[state.job_type[e, job]]
    return total


HIGHER_IS_BETTER = frozenset({"deadline_met_rate"})


def objective_value(settings: FleetSettings, state: FleetState, e: int) -> float:
    """Return the benchmark's objective in episode ``e`` over the counted jobs; nan where none of them completed.

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
    """Return whether one value of the objective is better than another."""
    return value > than if settings.objective in HIGHER_IS_BETTER else value < than
