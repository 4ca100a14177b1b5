"""Reads measured elastic jobs: applications, workloads and completion times as the artifact of Pollux stores them.

``applications/NAME/`` holds the measurements of one application. ``placements.csv`` has step times on up to four hosts, for every
way in which ranks lie on them, and ``scalability.csv`` on more hosts. A ``validation-BATCH.csv`` follows for each global batch of
its training. ``workloads/LOAD/NAME.csv`` holds the jobs of a workload, ``published/POLICY-LOAD.json`` their completion times
under a published scheduler.

Source:
    Qiao et al., "Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning", OSDI 2021, and its artifact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import files, quantities
from ...errors import InputFileError

MAX_LOCAL_BATCH = {"yolov3": 8}
"""Samples of a rank that fit its memory, where that is less than what was measured; from the artifact's table."""

_PLACEMENT = re.compile("[1-4]{1,16}")
_LARGEST = 10**12

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class MeasuredSteps:
    """Times of single training steps.

    Attributes:
        placement: ranks on each host as decimal digits, ``(n,)``; 0 where only the numbers are known.
        num_hosts: ``(n,)``.
        num_ranks: ``(n,)``.
        local_batch: samples of a rank, ``(n,)``.
        step_s: of a whole step, ``(n,)``.
        sync_s: its part in which ranks wait for gradients, ``(n,)``.
    """

    placement: Whole
    num_hosts: Whole
    num_ranks: Whole
    local_batch: Whole
    step_s: Floats
    sync_s: Floats


@dataclass(frozen=True, eq=False)
class ElasticApplication:
    """Measurements of one application.

    Attributes:
        name: of its folder.
        placed: steps on up to four hosts.
        scaled: steps on more.
        batch: global batches it was trained with, increasing, ``(b,)``.
        progress: progress by the end of an epoch, in steps of the smallest batch, ``(b, epochs)``.
        iteration: steps taken by the end of an epoch, ``(b, epochs)``.
        grad_sqr: squared norm of the mean gradient in an epoch, ``(b, epochs)``.
        grad_var: variance of the gradient of the smallest batch in an epoch, ``(b, epochs)``.
        max_local_batch: samples of a rank that fit its memory.
    """

    name: str
    placed: MeasuredSteps
    scaled: MeasuredSteps
    batch: Whole
    progress: Floats
    iteration: Floats
    grad_sqr: Floats
    grad_var: Floats
    max_local_batch: int

    @property
    def num_epochs(self) -> int:
        """Number of epochs to the target quality."""
        return len(self.progress[0])


@dataclass(frozen=True, eq=False)
class ElasticWorkload:
    """Jobs in the order of a file.

    Attributes:
        name: of the file, without its ending.
        job_names: ``j`` of them.
        submission_s: ``(j,)``.
        application: index into ``applications``, ``(j,)``.
        num_ranks: what the user asks for, ``(j,)``.
        batch: global batch that the user asks for, ``(j,)``.
    """

    name: str
    job_names: tuple[str, ...]
    submission_s: Whole
    application: Whole
    num_ranks: Whole
    batch: Whole


def load_applications(folder: str | Path) -> tuple[ElasticApplication, ...]:
    """Return every application of a folder, by name.

    Raises:
        InputFileError: no such folder, none in it, a file or column is missing, a row is malformed or appears twice.
    """
    folders = sorted(path for path in _listed(folder) if path.is_dir())
    if not folders:
        raise InputFileError("holds no folder of an application", file=folder)
    return tuple(map(_application, folders))


