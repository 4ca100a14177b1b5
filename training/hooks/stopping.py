"""`StopInTime`: ends a run when its time is over, or when PPO has become level."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

from .callback import RunEnd, RunStart, TrainingCallback, UpdateRecord, ValidationRecord

_LEAST = 9
"""Validations of PPO before it may be called level."""


@dataclass
class StopInTime(TrainingCallback):
    """Stops after CPU minutes of this process, or where the last third of PPO's validations has no better one than those before.

    Args:
        minutes: from the start of the run; a run that is resumed has as many again.
        out: where the reason is printed at the end; standard output by default.
    """

    minutes: float
    out: TextIO | None = None
    _values: list[tuple[int, float]] = field(default_factory=list)
    _reason: str = ""

    def on_start(self, start: RunStart) -> None:
        """See `TrainingCallback`."""
        self._sign, self._unit = 1.0 if start.is_less_better else -1.0, start.unit
        self._until_s = time.process_time() + 60.0 * self.minutes

    def on_update(self, record: UpdateRecord) -> bool | None:
        """See `TrainingCallback`."""
        if time.process_time() < self._until_s:
            return None
        self._reason = f"stopped after {self.minutes:g} CPU minutes"
        return False

    def on_validation(self, record: ValidationRecord) -> bool | None:
        """See `TrainingCallback`."""
        if record.stage == "ppo":
            self._values.append((record.step, self._sign * record.value))
        last = len(self._values) // 3
        if len(self._values) < _LEAST:
            return None
        step, best = min(self._values[:-last], key=lambda each: each[1])
        if min(value for _, value in self._values[-last:]) < best:
            return None
        self._reason = f"level since {step:,} {self._unit}"
        return False

    def on_end(self, end: RunEnd) -> None:
        """See `TrainingCallback`."""
        if end.ending == "stopped" and self._reason:
            out = self.out or sys.stdout
            out.write(self._reason + "\n")
            out.flush()
