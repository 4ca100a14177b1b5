"""The published elastic workloads replayed: every job's completion time compared with the stored one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputFileError
from ...jobs.readers.elastic import ElasticWorkload, load_applications, load_published_times, load_workloads, subfolder
from ...planners.elastic.scheduler import PUBLISHED, play
from ...simulation.elastic.simulation import ElasticSimulation
from ..progress import Progress, reported
from .comparison import ComparedFigure, Comparison

MEAN_TOLERANCE = 0.01
"""Of a load's mean completion time, where single decisions hang on how equal boxes of measurements are cut into tetrahedra."""

TO_THE_SECOND = ("tiresias",)
"""Schedulers compared job by job; others are compared by the mean of a load."""


def validate(folder: str | Path, progress: Progress | None = None) -> tuple[Comparison, list[dict[str, Any]]]:
    """Play every workload under every published scheduler that is played again.

    Args:
        folder: holds ``applications/``, ``workloads/LOAD/*.csv`` and ``published/POLICY-LOAD.json``.
        progress: called with a load and scheduler, and how many of its workloads are done.

    Returns:
        The compared figures, and a row for each workload under each scheduler. It has means in seconds, as published and ours.
        It counts jobs that end in the same second, others that end at most one round apart, and the rest.

    Raises:
        InputFileError: a folder, file, column, workload or job is missing, or something in them is malformed.
    """
    folder = subfolder(Path(folder))
    applications = load_applications(folder / "applications")
    simulation = ElasticSimulation(applications)
    loads = sorted(path for path in subfolder(folder / "workloads").iterdir() if path.is_dir())
    if not loads:
        raise InputFileError("holds no folder of workloads", file=folder / "workloads")
    replayed: list[dict[str, Any]] = []
    rows: list[ComparedFigure] = []
    for load in loads:
        workloads = load_workloads(load, applications)
        for policy, scheduler in PUBLISHED.items():
            published = load_published_times(subfolder(folder / "published") / f"{policy}-{load.name}.json", workloads)
            means = []
            pairs = list(zip(workloads, published, strict=True))
            for workload, theirs in reported(pairs, f"{policy} {load.name}", progress):
                (ours,) = play(simulation, scheduler(), [workload])
                apart, round_s = np.abs(ours - theirs), simulation.cluster.round_s
                equal, near = int((apart == 0).sum()), int(((apart > 0) & (apart <= round_s)).sum())
                means.append((float(theirs.mean()), float(ours.mean())))
                row: dict[str, Any] = {"policy": policy, "load": load.name, "workload": workload.name}
                row |= {"published_mean_s": means[-1][0], "mean_s": means[-1][1], "num_jobs": len(ours)}
                row |= {"num_equal": equal, "num_within_round": near, "num_off": len(ours) - equal - near}
                replayed.append(row)
                if policy in TO_THE_SECOND:
                    rows += _jobs(policy, f"{load.name} {workload.name}", workload, ours, theirs, round_s)
            reference, mine = np.mean(means, axis=0).tolist()
            rows.append(ComparedFigure(f"{policy} mean", load.name, "mean_completion_s", mine, reference, MEAN_TOLERANCE))
    return Comparison(tuple(rows)), replayed


def _jobs(
    policy: str, group: str, workload: ElasticWorkload, ours: NDArray[np.int64], theirs: NDArray[np.int64], round_s: int
) -> list[ComparedFigure]:
    return [
        ComparedFigure(policy, group, name, mine, reference, round_s / reference if reference else 0.0)
        for name, mine, reference in zip(workload.job_names, ours.tolist(), theirs.tolist(), strict=True)
    ]
