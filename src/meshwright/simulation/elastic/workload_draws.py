"""New elastic workloads by the rule of the published ones: jobs of a recorded trace as measured applications.

The draw takes rows of the trace that begin in eight hours of a day and run for at least a minute. A row's device-hours decide its
application, its time of day the arrival. The user requests a number of ranks at which the application still runs at half to four
fifths of its ideal speed. The batch is the fastest there.

Source:
    Qiao et al., "Pollux", OSDI 2021, section 5.1; the artifact's rule, with another generator of random numbers.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from ...errors import ConfigError, InputFileError
from ...jobs.readers.elastic import ElasticApplication, ElasticWorkload
from ...jobs.trace import load_trace
from .applications import ApplicationArrays
from .measured import ROUNDING, compact_placement, step_times

FIRST_HOUR, NUM_HOURS = 2, 8
"""Of the day, in which jobs come."""

CLASSES: tuple[tuple[float, tuple[str, ...]], ...] = (
    (1, ("cifar10", "ncf")),
    (10, ("deepspeech2", "bert")),
    (100, ("yolov3",)),
    (1000, ("imagenet",)),
)
"""Applications for rows of less than so many device-hours; one of them at random."""

NUMBERS_OF_RANKS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48)
EFFICIENCY = (0.5, 0.8)
"""Between which shares of the ideal speed users ask for ranks."""

LEAST_DURATION_S = 60
MOST_S = 12 * 3600
"""No user asks for ranks with which a job takes longer."""

_HOUR_S, _DAY_S = 3600, 86400


class WorkloadDraws:
    """A source of drawn workloads.

    Args:
        trace: CSV of a recorded cluster trace (see `jobs.trace`).
        applications: what may be drawn.
        apps: the same as arrays.
        devices_per_node: of the cluster.

    Raises:
        InputFileError: the trace is missing or malformed.
        ConfigError: an application of `CLASSES` is missing.
    """

    def __init__(
        self, trace: str | Path, applications: tuple[ElasticApplication, ...], apps: ApplicationArrays, devices_per_node: int = 4
    ) -> None:
        self._file = str(trace)
        self._index = {each.name: number for number, each in enumerate(applications)}
        rows = load_trace(trace, min_gpus=1)
        time_s = (rows.start_s + rows.time_s - FIRST_HOUR * _HOUR_S) % _DAY_S
        is_kept = (time_s < NUM_HOURS * _HOUR_S) & (rows.duration_s >= LEAST_DURATION_S)
        is_kept &= rows.work_s < CLASSES[-1][0] * _HOUR_S
        self._time_s, self._hours = time_s[is_kept].astype(np.int64), rows.work_s[is_kept] / _HOUR_S
        self._requests = {}
        for name in (name for _, names in CLASSES for name in names):
            if name not in self._index:
                raise ConfigError("no such application was measured", field="application", value=name, choices=self._index)
            self._requests[name] = requests(apps, applications[self._index[name]], self._index[name], devices_per_node)

    def draw(self, seed: int, num_jobs: int = 160) -> ElasticWorkload:
        """Return a workload; the same seed gives the same one.

        Raises:
            InputFileError: the trace has fewer rows that may be drawn.
        """
        if num_jobs > len(self._hours):
            problem = f"only {len(self._hours)} rows may be drawn"
            raise InputFileError(problem, file=self._file, field="num_jobs", value=num_jobs)
        rng = np.random.default_rng(seed)
        rows = rng.choice(len(self._hours), num_jobs, replace=False)
        rows = rows[np.argsort(self._time_s[rows], kind="stable")]
        names, request = [], []
        for hours in self._hours[rows].tolist():
            fitting = next(names for limit, names in CLASSES if hours < limit)
            names.append(fitting[rng.integers(len(fitting))])
            request.append(self._requests[names[-1]][rng.integers(len(self._requests[names[-1]]))])
        return ElasticWorkload(
            f"drawn-{seed}",
            tuple(f"{name}-{number}" for number, name in enumerate(names)),
            self._time_s[rows],
            np.array([self._index[name] for name in names]),
            np.array([ranks for ranks, _ in request]),
            np.array([batch for _, batch in request]),
        )


def requests(
    apps: ApplicationArrays, application: ElasticApplication, a: int, devices_per_node: int = 4
) -> list[tuple[int, int]]:
    """Return the numbers of ranks that users ask for, each with the batch that ends first with it."""
    results: list[tuple[int, int]] = []
    alone_s, alone = math.inf, 0
    for num_ranks in NUMBERS_OF_RANKS:
        if num_ranks * int(apps.min_local[a]) > application.batch[-1]:
            break
        best_s, best = math.inf, 0
        for number, batch in enumerate(application.batch.tolist()):
            local = math.ceil(batch / num_ranks - ROUNDING)
            if local < apps.min_local[a]:
                continue
            passes = math.ceil(local / application.max_local_batch - ROUNDING) - 1
            per_pass = math.ceil(local / (passes + 1) - ROUNDING)
            at = compact_placement(apps, a, num_ranks, devices_per_node)
            step_s, sync_s = step_times(apps, a, *at, num_ranks, per_pass)
            job_s = application.iteration[number, -1] * (step_s + passes * (step_s - sync_s))
            if job_s < best_s:
                best_s, best = job_s, batch
        if num_ranks == 1:
            alone_s, alone = best_s, best
        elif best_s < MOST_S and EFFICIENCY[0] < alone_s / best_s / num_ranks < EFFICIENCY[1]:
            results.append((num_ranks, best))
    return results or [(1, alone)]
