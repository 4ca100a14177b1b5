"""Jobs of a recorded cluster trace: a CSV with the time, duration and number of GPUs of each job.

Columns read are ``timestamp`` (ISO 8601, as ``YYYY-MM-DD HH:MM:SS``, or seconds), ``duration`` (seconds) and ``num_gpus``, or
what the settings call them; others only count for the hash of the row. The rows need not be sorted.

Test, validation and training episodes take their jobs from three parts of the trace that share no row, in order of time
the training part first (`PARTS`). Which part a generator draws from is told by its seed, as everywhere in this project:
below 100 test, below 1,000 validation, all others training.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from .. import files, quantities
from ..errors import InputFileError
from ..settings import Settings
from .seeds import FIRST_TRAINING_SEED, FIRST_VALIDATION_SEED

# Where each part of a trace begins and ends, as shares of its rows.
PARTS = {"training": (0.0, 0.4), "validation": (0.4, 0.65), "test": (0.65, 1.0)}
# Multiples of it, less their whole parts, lie apart from each other however many there are.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0

_COLUMNS = ("timestamp", "duration", "num_gpus")

_SECONDS = re.compile(r"[0-9]{1,7}(\.[0-9]{1,9})?|[0-9]{9,12}(\.[0-9]{1,9})?")
"""Seconds by number: up to four months from the trace's beginning, or since 1970. Eight digits are a date of ISO 8601."""

MAX_GPUS = 100_000
"""Of one job."""


class TraceColumns(Settings):
    """How a trace calls its columns."""

    timestamp: str = Field(default="timestamp", min_length=1)
    duration: str = Field(default="duration", min_length=1)
    num_gpus: str = Field(default="num_gpus", min_length=1)


class TraceArrivals(Settings):
    """Jobs as a trace recorded them; with an offered load, their time is scaled to it.

    An episode is a run of consecutive rows (see `Trace.window`); its time is scaled so that the work that arrives, per
    second and device of ``num_devices``, is ``offered_load``. Without these jobs arrive when they did. Without a ``file`` the
    user has to name one; ``source`` tells where it is found.
    """

    kind: Literal["trace"]
    file: str | None = None
    source: str | None = None
    offered_load: float | None = Field(default=None, gt=0)
    num_devices: int | None = Field(default=None, gt=0)
    min_gpus: int = Field(default=2, gt=0)
    columns: TraceColumns | None = Field(default=None, exclude_if=lambda columns: columns is None)

    @model_validator(mode="after")
    def _is_scaled_by_both(self) -> Self:
        if (self.offered_load is None) != (self.num_devices is None):
            raise ValueError("offered_load and num_devices scale the time together; leave both out for the times as recorded")
        return self


@dataclass(frozen=True, eq=False)
class Trace:
    """The kept rows of a trace, sorted by time; rows of one second keep the order of the file.

    Attributes:
        start_s: time of the first row, in seconds since 1970.
        time_s: seconds since the first row, ``(rows,)``.
        duration_s: ``(rows,)``.
        work_s: device-seconds of each job: duration times GPUs, ``(rows,)``.
        hash_fraction: a number in [0, 1) drawn from the hash of the row's text, ``(rows,)``.
        file: where it was read.
    """

    start_s: float
    time_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    work_s: NDArray[np.float64]
    hash_fraction: NDArray[np.float64]
    file: str

    def window(self, rng: np.random.Generator, num_jobs: int) -> slice:
        """Consecutive rows within the part of the trace that the generator's seed stands for.

        Where test and validation windows begin follows from the seed alone, so that those of different seeds lie as far
        apart as the part allows; they still share rows where it is shorter than all of them together. Training windows
        begin anywhere.

        Raises:
            InputFileError: that part has fewer rows.
        """
        part, number = part_of(rng)
        first, end = (round(share * len(self.time_s)) for share in PARTS[part])
        num_starts = end - first - num_jobs + 1
        if num_starts < 1:
            problem = f"holds only {end - first} jobs of the wanted size in its {part} part"
            raise InputFileError(problem, file=self.file, field="num_jobs", value=num_jobs)
        start = int(rng.integers(num_starts)) if number is None else int(num_starts * (number * _GOLDEN % 1.0))
        return slice(first + start, first + start + num_jobs)

    def times_s(self, window: slice) -> NDArray[np.float64]:
        """The window's arrival times as recorded, from zero on."""
        return np.asarray(self.time_s[window] - self.time_s[window.start], np.float64)

    def scaled_times_s(self, window: slice, mean_interarrival_s: float) -> NDArray[np.float64]:
        """The window's arrival times from zero on, stretched to a mean time between arrivals.

        Raises:
            InputFileError: several jobs that all arrive in one second cannot be stretched.
        """
        times = self.times_s(window)
        if len(times) == 1:
            return np.zeros(1)
        if times[-1] == 0:
            raise InputFileError(f"{len(times)} jobs in a row arrive at one time, which no scale can spread", file=self.file)
        return np.asarray(times * (mean_interarrival_s * (len(times) - 1) / times[-1]), np.float64)


