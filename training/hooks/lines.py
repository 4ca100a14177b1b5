"""A line for each validation, for a run without a terminal."""

from __future__ import annotations

import sys
from typing import TextIO

from .callback import RunEnd, RunStart, TrainingCallback, ValidationRecord


class LineWriter(TrainingCallback):
    """Prints a line for each validation, at most 80 columns wide, and one where a run goes on or does not reach its end.

    Args:
        out: where; standard output as it is then by default.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out

    def on_start(self, start: RunStart) -> None:
        """See `TrainingCallback.on_start`."""
        if start.is_resumed and start.step:
            self._print(f"{start.name} goes on after {start.step:,} of {start.total_steps:,} {start.unit}")

    def on_validation(self, record: ValidationRecord) -> None:
        """See `TrainingCallback.on_validation`."""
        self._print(line(record))

    def on_end(self, end: RunEnd) -> None:
        """See `TrainingCallback.on_end`."""
        if end.ending != "done":
            self._print(f"{end.ending} after {end.step:,} steps")

    def _print(self, text: str) -> None:
        out = self._out or sys.stdout
        out.write(text + "\n")
        out.flush()


def line(record: ValidationRecord) -> str:
    """A validation in one line: share that is done, steps, the measure, the best so far and the time."""
    share = 100 * record.step / max(1, record.total_steps)
    measure = record.measure.replace("_", " ")
    width = len(f"{record.total_steps:,}")
    best = "best so far" if record.is_best else f"best {record.best:.4g}"
    return (
        f"{share:3.0f} %  {record.step:>{width},} {record.unit}  {measure} {record.value:<9.4g} {best:<15} "
        f"{_clock(record.elapsed_s)}"
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
