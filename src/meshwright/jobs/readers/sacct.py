"""Jobs as Slurm's accounting lists them: ``sacct --parsable2`` with Submit, Start, End and AllocTRES among its columns.

Rows of steps (``12.batch``) are parts of the jobs before them and are left out; so are jobs that never began or have not ended.

Source:
    sacct(1) of Slurm: ``--parsable2``, fields JobID, Submit, Start, End and AllocTRES.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ... import files
from ...errors import InputFileError
from .trace_rows import TraceColumns, TraceRow, is_absent, seconds

TIMES = ("Submit", "Start", "End")
ALLOCATED = ("AllocTRES", "AllocGRES")
"""Columns of what a job had; the second is that of Slurm before 21."""

_GPUS = re.compile(r"(?:^|,)(?:gres/)?gpu(?P<type>:[^=:,]+)?[=:](?P<count>[0-9]+)(?=,|$)")
"""GPUs in a list of resources: all of them, and those of each type."""

_SLICE = re.compile(r"[0-9]g[._-]?[0-9]+gb", re.IGNORECASE)
"""In the type of a MIG slice, which is no GPU."""


def is_listing(first_line: str) -> bool:
    """Whether a file begins as what ``sacct`` prints."""
    return "|" in first_line and "JobID" in first_line.split("|")


def sacct_rows(path: str | Path, called: TraceColumns) -> Iterator[TraceRow]:
    """Jobs in the order of the file.

    Raises:
        InputFileError: a column is missing, a row has more or fewer than the header, or a job ends before it begins.
    """
    lines = files.read_text(path).splitlines()
    header = (lines or [""])[0].split("|")
    had = next((name for name in ALLOCATED if name in header), ALLOCATED[0])
    model = [] if called.model is None else [called.model]
    for name in ("JobID", *TIMES, had, *model):
        if name not in header:
            problem = "the column is missing; sacct --parsable2 --allusers --format=JobID,Submit,Start,End,AllocTRES has it"
            raise InputFileError(problem, file=path, line=1, field=name, value=lines[0] if lines else "")
    for number, line in enumerate(lines[1:], start=2):
        row = line.split("|")
        if not line:
            continue
        if len(row) != len(header):
            raise InputFileError(f"has {len(row)} columns, not {len(header)}", file=path, line=number, value=line)
        cells = dict(zip(header, row, strict=True))
        if "." in cells["JobID"] or any(is_absent(cells[name]) or cells[name] == "Unknown" for name in TIMES):
            continue
        began_s, ended_s = (seconds(cells[name], path, number, name) for name in TIMES[1:])
        if ended_s < began_s:
            raise InputFileError("a job ends before it begins", file=path, line=number, field="End", value=cells["End"])
        duration, ran = f"{ended_s - began_s:.3f}", cells[called.model] if called.model else ""
        yield TraceRow(number, row, cells["Submit"], duration, str(_num_gpus(cells[had])), model=ran)


def _num_gpus(resources: str) -> int:
    """Whole GPUs: all less slices where all are counted, else those of each type."""
    every, whole, slices = 0, 0, 0
    for one in _GPUS.finditer(resources):
        kind, count = one["type"], int(one["count"])
        every += 0 if kind else count
        whole += count if kind and not _SLICE.search(kind) else 0
        slices += count if kind and _SLICE.search(kind) else 0
    return max(0, every - slices) if every else whole
