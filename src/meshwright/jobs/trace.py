"""Jobs of a recorded cluster trace: the time, duration and number of GPUs of each job.

The formats are a CSV with columns of any names, Philly's job log, the tables of Alibaba's PAI and what Slurm's ``sacct`` lists
(`FORMATS`). The rows need not be sorted.

Where a trace is split, test, validation and training episodes take their jobs from three parts that share no row (`PARTS`). The
training part comes first in time. The seed of a generator decides its part, as everywhere in this project: below 100 test, below
1,000 validation, all others training.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from .. import files, quantities
from ..errors import InputFileError
from ..settings import Settings
from .job import MAX_STEPS
from .readers.pai import TASKS, pai_rows
from .readers.trace_rows import (
    FIRST_SINCE_1970_S,
    NAMES,
    OF_SACCT,
    OPTIONAL,
    SPAN,
    TraceColumns,
    TraceRow,
    csv_rows,
    number,
    philly_rows,
    sacct_rows,
    seconds,
)
from .seeds import FIRST_TRAINING_SEED, FIRST_VALIDATION_SEED

# Where each part of a trace begins and ends, as shares of its rows.
PARTS = {"training": (0.0, 0.4), "validation": (0.4, 0.65), "test": (0.65, 1.0)}
# Multiples of it, less their whole parts, lie apart from each other however many there are.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0

MAX_GPUS = 100_000
"""Of one job."""


FORMATS: dict[str, tuple[Callable[[str | Path, TraceColumns], Iterator[TraceRow]], tuple[str, ...]]] = {
    "csv": (csv_rows, (*NAMES, *OPTIONAL, *SPAN)),
    "philly": (lambda path, _: philly_rows(path), ()),
    "pai": (pai_rows, ("model",)),
    "sacct": (sacct_rows, ("model",)),
}
"""Reader of each form of trace, and the fields of `TraceColumns` that it accepts."""


class TraceArrivals(Settings):
    """Jobs as a trace recorded them; with an offered load, their time is scaled to it.

    An episode is a run of consecutive rows (see `Trace.window`). Its time is scaled so that the work that arrives, per second and
    device of ``num_devices``, is ``offered_load``. Without these keys, jobs keep their recorded times. Without a ``file`` the
    user has to name one; ``source`` says where to find it.

    Attributes:
        split: whether test, validation and training episodes take their jobs from parts of the trace that share no row. None
            means yes, unless only rules are evaluated, since rules need no training.
        format: of the file; by default the file's name decides.
        columns: names of the columns in the file.
        models: graph of the workload for each model of the trace, where their names differ.
    """

    kind: Literal["trace"]
    file: str | None = None
    source: str | None = None
    offered_load: float | None = Field(default=None, gt=0)
    num_devices: int | None = Field(default=None, gt=0)
    min_gpus: int = Field(default=2, gt=0)
    # Left out of dumps where episodes are those of a trace that is split, so that no digest of such workloads changes.
    split: bool | None = Field(default=None, exclude_if=lambda split: split is not False)
    format: Literal["csv", "philly", "pai", "sacct"] | None = Field(default=None, exclude_if=lambda form: form is None)
    columns: TraceColumns | None = Field(default=None, exclude_if=lambda columns: columns is None)
    models: dict[str, str] | None = Field(default=None, exclude_if=lambda models: models is None)

    @model_validator(mode="after")
    def _is_scaled_by_both(self) -> Self:
        if (self.offered_load is None) != (self.num_devices is None):
            raise ValueError("offered_load and num_devices scale the time together; leave both out for the times as recorded")
        return self

    @model_validator(mode="after")
    def _has_models_to_map(self) -> Self:
        if self.models is not None and (self.columns is None or self.columns.model is None):
            raise ValueError("models: columns.model says which column of the trace holds them; it is missing")
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
        requested_gpus: GPUs that its user asked for, ``(rows,)``.
        model: what each job trained, empty where the trace does not say, ``(rows,)``; None without such a column.
        num_steps: that it made, 0 where the trace does not say, ``(rows,)``; None without such a column.
        deadline_s: from its submission, infinite where the trace does not say, ``(rows,)``; None without such a column.
        line: in the file, the header being 1, and 0 where it has no lines of jobs, ``(rows,)``.
        min_gpus: GPUs of each job, at least.
        num_smaller: rows that were left out as they have fewer.
        is_split: whether episodes take their jobs from parts.
    """

    start_s: float
    time_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    work_s: NDArray[np.float64]
    hash_fraction: NDArray[np.float64]
    file: str
    requested_gpus: NDArray[np.int64] | None = None
    model: tuple[str, ...] | None = None
    num_steps: NDArray[np.int64] | None = None
    deadline_s: NDArray[np.float64] | None = None
    line: NDArray[np.int64] | None = None
    min_gpus: int = 1
    num_smaller: int = 0
    is_split: bool = True

    def window(self, rng: np.random.Generator, num_jobs: int) -> slice:
        """Return consecutive rows within the part of the trace that the generator's seed selects, or of all where it is not
        split.

        The seed alone decides where test and validation windows begin, so that windows of different seeds lie as far apart as the
        part allows. They share no rows if the part is 2.3 times as long as all of them together. Training windows begin anywhere.

        Raises:
            InputFileError: that part has fewer rows.
        """
        part, number = part_of(rng)
        shares = PARTS[part] if self.is_split else (0.0, 1.0)
        first, end = (round(share * len(self.time_s)) for share in shares)
        num_starts = end - first - num_jobs + 1
        if num_starts < 1:
            raise InputFileError(self._too_short(part, end - first, num_jobs), file=self.file)
        start = int(rng.integers(num_starts)) if number is None else int(num_starts * (number * _GOLDEN % 1.0))
        return slice(first + start, first + start + num_jobs)

    def _too_short(self, part: str, count: int, num_jobs: int) -> str:
        """Say that a part has too few rows for an episode, by which rule, and the remedy."""
        where = {"training": "first", "validation": "middle", "test": "last"}[part]
        rows = f"jobs of {self.min_gpus} GPUs and more"
        said = f"the trace ({rows})"
        if self.is_split:
            low, high = PARTS[part]
            said = f"the {part} split ({where} {100 * (high - low):.0f} % of rows, {rows})"
        problem = f"{said} has {count} jobs; the benchmark needs {num_jobs}. Lower num_jobs or min_gpus."
        return problem + (" Where nothing is trained, arrivals.split: false takes all rows." if self.is_split else "")

    def times_s(self, window: slice) -> NDArray[np.float64]:
        """Return the window's arrival times as recorded, from zero on."""
        return np.asarray(self.time_s[window] - self.time_s[window.start], np.float64)

    def scaled_times_s(self, window: slice, mean_interarrival_s: float) -> NDArray[np.float64]:
        """Return the window's arrival times from zero on, stretched to a mean time between arrivals.

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
    """Return the part of a trace that a generator draws from, and the number of its test or validation seed, from 0.

    Only a generator seeded by a single whole number below 1,000 belongs to a test or validation episode. Training episodes and
    draws of a policy are seeded by several numbers and belong to neither.
    """
    sequence = rng.bit_generator.seed_seq
    seed = getattr(sequence, "entropy", None)
    if not isinstance(seed, int | np.integer) or getattr(sequence, "spawn_key", None) or seed >= FIRST_TRAINING_SEED:
        return "training", None
    if seed >= FIRST_VALIDATION_SEED:
        return "validation", int(seed) - FIRST_VALIDATION_SEED
    return "test", int(seed)


def load_trace(path: str | Path, *, min_gpus: int = 2, form: str | None = None, columns: TraceColumns | None = None) -> Trace:
    """Read a trace and keep the jobs with at least ``min_gpus`` GPUs.

    Args:
        path: the file.
        min_gpus: GPUs of a job that is kept, at least.
        form: one of `FORMATS`; by default the file's name decides.
        columns: names of the columns in the file.

    Raises:
        InputFileError: the file is missing, a column is missing, a row is malformed, or no row is kept.
    """
    called = columns or TraceColumns()
    rows, said = FORMATS[form or _form(Path(path))]
    for field in called.model_fields_set - set(said):
        problem = "a trace of this format has its columns by name" + (f"; only {', '.join(said)} may be said" if said else "")
        raise InputFileError(problem, file=path, field=f"columns.{field}", value=getattr(called, field))
    gpus_of: dict[str, float] = {}  # by their text: most rows repeat one of a few
    kept_rows: list[tuple[float, float, float, float]] = []
    more: list[tuple[int, str, int, float, int]] = []
    since_1970: bool | None = None
    num_smaller = 0
    for row in rows(path, called):
        num_gpus = gpus_of.get(row.num_gpus)
        if num_gpus is None:
            num_gpus = gpus_of[row.num_gpus] = _num_gpus(row.num_gpus, "num_gpus", path, row.line)
        if num_gpus < min_gpus:
            num_smaller += 1
            continue
        duration_s = number(row.duration.strip(), "duration", path, row.line, unit="s")
        at_s = seconds(row.timestamp.strip(), path, row.line)
        if since_1970 not in (None, at_s >= FIRST_SINCE_1970_S):
            problem = "dates and seconds from the trace's beginning are mixed"
            raise InputFileError(problem, file=path, line=row.line, field="timestamp", value=row.timestamp.strip())
        since_1970 = at_s >= FIRST_SINCE_1970_S
        kept_rows.append((at_s, duration_s, duration_s * num_gpus, _hash_fraction(row.text)))
        more.append((*_optional(row, num_gpus, at_s, path), row.line or 0))
    if not kept_rows:
        raise InputFileError(f"holds no job of {min_gpus} GPUs and more. Lower min_gpus.", file=path)
    order = np.argsort(np.array(kept_rows)[:, 0], kind="stable")
    result = np.array(kept_rows)[order]
    requested, model, num_steps, deadline_s, line = zip(*(more[row] for row in order), strict=True)
    return Trace(
        start_s=float(result[0, 0]),
        time_s=result[:, 0] - result[0, 0],
        duration_s=result[:, 1],
        work_s=result[:, 2],
        hash_fraction=result[:, 3],
        file=str(path),
        requested_gpus=np.array(requested, np.int64),
        model=None if called.model is None else model,
        num_steps=None if called.steps is None else np.array(num_steps, np.int64),
        deadline_s=None if called.deadline is None else np.array(deadline_s, np.float64),
        line=np.array(line, np.int64),
        min_gpus=min_gpus,
        num_smaller=num_smaller,
    )


def _form(path: Path) -> str:
    if path.suffix == ".json" or path.name == "cluster_job_log":
        return "philly"
    if path.name == TASKS:
        return "pai"
    # A listing that lacks a column of them is one too, so that its error names the column.
    return "sacct" if len({*OF_SACCT.values()} & {*files.first_line(path).split("|")}) > 2 else "csv"


def _optional(row: TraceRow, num_gpus: float, at_s: float, path: str | Path) -> tuple[int, str, int, float]:
    """Return requested GPUs, model, steps, seconds to the deadline and GPUs it ran on; "", 0 and infinity where unsaid."""
    requested = _num_gpus(row.requested_gpus, "requested_gpus", path, row.line) if row.requested_gpus.strip() else num_gpus
    num_steps = _steps(row.steps.strip(), path, row.line) if row.steps.strip() else 0
    return math.ceil(requested), row.model.strip(), num_steps, _allowed_s(row.deadline.strip(), at_s, path, row.line)


def _allowed_s(text: str, at_s: float, path: str | Path, line: int | None) -> float:
    """Return the seconds from a submission to a deadline, which is a date or says them itself."""
    if not text:
        return math.inf
    try:
        allowed_s = float(text)
    except ValueError:
        allowed_s = seconds(text, path, line, "deadline") - at_s
    if not allowed_s > 0 or quantities.problem("deadline_s", allowed_s):
        problem = "must be a date after the submission, or seconds from it"
        raise InputFileError(problem, file=path, line=line, field="deadline", value=text)
    return allowed_s


def _steps(text: str, path: str | Path, line: int | None) -> int:
    result = number(text, "steps", path, line)
    if not 1 <= result <= MAX_STEPS or result != int(result):
        problem = f"must be a whole number from 1 to {MAX_STEPS}"
        raise InputFileError(problem, file=path, line=line, field="steps", value=text)
    return int(result)


def _num_gpus(text: str, field: str, path: str | Path, line: int | None) -> float:
    result = number(text.strip(), field, path, line)
    if result > MAX_GPUS:
        raise InputFileError(f"no cluster has more than {MAX_GPUS}", file=path, line=line, field=field, value=text)
    return result


def _hash_fraction(row: list[str]) -> float:
    """Return the top 53 bits of the row's SHA-256, as a fraction: exact in a float, equal on every machine."""
    top = int.from_bytes(hashlib.sha256(",".join(row).encode()).digest()[:8], "big")
    return float((top >> 11) / 2**53)
