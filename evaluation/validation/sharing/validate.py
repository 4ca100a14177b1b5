"""Step times of the fast model and of the event path, by cluster and number of jobs, and the model's fit.

A job that shares no link has the same step time in both. So every mean has two values: of all jobs, and of those that share
links.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
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


def compared(sets: Sequence[SimulatedSet], predicted_s: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Step times of jobs by the fast model next to the simulated ones.

    Args:
        sets: what was simulated.
        predicted_s: of each job of each set.

    Returns:
        A row for each job, and groups with mean and 95th percentile of the relative errors, also as if sharing were left out.
        Groups are all jobs, those that share links, and the latter by cluster and by jobs of a set.
    """
    jobs = [
        (one, job, result)
        for one, results in zip(sets, predicted_s, strict=True)
        for job, result in zip(one.jobs, results, strict=True)
    ]
    rows = [
        {
            "set": one.number,
            "cluster": one.cluster,
            "job": job.name,
            "layout": job.layout,
            "shares_links": job.shares,
            "alone_s": job.alone_s,
            "predicted": result,
            "reference": job.together_s,
            "relative_error": abs(result / job.together_s - 1),
        }
        for one, job, result in jobs
    ]
    named: dict[str, list[tuple[float, float]]] = {"all jobs": [], "jobs that share links": []}
    for key in (lambda one: one.cluster, lambda one: f"{len(one.jobs)} jobs"):
        named |= {name: [] for name in sorted({key(one) for one, job, _ in jobs if job.shares})}
    for one, job, result in jobs:
        names = ("jobs that share links", one.cluster, f"{len(one.jobs)} jobs") if job.shares else ()
        for name in ("all jobs", *names):
            named[name].append((abs(result / job.together_s - 1), abs(job.alone_s / job.together_s - 1)))
    groups = []
    for name, errors in named.items():
        if errors:
            ends = [(float(np.mean(one)), float(np.quantile(one, 0.95))) for one in zip(*errors, strict=True)]
            keys = ("mean_error", "p95_error", "no_sharing_mean_error", "no_sharing_p95_error")
            groups.append({"group": name, "jobs": len(errors), **dict(zip(keys, sum(ends, ()), strict=True))})
    return {"sets": len(sets), "rows": rows, "groups": groups}


def validate(num_sets: int, folder: Path | None = None, *, progress: Progress | None = None) -> dict[str, Any]:
    """Simulate sets on which nothing was fitted, and compare their step times with predicted ones; see `compared`.

    Args:
        num_sets: sets in which a link is shared.
        folder: where simulated sets are kept.
        progress: called after each set.

    Raises:
        ConfigError: no set.
        InputFileError: a kept set that cannot be read; a `ConfigError` where it holds something else.
    """
    sets = simulated(num_sets, UNSEEN_SEED, folder, progress)
    return compared(sets, [predicted_s(one).tolist() for one in sets])


def simulated(num_sets: int, seed: int, folder: Path | None = None, progress: Progress | None = None) -> tuple[SimulatedSet, ...]:
    """Return the first sets of a seed in which a link is shared; arguments and errors as of `validate`."""
    if num_sets < 1:
        raise ConfigError("must be at least 1", field="--set sets", value=num_sets)
    result = simulated_sets(seed, folder)
    return tuple(next(result) for _ in reported(range(num_sets), f"sets of seed {seed}", progress))


def simulated_sets(seed: int, folder: Path | None = None) -> Iterator[SimulatedSet]:
    """Yield all sets of a seed in which a link is shared, by their number; there is no last one.

    Args:
        seed: of the draws.
        folder: where sets are kept, one file each, and taken from.

    Raises:
        InputFileError, ConfigError: a file in the folder that cannot be read or holds something else.
    """
    for number in count():
        path = None if folder is None else folder / f"{seed}-{number}.json"
        if path is not None and path.exists():
            result = settings.build_settings(SimulatedSet, files.read_json(path), file=path)
        else:
            result = run_set(draw(seed, number))
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                files.write_json(path, result.model_dump())
        if result.jobs:
            yield result


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
    """Return the relative errors of the step times of jobs that share links."""
    return np.array(
        [
            result / job.together_s - 1
            for one in sets
            for job, result in zip(one.jobs, predicted_s(one, constants).tolist(), strict=True)
            if job.shares
        ]
    )


def fit(sets: Sequence[SimulatedSet]) -> NDArray[np.float64]:
    """Return the constants of least error: steps along one constant at a time from those in use, halved where none is better.

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
