"""The published elastic workloads replayed: every job's completion time compared with the stored one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class ReplayedWorkload:
    """One workload under one published scheduler.

    Attributes:
        policy: the scheduler.
        load: name of the workload's folder.
        workload: its name.
        published_mean_s: mean completion time as published.
        mean_s: ours.
        num_jobs: jobs of the workload.
        num_equal: jobs that end in the same second.
        num_within_round: others that end at most one round apart.
        num_off: the rest.
    """

    policy: str
    load: str
    workload: str
    published_mean_s: float
    mean_s: float
    num_jobs: int
    num_equal: int
    num_within_round: int
    num_off: int


@dataclass(frozen=True)
class ElasticReplay:
    """All replayed workloads, and the figures that are compared."""

    workloads: tuple[ReplayedWorkload, ...]
    comparison: Comparison

    def to_data(self) -> dict[str, Any]:
        """Plain data: the compared figures, and a line for each workload."""
        return {**self.comparison.to_data(), "workloads": [asdict(each) for each in self.workloads]}


def validate(folder: str | Path, progress: Progress | None = None) -> ElasticReplay:
    """Play every workload under every published scheduler that is played again.

    Args:
        folder: holds ``applications/``, ``workloads/LOAD/*.csv`` and ``published/POLICY-LOAD.json``.
        progress: called with a load and scheduler, and how many of its workloads are done.

    Raises:
        InputFileError: a folder, file, column, workload or job is missing, or something in them is malformed.
    """
    folder = subfolder(Path(folder))
    applications = load_applications(folder / "applications")
    simulation = ElasticSimulation(applications)
    loads = sorted(path for path in subfolder(folder / "workloads").iterdir() if path.is_dir())
    if not loads:
        raise InputFileError("holds no folder of workloads", file=folder / "workloads")
    replayed_workloads: list[ReplayedWorkload] = []
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
                counts = len(ours), equal, near, len(ours) - equal - near
                means.append((float(theirs.mean()), float(ours.mean())))
                replayed_workloads.append(ReplayedWorkload(policy, load.name, workload.name, *means[-1], *counts))
                if policy in TO_THE_SECOND:
                    rows += _jobs(policy, f"{load.name} {workload.name}", workload, ours, theirs, round_s)
            reference, mine = np.mean(means, axis=0).tolist()
            rows.append(ComparedFigure(f"{policy} mean", load.name, "mean_completion_s", mine, reference, MEAN_TOLERANCE))
    return ElasticReplay(tuple(replayed_workloads), Comparison(tuple(rows)))


def _jobs(
    policy: str, group: str, workload: ElasticWorkload, ours: NDArray[np.int64], theirs: NDArray[np.int64], round_s: int
) -> list[ComparedFigure]:
    return [
        ComparedFigure(policy, group, name, mine, reference, round_s / reference if reference else 0.0)
        for name, mine, reference in zip(workload.job_names, ours.tolist(), theirs.tolist(), strict=True)
    ]
