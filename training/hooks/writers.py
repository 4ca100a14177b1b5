"""Writers of a learning curve by name: those of Stable-Baselines3's logger, and lines for standard output."""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.logger import CSVOutputFormat, KVWriter

from .callback import RunEnd, RunStart, TrainingCallback, ValidationRecord
from .lines import LineWriter


class TensorBoardWriter(KVWriter):
    """Scalars for TensorBoard.

    Args:
        folder: of the event files; None: nothing is written.
        first_step: of a resumed run; what a killed one wrote from this step on is dropped from the display.
    """

    def __init__(self, folder: Path | None, first_step: int | None) -> None:
        self._writer: Any = None
        if folder is None:
            return
        from torch.utils.tensorboard.writer import SummaryWriter

        if first_step is not None:
            _await_next_second(folder)
        self._writer = SummaryWriter(str(folder), purge_step=first_step)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Add numbers under their names."""
        for key, value in () if self._writer is None else sorted(key_values.items()):
            if isinstance(value, int | float | np.floating | np.integer):
                self._writer.add_scalar(key, float(value), step)

    def flush(self) -> None:
        """Write to disk what was added."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Close the files."""
        if self._writer is not None:
            self._writer.close()


def _await_next_second(folder: Path) -> None:
    """Wait until an event file that is made now sorts behind those that are there.

    TensorBoard reads them in the order of their names, which begin with the second of their making. A run that is resumed within
    the second of its start would be read backwards.
    """
    made_s = [int(path.name.split(".")[3]) for path in folder.glob("events.out.tfevents.*")]
    while made_s and int(time.time()) == max(made_s):
        time.sleep(0.05)


COLUMNS = ("number", "stage", "step", "unit", "measure", "value", "best", "is_best", "elapsed_s")


class CsvWriter(TrainingCallback):
    """Writes ``log.csv`` into the run folder, a row for each validation: `COLUMNS` and the figures of the method."""

    def on_start(self, start: RunStart) -> None:
        """See `TrainingCallback.on_start`; a resumed run keeps the rows of its validations so far."""
        path, held = start.folder / "log.csv", list[dict[str, str]]()
        if start.is_resumed and path.is_file():
            with path.open(newline="") as file:
                held = [row for row in csv.DictReader(file) if (row.get("number") or "").isdigit()]
        self._out = CSVOutputFormat(str(path))
        for row in held:
            if int(row["number"]) < start.num_validations:
                self._out.write(dict(row), {})

    def on_validation(self, record: ValidationRecord) -> None:
        """See `TrainingCallback.on_validation`."""
        self._out.write({name: getattr(record, name) for name in COLUMNS} | dict(record.figures), {})

    def on_end(self, end: RunEnd) -> None:
        """See `TrainingCallback.on_end`."""
        self._out.close()


class ScalarWriter(TrainingCallback):
    """Writes ``validation/MEASURE``, ``best/MEASURE`` and the figures of the method into ``tensorboard/`` of the run folder."""

    def on_start(self, start: RunStart) -> None:
        """See `TrainingCallback.on_start`."""
        first = None if not start.is_resumed else start.step + 1 if start.num_validations else 0
        self._out = TensorBoardWriter(start.folder / "tensorboard", first)

    def on_validation(self, record: ValidationRecord) -> None:
        """See `TrainingCallback.on_validation`."""
        own = {f"validation/{record.measure}": record.value, f"best/{record.measure}": record.best}
        self._out.write({**record.figures, **own}, {}, record.step)
        self._out.flush()

    def on_end(self, end: RunEnd) -> None:
        """See `TrainingCallback.on_end`."""
        self._out.close()


def writers(names: Sequence[str], method: str) -> list[TrainingCallback]:
    """Return writers of these names (see `names.NAMES`); the method ``ppo`` writes event files with more in them itself."""
    kinds = {"stdout": LineWriter, "csv": CsvWriter, "tensorboard": ScalarWriter}
    return [kinds[name]() for name in dict.fromkeys(names) if (name, method) != ("tensorboard", "ppo")]
