"""Jobs of Alibaba's PAI as recorded in 2020: a table of tasks without a header, and two optional tables in the same folder.

``pai_task_table.csv`` has a row for each task of a job: its number of instances, hundredths of a GPU of each, start and end. A
job's GPUs are those of all its tasks; its time runs from the first start to the last end. Tasks without GPUs, such as parameter
servers on processors, do not count. A job is left out if a task with GPUs lacks its number of instances, its start or its end (it
waited or still ran).

``pai_job_table.csv`` in the same folder has submission times; without it jobs arrive when their first task begins.
``pai_group_tag_table.csv`` has the model of each job, if `TraceColumns.model` names one of its columns, such as ``workload``.

Source:
    The schema that alibaba/clusterdata documents in cluster-trace-gpu-v2020. Weng et al., "MLaaS in the wild: workload analysis
    and scheduling in large-scale heterogeneous GPU clusters", NSDI 2022.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ... import files
from ...errors import InputFileError
from .trace_rows import TraceColumns, TraceRow, is_absent, number, seconds

TASKS = "pai_task_table.csv"
JOBS = "pai_job_table.csv"
TAGS = "pai_group_tag_table.csv"

_HEADERS = {
    TASKS: [
        *("job_name", "task_name", "inst_num", "status", "start_time"),
        *("end_time", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
    ],
    JOBS: ["job_name", "inst_id", "user", "status", "start_time", "end_time"],
    TAGS: ["inst_id", "user", "gpu_type_spec", "group", "workload"],
}


@dataclass
class _Job:
    line: int
    num_gpus: float = 0.0
    start_s: float = float("inf")
    end_s: float = 0.0
    is_whole: bool = True


def pai_rows(path: str | Path, called: TraceColumns) -> Iterator[TraceRow]:
    """Yield jobs with GPUs, in the order of their first rows.

    Args:
        path: the table of tasks; the others are in the same folder.
        called: its ``model`` names a column of the table of tags.

    Raises:
        InputFileError: a row is malformed, or ``called.model`` is set and the table of tags is missing.
    """
    jobs = _jobs(Path(path))
    submitted, ids = _submissions(Path(path).parent / JOBS)
    models = {} if called.model is None else _models(Path(path).parent, called.model)
    for name, job in jobs.items():
        if job.num_gpus and job.is_whole:
            start = submitted.get(name) or f"{job.start_s:.3f}"
            model = models.get(ids.get(name, ""), "")
            yield TraceRow(job.line, [name], start, f"{job.end_s - job.start_s:.3f}", f"{job.num_gpus:.9g}", model)


def _jobs(path: Path) -> dict[str, _Job]:
    jobs: dict[str, _Job] = {}
    for line, (name, _, instances, _, start, end, _, _, gpus, _) in _table(path, TASKS):
        share = 0.0 if is_absent(gpus) else number(gpus.strip(), "plan_gpu", path, line) / 100
        if not share:
            continue
        job = jobs.setdefault(name, _Job(line))
        start_s, end_s, num = (
            0.0 if is_absent(text) else number(text.strip(), field, path, line)
            for text, field in ((start, "start_time"), (end, "end_time"), (instances, "inst_num"))
        )
        job.is_whole &= 0.0 < start_s <= end_s and num > 0.0
        job.num_gpus += num * share
        job.start_s, job.end_s = min(job.start_s, start_s), max(job.end_s, end_s)
    return jobs


def _submissions(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return when each job was submitted, and its id in the table of tags."""
    if not path.exists():
        return {}, {}
    rows = [(line, name, number_id, start.strip()) for line, (name, number_id, _, _, start, _) in _table(path, JOBS)]
    started = {name: f"{seconds(start, path, line, 'start_time'):.3f}" for line, name, _, start in rows if not is_absent(start)}
    return started, {name: number_id for _, name, number_id, _ in rows}


def _models(folder: Path, column: str) -> dict[str, str]:
    header = _HEADERS[TAGS]
    if column not in header[1:]:
        problem = f"{TAGS} has no such column"
        raise InputFileError(problem, file=folder / TAGS, field="columns.model", value=column, choices=header[1:])
    for name in (JOBS, TAGS):
        if not (folder / name).exists():
            problem = f"columns.model is given by {JOBS} and {TAGS}, next to the table of tasks"
            raise InputFileError(problem, file=folder / name, field="columns.model", value=column)
    at = header.index(column)
    return {row[0]: row[at].strip() for _, row in _table(folder / TAGS, TAGS)}


def _table(path: Path, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of one of the tables, which is published without its header; one that was put there is passed over."""
    header = _HEADERS[name]
    for line, row in files.read_csv(path):
        if len(row) != len(header):
            problem = f"has {len(row)} columns, not the {len(header)} of {name}"
            raise InputFileError(problem, file=path, line=line, value=",".join(row))
        if line > 1 or [each.strip() for each in row] != header:
            yield line, row
