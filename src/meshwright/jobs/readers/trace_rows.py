"""Jobs that a cluster recorded, row by row, still as text: CSV with any names of columns, Philly's job log, Slurm's accounting.

Rows of Alibaba's PAI are in `pai`. `jobs.trace` converts the texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import Field, model_validator

from ... import files, quantities
from ...errors import InputFileError
from ...settings import Settings

NAMES = {
    "timestamp": ("timestamp", "submit_time", "creation_time"),
    "duration": ("duration",),
    "num_gpus": ("num_gpus", "gpu_num", "num_gpu"),
}
"""Default names of the columns that every trace has.

The second names are those of Helios and Acme, the third those of Alibaba's trace of 2023.
"""

SPAN = ("start", "end")
"""Columns that say a duration by two times."""

_USUAL_SPAN = ("scheduled_time", "deletion_time")
"""Names of start and end in Alibaba's trace of 2023, which has no duration."""

OPTIONAL = ("model", "steps", "deadline", "requested_gpus")

_SECONDS = re.compile(r"[0-9]{1,7}|1[0-8][0-9]{6}|[0-9]{9,12}|[0-9]{1,12}\.[0-9]{1,9}")
"""Seconds by number, from the trace's beginning or since 1970. Eight digits, from 19000000 on, are a date of ISO 8601."""

FIRST_SINCE_1970_S = 1e8
"""Smaller times count from the trace's beginning: three years of it, or since 1970 a day of 1973."""

_ABSENT = ("", "none", "null", "unknown")
"""How cells without a value are written, in lower case."""

OF_SACCT = {"timestamp": "Submit", "start": "Start", "end": "End", "num_gpus": "AllocTRES"}
"""Columns of what sacct lists, in any order."""

JOB_OF_SACCT = "JobID"
"""Its column of the number of a job, and behind a dot of a part of one."""

_GPUS = re.compile(r"(?:^|,)gres/gpu(?P<type>:[^=,]+)?=(?P<count>[0-9]+)(?=,|$)")
"""GPUs in a list of Slurm's resources: all of them, and those of each type."""

_SLICE = re.compile(r"[0-9]g[._-]?[0-9]+gb", re.IGNORECASE)
"""In the type of a MIG slice, which is no GPU."""

_Name = Field(default=None, min_length=1, exclude_if=lambda name: name is None)


class TraceColumns(Settings):
    """How a trace calls its columns, where it does not call them as `NAMES` says; those of `OPTIONAL` are read where named.

    Attributes:
        timestamp: when the job was submitted, a date or seconds.
        duration: seconds for which it ran.
        start, end: in place of a duration, when it began and ended, dates or seconds; it begins by default when submitted.
        num_gpus: on how many GPUs it ran.
        model: what it trained; see `jobs.trace.TraceArrivals.models`.
        steps: how many steps it made.
        deadline: a date, or seconds from its submission.
        requested_gpus: GPUs that its user asked for, where others ran it.
    """

    timestamp: str | None = _Name
    duration: str | None = _Name
    num_gpus: str | None = _Name
    model: str | None = _Name
    steps: str | None = _Name
    deadline: str | None = _Name
    requested_gpus: str | None = _Name
    start: str | None = _Name
    end: str | None = _Name

    @model_validator(mode="after")
    def _has_one_duration(self) -> Self:
        if self.end is not None and self.duration is not None:
            raise ValueError("end: the trace has a duration; name one of the two")
        if self.end is None and self.start is not None:
            raise ValueError("start: goes with end, when each job ended; name both")
        return self


class TraceRow(NamedTuple):
    """A job as written in its trace; what is missing there is empty.

    Attributes:
        line: in its file, where that has lines of jobs.
        text: the whole row, by whose hash a graph is drawn.
    """

    line: int | None
    text: list[str]
    timestamp: str
    duration: str
    num_gpus: str
    model: str = ""
    steps: str = ""
    deadline: str = ""
    requested_gpus: str = ""


def csv_rows(path: str | Path, called: TraceColumns, delimiter: str = ",") -> Iterator[TraceRow]:
    """Yield rows of a CSV with a header; those without a duration, or without a beginning or end, are of jobs that never ran.

    They are left out.

    Raises:
        InputFileError: a column is missing, or a row has more or fewer than the header.
    """
    reader = files.read_csv(path, delimiter=delimiter)
    header = [name.strip() for name in next(reader, (1, []))[1]]
    if called.duration is called.end is called.start is None and "duration" not in header and {*_USUAL_SPAN} <= {*header}:
        called = called.model_copy(update=dict(zip(SPAN, _USUAL_SPAN, strict=True)))
    at: list[int | None] = []
    twice = {name for name in header if header.count(name) > 1}
    for field in (*NAMES, *OPTIONAL, *SPAN):
        target = getattr(called, field)
        names = NAMES.get(field, ()) if target is None else (target,)
        if field == "duration" and called.end is not None:
            names = ()
        results = [header.index(name) for name in names if name in header]
        if names and not results:
            others = f", and so {'is' if len(names) == 2 else 'are'} {', '.join(names[1:])}" if names[1:] else ""
            problem = f"the column is missing{others}; arrivals.columns.{field} says what the trace calls it"
            raise InputFileError(problem, file=path, line=1, field=names[0], value=",".join(header))
        if results and header[results[0]] in twice:
            raise InputFileError(
                "two columns have this name", file=path, line=1, field=header[results[0]], value=",".join(header)
            )
        at.append(results[0] if results else None)
    *at, start, end = at
    start = at[0] if start is None else start
    needed = [one for one in (at[1], *((start, end) if end is not None else ())) if one is not None]
    for line, row in reader:
        if len(row) != len(header):
            raise InputFileError(f"has {len(row)} columns, not {len(header)}", file=path, line=line, value=",".join(row))
        if any(is_absent(row[column]) for column in needed):
            continue
        cells = ["" if column is None else row[column] for column in at]
        if start is not None and end is not None:
            began_s, ended_s = (seconds(row[one].strip(), path, line, header[one]) for one in (start, end))
            if ended_s < began_s:
                raise InputFileError("a job ends before it begins", file=path, line=line, field=header[end], value=row[end])
            cells[1] = f"{ended_s - began_s:.3f}"
        yield TraceRow(line, row, *cells)