def part_of(rng: np.random.Generator) -> tuple[str, int | None]:
    """The part of a trace that a generator draws from, and the number of its test or validation seed, from 0.

    Only a generator made of a single whole number below 1,000 belongs to a test or validation episode; one made of
    several, as of training episodes and of what a policy draws for itself, belongs to neither.
    """
    sequence = rng.bit_generator.seed_seq
    seed = getattr(sequence, "entropy", None)
    if not isinstance(seed, int | np.integer) or getattr(sequence, "spawn_key", None) or seed >= FIRST_TRAINING_SEED:
        return "training", None
    if seed >= FIRST_VALIDATION_SEED:
        return "validation", int(seed) - FIRST_VALIDATION_SEED
    return "test", int(seed)


def load_trace(path: str | Path, *, min_gpus: int = 2, columns: TraceColumns | None = None) -> Trace:
    """Read a trace and keep the jobs with at least ``min_gpus`` GPUs.

    Args:
        path: the file, CSV, or JSON as of Philly's job log.
        min_gpus: GPUs of a job that is kept, at least.
        columns: how the file calls its columns.

    Raises:
        InputFileError: the file is missing, a column is missing, a row is malformed, or no row is kept.
    """
    rows = _philly_jobs(path) if Path(path).suffix == ".json" else _csv_jobs(path, columns or TraceColumns())
    gpus_of: dict[str, float] = {}  # by their text: most rows repeat one of a few
    kept: list[tuple[float, float, float, float]] = []
    for line, row, (timestamp, duration, gpus) in rows:
        num_gpus = gpus_of.get(gpus)
        if num_gpus is None:
            num_gpus = gpus_of[gpus] = _num_gpus(gpus.strip(), path, line)
        if num_gpus >= min_gpus:
            duration_s = _number(duration.strip(), "duration", path, line, unit="s")
            kept.append((_seconds(timestamp.strip(), path, line), duration_s, duration_s * num_gpus, _hash_fraction(row)))
    if not kept:
        raise InputFileError(f"holds no job with at least {min_gpus} GPUs", file=path)
    found = np.array(kept)[np.argsort(np.array(kept)[:, 0], kind="stable")]
    start_s = float(found[0, 0])
    return Trace(start_s, found[:, 0] - start_s, found[:, 1], found[:, 2], found[:, 3], str(path))


_Row = tuple[int | None, list[str], tuple[str, str, str]]
"""Line of a job in its file, its whole text, and its time, duration and GPUs."""


def _csv_jobs(path: str | Path, called: TraceColumns) -> Iterator[_Row]:
    reader = files.read_csv(path)
    header = [name.strip() for name in next(reader, (1, []))[1]]
    names = [getattr(called, column) for column in _COLUMNS]
    for column in names:
        if column not in header:
            raise InputFileError("the column is missing", file=path, line=1, field=column, value=",".join(header))
    wanted = itemgetter(*(header.index(column) for column in names))
    for line, row in reader:
        if len(row) != len(header):
            raise InputFileError(f"has {len(row)} columns, not {len(header)}", file=path, line=line, value=",".join(row))
        yield line, row, wanted(row)


def _philly_jobs(path: str | Path) -> Iterator[_Row]:
    """Jobs of Philly's ``cluster_job_log``: the time of submission, the seconds of all attempts, the GPUs of the last one.

    Jobs of which no attempt began and ended are left out.

    Source:
        The schema that msr-fiddle/philly-traces documents (Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for
        DNN training workloads", 2019).
    """
    jobs = files.read_json(path)
    if not isinstance(jobs, list):
        raise InputFileError("a list of jobs is wanted, as Philly's cluster_job_log has", file=path, value=type(jobs).__name__)
    for number, job in enumerate(jobs):
        try:
            attempts = [one for one in job["attempts"] if _is_time(one["start_time"]) and _is_time(one["end_time"])]
            gpus = sum(len(host["gpus"]) for host in attempts[-1]["detail"]) if attempts else 0
            submitted = job["submitted_time"]
            took_s = sum(_seconds(one["end_time"], path, None) - _seconds(one["start_time"], path, None) for one in attempts)
        except (KeyError, TypeError, AttributeError):
            problem = "wants submitted_time, and attempts with start_time, end_time and detail with gpus"
            raise InputFileError(problem, file=path, field=f"job {number}") from None
        if attempts and gpus:
            yield None, [str(job.get("jobid", number))], (str(submitted), f"{took_s:.3f}", str(gpus))


def _is_time(text: object) -> bool:
    return isinstance(text, str) and text not in ("", "None")


def _num_gpus(text: str, path: str | Path, line: int | None) -> float:
    number = _number(text, "num_gpus", path, line)
    if number > MAX_GPUS:
        raise InputFileError(f"no cluster has more than {MAX_GPUS}", file=path, line=line, field="num_gpus", value=text)
    return number


def _number(text: str, field: str, path: str | Path, line: int | None, unit: str = "") -> float:
    try:
        return quantities.amount(text, unit)
    except ValueError as error:
        raise InputFileError(str(error), file=path, line=line, field=field, value=text) from None


def _seconds(text: str, path: str | Path, line: int | None) -> float:
    """Seconds since 1970 of a date, or since any moment as they stand."""
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):  # the second for a time zone that leads out of the calendar
        problem = "must read YYYY-MM-DD HH:MM:SS, or be seconds"
        raise InputFileError(problem, file=path, line=line, field="timestamp", value=text) from None


def _hash_fraction(row: list[str]) -> float:
    """The top 53 bits of the row's SHA-256, as a fraction: exact in a float, equal on every machine."""
    top = int.from_bytes(hashlib.sha256(",".join(row).encode()).digest()[:8], "big")
    return float((top >> 11) / 2**53)
