"""Jobs as Slurm's accounting lists them: ``sacct --parsable2`` with JobID first, and Submit, Start, End and AllocTRES.

Rows of steps (``12.batch``) are parts of the jobs before them and are left out; so are jobs that never began or have not ended.

Source:
    sacct(1) of Slurm: ``--parsable2``, fields JobID, Submit, Start, End and AllocTRES.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .trace_rows import TraceColumns, TraceRow, csv_rows

COLUMNS = {"timestamp": "Submit", "start": "Start", "end": "End", "num_gpus": "AllocTRES"}

_GPUS = re.compile(r"(?:^|,)gres/gpu(?P<type>:[^=,]+)?=(?P<count>[0-9]+)(?=,|$)")
"""GPUs in a list of resources: all of them, and those of each type."""

_SLICE = re.compile(r"[0-9]g[._-]?[0-9]+gb", re.IGNORECASE)
"""In the type of a MIG slice, which is no GPU."""


def sacct_rows(path: str | Path, called: TraceColumns) -> Iterator[TraceRow]:
    """Jobs in the order of the file; errors as of `csv_rows`."""
    for row in csv_rows(path, called.model_copy(update=COLUMNS), delimiter="|"):
        if "." not in row.text[0]:
            yield row._replace(num_gpus=str(_num_gpus(row.num_gpus)))


def _num_gpus(resources: str) -> int:
    """Whole GPUs: all less slices where all are counted, else those of each type."""
    found = [(one["type"] or "", int(one["count"])) for one in _GPUS.finditer(resources)]
    slices = sum(count for kind, count in found if _SLICE.search(kind))
    every = sum(count for kind, count in found if not kind)
    return max(0, every - slices) if every else sum(count for _, count in found) - slices