def sacct_rows(path: str | Path, called: TraceColumns) -> Iterator[TraceRow]:
    """Yield the jobs of ``sacct --parsable2``; steps (``12.batch``) are parts of jobs and are left out.

    Raises:
        InputFileError: as `csv_rows`.

    Source:
        sacct(1) of Slurm: fields Submit, Start, End and AllocTRES.
    """
    _, header = next(files.read_csv(path, delimiter="|"), (1, []))
    if JOB_OF_SACCT not in header:
        raise InputFileError("the column is missing", file=path, line=1, field=JOB_OF_SACCT, value=",".join(header))
    at = header.index(JOB_OF_SACCT)
    for row in csv_rows(path, called.model_copy(update=OF_SACCT), delimiter="|"):
        if "." not in row.text[at]:
            yield row._replace(num_gpus=str(_num_gpus(row.num_gpus)))


def philly_rows(path: str | Path) -> Iterator[TraceRow]:
    """Yield jobs of Philly's ``cluster_job_log``: the time of submission, the seconds of all attempts, the GPUs of the last one.

    Jobs without a finished attempt are left out.

    Raises:
        InputFileError: the file is no such log, or a time cannot be read.

    Source:
        The schema that msr-fiddle/philly-traces documents (Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for
        DNN training workloads", 2019).
    """
    jobs = files.read_json(path)
    if not isinstance(jobs, list):
        raise InputFileError("a list of jobs is wanted, as Philly's cluster_job_log has", file=path, value=type(jobs).__name__)
    for number, job in enumerate(jobs):
        try:
            attempts = [one for one in job["attempts"] if not any(is_absent(str(one[end])) for end in ("start_time", "end_time"))]
            gpus = sum(len(host["gpus"]) for host in attempts[-1]["detail"]) if attempts else 0
            submitted = str(job["submitted_time"])
            job_id = str(job.get("jobid", number))
        except (KeyError, TypeError, AttributeError):
            problem = "wants submitted_time, and attempts with start_time, end_time and detail with gpus"
            raise InputFileError(problem, file=path, field=f"job {number}") from None
        if attempts and gpus:
            seconds(submitted, path, None, f"job {number}.submitted_time")
            took_s = sum(_took_s(attempt, path, f"job {number}") for attempt in attempts)
            yield TraceRow(None, [job_id], submitted, f"{took_s:.3f}", str(gpus))


def number(text: str, field: str, path: str | Path, line: int | None, unit: str = "") -> float:
    """Return a number of a row that is not negative.

    Raises:
        InputFileError: it is none, with file, line and field.
    """
    try:
        return quantities.amount(text, unit)
    except ValueError as error:
        raise InputFileError(str(error), file=path, line=line, field=field, value=text) from None


def seconds(text: str, path: str | Path, line: int | None, field: str = "timestamp") -> float:
    """Return the seconds since 1970 of a date; plain numbers are returned as they are.

    Raises:
        InputFileError: neither, with file, line and field.
    """
    problem = "must read YYYY-MM-DD HH:MM:SS, or be seconds"
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):  # the second for a time zone that leads out of the calendar
        if text.isdecimal() and len(text) in (8, 13):
            problem += "; eight digits are a date" if len(text) == 8 else "; 13 digits are milliseconds"
        raise InputFileError(problem, file=path, line=line, field=field, value=text) from None


def is_absent(text: str) -> bool:
    """Return whether a cell has no value."""
    return text.strip().lower() in _ABSENT


def _took_s(attempt: Mapping[str, object], path: str | Path, job: str) -> float:
    start_s, end_s = (seconds(str(attempt[end]), path, None, f"{job}.{end}") for end in ("start_time", "end_time"))
    if end_s < start_s:
        value = f"{attempt['start_time']} to {attempt['end_time']}"
        raise InputFileError("an attempt ends before it begins", file=path, field=f"{job}.end_time", value=value)
    return end_s - start_s


def _num_gpus(resources: str) -> int:
    """Return whole GPUs: all less slices where all are counted, else those of each type."""
    results = [(match["type"] or "", int(match["count"])) for match in _GPUS.finditer(resources)]
    slices = sum(count for kind, count in results if _SLICE.search(kind))
    every = sum(count for kind, count in results if not kind)
    return max(0, every - slices) if every else sum(count for _, count in results) - slices
