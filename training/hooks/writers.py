"""Writers of a learning curve by name: those of Stable-Baselines3's logger, and lines for standard output."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from stable_baselines3.common.logger import CSVOutputFormat

from .callback import RunEnd, RunStart, TrainingCallback, ValidationRecord
from .lines import LineWriter
from .tensorboard import TensorBoardWriter

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
    """The writers of these names (see `names.NAMES`); the method ``ppo`` writes event files with more in them by itself."""
    kinds = {"stdout": LineWriter, "csv": CsvWriter, "tensorboard": ScalarWriter}
    return [kinds[name]() for name in dict.fromkeys(names) if (name, method) != ("tensorboard", "ppo")]
