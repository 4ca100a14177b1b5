"""``log.csv``: a row for each validation, for spreadsheets and data frames.

The file is written anew with each row, whole or not at all: a run that is killed leaves whole rows, and one that goes on drops
those that it will write again.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from ... import files
from .callback import RunStart, TrainingCallback, ValidationRecord

FILE = "log.csv"
COLUMNS = ("number", "stage", "step", "unit", "measure", "value", "best", "is_best", "elapsed_s")


class CsvWriter(TrainingCallback):
    """Writes `FILE` into the run folder; columns after `COLUMNS` are the figures of the method."""

    def __init__(self) -> None:
        self._path = Path(FILE)
        self._rows: list[dict[str, str]] = []

    def on_start(self, start: RunStart) -> None:
        """See `TrainingCallback.on_start`."""
        self._path = start.folder / FILE
        if start.is_resumed and self._path.is_file():
            held = csv.DictReader(io.StringIO(files.read_text(self._path)))
            self._rows = [
                row for row in held if (row.get("number") or "").isdigit() and int(row["number"]) < start.num_validations
            ]

    def on_validation(self, record: ValidationRecord) -> None:
        """See `TrainingCallback.on_validation`."""
        told = {name: getattr(record, name) for name in COLUMNS} | dict(record.figures)
        self._rows.append({name: repr(value) if isinstance(value, float) else str(value) for name, value in told.items()})
        names = dict.fromkeys([*COLUMNS, *(name for row in self._rows for name in row)])
        text = io.StringIO()
        writer = csv.DictWriter(text, [*names], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._rows)
        files.write_text(self._path, text.getvalue())
