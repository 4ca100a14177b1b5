"""An episode of a fleet as `evaluation.metrics` reads it, and shares of its jobs by their entries.

Figures of jobs are about the counted ones (without warm-up and cool-down), figures of times about those of them that completed.
Shares of the cluster are about all jobs and the whole episode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...envs.fleet.fleet import Fleet
from ...envs.fleet.menu_lines import entry_name
from ...envs.fleet.record import FleetRecord
from ...simulation.fleet.state import Total


class FleetFigures:
    """A view of one episode; ``d`` counted jobs that completed.

    Args:
        record: of the episode.
        fleet: that was played.
    """

    def __init__(self, record: FleetRecord, fleet: Fleet) -> None:
        self._record, self._fleet, self._counted = record, fleet, fleet.settings.counted
        done = np.zeros(len(record.arrival_s), np.bool_)
        done[self._counted] = record.is_completed[self._counted]
        self._done, self._running_s = done, (record.finish_s - record.start_s)[done]
        self.completion_s: NDArray[np.float64] = (record.finish_s - record.arrival_s)[done]
        self.wait_s: NDArray[np.float64] = (record.start_s - record.arrival_s)[done]
        self.blocking_rate = float(record.is_blocked[self._counted].mean())
        self.late_rate = float((record.finish_s[self._counted] > record.deadline_s[self._counted]).mean())
        self.restarts_per_job = float(record.num_restarts[self._counted].mean())
        self.device_hours = float(record.held_device_s[self._counted].sum()) / 3600.0

    def _share(self, device_s: float) -> float:
        """Return the share of the device-time of the whole episode."""
        whole_s = self._fleet.cluster.num_devices * self._record.end_s
        return device_s / whole_s if whole_s > 0 else 0.0

    @property
    def makespan_s(self) -> float | None:
        """Time from the first arrival of a counted job to the last end of one."""
        if not self._done.any():
            return None
        return float(self._record.finish_s[self._done].max() - self._record.arrival_s[self._counted].min())

    @property
    def deadline_met_rate(self) -> float | None:
        """Share of jobs that ended by their deadline; None without deadlines."""
        if not self._fleet.settings.has_deadlines:
            return None
        return float((self._record.finish_s[self._counted] <= self._record.deadline_s[self._counted]).mean())

    @property
    def devices_held(self) -> float:
        """Share of device-time that jobs held."""
        return self._share(self._record.total(Total.HELD_DEVICE_S))

    @property
    def devices_useful(self) -> float:
        """Share of device-time that the completed steps take in the entries that waste least."""
        work_device_s = self._record.num_steps * self._fleet.problem.menu.work_device_s[self._record.job_type]
        return self._share(float(work_device_s[self._record.is_completed].sum()))

    @property
    def mean_devices(self) -> float | None:
        """Mean number of devices over the time from first start to end."""
        return float(self._record.held_device_s[self._done].sum() / self._running_s.sum()) if self._done.any() else None

    @property
    def sharing_slowdown(self) -> float | None:
        """Seconds by which shared links stretched steps, over the rest of the time from first start to end."""
        stretched_s = self._record.shared_s[self._done].sum()
        return float(stretched_s / (self._running_s.sum() - stretched_s)) if self._done.any() else None

    @property
    def failures_per_job(self) -> float | None:
        """Mean number of times that a failing host stopped a job, which are restarts too; None where hosts do not fail."""
        return float(self._record.num_failures[self._counted].mean()) if self._fleet.settings.has_failures else None

    @property
    def devices_out(self) -> float | None:
        """Share of device-time of hosts that were out of order; None where hosts do not fail."""
        return self._share(self._record.total(Total.OUT_DEVICE_S)) if self._fleet.settings.has_failures else None

    @property
    def lost_device_hours(self) -> float | None:
        """Device-hours of unfinished steps that failures undid; None where hosts do not fail."""
        lost_device_s = self._record.lost_device_s[self._counted]
        return float(lost_device_s.sum()) / 3600.0 if self._fleet.settings.has_failures else None

    @cached_property
    def finish_time_fairness(self) -> NDArray[np.float64]:
        """See `finish_time_fairness`, ``(d,)``."""
        return finish_time_fairness(self._record, self._fleet)[self._done]


def finish_time_fairness(record: FleetRecord, fleet: Fleet) -> NDArray[np.float64]:
    """Return completion times over those alone on an equal share of the cluster, ``(k,)``; nan for one that did not complete.

    The share is the cluster over the mean number of jobs in it (of those that complete) while the job was there. A job that is
    too large for its share takes turns on the fewest devices that it runs on.

    Source:
        Mahajan et al., "Themis: fair and efficient GPU cluster scheduling", 2020, section 3.1.
    """
    result = np.full(len(record.arrival_s), np.nan)
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
        result[job] = (finish_s[i] - arrival_s[i]) / (record.num_steps[job] * alone_s)
    return result


def entry_shares(records: Sequence[FleetRecord], fleet: Fleet) -> dict[str, dict[str, float]]:
    """Return shares of the counted jobs that started, by the devices and by the layout of the entry by which they ran last."""
    menu, counted = fleet.menu, fleet.settings.counted
    entries = np.concatenate([record.entry[counted] for record in records])
    entries = entries[entries >= 0]
    return {
        "degrees": _shares(entries, lambda entry: str(int(fleet.problem.menu.degree[entry]))),
        "layouts": _shares(entries, lambda entry: entry_name(menu.entries[entry])),
    }


def _shares(entries: NDArray[np.int64], name: Callable[[int], str]) -> dict[str, float]:
    """Return the share of each name, the most frequent first."""
    counts = Counter(name(entry) for entry in entries.tolist())
    return {one: number / len(entries) for one, number in counts.most_common()}
