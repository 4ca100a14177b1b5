"""Write a run for TensorBoard."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.logger import KVWriter


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