def load_workload(path: str | Path, applications: tuple[ElasticApplication, ...]) -> ElasticWorkload:
    """Read the jobs of a workload.

    Raises:
        InputFileError: the file or a column is missing, a row is malformed, an application is unknown, a job appears twice or
            exceeds the measurements.
    """
    known = {application.name: number for number, application in enumerate(applications)}
    seen: dict[str, int] = {}
    table = _table(path, {"name": str, "time": _count, "application": str, "num_replicas": _positive, "batch_size": _positive})
    for line, name, application, ranks, batch in zip(
        table.lines, table["name"], table["application"], table["num_replicas"], table["batch_size"], strict=True
    ):
        if name in seen:
            raise InputFileError(f"the job is already on line {seen[name]}", file=path, line=line, field="name", value=name)
        seen[name] = line
        if application not in known:
            raise InputFileError(
                "no such application", file=path, line=line, field="application", value=application, choices=known
            )
        measured = applications[known[application]]
        least, most = int(measured.batch[0]), int(measured.batch[-1])
        smallest = int(measured.placed.local_batch.min())
        if not least <= batch <= most:
            problem = f"{application} was measured with batches of {least} to {most}"
            raise InputFileError(problem, file=path, line=line, field="batch_size", value=batch)
        if ranks * smallest > most:
            problem = f"so many ranks of {application} hold more than a batch of {most}"
            raise InputFileError(problem, file=path, line=line, field="num_replicas", value=ranks)
    return ElasticWorkload(
        Path(path).stem,
        tuple(table["name"]),
        np.array(table["time"], np.int64),
        np.array([known[name] for name in table["application"]], np.int64),
        np.array(table["num_replicas"], np.int64),
        np.array(table["batch_size"], np.int64),
    )


def load_workloads(folder: Path, applications: tuple[ElasticApplication, ...]) -> tuple[ElasticWorkload, ...]:
    """Return every workload of a folder, by name.

    Raises:
        InputFileError: no such folder, none in it, or as `load_workload` says.
    """
    result = tuple(load_workload(path, applications) for path in sorted(subfolder(folder).glob("*.csv")))
    if not result:
        raise InputFileError("holds no workload (*.csv)", file=folder)
    return result


def subfolder(path: Path) -> Path:
    """Return a folder that is there.

    Raises:
        InputFileError: it is not.
    """
    if not path.is_dir():
        raise InputFileError("no such folder", file=path)
    return path


def load_published_times(path: Path, workloads: Sequence[ElasticWorkload]) -> tuple[Whole, ...]:
    """Return the completion times of workloads under a published scheduler, in the order of their jobs, each ``(j,)``.

    Raises:
        InputFileError: a workload or job is missing, or as `load_published` says.
    """
    published = load_published(path)
    results = []
    for workload in workloads:
        if workload.name not in published:
            raise InputFileError("the workload is missing", file=path, field="jcts", value=workload.name, choices=published)
        times = published[workload.name]
        for name in workload.job_names:
            if name not in times:
                raise InputFileError("the job is missing", file=path, field=f"jcts.{workload.name}", value=name, choices=times)
        results.append(np.array([times[name] for name in workload.job_names], np.int64))
    return tuple(results)


def load_published(path: str | Path) -> dict[str, dict[str, int]]:
    """Return the completion time of each job of each workload, in seconds after its submission.

    Raises:
        InputFileError: the file is missing, no JSON, or not of the form ``{"jcts": {WORKLOAD: {JOB: SECONDS}}}``.
    """
    data = files.read_json(path)
    times = data.get("jcts") if isinstance(data, dict) else None
    if not isinstance(times, dict) or not times:
        raise InputFileError("completion times of workloads are wanted", file=path, field="jcts")
    for workload, jobs in times.items():
        if not isinstance(jobs, dict) or not jobs:
            raise InputFileError("completion times of jobs are wanted", file=path, field=f"jcts.{workload}")
        for job, seconds in jobs.items():
            if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 <= seconds < _LARGEST:
                problem = "must be a whole number of seconds"
                raise InputFileError(problem, file=path, field=f"jcts.{workload}.{job}", value=seconds)
    return times


def _application(folder: Path) -> ElasticApplication:
    placed = _placed(folder / "placements.csv")
    runs = {_batch_of(path): path for path in sorted(folder.glob("validation-*.csv"))}
    if not runs:
        raise InputFileError("holds no validation-BATCH.csv", file=folder)
    columns = {"progress": _real, "iteration": _real, "grad_sqr": _real, "grad_var": _real}
    tables = {batch: _table(runs[batch], columns) for batch in sorted(runs)}
    for batch, table in tables.items():
        for field in ("progress", "iteration"):
            falls = np.flatnonzero(np.diff(np.array([0.0, *table[field]])) <= 0)
            if len(falls):
                line = table.lines[falls[0]]
                problem = "must be larger than in the row before"
                raise InputFileError(problem, file=runs[batch], line=line, field=field, value=table[field][falls[0]])
    epochs = min(len(table.lines) for table in tables.values())
    stacked = {name: np.array([table[name][:epochs] for table in tables.values()], np.float64) for name in columns}
    limit = min(MAX_LOCAL_BATCH.get(folder.name, _LARGEST), int(placed.local_batch.max()))
    return ElasticApplication(
        folder.name, placed, _scaled(folder / "scalability.csv"), np.array([*tables]), **stacked, max_local_batch=limit
    )


