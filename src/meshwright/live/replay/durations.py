"""How long jobs really take: steps as observed, and on numbers of devices that never ran what the job's other runs show."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence

import numpy as np

from ..decisions import JobRequest
from ..feedback.runs import JobRun


class RealDurations:
    """Observed over predicted step times of some runs."""

    def __init__(self, runs: Sequence[JobRun]) -> None:
        ratios: dict[tuple[Hashable, ...], list[float]] = {}
        for run in runs:
            ratio = self.own_ratio(run)
            if ratio is not None:
                job = job_of(run.request)
                for key in ((job,), (job, run.kind[0]), (job, *run.kind)):
                    ratios.setdefault(key, []).append(ratio)
        self._ratios = {key: float(np.median(values)) for key, values in ratios.items()}

    @staticmethod
    def own_ratio(run: JobRun) -> float | None:
        """Return the ratio of a run's measured to its predicted step time: as observed, else from its begin to its end."""
        step_s = run.observed_step_s
        if step_s is None and run.ran_s:
            step_s = run.ran_s / run.request.steps
        return None if step_s is None else step_s / run.predicted_step_s

    def ratio(self, request: JobRequest, num_devices: int, is_on_one_host: bool) -> float:
        """Return observed over predicted step time of a job on a number of devices.

        It is the median of its runs there, on one host or several. Without such runs it is that on as many devices, else of all
        runs of the job, else 1.
        """
        job = job_of(request)
        keys: list[tuple[Hashable, ...]] = [(job, num_devices, is_on_one_host), (job, num_devices), (job,)]
        return next((self._ratios[key] for key in keys if key in self._ratios), 1.0)

    def is_known(self, request: JobRequest, num_devices: int) -> bool:
        """Return whether a job ran on this number of devices."""
        return (job_of(request), num_devices) in self._ratios

    def seconds(self, run: JobRun) -> float:
        """Return how long a run takes from its begin to its end."""
        ratio = self.own_ratio(run)
        if ratio is None:
            ratio = self.ratio(run.request, *run.kind)
        return run.request.steps * run.predicted_step_s * ratio


def job_of(request: JobRequest) -> str:
    """Return the key of a job's computation in a step, by its request."""
    return json.dumps([request.job, request.batch, request.sequence_length], sort_keys=True)
