"""Interruptions of running jobs: devices that fail, jobs that are preempted. Both are off by default.

A *failure* takes one device down for a repair. Each device fails after independent exponential times of being up, whoever uses
it, so all policies meet the same failures in an episode. A *preemption* pauses one running job on its own devices. Either way the
job keeps its block and goes back to its last checkpoint. It waits until every device of the block is up again (or the pause is
over), pays a restart and runs on. Checkpoints lie at whole multiples of an interval of the job's own running time and cost
nothing to write.

Random times are hashes (`simulation.random_times`). Legend: ``e`` episodes, ``k`` jobs, ``n`` devices.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ... import settings
from ...compiled import njit
from ..ragged import rows_by_owner
from ..random_times import FAILURE, PREEMPTION, exponential_s

RESTART_S = 300.0
"""Of a job that a failure stopped, unless a scenario or a fleet says otherwise."""


class DeviceFailureSettings(settings.Settings):
    """How often devices fail, and for how long.

    Attributes:
        mean_time_between_failures_h: of one device that is up; None: no device fails.
        repair_s: how long a device that failed is down.
    """

    mean_time_between_failures_h: float | None = Field(default=None, gt=0)
    repair_s: float = Field(default=600.0, ge=0)


class FailureSettings(DeviceFailureSettings):
    """Failures of devices, and what an interruption of any kind costs a job.

    Attributes:
        checkpoint_every_s: a job saves its progress each time that it has run for so long.
        restart_s: from the moment that the block is ready to the first step after the checkpoint.
    """

    checkpoint_every_s: float = Field(default=1800.0, gt=0)
    restart_s: float = Field(default=RESTART_S, ge=0)


class PreemptionSettings(settings.Settings):
    """Pauses of running jobs by jobs of higher rank.

    Attributes:
        rate_per_job_h: preemptions of one job in an hour of running.
        pause_s: how long a job is paused; it keeps its devices.
    """

    rate_per_job_h: float = Field(default=0.0, ge=0)
    pause_s: float = Field(default=600.0, ge=0)


class Interruptions(NamedTuple):
    """The settings as the compiled functions read them; mean times are infinite where nothing happens.

    Attributes:
        is_on: whether anything may be interrupted.
        mean_failure_s: mean time until a device that is up fails.
        repair_s: as in `FailureSettings`.
        checkpoint_every_s: as in `FailureSettings`.
        restart_s: as in `FailureSettings`.
        mean_preemption_s: mean time until a running job is preempted.
        pause_s: as in `PreemptionSettings`.
        device_start, device_blocks: blocks that hold device ``i`` are ``device_blocks[device_start[i]:device_start[i + 1]]``.
    """

    is_on: bool
    mean_failure_s: float
    repair_s: float
    checkpoint_every_s: float
    restart_s: float
    mean_preemption_s: float
    pause_s: float
    device_start: NDArray[np.int64]
    device_blocks: NDArray[np.int64]


def interruptions(
    failures: FailureSettings,
    preemption: PreemptionSettings,
    start: NDArray[np.int64],
    devices: NDArray[np.int64],
    num_devices: int,
) -> Interruptions:
    """Return the settings for the compiled functions.

    Args:
        failures: as in the scenario.
        preemption: as in the scenario.
        start: block ``i`` owns ``devices[start[i]:start[i + 1]]``.
        devices: see ``start``.
        num_devices: of the cluster.
    """
    mean_h = failures.mean_time_between_failures_h
    block_of = np.repeat(np.arange(len(start) - 1), np.diff(start))
    device_start, device_blocks = rows_by_owner(devices, block_of, num_devices)
    return Interruptions(
        is_on=mean_h is not None or preemption.rate_per_job_h > 0.0,
        mean_failure_s=math.inf if mean_h is None else 3600.0 * mean_h,
        repair_s=failures.repair_s,
        checkpoint_every_s=failures.checkpoint_every_s,
        restart_s=failures.restart_s,
        mean_preemption_s=math.inf if preemption.rate_per_job_h == 0.0 else 3600.0 / preemption.rate_per_job_h,
        pause_s=preemption.pause_s,
        device_start=device_start,
        device_blocks=device_blocks,
    )


@njit
def draw_interruptions(problem, episodes, e):  # type: ignore[no-untyped-def]
    """Draw the first failures and preemptions of an episode in which all devices are up and no job is placed."""
    choice = problem.interruptions
    episodes.holder[e] = -1
    episodes.device_failures[e] = 0
    for i in range(episodes.fails_at_s.shape[1]):
        episodes.fails_at_s[e, i] = exponential_s(choice.mean_failure_s, episodes.seed[e], FAILURE, i, 0)
    episodes.work_s[e] = np.nan
    episodes.runs_from_s[e] = np.nan
    episodes.saved_s[e] = 0.0
    episodes.preempted_at_s[e] = np.inf
    episodes.num_failures[e] = 0
    episodes.num_preemptions[e] = 0
    episodes.lost_work_s[e] = 0.0
    episodes.delay_s[e] = 0.0


@njit
def place(problem, episodes, e, k, work_s):  # type: ignore[no-untyped-def]
    """Place job ``k`` on its block, where it runs for so long if nothing interrupts it."""
    choice = problem.interruptions
    block = episodes.block[e, k]
    for i in range(problem.start[block], problem.start[block + 1]):
        episodes.holder[e, problem.devices[i]] = k
    now_s = episodes.start_s[e, k]
    episodes.work_s[e, k] = work_s
    episodes.runs_from_s[e, k] = now_s
    episodes.preempted_at_s[e, k] = now_s + exponential_s(choice.mean_preemption_s, episodes.seed[e], PREEMPTION, k, 0)


@njit
def next_s(episodes, e, now_s):  # type: ignore[no-untyped-def]
    """Return the time at which the next device fails or the next job is preempted, in seconds."""
    found_s = np.inf
    for i in range(episodes.holder.shape[1]):
        found_s = min(found_s, episodes.fails_at_s[e, i])
        k = episodes.holder[e, i]
        if k >= 0 and episodes.finish_s[e, k] > now_s and episodes.preempted_at_s[e, k] < episodes.finish_s[e, k]:
            found_s = min(found_s, episodes.preempted_at_s[e, k])
    return found_s


@njit
def happen(problem, episodes, e, now_s):  # type: ignore[no-untyped-def]
    """Carry out the failures and preemptions of this moment; jobs that end now are counted as ended."""
    choice = problem.interruptions
    for i in range(episodes.holder.shape[1]):
        if episodes.fails_at_s[e, i] > now_s:
            continue
        episodes.device_failures[e, i] += 1
        up_s = now_s + choice.repair_s
        episodes.fails_at_s[e, i] = up_s + exponential_s(
            choice.mean_failure_s, episodes.seed[e], FAILURE, i, episodes.device_failures[e, i]
        )
        k = episodes.holder[e, i]
        if k >= 0 and episodes.finish_s[e, k] > now_s:
            episodes.num_failures[e, k] += 1
            _interrupt(problem, episodes, e, k, now_s, up_s)
        else:
            episodes.free_at_s[e, i] = up_s
            for j in range(choice.device_start[i], choice.device_start[i + 1]):
                block = choice.device_blocks[j]
                episodes.block_free_at_s[e, block] = max(episodes.block_free_at_s[e, block], up_s)
    for i in range(episodes.holder.shape[1]):
        k = episodes.holder[e, i]
        if k >= 0 and episodes.finish_s[e, k] > now_s and episodes.preempted_at_s[e, k] <= now_s:
            episodes.num_preemptions[e, k] += 1
            _interrupt(problem, episodes, e, k, now_s, now_s + choice.pause_s)


@njit
def _interrupt(problem, episodes, e, k, now_s, ready_s):  # type: ignore[no-untyped-def]
    """Set job ``k`` back to its last checkpoint; it restarts when its block is ready, not before ``ready_s``."""
    choice = problem.interruptions
    block = episodes.block[e, k]
    work_s = episodes.work_s[e, k]
    if now_s >= episodes.runs_from_s[e, k]:
        done_s = episodes.saved_s[e, k] + (now_s - episodes.runs_from_s[e, k])
        saved_s = max(episodes.saved_s[e, k], math.floor(done_s / choice.checkpoint_every_s) * choice.checkpoint_every_s)
        episodes.lost_work_s[e, k] += done_s - saved_s
        episodes.saved_s[e, k] = saved_s
    else:  # it waits for its block or restarts: nothing new is lost
        ready_s = max(ready_s, episodes.runs_from_s[e, k] - choice.restart_s)
    episodes.runs_from_s[e, k] = ready_s + choice.restart_s
    until_s = episodes.runs_from_s[e, k] + (work_s - episodes.saved_s[e, k])
    episodes.delay_s[e, k] += until_s - episodes.finish_s[e, k]
    event = episodes.num_failures[e, k] + episodes.num_preemptions[e, k]
    wait_s = exponential_s(choice.mean_preemption_s, episodes.seed[e], PREEMPTION, k, event)
    episodes.preempted_at_s[e, k] = episodes.runs_from_s[e, k] + wait_s
    episodes.finish_s[e, k] = until_s
    episodes.completion_s[e, k] = until_s - episodes.arrival_s[e, k]
    for i in range(problem.start[block], problem.start[block + 1]):
        episodes.free_at_s[e, problem.devices[i]] = until_s
    for i in range(problem.neighbour_start[block], problem.neighbour_start[block + 1]):
        other = problem.neighbours[i]
        episodes.block_free_at_s[e, other] = max(episodes.block_free_at_s[e, other], until_s)
