"""Figures of an episode of a fleet, from its record.

Those of jobs are about the counted ones (without warm-up and cool-down), those of times about such that completed; shares of the
cluster are about all jobs and the whole episode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...envs.fleet.fleet import Fleet
from ...envs.fleet.menu_lines import entry_name
from ...envs.fleet.record import FleetRecord
from ...simulation.fleet.state import Total

FLEET_METRICS = {
    "mean_completion_s": "mean time from arrival to end, seconds",
    "p50_completion_s": "median of the same",
    "p95_completion_s": "95th percentile of the same",
    "p99_completion_s": "99th percentile of the same",
    "mean_wait_s": "mean time from arrival to the first start, seconds",
    "makespan_s": "time from the first arrival of a counted job to the last end of one, seconds",
    "blocking_rate": "share of jobs that were turned away, expired in the queue or ended after their deadline",
    "late_rate": "share of jobs that ended after their deadline, a part of the former",
    "deadline_met_rate": "share of jobs that ended by their deadline; none without deadlines",
    "mean_finish_time_fairness": "mean ratio of completion time to that alone on an equal share of the cluster (see the code)",
    "p95_finish_time_fairness": "95th percentile of the same; 1 is fair",
    "devices_held": "share of device-time that jobs held",
    "devices_useful": "share of device-time that the completed steps take in the entries that waste least",
    "sharing_slowdown": "seconds by which shared links stretched steps, over the rest of the time from first start to end",
    "mean_devices": "mean number of devices over the time from first start to end",
    "restarts_per_job": "mean number of restarts",
    "device_hours": "device-hours that jobs held",
}
"""Name of each figure and what it counts; None where no job completed."""

FAILURE_METRICS = {
    "failures_per_job": "mean number of times that a failing host stopped a job; these count as restarts too",
    "devices_out": "share of device-time of hosts that were out of order",
    "lost_device_hours": "device-hours of unfinished steps that failures undid",
}
"""The same where hosts fail."""


def metrics_of(fleet: Fleet) -> dict[str, str]:
    """The figures that there are of a fleet."""
    return FLEET_METRICS | (FAILURE_METRICS if fleet.settings.has_failures else {})


def fleet_metrics(record: FleetRecord, fleet: Fleet) -> dict[str, float | None]:
    """The figures named by `metrics_of`."""
    counted = fleet.settings.counted
    device_s = fleet.cluster.num_devices * record.end_s
    done = np.zeros(len(record.arrival_s), np.bool_)
    done[counted] = record.is_completed[counted]
    is_late = record.finish_s[counted] > record.deadline_s[counted]
    work_device_s = (record.num_steps * fleet.problem.menu.work_device_s[record.job_type])[record.is_completed]
    found: dict[str, float | None] = {
        "blocking_rate": float(record.is_blocked[counted].mean()),
        "late_rate": float(is_late.mean()),
        "devices_held": record.total(Total.HELD_DEVICE_S) / device_s if device_s > 0 else 0.0,
        "devices_useful": float(work_device_s.sum()) / device_s if device_s > 0 else 0.0,
        "restarts_per_job": float(record.num_restarts[counted].mean()),
        "device_hours": float(record.held_device_s[counted].sum()) / 3600.0,
    }
    if fleet.settings.has_failures:
        found["failures_per_job"] = float(record.num_failures[counted].mean())
        found["devices_out"] = record.total(Total.OUT_DEVICE_S) / device_s if device_s > 0 else 0.0
        found["lost_device_hours"] = float(record.lost_device_s[counted].sum()) / 3600.0
    if fleet.settings.has_deadlines:
        found["deadline_met_rate"] = float((record.finish_s[counted] <= record.deadline_s[counted]).mean())
    if done.any():
        completion_s = (record.finish_s - record.arrival_s)[done]
        running_s = (record.finish_s - record.start_s)[done]
        stretched_s = record.shared_s[done]
        fairness = finish_time_fairness(record, fleet)[done]
        found["makespan_s"] = float(record.finish_s[done].max() - record.arrival_s[counted].min())
        found["mean_completion_s"] = float(completion_s.mean())
        for percent in (50, 95, 99):
            found[f"p{percent}_completion_s"] = float(np.percentile(completion_s, percent))
        found["mean_wait_s"] = float((record.start_s - record.arrival_s)[done].mean())
        found["mean_finish_time_fairness"] = float(fairness.mean())
        found["p95_finish_time_fairness"] = float(np.percentile(fairness, 95))
        found["sharing_slowdown"] = float(stretched_s.sum() / (running_s.sum() - stretched_s.sum()))
        found["mean_devices"] = float(record.held_device_s[done].sum() / running_s.sum())
    return {name: found.get(name) for name in metrics_of(fleet)}


def finish_time_fairness(record: FleetRecord, fleet: Fleet) -> NDArray[np.float64]:
    """Completion time of each job over that alone on an equal share of the cluster, ``(k,)``; nan for one that did not complete.

    The share is the cluster over the mean number of jobs in it (of those that complete) while the job was there. A job that is
    too large for its share takes turns on the fewest devices that it runs on.

    Source:
        Mahajan et al., "Themis: fair and efficient GPU cluster scheduling", 2020, section 3.1.
    """
    found = np.full(len(record.arrival_s), np.nan)
    done = np.flatnonzero(record.is_completed)
    arrival_s, finish_s = record.arrival_s[done], record.finish_s[done]
    together_s = np.minimum(finish_s[:, None], finish_s) - np.maximum(arrival_s[:, None], arrival_s)
    num_jobs = np.maximum(together_s, 0.0).sum(axis=1) / (finish_s - arrival_s)
    degrees = fleet.problem.degrees
    for i, job in enumerate(done.tolist()):
        share = fleet.cluster.num_devices / num_jobs[i]
        step_s = fleet.best_step_s[record.job_type[job]]
        fits = np.isfinite(step_s) & (degrees <= share)
        fewest = int(np.flatnonzero(np.isfinite(step_s))[0])
        alone_s = step_s[fits].min() if fits.any() else step_s[fewest] * degrees[fewest] / share
        found[job] = (finish_s[i] - arrival_s[i]) / (record.num_steps[job] * alone_s)
    return found


def entry_shares(records: Sequence[FleetRecord], fleet: Fleet) -> dict[str, dict[str, float]]:
    """Shares of the counted jobs that started, by the devices and by the layout of the entry by which they ran last."""
    menu, counted = fleet.menu, fleet.settings.counted
    entries = np.concatenate([record.entry[counted] for record in records])
    entries = entries[entries >= 0]
    return {
        "degrees": _shares(entries, lambda entry: str(int(fleet.problem.menu.degree[entry]))),
        "layouts": _shares(entries, lambda entry: entry_name(menu.entries[entry])),
    }


def _shares(entries: NDArray[np.int64], name: Callable[[int], str]) -> dict[str, float]:
    """Share of each name, the most frequent first."""
    counts = Counter(name(entry) for entry in entries.tolist())
    return {one: number / len(entries) for one, number in counts.most_common()}
