"""Validations as scalars for TensorBoard, of the methods that have no event files of their own."""

from __future__ import annotations

from .callback import RunEnd, RunStart, TrainingCallback, ValidationRecord
from .tensorboard import TensorBoardWriter


class ScalarWriter(TrainingCallback):
    """Writes ``validation/MEASURE``, ``best/MEASURE`` and the figures of the method into ``tensorboard/`` of the run folder."""

    def __init__(self) -> None:
        self._writer: TensorBoardWriter | None = None

    def on_start(self, start: RunStart) -> None:
        """See `TrainingCallback.on_start`."""
        first = None if not start.is_resumed else start.step + 1 if start.num_validations else 0
        self._writer = TensorBoardWriter(start.folder / "tensorboard", first)

    def on_validation(self, record: ValidationRecord) -> None:
        """See `TrainingCallback.on_validation`."""
        assert self._writer is not None
        own = {f"validation/{record.measure}": record.value, f"best/{record.measure}": record.best}
        self._writer.write({**record.figures, **own}, {}, record.step)
        self._writer.flush()

    def on_end(self, end: RunEnd) -> None:
        """See `TrainingCallback.on_end`."""
        if self._writer is not None:
            self._writer.close()