def _batch_of(path: Path) -> int:
    try:
        return _positive(path.stem.removeprefix("validation-"))
    except ValueError as error:
        raise InputFileError(f"the batch in the name {error}", file=path) from None


def _placed(path: Path) -> MeasuredSteps:
    table = _table(path, {"placement": _placement, "local_bsz": _positive, "step_time": _real, "sync_time": _real})
    placement = np.array(table["placement"], np.int64)
    digits = [str(each) for each in table["placement"]]
    hosts, ranks = np.array([len(each) for each in digits]), np.array([sum(map(int, each)) for each in digits])
    _check_unique(path, table, ("placement", "local_bsz"))
    return _steps(path, table, placement, hosts, ranks)


def _scaled(path: Path) -> MeasuredSteps:
    columns = {"num_nodes": _positive, "num_replicas": _positive, "local_bsz": _positive, "step_time": _real, "sync_time": _real}
    table = _table(path, columns)
    hosts, ranks = np.array(table["num_nodes"], np.int64), np.array(table["num_replicas"], np.int64)
    _check_unique(path, table, ("num_nodes", "num_replicas", "local_bsz"))
    return _steps(path, table, np.zeros(len(hosts), np.int64), hosts, ranks)


def _steps(path: Path, table: _Table, placement: Whole, hosts: Whole, ranks: Whole) -> MeasuredSteps:
    step_s, sync_s = np.array(table["step_time"]), np.array(table["sync_time"])
    bad = np.flatnonzero((sync_s >= step_s) | (step_s <= 0))
    if len(bad):
        line, value = table.lines[bad[0]], table["sync_time"][bad[0]]
        raise InputFileError("waiting takes no less than the whole step", file=path, line=line, field="sync_time", value=value)
    return MeasuredSteps(placement, hosts, ranks, np.array(table["local_bsz"], np.int64), step_s, sync_s)


class _Table(dict[str, list]):  # type: ignore[type-arg]
    """Columns by name.

    Attributes:
        lines: line of each row.
    """

    lines: list[int]


def _table(path: str | Path, columns: Mapping[str, Callable[[str], object]]) -> _Table:
    """Return some columns of a CSV file, each cell read by a function that raises ValueError with a phrase."""
    rows = files.read_csv(path)
    first, header = next(rows, (1, []))
    header = [name.strip() for name in header]
    for name in columns:
        if name not in header:
            raise InputFileError("the column is missing", file=path, line=first, field=name, choices=header)
    result, places = _Table({name: [] for name in columns}), [header.index(name) for name in columns]
    result.lines = []
    for line, row in rows:
        if len(row) != len(header):
            raise InputFileError(f"has {len(row)} columns, not {len(header)}", file=path, line=line, value=",".join(row))
        result.lines.append(line)
        for (name, parse), place in zip(columns.items(), places, strict=True):
            try:
                result[name].append(parse(row[place].strip()))
            except ValueError as error:
                raise InputFileError(str(error), file=path, line=line, field=name, value=row[place]) from None
    if not result.lines:
        raise InputFileError("holds no row", file=path)
    return result


def _check_unique(path: Path, table: _Table, key: tuple[str, ...]) -> None:
    seen: dict[tuple[object, ...], int] = {}
    for line, values in zip(table.lines, zip(*(table[name] for name in key), strict=True), strict=True):
        if values in seen:
            raise InputFileError(f"was measured already on line {seen[values]}", file=path, line=line, value=values)
        seen[values] = line


def _listed(folder: str | Path) -> list[Path]:
    return list(subfolder(Path(folder)).iterdir())


def _real(text: str) -> float:
    return quantities.amount(text)


def _count(text: str) -> int:
    value = quantities.whole(text)
    if not 0 <= value < _LARGEST:
        raise ValueError("must be a whole number that is not negative")
    return value


def _positive(text: str) -> int:
    value = _count(text)
    if value == 0:
        raise ValueError("must be at least 1")
    return value


def _placement(text: str) -> int:
    if _PLACEMENT.fullmatch(text) is None:
        raise ValueError("must be the ranks on each host, as 1 to 16 digits of 1 to 4")
    return int(text)
