"""Step times of the fast model and of the event path, by cluster and number of jobs, and the model's fit.

A job that shares no link has the same step time in both. So every mean has two values: of all jobs, and of those that share
links.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .... import files, settings
from ....errors import ConfigError
from ....simulation.fleet.sharing import CONSTANTS, step_times
from ....simulation.ragged import row_starts
from ...progress import Progress, reported
from .drawn_sets import draw
from .simulated_sets import SimulatedSet
from .simulated_sets import simulated as run_set

FAIR = 1

FITTED_SEEDS, UNSEEN_SEED = (1, 2), 3
"""Of the sets by which the model was made and its constants were fitted, and of the others."""


FIRST_STEP, LAST_STEP = 0.16, 0.01
TAIL = 0.15
"""Weight of the 95th percentile of the errors relative to their mean."""


@dataclass(frozen=True)
class GroupErrors:
    """Relative errors of step times of some jobs.

    Attributes:
        group: which jobs.
        model: of the fast model, one a job.
        alone: if sharing were left out, one a job.
    """

    group: str
    model: tuple[float, ...]
    alone: tuple[float, ...]

    def to_data(self) -> dict[str, Any]:
        """Plain data: mean and 95th percentile of both."""
        data: dict[str, Any] = {"group": self.group, "jobs": len(self.model)}
        for name, errors in (("", self.model), ("no_sharing_", self.alone)):
            data |= {f"{name}mean_error": float(np.mean(errors)), f"{name}p95_error": float(np.quantile(errors, 0.95))}
        return data


@dataclass(frozen=True)
class SharingValidation:
    """Simulated sets, and what the model says of each.

    Attributes:
        sets: what was simulated.
        predicted_s: of each job of each set.
    """

    sets: tuple[SimulatedSet, ...]
    predicted_s: tuple[tuple[float, ...], ...]

    def errors(self) -> list[GroupErrors]:
        """Errors of all jobs and of those that share links, the latter also by cluster and by jobs of a set."""
        rows = [
            (one.cluster, f"{len(one.jobs)} jobs", job.shares, results / job.together_s - 1, job.alone_s / job.together_s - 1)
            for one, predicted in zip(self.sets, self.predicted_s, strict=True)
            for job, results in zip(one.jobs, predicted, strict=True)
        ]
        sharing = [row for row in rows if row[2]]
        groups = [("all jobs", rows), ("jobs that share links", sharing)]
        for cluster in sorted({row[0] for row in sharing}):
            groups.append((cluster, [row for row in sharing if row[0] == cluster]))
        for number in sorted({row[1] for row in sharing}):
            groups.append((number, [row for row in sharing if row[1] == number]))
        return [
            GroupErrors(name, tuple(abs(r[3]) for r in some), tuple(abs(r[4]) for r in some)) for name, some in groups if some
        ]

    def to_data(self) -> dict[str, Any]:
        """Plain data: a row for each job, and the groups."""
        rows = [
            {
                "set": one.number,
                "cluster": one.cluster,
                "job": job.name,
                "layout": job.layout,
                "shares_links": job.shares,
                "alone_s": job.alone_s,
                "predicted": results,
                "reference": job.together_s,
                "relative_error": abs(results / job.together_s - 1),
            }
            for one, predicted in zip(self.sets, self.predicted_s, strict=True)
            for job, results in zip(one.jobs, predicted, strict=True)
        ]
        return {"sets": len(self.sets), "rows": rows, "groups": [group.to_data() for group in self.errors()]}


def validate(num_sets: int, folder: Path | None = None, *, progress: Progress | None = None) -> SharingValidation:
    """Simulate sets on which nothing was fitted, and predict their step times.

    Args:
        num_sets: sets in which a link is shared.
        folder: where simulated sets are kept.
        progress: called after each set.

    Raises:
        ConfigError: no set.
        InputFileError: a kept set that cannot be read; a `ConfigError` where it holds something else.
    """
    sets = simulated(num_sets, UNSEEN_SEED, folder, progress)
    return SharingValidation(sets, tuple(tuple(predicted_s(one).tolist()) for one in sets))


def simulated(num_sets: int, seed: int, folder: Path | None = None, progress: Progress | None = None) -> tuple[SimulatedSet, ...]:
    """The first sets of a seed in which a link is shared; arguments and errors as of `validate`."""
    if num_sets < 1:
        raise ConfigError("must be at least 1", field="--set sets", value=num_sets)
    result = simulated_sets(seed, folder)
    return tuple(next(result) for _ in reported(range(num_sets), f"sets of seed {seed}", progress))


def simulated_sets(seed: int, folder: Path | None = None) -> Iterator[SimulatedSet]:
    """All sets of a seed in which a link is shared, by their number; there is no last one.

    Args:
        seed: of the draws.
        folder: where sets are kept, one file each, and taken from.

    Raises:
        InputFileError, ConfigError: a file in the folder that cannot be read or holds something else.
    """
    number = 0
    while True:
        result = _set(seed, number, folder)
        if result.jobs:
            yield result
        number += 1


def _set(seed: int, number: int, folder: Path | None) -> SimulatedSet:
    path = None if folder is None else folder / f"{seed}-{number}.json"
    if path is not None and path.exists():
        return settings.build_settings(SimulatedSet, files.read_json(path), file=path)
    result = run_set(draw(seed, number))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, result.model_dump())
    return result


def predicted_s(simulated_set: SimulatedSet, constants: ArrayLike = CONSTANTS) -> NDArray[np.float64]:
    """Step times of a set by the fast model, ``(J,)``."""
    jobs = simulated_set.jobs
    first = row_starts([len(job.loads) for job in jobs])
    links, busy_s, streams = zip(*(load for job in jobs for load in job.loads), strict=True)
    alone_s = np.array([job.alone_s for job in jobs])
    busiest_s = np.array([max((load[1] for load in job.loads), default=0.0) for job in jobs])
    exposed_s = np.array([job.slower_s for job in jobs]) - alone_s
    result = np.zeros(len(jobs))
    step_times(
        len(jobs),
        alone_s,
        busiest_s - exposed_s,
        first,
        np.array(links, np.int64),
        np.array(busy_s),
        np.array(streams),
        np.asarray(constants, np.float64),
        FAIR,
        result,
    )
    return result


def sharing_errors(sets: Sequence[SimulatedSet], constants: ArrayLike = CONSTANTS) -> NDArray[np.float64]:
    """Relative errors of the step times of jobs that share links."""
    return np.array(
        [
            result / job.together_s - 1
            for one in sets
            for job, result in zip(one.jobs, predicted_s(one, constants).tolist(), strict=True)
            if job.shares
        ]
    )


def fit(sets: Sequence[SimulatedSet]) -> NDArray[np.float64]:
    """Constants of least error: steps along one constant at a time from those in use, halved where none is better.

    Args:
        sets: to which they are fitted; the errors are those of jobs that share links.
    """
    best = np.array(CONSTANTS)
    least = _loss(sets, best)
    step = FIRST_STEP
    while step >= LAST_STEP:
        tried = [best + sign * step * axis for axis in np.eye(len(best)) for sign in (-1, 1)]
        losses = [_loss(sets, one) if (one >= 0).all() and one[3] <= 1 else np.inf for one in tried]
        if min(losses) < least:
            least, best = min(losses), tried[int(np.argmin(losses))]
        else:
            step /= 2
    return np.round(best, 2)


def _loss(sets: Sequence[SimulatedSet], constants: NDArray[np.float64]) -> float:
    errors = np.abs(sharing_errors(sets, constants))
    return float(errors.mean() + TAIL * np.quantile(errors, 0.95))
