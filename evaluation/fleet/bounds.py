"""A clairvoyant lower bound on the mean completion time of a fleet: no policy that completes all counted jobs does better."""

from __future__ import annotations

import heapq

import numpy as np

from ...envs.fleet.fleet import Fleet, Jobs

BOUND = "bound"


def least_mean_completion_s(fleet: Fleet, jobs: Jobs) -> float:
    """Return the larger of two lower bounds, of the counted jobs alone.

    - Each job runs alone from its arrival on, by its fastest entry.
    - All devices work together on the job with least work left, at the efficiency of the entries that waste least. That is
      preemptive, so no order of one machine has a smaller mean.

    Source:
        Schrage, "A proof of the optimality of the shortest remaining processing time discipline", 1968.
    """
    counted = fleet.settings.counted
    arrival_s, kind, num_steps = jobs.arrival_s[counted], jobs.job_type[counted], jobs.num_steps[counted]
    alone_s = num_steps * fleet.best_step_s.min(axis=1)[kind]
    work_s = num_steps * fleet.problem.menu.work_device_s[kind] / fleet.cluster.num_devices
    return max(float(alone_s.mean()), _srpt_total_s(arrival_s.tolist(), work_s.tolist()) / len(arrival_s))


def _srpt_total_s(arrival_s: list[float], work_s: list[float]) -> float:
    """Return the sum of the completion times on one machine that always works on the job with least work left; arrivals rise."""
    total = 0.0
    now = 0.0
    left: list[tuple[float, float]] = []  # work left, arrival
    for arrival, work in zip([*arrival_s, np.inf], [*work_s, 0.0], strict=True):
        while left and now < arrival:
            work_left, came = left[0]
            if now + work_left > arrival:
                heapq.heapreplace(left, (work_left - (arrival - now), came))
                break
            heapq.heappop(left)
            now += work_left
            total += now - came
        now = arrival
        heapq.heappush(left, (work, arrival))
    return total
