"""A line for each validation and for parts of the stages before, for a run without a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from .callback import RunEnd, RunStart, StageRecord, TrainingCallback, ValidationRecord

STEPS = 10
"""Lines that a stage without validations of its own prints."""


class LineWriter(TrainingCallback):
    """Prints a line for each validation, at most 80 columns wide, and one where a run is resumed or does not reach its end.

    A stage before the first update has a line for each value that it has validated, and for each tenth of it that is done.

    Args:
        out: where; standard output as it is then by default.
        to_beat: returns the best rule and its value, printed after each validation, which makes lines longer.
    """

    def __init__(self, out: TextIO | None = None, to_beat: Callable[[], str] | None = None) -> None:
        self._out, self._to_beat = out, to_beat
        self._stage, self._tenth = "", 0

    def on_start(self, start: RunStart) -> None:
        """See `TrainingCallback.on_start`."""
        if start.is_resumed and start.step:
            self._print(f"{start.name} is resumed after {start.step:,} of {start.total_steps:,} {start.unit}")

    def on_stage(self, record: StageRecord) -> None:
        """See `TrainingCallback.on_stage`."""
        if record.stage != self._stage:
            self._stage, self._tenth = record.stage, 0
        tenth = int(STEPS * record.share)
        if record.value is not None or tenth > self._tenth:
            self._tenth = tenth
            self._print(stage_line(record) + ("" if record.value is None else self._beaten()))

    def on_validation(self, record: ValidationRecord) -> None:
        """See `TrainingCallback.on_validation`."""
        self._print(line(record) + self._beaten())

    def on_end(self, end: RunEnd) -> None:
        """See `TrainingCallback.on_end`."""
        if end.ending != "done":
            self._print(f"{end.ending} after {end.step:,} steps" + (f": {end.reason}" if end.reason else ""))

    def _beaten(self) -> str:
        return "" if self._to_beat is None else f"  (to beat: {self._to_beat()})"

    def _print(self, text: str) -> None:
        out = self._out or sys.stdout
        out.write(text + "\n")
        out.flush()


def line(record: ValidationRecord) -> str:
    """Return a validation in one line: share that is done, steps, the measure, the best so far and the time."""
    share = 100 * record.step / max(1, record.total_steps)
    measure = record.measure.replace("_", " ")
    width = len(f"{record.total_steps:,}")
    best = "best so far" if record.is_best else f"best {record.best:.4g}"
    return (
        f"{share:3.0f} %  {record.step:>{width},} {record.unit}  {measure} {record.value:<9.4g} {best:<15} "
        f"{_clock(record.elapsed_s)}"
    )


def stage_line(record: StageRecord) -> str:
    """Return a part of a stage in one line: its name, the share that is done, what was found and the time."""
    result = ""
    if record.value is not None:
        is_best = record.best is None or record.best == record.value
        best = "best so far" if is_best else f"best {record.best:.4g}"
        result = f"{record.measure.replace('_', ' ')} {record.value:<9.4g} {best:<15} "
    return f"{100 * record.share:3.0f} %  of the {record.stage}  {result}{_clock(record.elapsed_s)}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
