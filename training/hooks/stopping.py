"""`StopInTime`: ends a run when its time is over, or when validations of PPO no longer improve."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from .callback import RunStart, StageRecord, TrainingCallback, UpdateRecord, ValidationRecord

_LEAST = 9
"""Validations of PPO before the run may end for want of a better one."""


@dataclass
class StopInTime(TrainingCallback):
    """Stops after CPU minutes of this process, or where the last third of PPO's validations has no better one than those before.

    Args:
        minutes: from the start of the run; a run that is resumed has as many again.

    Attributes:
        reason: why it has stopped the run; empty before.
    """

    minutes: float
    reason: str = ""
    _values: list[tuple[int, float]] = field(default_factory=list)

    def on_start(self, start: RunStart) -> None:
        """See `TrainingCallback`."""
        self._sign, self._unit = 1.0 if start.is_less_better else -1.0, start.unit
        self._until_s = time.process_time() + 60.0 * self.minutes

    def on_stage(self, record: StageRecord) -> bool | None:
        """See `TrainingCallback`."""
        return self._in_time()

    def on_update(self, record: UpdateRecord) -> bool | None:
        """See `TrainingCallback`."""
        return self._in_time()

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
        self.reason = f"no better validation since {step:,} {self._unit}"
        return False

    def _in_time(self) -> bool:
        is_over = time.process_time() >= self._until_s
        if is_over:
            self.reason = f"its {self.minutes:g} CPU minutes are over"
        return not is_over
